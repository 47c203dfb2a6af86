// SPDX-License-Identifier: Apache-2.0
//! Every metric of the gateway: its name, its meaning, and the handles that record it.
//!
//! Owns names, labels and exposition. Handles are resolved once per model, never per request. Label values come from
//! the configuration only: requests for models that do not exist share the value `unknown`, and of the status codes
//! that replicas make up the first [`CODES_MAX`] of a model get a series of their own, the rest share `other`.
//!
//! Series of a model that is no longer configured are left out of the exposition. Their counts are kept, bounded by
//! the names ever configured, so that they go on from where they were if the model comes back.

use std::collections::HashSet;
use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Unit, counter, gauge, histogram};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use crate::admission::{Class, Reason};
use crate::route::Table;

/// Label value of every model that is not configured.
pub const UNKNOWN_MODEL: &str = "unknown";

/// Status codes of one model with a series of their own.
const CODES_MAX: usize = 24;

const REQUESTS: &str = "sluice_requests_total";
const DURATION: &str = "sluice_request_duration_seconds";
const FIRST_BYTE: &str = "sluice_time_to_first_byte_seconds";
const FIRST_TOKEN: &str = "sluice_time_to_first_token_seconds";
const IN_FLIGHT: &str = "sluice_inflight";
const QUEUE_DEPTH: &str = "sluice_queue_depth";
const QUEUE_WAIT: &str = "sluice_queue_wait_seconds";
const REFUSALS: &str = "sluice_refusals_total";
const COLD_START: &str = "sluice_cold_start_seconds";
const CANCELS: &str = "sluice_client_cancels_total";
const RETRIES: &str = "sluice_retries_total";
const REPLICAS: &str = "sluice_replicas";
const DESIRED: &str = "sluice_desired_replicas";
const CONNECTIONS: &str = "sluice_connections";
const BODY_MEMORY: &str = "sluice_body_memory_bytes";
const RELOADS: &str = "sluice_config_reloads_total";
const BUILD: &str = "sluice_build_info";

enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Name, kind, unit and meaning of each metric.
const METRICS: [(&str, Kind, Option<Unit>, &str); 17] = [
    (
        REQUESTS,
        Kind::Counter,
        None,
        "Requests answered, by status code; 499 if the client left before an answer.",
    ),
    (DURATION, Kind::Histogram, Some(Unit::Seconds), "From a request's head to its last response byte."),
    (FIRST_BYTE, Kind::Histogram, Some(Unit::Seconds), "From a request's head to the response head."),
    (
        FIRST_TOKEN,
        Kind::Histogram,
        Some(Unit::Seconds),
        "From a request's head to the first event of its stream.",
    ),
    (IN_FLIGHT, Kind::Gauge, None, "Requests sent to replicas and not finished."),
    (QUEUE_DEPTH, Kind::Gauge, None, "Requests waiting for a replica."),
    (
        QUEUE_WAIT,
        Kind::Histogram,
        Some(Unit::Seconds),
        "How long requests waited that had to wait and got a replica.",
    ),
    (REFUSALS, Kind::Counter, None, "Requests not sent to a replica, by reason."),
    (
        COLD_START,
        Kind::Histogram,
        Some(Unit::Seconds),
        "How long requests waited that waited for a replica to start.",
    ),
    (CANCELS, Kind::Counter, None, "Clients that left, while waiting or while in flight."),
    (RETRIES, Kind::Counter, None, "Attempts beyond a request's first one."),
    (REPLICAS, Kind::Gauge, None, "Replicas as the gateway knows them, by state."),
    (DESIRED, Kind::Gauge, None, "Replicas wanted after all rules."),
    (CONNECTIONS, Kind::Gauge, None, "Open client connections."),
    (BODY_MEMORY, Kind::Gauge, Some(Unit::Bytes), "Request bodies held in memory."),
    (RELOADS, Kind::Counter, None, "Configurations read again, by outcome."),
    (BUILD, Kind::Gauge, None, "Always 1; the version is a label."),
];

/// Upper bounds of every time histogram, in seconds: from a proxied echo to a long generation after a cold start.
const SECONDS: [f64; 18] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
    600.0,
];

/// What the process counts outside of the models.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessLoad {
    /// Open client connections.
    pub connections: usize,
    /// Bytes of request bodies held.
    pub body_memory: usize,
}

/// The recorder behind the `metrics` facade, and its exposition.
#[derive(Debug)]
pub struct Exporter {
    handle: PrometheusHandle,
}

impl Exporter {
    /// Installs the recorder for the process, the first time; before any handle is made.
    pub fn install() -> &'static Exporter {
        static EXPORTER: OnceLock<Exporter> = OnceLock::new();
        EXPORTER.get_or_init(|| {
            let recorder = recorder();
            let exporter = Exporter { handle: recorder.handle() };
            if metrics::set_global_recorder(recorder).is_err() {
                tracing::warn!("another metrics recorder is installed: /metrics stays empty");
            }
            exporter.describe();
            exporter
        })
    }

    /// The text exposition, version 0.0.4. Gauges are read from `table` now.
    pub fn render(&self, table: &Table, process: ProcessLoad) -> String {
        gauge!(CONNECTIONS).set(process.connections as f64);
        gauge!(BODY_MEMORY).set(process.body_memory as f64);
        let models = table.list();
        for model in &models {
            model.observe();
        }
        let configured: HashSet<&str> = models.iter().map(|model| model.name().as_str()).collect();
        let text = self.handle.render();
        let is_current = |line: &&str| {
            model_label(line)
                .is_none_or(|model| model == UNKNOWN_MODEL || configured.contains(model.as_str()))
        };
        text.split_inclusive('\n').filter(is_current).collect()
    }

    /// Folds recorded samples into their histograms; to be called every few seconds, so that they do not pile up
    /// between scrapes.
    pub fn upkeep(&self) {
        self.handle.run_upkeep();
    }

    fn describe(&self) {
        for (name, kind, unit, meaning) in METRICS {
            match (kind, unit) {
                (Kind::Counter, _) => metrics::describe_counter!(name, meaning),
                (Kind::Gauge, Some(unit)) => metrics::describe_gauge!(name, unit, meaning),
                (Kind::Gauge, None) => metrics::describe_gauge!(name, meaning),
                (Kind::Histogram, Some(unit)) => metrics::describe_histogram!(name, unit, meaning),
                (Kind::Histogram, None) => metrics::describe_histogram!(name, meaning),
            }
        }
        gauge!(BUILD, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    }
}

fn recorder() -> PrometheusRecorder {
    // The list of bounds is not empty, which is the only error.
    let builder = PrometheusBuilder::new().set_buckets(&SECONDS).unwrap_or_default();
    builder.build_recorder()
}

/// Counts a request that was refused before it came to a line. `reason` is one of a fixed set of words.
pub fn refused(model: Option<&str>, reason: &'static str) {
    let model = model.unwrap_or(UNKNOWN_MODEL).to_owned();
    counter!(REFUSALS, "model" => model, "reason" => reason).increment(1);
}

/// Counts a configuration that was read again.
pub fn config_reloaded(taken: bool) {
    counter!(RELOADS, "outcome" => if taken { "ok" } else { "error" }).increment(1);
}

/// Where a request was when its client left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Before it had a replica.
    Waiting,
    /// At a replica.
    InFlight,
}

/// One model's handles.
pub struct ModelMetrics {
    model: String,
    codes: [OnceLock<(u16, Counter)>; CODES_MAX],
    other_code: OnceLock<Counter>,
    duration: Histogram,
    first_byte: Histogram,
    first_token: Histogram,
    in_flight: Gauge,
    queued: [Gauge; Class::ALL.len()],
    queue_wait: Histogram,
    cold_start: Histogram,
    refusals: [Counter; Reason::LABELS.len()],
    cancelled: [Counter; 2],
    retries: Counter,
    replicas: [Gauge; 3],
    desired: Gauge,
}

/// Numbers that are read when they are scraped.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ModelGauges {
    pub in_flight: u32,
    pub queued: [usize; Class::ALL.len()],
    pub ready: usize,
    pub starting: u32,
    pub draining: usize,
    pub desired: u32,
}

impl ModelMetrics {
    /// The handles of the model called `model`.
    pub fn new(model: &str) -> ModelMetrics {
        let name = || model.to_owned();
        ModelMetrics {
            model: name(),
            codes: Default::default(),
            other_code: OnceLock::new(),
            duration: histogram!(DURATION, "model" => name()),
            first_byte: histogram!(FIRST_BYTE, "model" => name()),
            first_token: histogram!(FIRST_TOKEN, "model" => name()),
            in_flight: gauge!(IN_FLIGHT, "model" => name()),
            queued: Class::ALL.map(|class| gauge!(QUEUE_DEPTH, "model" => name(), "class" => class.as_str())),
            queue_wait: histogram!(QUEUE_WAIT, "model" => name()),
            cold_start: histogram!(COLD_START, "model" => name()),
            refusals: Reason::LABELS.map(|reason| counter!(REFUSALS, "model" => name(), "reason" => reason)),
            cancelled: ["waiting", "in_flight"]
                .map(|phase| counter!(CANCELS, "model" => name(), "phase" => phase)),
            retries: counter!(RETRIES, "model" => name()),
            replicas: ["ready", "starting", "draining"]
                .map(|state| gauge!(REPLICAS, "model" => name(), "state" => state)),
            desired: gauge!(DESIRED, "model" => name()),
        }
    }

    /// A request has ended, with whatever answer; times count from its head.
    pub fn finished(
        &self,
        code: u16,
        took: Duration,
        first_byte: Option<Duration>,
        first_token: Option<Duration>,
    ) {
        self.code(code).increment(1);
        self.duration.record(took);
        if let Some(time) = first_byte {
            self.first_byte.record(time);
        }
        if let Some(time) = first_token {
            self.first_token.record(time);
        }
    }

    /// The client left.
    pub fn cancelled(&self, phase: Phase) {
        let [waiting, in_flight] = &self.cancelled;
        match phase {
            Phase::Waiting => waiting.increment(1),
            Phase::InFlight => in_flight.increment(1),
        }
    }

    /// A request is tried again.
    pub fn retried(&self) {
        self.retries.increment(1);
    }

    pub(crate) fn refused(&self, reason: &Reason) {
        if let Some(counter) = self.refusals.get(reason.index()) {
            counter.increment(1);
        }
    }

    pub(crate) fn waited(&self, time: Duration, cold: bool) {
        self.queue_wait.record(time);
        if cold {
            self.cold_start.record(time);
        }
    }

    pub(crate) fn set(&self, now: &ModelGauges) {
        self.in_flight.set(f64::from(now.in_flight));
        for (gauge, depth) in self.queued.iter().zip(now.queued) {
            gauge.set(depth as f64);
        }
        let [ready, starting, draining] = &self.replicas;
        ready.set(now.ready as f64);
        starting.set(f64::from(now.starting));
        draining.set(now.draining as f64);
        self.desired.set(f64::from(now.desired));
    }

    fn code(&self, code: u16) -> &Counter {
        let requests = |code: String| counter!(REQUESTS, "model" => self.model.clone(), "code" => code);
        for cell in &self.codes {
            let (owner, counter) = cell.get_or_init(|| (code, requests(code.to_string())));
            if *owner == code {
                return counter;
            }
        }
        self.other_code.get_or_init(|| requests("other".to_owned()))
    }
}

impl std::fmt::Debug for ModelMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelMetrics").field("model", &self.model).finish_non_exhaustive()
    }
}

/// The value of a sample line's label `model`, unescaped.
fn model_label(line: &str) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let (_, mut rest) = line.split_once('{')?;
    loop {
        let (key, value) = rest.split_once("=\"")?;
        let (text, after) = quoted(value)?;
        if key.trim_start_matches(',') == "model" {
            return Some(text);
        }
        rest = after;
    }
}

/// Text up to an unescaped quote, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                escaped => value.push(escaped),
            },
            plain => value.push(plain),
        }
    }
    None
}

#[cfg(test)]
mod tests;
