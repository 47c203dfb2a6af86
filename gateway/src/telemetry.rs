// SPDX-License-Identifier: Apache-2.0
//! What is counted, and the exposition of it.
//!
//! Owns the numbers of each model and of the process; their names are in `table`. A model's numbers live with the model,
//! so that a request adds to them without looking anything up, and its series are gone when it is. Label values come
//! from the configuration or from fixed lists: of the words that replicas or errors make up, so many per model have a
//! series of their own, and the rest share `other`.
//!
//! Gauges are not kept: a scrape reads the state of those who own it.

mod facade;
mod process;
pub(crate) mod table;
mod text;
mod value;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluice_core::{FleetStatus, Micros, ModelName, ModelRoute, ModelStatus, ReplicaId};
use sluice_scaler::Counts;
use sluice_wire::usage::Usage;

use crate::admission::{Class, Reason};
use crate::route::Table;
pub use facade::install;
use table::Name;
pub(crate) use text::Exposition;
pub use text::Format;
use value::{Counter, Histogram, Keyed};

/// Label value of every model that is not configured.
pub const UNKNOWN_MODEL: &str = "unknown";

/// Label value of what has no series of its own.
const OTHER: &str = "other";

static TRACED: [Counter; 3] = [Counter::new(), Counter::new(), Counter::new()];
static LOG_LINES_LOST: Counter = Counter::new();
static RELOADED: Counter = Counter::new();
static NOT_RELOADED: Counter = Counter::new();
static LAST_RELOAD_FAILED: AtomicBool = AtomicBool::new(false);
/// Unix time in milliseconds.
static CONFIGURED_AT: AtomicU64 = AtomicU64::new(0);

/// What a scrape reads.
pub struct Sources<'a> {
    /// The models.
    pub table: &'a Table,
    /// The scaler's state.
    pub status: &'a FleetStatus,
    /// What the scaler has counted.
    pub counts: &'a BTreeMap<ModelName, Counts>,
    /// The time by the scaler's clock.
    pub now: Micros,
    /// The process wants traffic.
    pub ready: bool,
    /// Open client connections.
    pub connections: usize,
    /// Connections refused.
    pub connections_refused: u64,
    /// Connections that may be open.
    pub connections_limit: usize,
    /// Bytes of request bodies held.
    pub body_memory: usize,
    /// Bytes that may be held.
    pub body_memory_limit: usize,
}

/// The exposition.
pub fn render(format: Format, sources: &Sources<'_>) -> String {
    let mut out = Exposition::new(format);
    let models = sources.table.list();
    for model in &models {
        model.expose(&mut out);
    }
    // A model that is really called so has the name for itself.
    if !models.iter().any(|model| model.name().as_str() == UNKNOWN_MODEL) {
        sources.table.unknown().expose_unknown(&mut out, UNKNOWN_MODEL);
    }
    for model in &sources.status.models {
        expose_scaler(&mut out, model, sources.counts.get(&model.name));
    }
    expose_process(&mut out, sources);
    process::expose(&mut out);
    out.finish()
}

fn expose_scaler(out: &mut Exposition, status: &ModelStatus, counts: Option<&Counts>) {
    let model = status.name.as_str();
    if status.wake.samples > 0 {
        for (quantile, time) in [("0.5", status.wake.p50), ("0.9", status.wake.p90)] {
            out.value(Name::WakeEstimate, &[model, quantile], Duration::from(time).as_secs_f64());
        }
    }
    let none = Counts::default();
    let counts = counts.unwrap_or(&none);
    out.count(Name::Starts, &[model, "ready"], counts.ready);
    out.count(Name::Starts, &[model, "failed"], counts.failed);
    out.count(Name::Deaths, &[model], counts.died);
    for (reason, count) in &counts.decisions {
        out.count(Name::Decisions, &[model, reason], *count);
    }
}

fn expose_process(out: &mut Exposition, sources: &Sources<'_>) {
    let gauges = [
        (Name::Connections, sources.connections),
        (Name::ConnectionsLimit, sources.connections_limit),
        (Name::BodyMemory, sources.body_memory),
        (Name::BodyMemoryLimit, sources.body_memory_limit),
        (Name::Ready, usize::from(sources.ready)),
        (Name::ReloadOk, usize::from(!LAST_RELOAD_FAILED.load(Relaxed))),
    ];
    for (name, value) in gauges {
        out.value(name, &[], value as f64);
    }
    let age = sources.now.since(sources.status.at);
    out.value(Name::StatusAge, &[], Duration::from(age).as_secs_f64());
    out.value(Name::ReloadTime, &[], CONFIGURED_AT.load(Relaxed) as f64 / 1e3);
    out.count(Name::ConnectionsRefused, &[], sources.connections_refused);
    for (name, count) in facade::counters() {
        out.count(name, &[], count);
    }
    out.count(Name::Reloads, &["ok"], RELOADED.get());
    out.count(Name::Reloads, &["error"], NOT_RELOADED.get());
    out.count(Name::LogLost, &[], LOG_LINES_LOST.get());
    for (outcome, counter) in ["exported", "dropped", "failed"].iter().zip(&TRACED) {
        out.count(Name::Traced, &[outcome], counter.get());
    }
    let build = [env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH];
    out.count(Name::Build, &build, 1);
}

/// The configuration of the start is in force.
pub fn configured() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    CONFIGURED_AT.store(u64::try_from(now.as_millis()).unwrap_or(u64::MAX), Relaxed);
}

/// Counts a configuration that was read again.
pub fn config_reloaded(taken: bool) {
    LAST_RELOAD_FAILED.store(!taken, Relaxed);
    if taken {
        RELOADED.add(1);
        configured();
    } else {
        NOT_RELOADED.add(1);
    }
}

/// Counts a log line that was lost.
pub fn log_line_lost() {
    LOG_LINES_LOST.add(1);
}

/// What became of a request that was recorded for a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spans {
    /// The collector has it.
    Exported = 0,
    /// There was no room in the queue.
    Dropped = 1,
    /// The collector did not take it.
    Failed = 2,
}

/// Counts requests that were recorded.
pub fn traced(what: Spans, requests: u64) {
    if let Some(counter) = TRACED.get(what as usize) {
        counter.add(requests);
    }
}

/// What [`traced`] has counted.
#[cfg(all(test, feature = "otel"))]
pub(crate) fn traced_so_far(what: Spans) -> u64 {
    TRACED[what as usize].get()
}

/// Where a request was when its client left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Before it had a replica.
    Waiting,
    /// At a replica.
    InFlight,
}

/// What is counted of one request when it has ended. Times count from its head.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ended {
    /// Whose API was spoken.
    pub api: &'static str,
    /// Status code; 499 if the client left.
    pub code: u16,
    /// To the end.
    pub took: Duration,
    /// To the response head.
    pub first_byte: Option<Duration>,
    /// To the first event of a stream.
    pub first_event: Option<Duration>,
    /// Events of a stream.
    pub events: u64,
    /// What the answer says that it cost.
    pub usage: Option<Usage>,
    /// Request body.
    pub bytes_in: u64,
    /// Response body.
    pub bytes_out: u64,
    /// Attempts.
    pub attempts: u32,
}

/// When a model without a ready replica is to have one.
#[derive(Clone, Copy, Debug)]
struct Forecast {
    /// When that was first said.
    at: Micros,
    ready_at: Micros,
}

/// One model's numbers.
#[derive(Debug)]
pub struct ModelMetrics {
    requests: Keyed<(&'static str, u16), 32>,
    duration: Histogram,
    first_byte: Histogram,
    first_token: Histogram,
    inter_token: Histogram,
    events: Counter,
    tokens_in: Counter,
    tokens_out: Counter,
    bytes_in: Counter,
    bytes_out: Counter,
    queue_wait: Histogram,
    cold_start: Histogram,
    eta_error: Histogram,
    forecast: Mutex<Option<Forecast>>,
    /// By the line.
    refusals: [Counter; Reason::LABELS.len()],
    /// Before the line.
    turned_away: Keyed<&'static str, 24>,
    upstream_errors: Keyed<&'static str, 12>,
    cancelled: [Counter; 2],
    retries: Counter,
}

/// Numbers that are read when they are scraped.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelGauges {
    pub in_flight: BTreeMap<ReplicaId, u32>,
    pub queued: [usize; Class::ALL.len()],
    pub ready: usize,
    pub starting: u32,
    pub draining: usize,
    pub desired: u32,
}

impl Default for ModelMetrics {
    fn default() -> Self {
        ModelMetrics {
            requests: Keyed::default(),
            duration: Histogram::seconds(),
            first_byte: Histogram::seconds(),
            first_token: Histogram::seconds(),
            inter_token: Histogram::seconds(),
            events: Counter::new(),
            tokens_in: Counter::new(),
            tokens_out: Counter::new(),
            bytes_in: Counter::new(),
            bytes_out: Counter::new(),
            queue_wait: Histogram::seconds(),
            cold_start: Histogram::seconds(),
            eta_error: Histogram::ratios(),
            forecast: Mutex::default(),
            refusals: Default::default(),
            turned_away: Keyed::default(),
            upstream_errors: Keyed::default(),
            cancelled: Default::default(),
            retries: Counter::new(),
        }
    }
}

impl ModelMetrics {
    /// A request has ended, with whatever answer.
    pub fn ended(&self, request: &Ended) {
        self.requests.of((request.api, request.code)).add(1);
        self.duration.time(request.took);
        self.bytes_in.add(request.bytes_in);
        self.bytes_out.add(request.bytes_out);
        if let Some(time) = request.first_byte {
            self.first_byte.time(time);
        }
        let usage = request.usage.unwrap_or_default();
        self.tokens_in.add(usage.input);
        self.tokens_out.add(usage.output);
        if let Some(first) = request.first_event {
            self.first_token.time(first);
            self.events.add(request.events);
            let gaps = u32::try_from(request.events.saturating_sub(1)).unwrap_or(u32::MAX);
            if gaps > 0 {
                self.inter_token.time(request.took.saturating_sub(first) / gaps);
            }
        }
        if request.attempts > 1 {
            self.retries.add(u64::from(request.attempts) - 1);
        }
    }

    /// The client left.
    pub fn cancelled(&self, phase: Phase) {
        let [waiting, in_flight] = &self.cancelled;
        match phase {
            Phase::Waiting => waiting.add(1),
            Phase::InFlight => in_flight.add(1),
        }
    }

    /// A request was refused before it came to the line; `reason` is one of a fixed set of words.
    pub fn turned_away(&self, reason: &'static str) {
        self.turned_away.of(reason).add(1);
    }

    /// A replica failed a request; `kind` is one of a fixed set of words.
    pub fn upstream_failed(&self, kind: &'static str) {
        self.upstream_errors.of(kind).add(1);
    }

    pub(crate) fn refused(&self, reason: &Reason) {
        if let Some(counter) = self.refusals.get(reason.index()) {
            counter.add(1);
        }
    }

    pub(crate) fn waited(&self, time: Duration, cold: bool) {
        self.queue_wait.time(time);
        if cold {
            self.cold_start.time(time);
        }
    }

    /// The scaler has published the model anew: a forecast is made, comes true, or is void.
    pub(crate) fn routed(&self, now: Micros, route: &ModelRoute) {
        let ready = route.replicas.iter().filter(|replica| !replica.draining);
        let ready_since = ready.map(|replica| replica.ready_since).min();
        let mut forecast = self.forecast.lock().unwrap_or_else(PoisonError::into_inner);
        match (forecast.take(), ready_since) {
            (Some(made), Some(at)) if at >= made.at => {
                self.eta_error.ratio(at.since(made.at).into(), made.ready_at.since(made.at).into());
            }
            (Some(made), None) if route.starting > 0 => *forecast = Some(made),
            (None, None) if route.starting > 0 => {
                *forecast = route.ready_at.map(|ready_at| Forecast { at: now, ready_at });
            }
            _ => {}
        }
    }

    /// Appends all of it.
    pub(crate) fn expose(&self, out: &mut Exposition, model: &str, now: &ModelGauges) {
        self.expose_unknown(out, model);
        let times = [
            (Name::FirstByte, &self.first_byte),
            (Name::FirstToken, &self.first_token),
            (Name::InterToken, &self.inter_token),
            (Name::QueueWait, &self.queue_wait),
            (Name::EtaError, &self.eta_error),
        ];
        for (name, histogram) in times {
            out.histogram(name, &[model], histogram);
        }
        out.histogram(Name::ColdStart, &[model, "start"], &self.cold_start);
        out.count(Name::Events, &[model], self.events.get());
        out.count(Name::Tokens, &[model, "input"], self.tokens_in.get());
        out.count(Name::Tokens, &[model, "output"], self.tokens_out.get());
        out.count(Name::Retries, &[model], self.retries.get());
        for (reason, counter) in Reason::LABELS.iter().zip(&self.refusals) {
            out.count(Name::Refusals, &[model, reason], counter.get());
        }
        expose_keyed(out, Name::UpstreamErrors, model, &self.upstream_errors);
        for (phase, counter) in ["waiting", "in_flight"].iter().zip(&self.cancelled) {
            out.count(Name::Cancels, &[model, phase], counter.get());
        }
        expose_gauges(out, model, now);
    }

    /// Appends what requests for no model can move.
    pub(crate) fn expose_unknown(&self, out: &mut Exposition, model: &str) {
        for ((api, code), count) in self.requests.each() {
            out.count(Name::Requests, &[model, api, &code.to_string()], count);
        }
        if self.requests.other() > 0 {
            out.count(Name::Requests, &[model, OTHER, OTHER], self.requests.other());
        }
        out.histogram(Name::Duration, &[model], &self.duration);
        out.count(Name::BytesIn, &[model], self.bytes_in.get());
        out.count(Name::BytesOut, &[model], self.bytes_out.get());
        expose_keyed(out, Name::Refusals, model, &self.turned_away);
    }
}

fn expose_gauges(out: &mut Exposition, model: &str, now: &ModelGauges) {
    for (replica, in_flight) in &now.in_flight {
        out.value(Name::InFlight, &[model, &replica.to_string()], f64::from(*in_flight));
    }
    for (class, depth) in Class::ALL.iter().zip(now.queued) {
        out.value(Name::QueueDepth, &[model, class.as_str()], depth as f64);
    }
    let states = [("ready", now.ready), ("starting", now.starting as usize), ("draining", now.draining)];
    for (state, count) in states {
        out.value(Name::Replicas, &[model, state], count as f64);
    }
    out.value(Name::Desired, &[model], f64::from(now.desired));
}

fn expose_keyed<const N: usize>(
    out: &mut Exposition,
    name: Name,
    model: &str,
    keyed: &Keyed<&'static str, N>,
) {
    for (word, count) in keyed.each() {
        out.count(name, &[model, word], count);
    }
    if keyed.other() > 0 {
        out.count(name, &[model, OTHER], keyed.other());
    }
}

#[cfg(test)]
mod tests;
