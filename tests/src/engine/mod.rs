// SPDX-License-Identifier: Apache-2.0
//! The fake engine: a replica that does exactly what its script says and writes down what it saw.
//!
//! Owns what all connections of one engine process share. Must not know the gateway: it could serve any proxy.

mod answer;
mod http1;
mod http2;
pub mod journal;
pub mod life;
pub mod script;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use journal::{Event, Fields, Journal};
use script::{Act, Circumstances, How, Point, Script};
use sha2::{Digest, Sha256};

use crate::clock;

/// The path that probes ask for.
const READINESS: &str = "/health";

/// One engine process.
pub struct Engine {
    script: Script,
    journal: Journal,
    name: String,
    port: u16,
    launched: u64,
    requests: AtomicU64,
    running: AtomicUsize,
    probes: AtomicUsize,
    probes_answered: AtomicUsize,
}

impl Engine {
    /// An engine that was launched now.
    pub fn new(script: Script, journal: Journal, name: String, port: u16) -> Engine {
        Engine {
            script,
            journal,
            name,
            port,
            launched: clock::now(),
            requests: AtomicU64::new(0),
            running: AtomicUsize::new(0),
            probes: AtomicUsize::new(0),
            probes_answered: AtomicUsize::new(0),
        }
    }

    fn ready_at(&self) -> u64 {
        self.launched + self.script.ready_at.max(self.script.listen_at) * 1000
    }

    /// Notes an exit and makes it happen.
    fn exit(&self, code: i32) -> ! {
        self.journal.note(Event::Exit { code });
        std::process::exit(code)
    }

    /// Answers one probe: waits as scripted and returns the status.
    async fn probe(&self, headers: Fields) -> u16 {
        let mut seen =
            Probed { engine: self, concurrent: self.probes.fetch_add(1, Relaxed) + 1, headers, status: 0 };
        let script = &self.script.probe;
        tokio::time::sleep(clock::ms(script.delay)).await;
        if script.hang {
            clock::until(self.ready_at()).await;
        }
        seen.status = if !self.has_key(&seen.headers) {
            401
        } else if clock::now() < self.ready_at() || script.red_while.as_ref().is_some_and(|p| p.exists()) {
            503
        } else {
            let nth = self.probes_answered.fetch_add(1, Relaxed);
            script.answers.get(nth).copied().unwrap_or(200)
        };
        seen.status
    }

    fn has_key(&self, headers: &Fields) -> bool {
        let Some(key) = &self.script.key else { return true };
        let bearer = format!("Bearer {key}");
        headers.iter().any(|(n, v)| n.eq_ignore_ascii_case("authorization") && *v == bearer)
    }

    /// How this request is to be answered.
    fn act_for(&self, headers: &Fields) -> Act {
        let told = headers.iter().find(|(n, _)| n.eq_ignore_ascii_case("x-engine"));
        if !self.has_key(headers) {
            return Act { status: 401, ..Act::default() };
        }
        let Some((_, text)) = told else { return self.script.act.clone() };
        serde_json::from_str(text).unwrap_or_else(|e| Act {
            status: 599,
            body: Some(format!("bad x-engine: {e}")),
            ..Act::default()
        })
    }
}

/// Writes a probe down when it is over, given up or not.
struct Probed<'a> {
    engine: &'a Engine,
    concurrent: usize,
    headers: Fields,
    status: u16,
}

impl Drop for Probed<'_> {
    fn drop(&mut self) {
        self.engine.probes.fetch_sub(1, Relaxed);
        let headers = std::mem::take(&mut self.headers);
        self.engine.journal.note(Event::Probe { status: self.status, concurrent: self.concurrent, headers });
    }
}

/// A request that is under way; counted until `release` or drop.
struct Job<'a> {
    engine: &'a Engine,
    act: Act,
    req: u64,
    head_only: bool,
    earlier: u64,
    conn_since: u64,
    body: Vec<u8>,
    held: bool,
}

impl<'a> Job<'a> {
    fn new(engine: &'a Engine, act: Act, req: u64) -> Job<'a> {
        engine.running.fetch_add(1, Relaxed);
        let conn_since = clock::now();
        Job { engine, act, req, head_only: false, earlier: 0, conn_since, body: Vec::new(), held: true }
    }

    /// One more than may run at once.
    fn too_many(&self) -> bool {
        self.engine.script.max_concurrent.is_some_and(|max| self.engine.running.load(Relaxed) > max)
    }

    fn fault_at(&self, point: Point) -> Option<How> {
        let age = (clock::now() - self.conn_since) / 1000;
        self.act.fault_at(point, &Circumstances { earlier: self.earlier, age, body: &self.body })
    }

    fn note_body(&self, complete: bool, trailers: Fields) {
        let (length, sha256) = (self.body.len(), hex(Sha256::digest(&self.body)));
        self.engine.journal.note(Event::Body { req: self.req, length, sha256, complete, trailers });
    }

    fn note_start(&self) {
        let concurrent = self.engine.running.load(Relaxed);
        self.engine.journal.note(Event::Start { req: self.req, concurrent });
    }

    /// The place is free again; called just before the last byte goes out, lest the peer is quicker than our count.
    fn release(&mut self) {
        if std::mem::take(&mut self.held) {
            self.engine.running.fetch_sub(1, Relaxed);
        }
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        self.release();
    }
}

/// Lower-case hexadecimal.
pub fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|b| format!("{b:02x}")).collect()
}

/// Hex SHA-256.
pub fn sha256(bytes: &[u8]) -> String {
    hex(Sha256::digest(bytes))
}
