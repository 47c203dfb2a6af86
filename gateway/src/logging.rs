// SPDX-License-Identifier: Apache-2.0
//! What Sluice says while it runs: for people on a terminal, as JSON lines otherwise, always on stderr.
//!
//! Owns the form of a log line, the one wide event per request and the means against repetition. An event is a stable
//! word with fields. Never holds bodies, prompts, query strings or credentials.

mod json;
mod sink;

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use sluice_core::ReplicaId;
use tracing::Level;
use tracing_subscriber::filter::{EnvFilter, ParseError};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{Layer, Registry, fmt};

use sink::Sink;

/// The environment variable with the filter, such as `warn` or `sluice=debug`.
pub const FILTER: &str = "SLUICE_LOG";

/// Target of the events of requests: `SLUICE_LOG=info,sluice::request=off` silences them alone.
pub const REQUEST: &str = "sluice::request";

/// Longest path in an event, in bytes.
const PATH_MAX: usize = 256;

/// Longest model name in an event, in bytes.
const MODEL_MAX: usize = 128;

/// How long the end of the process waits for its last lines.
const FLUSH: Duration = Duration::from_secs(2);

/// Why logging could not begin.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter is wrong.
    #[error("{FILTER}={text:?} is not a log filter: {error}; write for example info, warn or sluice=debug")]
    Filter {
        /// As set.
        text: String,
        /// What is wrong.
        error: ParseError,
    },
    /// The writing thread could not be started.
    #[error("the log thread cannot be started: {0}")]
    Thread(std::io::Error),
    /// Somebody else was first.
    #[error("logging was set up before: {0}")]
    Twice(TryInitError),
}

/// Keeps logging; when dropped, the last lines are written.
#[must_use = "lines that are not written yet are lost without it"]
pub struct Logging(Sink);

impl Drop for Logging {
    fn drop(&mut self) {
        self.0.flush(FLUSH);
    }
}

/// Begins logging to stderr, filtered by [`FILTER`] (`info` when it is unset or empty).
pub fn init() -> Result<Logging, LogError> {
    let text = std::env::var(FILTER).unwrap_or_default();
    let filter = filter(&text)?;
    let stderr = std::io::stderr();
    let terminal = stderr.is_terminal();
    let notice = if terminal { sink::text_notice } else { json::notice };
    let sink = Sink::start(Box::new(stderr), notice).map_err(LogError::Thread)?;
    let layer: Box<dyn Layer<Registry> + Send + Sync> = if terminal {
        let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Box::new(fmt::layer().with_ansi(colour).with_writer(sink.clone()))
    } else {
        Box::new(json::Json::new(sink.clone()))
    };
    tracing_subscriber::registry().with(layer.with_filter(filter)).try_init().map_err(LogError::Twice)?;
    Ok(Logging(sink))
}

fn filter(text: &str) -> Result<EnvFilter, LogError> {
    let text = text.trim();
    let wanted = if text.is_empty() { "info" } else { text };
    EnvFilter::builder().parse(wanted).map_err(|error| LogError::Filter { text: text.to_owned(), error })
}

/// Everything worth knowing of one request, as one event.
#[derive(Clone, Copy, Debug)]
pub struct Wide<'a> {
    /// Ours or the client's.
    pub request_id: &'a str,
    /// Known once identified.
    pub model: Option<&'a str>,
    /// Upper case.
    pub method: &'a str,
    /// A query is cut off.
    pub path: &'a str,
    /// Of the answer; 499 if the client left before one.
    pub status: u16,
    /// Whose API was spoken, such as `openai`; empty if unknown.
    pub api: &'a str,
    /// `http/1.1` or `h2`.
    pub protocol: &'a str,
    /// From the head to the last byte.
    pub duration: Duration,
    /// Waiting for a replica.
    pub queued: Duration,
    /// It waited for a replica to start.
    pub cold: bool,
    /// From the head to the response head.
    pub first_byte: Option<Duration>,
    /// Request body.
    pub bytes_in: u64,
    /// Response body.
    pub bytes_out: u64,
    /// Which one answered or was tried last.
    pub replica: Option<ReplicaId>,
    /// Replicas tried.
    pub attempts: u32,
    /// `served`, `refused`, `client_gone`, `upstream_error`, …
    pub outcome: &'a str,
    /// Error code of a refusal; empty if there was none.
    pub code: &'a str,
    /// Where it came from.
    pub client: &'a str,
    /// The trace that it belongs to.
    pub trace: Option<&'a str>,
}

impl Wide<'_> {
    /// Whether anybody wants such events; without it there is no need to build one.
    pub fn wanted() -> bool {
        tracing::enabled!(target: REQUEST, Level::INFO)
    }

    /// Writes the event.
    pub fn emit(&self) {
        let path = self.path.split('?').next().unwrap_or_default();
        tracing::info!(
            target: REQUEST,
            request_id = self.request_id,
            model = self.model.map(|model| head(model, MODEL_MAX)),
            method = self.method,
            path = head(path, PATH_MAX),
            status = self.status,
            api = some(self.api),
            protocol = self.protocol,
            duration_ms = millis(self.duration),
            queue_ms = millis(self.queued),
            cold = self.cold,
            ttfb_ms = self.first_byte.map(millis),
            bytes_in = self.bytes_in,
            bytes_out = self.bytes_out,
            replica = self.replica.map(tracing::field::display),
            attempts = self.attempts,
            outcome = self.outcome,
            code = some(self.code),
            client = self.client,
            trace_id = self.trace,
            "request"
        );
    }
}

/// Milliseconds with three decimals.
fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn some(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// At most `max` bytes of `text`, whole characters.
fn head(text: &str, max: usize) -> &str {
    let end = (0..=max.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}

/// Lets an event that may come in floods through once per period.
#[derive(Debug)]
pub struct Repeat {
    period_ms: u64,
    next_ms: AtomicU64,
    silenced: AtomicU64,
}

impl Repeat {
    /// Once per `period`; for a `static`.
    pub const fn every(period: Duration) -> Repeat {
        let period_ms = period.as_secs() * 1_000;
        Repeat { period_ms, next_ms: AtomicU64::new(0), silenced: AtomicU64::new(0) }
    }

    /// `Some` if the event may be written now, with how many were silenced before it.
    pub fn due(&self) -> Option<u64> {
        self.due_at(sluice_scaler::clock::now().as_millis())
    }

    fn due_at(&self, now_ms: u64) -> Option<u64> {
        let next = self.next_ms.load(Relaxed);
        let later = now_ms.saturating_add(self.period_ms);
        if now_ms >= next && self.next_ms.compare_exchange(next, later, Relaxed, Relaxed).is_ok() {
            return Some(self.silenced.swap(0, Relaxed));
        }
        self.silenced.fetch_add(1, Relaxed);
        None
    }
}

#[cfg(test)]
mod tests;
