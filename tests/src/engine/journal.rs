// SPDX-License-Identifier: Apache-2.0
//! What an engine saw and did, one JSON line per event, so that a test can read it back.
//!
//! All engines of a test append to one file; a line is one write, so lines never mix.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::clock;

/// One line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// When, in microseconds of the shared clock.
    pub t: u64,
    /// Which process.
    pub pid: u32,
    /// The engine's `--name`.
    pub name: String,
    /// The engine's port.
    pub port: u16,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

/// Header fields in order.
pub type Fields = Vec<(String, String)>;

/// What can happen at an engine. `conn` and `req` count within one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ev", rename_all = "camelCase")]
pub enum Event {
    /// The process runs.
    Launch,
    /// Connections are accepted.
    Listening,
    /// The readiness path answers 200 from now on.
    Ready,
    /// A readiness probe was answered, or given up by the prober (status 0).
    Probe {
        /// What was answered.
        status: u16,
        /// Probes under way at once, this one included.
        concurrent: usize,
        /// The probe's header.
        headers: Fields,
    },
    /// A connection was accepted.
    Accept {
        /// Its number.
        conn: u64,
    },
    /// A request's head arrived.
    Head {
        /// On which connection.
        conn: u64,
        /// The request's number.
        req: u64,
        /// Requests on this connection before it.
        earlier: u64,
        /// Method.
        method: String,
        /// Target as received.
        target: String,
        /// Version as received.
        version: String,
        /// Header as received.
        headers: Fields,
    },
    /// A request's body ended.
    Body {
        /// Of which request.
        req: u64,
        /// Bytes after decoding of chunks.
        length: usize,
        /// Hex SHA-256 of them.
        sha256: String,
        /// Whether it ended as announced.
        complete: bool,
        /// Trailer fields.
        trailers: Fields,
    },
    /// The handler of a request began.
    Start {
        /// Which.
        req: u64,
        /// Requests under way at once, this one included.
        concurrent: usize,
    },
    /// A request is over.
    End {
        /// Which.
        req: u64,
        /// How.
        outcome: Outcome,
        /// Bytes of the answer's body that were sent, before framing.
        sent: usize,
        /// Hex SHA-256 of them.
        sha256: String,
    },
    /// A connection is over.
    Closed {
        /// Which.
        conn: u64,
        /// Who ended it.
        by: Closer,
    },
    /// A signal arrived.
    Signal {
        /// Its name, `SIGTERM`.
        signal: String,
    },
    /// The process exits by itself.
    Exit {
        /// With this status.
        code: i32,
    },
}

/// How a request ended.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// Answered in full.
    Answered,
    /// The peer went away or reset the stream first.
    PeerGone,
    /// A scripted fault.
    Fault,
}

/// Who ended a connection.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum Closer {
    /// The peer closed it.
    PeerFin,
    /// The peer reset it.
    PeerRst,
    /// The engine, by script or by protocol.
    Engine,
    /// The engine, because it was idle.
    Idle,
}

/// The writing end.
pub struct Journal {
    file: Option<File>,
    name: String,
    port: u16,
}

impl Journal {
    /// Appends to `path`; without one everything is forgotten.
    pub fn open(path: Option<&Path>, name: &str, port: u16) -> std::io::Result<Journal> {
        let append = |p| std::fs::OpenOptions::new().append(true).create(true).open(p);
        Ok(Journal { file: path.map(append).transpose()?, name: name.to_owned(), port })
    }

    /// Adds one event, stamped now.
    pub fn note(&self, event: Event) {
        let Some(file) = &self.file else { return };
        let record = Record {
            t: clock::now(),
            pid: std::process::id(),
            name: self.name.clone(),
            port: self.port,
            event,
        };
        let mut line = serde_json::to_vec(&record).expect("records are plain data");
        line.push(b'\n');
        let mut file = file;
        let _ = file.write_all(&line);
    }
}

/// All complete lines of a journal so far; none if the file does not exist yet.
pub fn read(path: &Path) -> Vec<Record> {
    let text = std::fs::read(path).unwrap_or_default();
    let whole = text.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
    let line = |l: &[u8]| serde_json::from_slice(l).expect("the engine writes whole lines");
    text[..whole].split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_can_be_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        assert!(read(&path).is_empty());
        let journal = Journal::open(Some(&path), "m", 7).unwrap();
        journal.note(Event::Launch);
        journal.note(Event::Closed { conn: 3, by: Closer::PeerRst });
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"half").unwrap();
        let records = read(&path);
        assert_eq!(records.len(), 2);
        assert_eq!((records[0].name.as_str(), records[0].port), ("m", 7));
        assert!(matches!(records[1].event, Event::Closed { conn: 3, by: Closer::PeerRst }));
        assert!(records[0].t <= records[1].t);
    }
}
