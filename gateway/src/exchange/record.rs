// SPDX-License-Identifier: Apache-2.0
//! What is remembered of one request for its metrics, its one log event and its trace.
//!
//! Owns the fields and the moment of writing: when the record is dropped, whatever way the request ended. Never holds
//! bodies, prompts or credentials.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant, SystemTime};

use sluice_core::ReplicaId;
use sluice_wire::sse::EventBoundary;
use sluice_wire::target::{self, Family};
use sluice_wire::usage::Tail;

use super::error::Failure;
use super::peer::Peer;
use crate::admission::{Model, Permit};
use crate::gateway::Gateway;
use crate::logging::Wide;
use crate::telemetry::{Ended, ModelMetrics, Phase};
use crate::trace::{self, Finished, Trace};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A replica's answer was delivered whole.
    Served,
    /// The gateway answered from what it knows (lists, readiness).
    Local,
    /// The gateway refused it.
    Refused,
    /// The client left.
    ClientGone,
    /// The replica failed, before or during its answer.
    UpstreamError,
}

impl Outcome {
    /// The word used in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Served => "served",
            Outcome::Local => "local",
            Outcome::Refused => "refused",
            Outcome::ClientGone => "client_gone",
            Outcome::UpstreamError => "upstream_error",
        }
    }
}

/// Where a request came from.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Its address.
    pub client: Peer,
    /// `http/1.1` or `h2`.
    pub protocol: &'static str,
}

/// One request. Written when dropped.
pub struct Record {
    gateway: Arc<Gateway>,
    /// When its head was complete.
    pub started: Instant,
    /// Ours or the client's.
    pub request_id: String,
    /// Upper case.
    pub method: &'static str,
    /// Without its query.
    pub path: String,
    /// Where it came from.
    pub from: Caller,
    /// Whose API is spoken.
    pub api: &'static str,
    /// Known once identified.
    pub model: Option<Arc<Model>>,
    /// Of the answer; 499 if the client left before one.
    pub status: u16,
    /// Until something else is known, the client has left.
    pub outcome: Outcome,
    /// Error code of a refusal.
    pub code: &'static str,
    /// Time spent waiting for a replica.
    pub queued: Duration,
    /// It waited for a replica to start.
    pub cold: bool,
    /// To the response head.
    pub first_byte: Option<Duration>,
    /// To the end of the first event, of an event stream.
    pub first_event: Option<Duration>,
    /// Events of an event stream so far.
    pub events: u64,
    /// End of an answer that may say how many tokens it cost.
    tail: Option<Tail>,
    /// Which one answered or was tried last.
    pub replica: Option<ReplicaId>,
    /// Replicas tried.
    pub attempts: u32,
    /// Whose trace it belongs to.
    trace: Trace,
    /// When it first had a replica, if it is recorded.
    dispatched: Option<Duration>,
    /// Request body.
    pub bytes_in: u64,
    /// Response body.
    pub bytes_out: u64,
}

/// The API family of a path, in words.
fn api(target: &[u8]) -> &'static str {
    match target::family(target) {
        Family::OpenAi => "openai",
        Family::Anthropic => "anthropic",
        Family::Kserve => "kserve",
    }
}

impl Record {
    /// A request whose head has just been read.
    pub fn new(
        gateway: &Arc<Gateway>,
        from: Caller,
        method: &'static str,
        target: &[u8],
        request_id: String,
    ) -> Self {
        gateway.exchanges.fetch_add(1, SeqCst);
        let path = target.split(|c| *c == b'?').next().unwrap_or_default();
        Record {
            gateway: gateway.clone(),
            started: Instant::now(),
            request_id,
            method,
            path: String::from_utf8_lossy(path).into_owned(),
            from,
            api: api(target),
            model: None,
            status: 499,
            outcome: Outcome::ClientGone,
            code: "",
            queued: Duration::ZERO,
            cold: false,
            first_byte: None,
            first_event: None,
            events: 0,
            tail: None,
            replica: None,
            attempts: 0,
            trace: Trace::default(),
            dispatched: None,
            bytes_in: 0,
            bytes_out: 0,
        }
    }

    /// Takes part in the client's trace, or begins one; `lines` become the replica's.
    pub fn join_trace(&mut self, lines: &mut Vec<u8>) {
        self.trace = trace::begin(self.gateway.tracer.get(), lines);
    }

    /// An attempt begins.
    pub fn dispatched(&mut self, permit: &Permit) {
        if self.trace.spans.is_some() && self.dispatched.is_none() {
            self.dispatched = Some(self.started.elapsed());
        }
        self.attempts += 1;
        self.replica = Some(permit.endpoint().id);
        self.queued += permit.queued_for();
        self.cold |= permit.cold();
    }

    /// The response head is there.
    pub fn answered(&mut self, status: u16) {
        self.status = status;
        self.first_byte = Some(self.started.elapsed());
        let has_tokens = status == 200 && self.method == "POST" && self.api != "kserve";
        self.tail = has_tokens.then(Tail::default);
    }

    /// Bytes of the answer's body have come; `events` follows them if it is an event stream.
    pub fn body(&mut self, data: &[u8], events: Option<&mut EventBoundary>) {
        self.bytes_out += data.len() as u64;
        if let Some(tail) = &mut self.tail {
            tail.feed(data);
        }
        let Some(events) = events else { return };
        events.feed(data);
        self.events = events.events();
        if self.first_event.is_none() && self.events > 0 {
            self.first_event = Some(self.started.elapsed());
        }
    }

    /// The gateway refuses or gives up.
    pub fn failed(&mut self, failure: &Failure) {
        self.status = failure.status();
        self.code = failure.code();
        self.outcome = if failure.is_upstream() { Outcome::UpstreamError } else { Outcome::Refused };
        // What the line refuses, it counts.
        if self.outcome == Outcome::Refused && !matches!(failure, Failure::Refused(_)) {
            self.metrics().turned_away(self.code);
        }
    }
}

impl Record {
    fn metrics(&self) -> &ModelMetrics {
        self.model.as_ref().map_or_else(|| self.gateway.table.unknown(), |model| model.metrics())
    }

    fn count(&self, took: Duration) {
        if self.model.is_none() && self.outcome == Outcome::Local {
            return;
        }
        let metrics = self.metrics();
        metrics.ended(&Ended {
            api: self.api,
            // A client that left is told apart from one that was served, whatever head it had seen.
            code: if self.outcome == Outcome::ClientGone { 499 } else { self.status },
            took,
            first_byte: self.first_byte,
            first_event: self.first_event,
            events: self.events,
            usage: self.tail.as_ref().and_then(Tail::usage),
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            attempts: self.attempts,
        });
        match self.outcome {
            // Who left while waiting is counted by the line.
            Outcome::ClientGone if self.replica.is_some() => metrics.cancelled(Phase::InFlight),
            Outcome::UpstreamError if self.code.is_empty() => metrics.upstream_failed("cut_off"),
            Outcome::UpstreamError => metrics.upstream_failed(self.code),
            _ => {}
        }
    }
}

impl Record {
    fn log(&self, took: Duration) {
        Wide {
            request_id: &self.request_id,
            model: self.model.as_ref().map(|model| model.name().as_str()),
            method: self.method,
            path: &self.path,
            status: self.status,
            api: self.api,
            protocol: self.from.protocol,
            duration: took,
            queued: self.queued,
            cold: self.cold,
            first_byte: self.first_byte,
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            replica: self.replica,
            attempts: self.attempts,
            outcome: self.outcome.as_str(),
            code: self.code,
            client: self.from.client.socket_text(),
            trace: self.trace.id.map(|id| id.to_string()).as_deref(),
        }
        .emit();
    }

    fn trace(&mut self, took: Duration) {
        let (Some(tracer), Some(trace), Some(spans)) =
            (self.gateway.tracer.get(), self.trace.id, self.trace.spans)
        else {
            return;
        };
        tracer.record(Finished {
            trace,
            spans,
            started: SystemTime::now().checked_sub(took).unwrap_or(SystemTime::UNIX_EPOCH),
            took,
            request_id: std::mem::take(&mut self.request_id),
            method: self.method,
            path: std::mem::take(&mut self.path),
            protocol: self.from.protocol,
            client: self.from.client.ip(),
            model: self.model.as_ref().map(|model| model.name().to_string()),
            status: self.status,
            outcome: self.outcome.as_str(),
            code: self.code,
            queued: self.queued,
            cold: self.cold,
            dispatched: self.dispatched,
            first_byte: self.first_byte,
            first_event: self.first_event,
            replica: self.replica,
            attempts: self.attempts,
        });
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let took = self.started.elapsed();
        self.count(took);
        if Wide::wanted() {
            self.log(took);
        }
        self.trace(took);
        self.gateway.exchanges.fetch_sub(1, SeqCst);
    }
}
