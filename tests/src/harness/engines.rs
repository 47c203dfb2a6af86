// SPDX-License-Identifier: Apache-2.0
//! Questions to the engines' journal.

use std::collections::BTreeSet;

use crate::engine::journal::{Event, Fields, Outcome, Record};

/// Some records of the journal, in the order they were written.
#[derive(Clone, Debug)]
pub struct Engines(pub Vec<Record>);

/// A request as an engine saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// When its head came.
    pub at: u64,
    /// Which process.
    pub pid: u32,
    /// The engine's name.
    pub name: String,
    /// The engine's port.
    pub port: u16,
    /// Its connection.
    pub conn: u64,
    /// Its number in its process.
    pub req: u64,
    /// Method.
    pub method: String,
    /// Target.
    pub target: String,
    /// Header.
    pub headers: Fields,
    /// Length, SHA-256 and completeness of its body, once that ended.
    pub body: Option<(usize, String, bool)>,
    /// Trailers behind its body.
    pub trailers: Fields,
    /// When its handler began.
    pub started: Option<u64>,
    /// When and how it ended.
    pub ended: Option<(u64, Outcome)>,
    /// Bytes and SHA-256 of what was answered.
    pub sent: (usize, String),
}

impl Seen {
    /// The first header field of that name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }
}

impl Engines {
    /// Only those of engines with that name.
    pub fn of(&self, name: &str) -> Engines {
        Engines(self.0.iter().filter(|r| r.name == name).cloned().collect())
    }

    /// Only those since that moment.
    pub fn since(&self, t: u64) -> Engines {
        Engines(self.0.iter().filter(|r| r.t >= t).cloned().collect())
    }

    /// Times of the events that `which` picks.
    pub fn times(&self, which: impl Fn(&Event) -> bool) -> Vec<u64> {
        self.0.iter().filter(|r| which(&r.event)).map(|r| r.t).collect()
    }

    /// Times of launches.
    pub fn launches(&self) -> Vec<u64> {
        self.times(|e| matches!(e, Event::Launch))
    }

    /// Times at which engines turned ready.
    pub fn readies(&self) -> Vec<u64> {
        self.times(|e| matches!(e, Event::Ready))
    }

    /// Times at which SIGTERM arrived.
    pub fn terms(&self) -> Vec<u64> {
        self.times(|e| matches!(e, Event::Signal { signal } if signal == "SIGTERM"))
    }

    /// Exit statuses, of engines that exited by themselves.
    pub fn exits(&self) -> Vec<i32> {
        let code = |r: &Record| if let Event::Exit { code } = r.event { Some(code) } else { None };
        self.0.iter().filter_map(code).collect()
    }

    /// Most handlers at once in one process.
    pub fn peak(&self) -> usize {
        let concurrent =
            |r: &Record| if let Event::Start { concurrent, .. } = r.event { Some(concurrent) } else { None };
        self.0.iter().filter_map(concurrent).max().unwrap_or(0)
    }

    /// Handlers that began.
    pub fn handled(&self) -> usize {
        self.times(|e| matches!(e, Event::Start { .. })).len()
    }

    /// Process ids, in order of first appearance.
    pub fn pids(&self) -> Vec<u32> {
        let mut seen = BTreeSet::new();
        self.0.iter().map(|r| r.pid).filter(|p| seen.insert(*p)).collect()
    }

    /// Requests in order of their heads, with everything that became of them.
    pub fn requests(&self) -> Vec<Seen> {
        let mut all: Vec<Seen> = Vec::new();
        for record in &self.0 {
            match &record.event {
                Event::Head { conn, req, method, target, headers, .. } => all.push(Seen {
                    at: record.t,
                    pid: record.pid,
                    name: record.name.clone(),
                    port: record.port,
                    conn: *conn,
                    req: *req,
                    method: method.clone(),
                    target: target.clone(),
                    headers: headers.clone(),
                    body: None,
                    trailers: Fields::new(),
                    started: None,
                    ended: None,
                    sent: (0, String::new()),
                }),
                Event::Body { req, length, sha256, complete, trailers } => {
                    with(&mut all, record, *req, |s| {
                        s.body = Some((*length, sha256.clone(), *complete));
                        s.trailers.clone_from(trailers);
                    })
                }
                Event::Start { req, .. } => with(&mut all, record, *req, |s| s.started = Some(record.t)),
                Event::End { req, outcome, sent, sha256 } => with(&mut all, record, *req, |s| {
                    s.ended = Some((record.t, *outcome));
                    s.sent = (*sent, sha256.clone());
                }),
                _ => {}
            }
        }
        all
    }
}

fn with(all: &mut [Seen], record: &Record, req: u64, change: impl FnOnce(&mut Seen)) {
    if let Some(seen) = all.iter_mut().rev().find(|s| s.pid == record.pid && s.req == req) {
        change(seen);
    }
}
