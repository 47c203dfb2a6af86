// SPDX-License-Identifier: Apache-2.0
//! What replicas wrote to their standard streams, by model: the last lines, and new ones as they come.
//!
//! Owns the bounds: lines, bytes and followers that lag. Text is clean and without secrets before it comes in here.
//! Each model has one lock, held for a push or a copy of lines only; it orders `recent_and_follow` against pushes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use sluice_core::{ModelName, ReplicaId};
use tokio::sync::broadcast;

/// Lines kept per model.
const LINES: usize = 2_000;

/// Bytes of text kept per model.
const BYTES: usize = 1024 * 1024;

/// Lines that a follower may lag behind before it loses some.
const LAG: usize = 512;

/// One line that a replica wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// When it was read, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// Who wrote it.
    pub replica: ReplicaId,
    /// Where to.
    pub stream: Stream,
    /// Without its line end, control characters and secrets.
    pub text: Arc<str>,
}

/// A standard stream of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// The lines of all models.
#[derive(Default)]
pub struct LogBook {
    models: Mutex<BTreeMap<ModelName, Arc<ModelLog>>>,
}

impl LogBook {
    /// The last `n` lines of a model, oldest first; none if it never wrote.
    pub fn tail(&self, model: &ModelName, n: usize) -> Vec<LogLine> {
        let log = lock(&self.models).get(model).cloned();
        log.map(|log| lock(&log.ring).last(n)).unwrap_or_default()
    }

    /// New lines of a model as they come. The caller has checked that the model exists.
    pub fn follow(&self, model: &ModelName) -> broadcast::Receiver<LogLine> {
        self.of(model).live.subscribe()
    }

    /// The last `n` lines and all that follow them, none lost and none twice.
    pub fn tail_and_follow(
        &self,
        model: &ModelName,
        n: usize,
    ) -> (Vec<LogLine>, broadcast::Receiver<LogLine>) {
        let log = self.of(model);
        let ring = lock(&log.ring);
        (ring.last(n), log.live.subscribe())
    }

    /// Forgets models that are not among `known`.
    pub(crate) fn retain(&self, known: impl Fn(&ModelName) -> bool) {
        lock(&self.models).retain(|model, _| known(model));
    }

    pub(crate) fn of(&self, model: &ModelName) -> Arc<ModelLog> {
        lock(&self.models).entry(model.clone()).or_default().clone()
    }
}

/// The lines of one model.
pub(crate) struct ModelLog {
    ring: Mutex<Ring>,
    live: broadcast::Sender<LogLine>,
}

impl Default for ModelLog {
    fn default() -> Self {
        ModelLog { ring: Mutex::default(), live: broadcast::Sender::new(LAG) }
    }
}

impl ModelLog {
    pub(crate) fn push(&self, replica: ReplicaId, stream: Stream, text: Arc<str>) {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_unix_ms = u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX);
        let line = LogLine { at_unix_ms, replica, stream, text };
        let mut ring = lock(&self.ring);
        ring.push(line.clone());
        // Nobody following is the ordinary case.
        let _ = self.live.send(line);
    }
}

#[derive(Default)]
struct Ring {
    lines: VecDeque<LogLine>,
    bytes: usize,
}

impl Ring {
    fn push(&mut self, line: LogLine) {
        self.bytes += line.text.len();
        self.lines.push_back(line);
        while self.lines.len() > LINES || self.bytes > BYTES {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.bytes -= oldest.text.len();
        }
    }

    fn last(&self, n: usize) -> Vec<LogLine> {
        self.lines.iter().skip(self.lines.len().saturating_sub(n)).cloned().collect()
    }
}

/// A panic elsewhere must not take the logs away.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn texts(lines: &[LogLine]) -> Vec<&str> {
        lines.iter().map(|line| &*line.text).collect()
    }

    #[test]
    fn keeps_the_last_lines_within_both_bounds() {
        let book = LogBook::default();
        let model = ModelName::from("m");
        let log = book.of(&model);
        for i in 0..LINES + 5 {
            log.push(ReplicaId(1), Stream::Stdout, i.to_string().into());
        }
        assert_eq!(book.tail(&model, usize::MAX).len(), LINES);
        assert_eq!(texts(&book.tail(&model, 2)), ["2003", "2004"]);
        log.push(ReplicaId(1), Stream::Stderr, "x".repeat(BYTES).into());
        assert_eq!(book.tail(&model, usize::MAX).len(), 1);
    }

    #[test]
    fn a_follower_sees_each_later_line_once() {
        let book = LogBook::default();
        let model = ModelName::from("m");
        let log = book.of(&model);
        log.push(ReplicaId(1), Stream::Stdout, "one".into());
        let (before, mut after) = book.tail_and_follow(&model, 10);
        log.push(ReplicaId(1), Stream::Stderr, "two".into());
        assert_eq!(texts(&before), ["one"]);
        assert_eq!(&*after.try_recv().unwrap().text, "two");
        assert!(after.try_recv().is_err());
    }

    #[test]
    fn a_model_that_is_gone_is_forgotten() {
        let book = LogBook::default();
        book.of(&"a".into()).push(ReplicaId(1), Stream::Stdout, "x".into());
        book.of(&"b".into()).push(ReplicaId(2), Stream::Stdout, "y".into());
        book.retain(|model| model.as_str() == "b");
        assert!(book.tail(&"a".into(), 1).is_empty());
        assert_eq!(book.tail(&"b".into(), 1).len(), 1);
    }
}
