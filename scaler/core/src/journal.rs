// SPDX-License-Identifier: Apache-2.0
//! The core's recent past, complete enough to be lived through again: a snapshot, then every input with its time and
//! what came of it.
//!
//! Kept are two segments, each with the core's state at its start. A full segment becomes the former one and the
//! former one before it is dropped, so there is always between one and two segments of history and it always begins
//! with a snapshot. Must not know where a dump goes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::action::Action;
use crate::core::Core;
use crate::decision::Decision;
use crate::event::Event;
use crate::units::Micros;

/// Version of the dump's format.
const FORMAT: u32 = 4;

/// Bounded record of a core's inputs and outputs.
#[derive(Clone, Debug)]
pub struct Journal {
    inputs_per_segment: usize,
    former: Option<Segment>,
    current: Option<Segment>,
}

/// What a replay found.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayReport {
    /// Inputs that were run again, the differing one included.
    pub inputs: u64,
    /// The first input that had another outcome; nothing after it was run.
    pub difference: Option<Difference>,
}

/// An input whose outcome is not what was recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Line of the dump, counted from 1.
    pub line: u64,
    /// The recorded outcome.
    pub recorded: Outcome,
    /// The outcome of the replay.
    pub replayed: Outcome,
}

/// What one step did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Actions, in order.
    pub actions: Vec<Action>,
    /// Version of the routes after the step.
    pub routes: u64,
    /// The core's next deadline after the step.
    pub deadline: Option<Micros>,
    /// Records of what was decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<Decision>,
}

/// Why a dump cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// Not even a snapshot.
    #[error("the journal is empty: dump it from a scaler that has run")]
    Empty,
    /// Written by another version.
    #[error(
        "the journal has format {found}, this version replays format {FORMAT}: replay it with the version that wrote it"
    )]
    Format {
        /// Its format.
        found: u32,
    },
    /// Not what a journal consists of.
    #[error("line {line} of the journal is not readable ({source}): the file is cut off or was edited")]
    Line {
        /// Counted from 1.
        line: u64,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

#[derive(Clone, Debug)]
struct Segment {
    start: Core,
    entries: Vec<Arc<Entry>>,
}

/// One input with its time and what came of it: a line of a dump after the first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// When it came in.
    pub now: Micros,
    /// The input.
    pub event: Event,
    /// What came of it.
    pub outcome: Outcome,
}

/// A dump as it was read.
#[derive(Debug)]
pub struct Tape {
    /// The core before the first input.
    pub start: Core,
    /// Sluice was told to end at that moment: what follows is its way out.
    pub ending: bool,
    /// The inputs, in order.
    pub entries: Vec<Entry>,
    /// The last line was cut off, as a crash leaves it, and is left out.
    pub torn: bool,
    /// The line from which on nothing could be read.
    pub unreadable: Option<ReplayError>,
}

/// The first line of a dump.
#[derive(Serialize, Deserialize)]
struct Snapshot<C> {
    format: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    ending: bool,
    core: C,
}

impl Journal {
    /// Keeps between `inputs_per_segment` (at least 1) and twice as many inputs.
    pub fn new(inputs_per_segment: usize) -> Journal {
        Journal { inputs_per_segment: inputs_per_segment.max(1), former: None, current: None }
    }

    /// One step of `core`, recorded. Appends its actions to `actions`. All steps of the core must go through here.
    pub fn step(
        &mut self,
        core: &mut Core,
        now: Micros,
        event: Event,
        actions: &mut Vec<Action>,
    ) -> Arc<Entry> {
        if self.current.as_ref().is_some_and(|segment| segment.entries.len() >= self.inputs_per_segment) {
            self.former = self.current.take();
        }
        let segment =
            self.current.get_or_insert_with(|| Segment { start: core.clone(), entries: Vec::new() });
        let before = actions.len();
        core.step(now, &event, actions);
        let new = actions.get(before..).unwrap_or_default().to_vec();
        let entry = Arc::new(Entry { now, event, outcome: Outcome::of(core, new) });
        segment.entries.push(entry.clone());
        entry
    }

    /// The history as JSON lines: the snapshot, then one line per input.
    pub fn dump(&self) -> Vec<u8> {
        let segments = || self.former.iter().chain(&self.current);
        let mut lines = Vec::new();
        let Some(first) = segments().next() else { return lines };
        write_snapshot(&mut lines, &first.start, false);
        segments().flat_map(|segment| &segment.entries).for_each(|entry| write_entry(&mut lines, entry));
        lines
    }
}

/// Appends the first line of a dump that begins with this core; `ending` if Sluice was just told to end.
pub fn write_snapshot(lines: &mut Vec<u8>, core: &Core, ending: bool) {
    write_line(lines, &Snapshot { format: FORMAT, ending, core });
}

/// Appends a further line of a dump.
pub fn write_entry(lines: &mut Vec<u8>, entry: &Entry) {
    write_line(lines, entry);
}

/// Reads a dump as far as it can be read. What follows the last line's end is left out and said.
///
/// # Errors
/// If the dump is empty, of another format, or its first line is not readable.
pub fn read(dump: &[u8]) -> Result<Tape, ReplayError> {
    let whole = dump.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let (dump, rest) = dump.split_at(whole);
    let mut lines = dump.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).zip(1u64..);
    let (first, line) = lines.next().ok_or(ReplayError::Empty)?;
    let wrong = |line| move |source| ReplayError::Line { line, source };
    let Snapshot { format, .. } =
        serde_json::from_slice::<Snapshot<serde::de::IgnoredAny>>(first).map_err(wrong(line))?;
    if format != FORMAT {
        return Err(ReplayError::Format { found: format });
    }
    let Snapshot { core, ending, .. } =
        serde_json::from_slice::<Snapshot<Core>>(first).map_err(wrong(line))?;
    let torn = !rest.is_empty();
    let mut tape = Tape { start: core, ending, entries: Vec::new(), torn, unreadable: None };
    for (text, line) in lines {
        match serde_json::from_slice(text).map_err(wrong(line)) {
            Ok(entry) => tape.entries.push(entry),
            Err(error) => {
                tape.unreadable = Some(error);
                break;
            }
        }
    }
    Ok(tape)
}

impl Tape {
    /// The time of the last line.
    pub fn until(&self) -> Micros {
        self.entries.last().map_or(self.start.now, |entry| entry.now)
    }

    /// The core that the next run continues from: as it was when Sluice was told to end, else when it was last written
    /// of.
    pub fn into_last(self) -> Core {
        let mut core = self.start;
        let lived = self.entries.iter().take_while(|entry| !self.ending && entry.event != Event::Shutdown);
        let mut actions = Vec::new();
        for entry in lived {
            core.step(entry.now, &entry.event, &mut actions);
            actions.clear();
        }
        core
    }

    /// Lives through it again, until its end or the first input with another outcome. Shows each input with the outcome
    /// of the replay, the differing one included; returns what was found and the core at the end.
    pub fn replay(&self, mut show: impl FnMut(&Entry, &Outcome)) -> (ReplayReport, Core) {
        let mut core = self.start.clone();
        let mut report = ReplayReport { inputs: 0, difference: None };
        for (entry, line) in self.entries.iter().zip(2..) {
            let mut actions = Vec::new();
            core.step(entry.now, &entry.event, &mut actions);
            report.inputs += 1;
            let replayed = Outcome::of(&core, actions);
            show(entry, &replayed);
            if replayed != entry.outcome {
                report.difference = Some(Difference { line, recorded: entry.outcome.clone(), replayed });
                break;
            }
        }
        (report, core)
    }
}

/// Runs a dump again, until its end or the first input with another outcome.
///
/// # Errors
/// If the dump is empty, of another format or not readable; a torn last line is no error.
pub fn replay(dump: &[u8]) -> Result<ReplayReport, ReplayError> {
    let mut tape = read(dump)?;
    match tape.unreadable.take() {
        Some(error) => Err(error),
        None => Ok(tape.replay(|_, _| {}).0),
    }
}

impl Outcome {
    fn of(core: &Core, actions: Vec<Action>) -> Outcome {
        Outcome {
            actions,
            routes: core.routes().version,
            deadline: core.next_deadline(),
            decisions: core.decisions().to_vec(),
        }
    }
}

fn write_line(lines: &mut Vec<u8>, value: &impl Serialize) {
    let start = lines.len();
    // Everything in a journal is plain data with text or number keys, which JSON can always express.
    if serde_json::to_writer(&mut *lines, value).is_err() {
        lines.truncate(start);
        return;
    }
    lines.push(b'\n');
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::testkit::spec;
    use crate::{FleetSpec, ModelSpec, ReplicaEvent, ReplicaId, ScaleSpec};

    /// A history with starts, failures and stops, in segments of `limit` inputs.
    fn history(limit: usize) -> Journal {
        let (mut core, mut journal, mut actions) = (Core::new(), Journal::new(limit), Vec::new());
        let scale = ScaleSpec { min_replicas: 1, ..spec().scale };
        let models = [("m".into(), ModelSpec { scale, ..spec() })].into();
        let mut now = Micros::ZERO;
        journal.step(&mut core, now, Event::Configure(FleetSpec { models, memory: None }), &mut actions);
        for id in 0..12 {
            let gone = ReplicaEvent::Gone { cause: "exit status 1".into() };
            journal.step(&mut core, now, Event::Replica(ReplicaId(id), gone), &mut actions);
            now = core.next_deadline().unwrap();
            journal.step(&mut core, now, Event::Tick, &mut actions);
        }
        assert_eq!(actions.len(), 13);
        journal
    }

    fn lines(dump: &[u8]) -> Vec<String> {
        String::from_utf8(dump.to_vec()).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_replay_has_the_recorded_outcomes_whether_segments_were_dropped_or_not() {
        for (limit, inputs) in [(100, 25), (10, 15), (1, 2)] {
            let report = replay(&history(limit).dump()).unwrap();
            assert_eq!(report, ReplayReport { inputs, difference: None }, "segments of {limit}");
        }
    }

    #[test]
    fn a_changed_outcome_is_found_in_its_line() {
        let mut lines = lines(&history(10).dump());
        let line = lines.iter().position(|line| line.contains("Start")).unwrap();
        lines[line] = lines[line].replace("\"model\":\"m\"", "\"model\":\"n\"");
        let difference = replay((lines.join("\n") + "\n").as_bytes()).unwrap().difference.unwrap();
        assert_eq!(difference.line, line as u64 + 1);
        assert_ne!(difference.recorded, difference.replayed);
    }

    #[test]
    fn a_missing_input_is_found() {
        let mut lines = lines(&history(100).dump());
        lines.remove(4);
        assert!(replay((lines.join("\n") + "\n").as_bytes()).unwrap().difference.is_some());
    }

    #[test]
    fn what_is_no_journal_is_refused_with_the_line() {
        assert!(matches!(replay(b""), Err(ReplayError::Empty)));
        assert!(Journal::new(5).dump().is_empty());
        let dump = history(10).dump();
        let cut = &dump[..dump.len() - 20];
        assert!(read(cut).unwrap().torn);
        assert_eq!(replay(cut).unwrap(), ReplayReport { inputs: 14, difference: None });
        let inside = [&dump[..dump.len() - 20], &dump[dump.len() - 5..]].concat();
        let broken = replay(&inside);
        assert!(matches!(broken, Err(ReplayError::Line { line: 16, .. })), "{broken:?}");
        let other = String::from_utf8(dump).unwrap().replacen("\"format\":4", "\"format\":7", 1);
        assert!(matches!(replay(other.as_bytes()), Err(ReplayError::Format { found: 7 })));
    }

    #[test]
    fn history_is_bounded() {
        assert_eq!(lines(&history(4).dump()).len(), 1 + 5);
    }
}
