// SPDX-License-Identifier: Apache-2.0
//! Reads what a replica writes, line by line, so that it never blocks on a full pipe.
//!
//! Owns the cut of long lines and the last lines kept for the error message. Must not know processes.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sluice_core::{ModelName, ReplicaId};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;

use crate::logs::{LogBook, ModelLog, Stream};
use crate::text::{Redactor, join_last};

/// Bytes of a line that are kept; the rest up to its end is dropped.
const LINE_BYTES: usize = 16 * 1024;

/// Lines of each stream kept per replica for the error message.
const TAIL_LINES: usize = 20;

/// Bytes of the last lines in an error message.
const CAUSE_BYTES: usize = 400;

/// How long the end of the streams is awaited after the last process of the group is gone.
const END_WAIT: Duration = Duration::from_millis(250);

/// The output of one replica.
pub(super) struct Output {
    replica: ReplicaId,
    log: Arc<ModelLog>,
    redactor: Redactor,
    tails: [Mutex<VecDeque<Arc<str>>>; 2],
}

impl Output {
    pub(super) fn new(
        replica: ReplicaId,
        model: &ModelName,
        book: &LogBook,
        redactor: Redactor,
    ) -> Arc<Self> {
        Arc::new(Output { replica, log: book.of(model), redactor, tails: Default::default() })
    }

    /// Reads both streams until their ends, or until the reader is told to finish.
    pub(super) fn read(self: &Arc<Self>, stdout: OwnedFd, stderr: OwnedFd) -> Readers {
        let streams = [(Stream::Stdout, stdout), (Stream::Stderr, stderr)];
        Readers(streams.map(|(stream, pipe)| tokio::spawn(self.clone().read_stream(stream, pipe))))
    }

    async fn read_stream(self: Arc<Self>, stream: Stream, pipe: OwnedFd) {
        let mut pipe = match pipe::Receiver::from_owned_fd(pipe) {
            Ok(pipe) => pipe,
            Err(error) => {
                tracing::warn!(replica = %self.replica, %error, "replica_output_lost");
                return;
            }
        };
        let mut lines = Lines::default();
        let mut buffer = vec![0; 8 * 1024];
        while let Ok(read @ 1..) = pipe.read(&mut buffer).await {
            lines.feed(&buffer[..read], |line, cut| self.line(stream, line, cut));
        }
        lines.end(|line, cut| self.line(stream, line, cut));
    }

    fn line(&self, stream: Stream, raw: &[u8], cut: bool) {
        let text: Arc<str> = self.redactor.clean(raw, cut).into();
        self.log.push(self.replica, stream, text.clone());
        let mut tail = self.tail(stream);
        tail.push_back(text);
        if tail.len() > TAIL_LINES {
            tail.pop_front();
        }
    }

    /// The last lines of standard error, or of standard output if there are none, in one line; may be empty.
    pub(super) fn last_words(&self) -> String {
        [Stream::Stderr, Stream::Stdout]
            .map(|stream| join_last(self.tail(stream).iter().map(|line| &**line), CAUSE_BYTES))
            .into_iter()
            .find(|words| !words.is_empty())
            .unwrap_or_default()
    }

    fn tail(&self, stream: Stream) -> std::sync::MutexGuard<'_, VecDeque<Arc<str>>> {
        self.tails[stream as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The two tasks that read a replica's streams. Dropped, they end and close the pipes.
pub(super) struct Readers([JoinHandle<()>; 2]);

impl Readers {
    /// Waits for what was written before the end. A stranger that holds the pipe open does not hold this up.
    pub(super) async fn finish(mut self) {
        let [stdout, stderr] = &mut self.0;
        let _ = tokio::time::timeout(END_WAIT, async { tokio::join!(stdout, stderr) }).await;
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// Splits a byte stream into lines of bounded length.
#[derive(Default)]
struct Lines {
    begun: Vec<u8>,
    overlong: bool,
}

impl Lines {
    fn feed(&mut self, mut bytes: &[u8], mut line: impl FnMut(&[u8], bool)) {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            self.keep(&bytes[..end]);
            line(&self.begun, self.overlong);
            self.begun.clear();
            self.overlong = false;
            bytes = &bytes[end + 1..];
        }
        self.keep(bytes);
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = LINE_BYTES - self.begun.len();
        self.overlong |= bytes.len() > room;
        self.begun.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn end(self, mut line: impl FnMut(&[u8], bool)) {
        if !self.begun.is_empty() {
            line(&self.begun, self.overlong);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(chunks: &[&[u8]]) -> Vec<(Vec<u8>, bool)> {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        for chunk in chunks {
            lines.feed(chunk, |line, cut| seen.push((line.to_vec(), cut)));
        }
        lines.end(|line, cut| seen.push((line.to_vec(), cut)));
        seen
    }

    #[test]
    fn lines_are_put_together_from_pieces() {
        let seen = split(&[b"a", b"b\nc\n", b"\nlast"]);
        let texts: Vec<&[u8]> = seen.iter().map(|(line, _)| line.as_slice()).collect();
        assert_eq!(texts, [b"ab".as_slice(), b"c", b"", b"last"]);
        assert!(seen.iter().all(|(_, cut)| !cut));
    }

    #[test]
    fn a_long_line_is_cut_and_the_next_one_is_whole() {
        let long = vec![b'x'; LINE_BYTES + 1];
        let seen = split(&[&long, &long, b"\nnext\n"]);
        assert_eq!(seen.len(), 2);
        assert_eq!((seen[0].0.len(), seen[0].1), (LINE_BYTES, true));
        assert_eq!(seen[1], (b"next".to_vec(), false));
    }

    #[test]
    fn a_line_of_exactly_the_limit_is_not_cut() {
        let mut exact = vec![b'x'; LINE_BYTES];
        exact.push(b'\n');
        assert_eq!(split(&[&exact]), [(vec![b'x'; LINE_BYTES], false)]);
    }
}
