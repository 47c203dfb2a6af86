// SPDX-License-Identifier: Apache-2.0
//! Traces of requests: whose trace a request belongs to, what the replica is told of it, and what is recorded.
//!
//! Off, the gateway takes no part in a trace: the client's lines go on as they came, and its trace id is in the request
//! log. On, it takes part: see [`begin`]. Must not know how spans travel.

mod context;
#[cfg(feature = "otel")]
mod export;
#[cfg(feature = "otel")]
mod otlp;
mod span;

use std::fmt;
use std::time::Duration;

use crate::config::Tracing;
use context::{Context, SAMPLED};
pub(crate) use span::Finished;

/// Why traces cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// Built without it.
    #[error("`tracing` is configured and this sluice was built without it: build with the feature `otel`")]
    NotBuilt,
    /// The system refused.
    #[error("the thread that exports traces cannot be started: {0}")]
    Thread(std::io::Error),
}

/// Records requests. There is none where `tracing` is not configured.
#[derive(Debug)]
pub struct Tracer {
    /// Of 2^56: trace ids below are recorded where nobody has decided.
    sample_below: u64,
    #[cfg(feature = "otel")]
    exporter: export::Exporter,
}

impl Tracer {
    /// Starts the exporting thread.
    #[cfg(feature = "otel")]
    pub fn start(settings: &Tracing) -> Result<Tracer, TraceError> {
        let exporter = export::Exporter::start(settings).map_err(TraceError::Thread)?;
        Ok(Tracer { sample_below: sample_below(settings), exporter })
    }

    /// There is no exporter in this build.
    #[cfg(not(feature = "otel"))]
    pub fn start(_: &Tracing) -> Result<Tracer, TraceError> {
        Err(TraceError::NotBuilt)
    }

    /// Takes a request that has ended; never waits. What the exporter cannot take is dropped and counted.
    pub(crate) fn record(&self, finished: Finished) {
        #[cfg(feature = "otel")]
        self.exporter.push(finished);
        #[cfg(not(feature = "otel"))]
        drop(finished);
    }

    /// Waits until what was taken is exported, at most `limit`.
    pub async fn flush(&self, limit: Duration) {
        #[cfg(feature = "otel")]
        self.exporter.flush(limit).await;
        #[cfg(not(feature = "otel"))]
        let _ = limit;
    }

    /// The decision for a trace that begins here.
    fn samples(&self, trace: TraceId) -> bool {
        trace.low_bits() < self.sample_below
    }
}

#[cfg(feature = "otel")]
fn sample_below(settings: &Tracing) -> u64 {
    (1u64 << 56) / 1_000 * u64::from(settings.sample_milli)
        + if settings.sample_milli >= 1_000 { 1_000 } else { 0 }
}

/// Identity of a trace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TraceId(pub [u8; 16]);

/// Identity of a span.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpanId(pub [u8; 8]);

impl TraceId {
    /// A new one: random but for the six bits that mark a UUID, which are not in the last seven bytes. Samplers
    /// downstream rely on these.
    fn new() -> TraceId {
        TraceId(*uuid::Uuid::new_v4().as_bytes())
    }

    /// The last seven bytes, which are random.
    fn low_bits(self) -> u64 {
        let [.., a, b, c, d, e, f, g] = self.0;
        u64::from_be_bytes([0, a, b, c, d, e, f, g])
    }
}

impl SpanId {
    fn new() -> SpanId {
        let [.., a, b, c, d, e, f, g, h] = *uuid::Uuid::new_v4().as_bytes();
        SpanId([a, b, c, d, e, f, g, h])
    }
}

/// Lower case hexadecimal digits.
fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

/// What is known of one request's trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trace {
    /// Which trace it belongs to, if any.
    pub id: Option<TraceId>,
    /// Set if it is recorded.
    pub spans: Option<Spans>,
}

/// Identities of the spans of a recorded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spans {
    /// The client's span.
    pub parent: Option<SpanId>,
    /// The whole request.
    pub server: SpanId,
    /// What is asked of the replica, which gets this as its parent.
    pub call: SpanId,
}

/// Reads the client's lines `traceparent` and `tracestate`, and makes of them the replica's.
///
/// Without a tracer they stay as they are. With one, by W3C Trace Context §3.2 and §4:
/// * a valid `traceparent` is continued, with a span of ours as the new parent if its sender has it recorded, and
///   unchanged otherwise; `tracestate` goes on untouched;
/// * an invalid one, or more than one, is no trace: both fields are replaced by those of a new trace;
/// * without one a trace begins here, recorded or not by the configured share.
pub(crate) fn begin(tracer: Option<&Tracer>, lines: &mut Vec<u8>) -> Trace {
    let received = if lines.is_empty() { None } else { context::read(lines) };
    let Some(tracer) = tracer else {
        return Trace { id: received.map(|context| context.trace), spans: None };
    };
    match received {
        Some(context) if context.flags & SAMPLED == 0 => Trace { id: Some(context.trace), spans: None },
        Some(context) => {
            let spans = Spans { parent: Some(context.parent), server: SpanId::new(), call: SpanId::new() };
            context::replace(lines, Context { parent: spans.call, ..context });
            Trace { id: Some(context.trace), spans: Some(spans) }
        }
        None => {
            let trace = TraceId::new();
            let sampled = tracer.samples(trace);
            let spans = Spans { parent: None, server: SpanId::new(), call: SpanId::new() };
            let flags = if sampled { SAMPLED } else { 0 };
            lines.clear();
            context::write(lines, Context { trace, parent: spans.call, flags });
            Trace { id: Some(trace), spans: sampled.then_some(spans) }
        }
    }
}

#[cfg(all(test, feature = "otel"))]
mod tests;
