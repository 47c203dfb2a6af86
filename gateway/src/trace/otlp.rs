// SPDX-License-Identifier: Apache-2.0
//! The messages of OTLP 1.x that carry spans, as far as they are used (pure), and how a request becomes some.
//!
//! Field numbers are those of opentelemetry-proto, `trace/v1/trace.proto` and `common/v1/common.proto`. Names of
//! attributes are those of OpenTelemetry's semantic conventions; `sluice.` where these have none.

use std::time::{Duration, UNIX_EPOCH};

use prost::{Message, Oneof};

use super::span::Finished;

/// Longest path in a span, in bytes.
const PATH_MAX: usize = 256;

const INTERNAL: i32 = 1;
const SERVER: i32 = 2;
const CLIENT: i32 = 3;
const ERROR: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Request {
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Scope {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Span {
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub name: String,
    #[prost(int32, tag = "6")]
    pub kind: i32,
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<Event>,
    #[prost(message, optional, tag = "15")]
    pub status: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    #[prost(fixed64, tag = "1")]
    pub time_unix_nano: u64,
    #[prost(string, tag = "2")]
    pub name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(int32, tag = "3")]
    pub code: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 2, 3, 4")]
    pub value: Option<Value>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Flag(bool),
    #[prost(int64, tag = "3")]
    Number(i64),
    #[prost(double, tag = "4")]
    Decimal(f64),
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

fn text(key: &str, value: impl Into<String>) -> KeyValue {
    attribute(key, Value::Text(value.into()))
}

/// One export of these requests.
pub(super) fn request(finished: &[Finished]) -> Request {
    let resource = Resource {
        attributes: vec![text("service.name", "sluice"), text("service.version", env!("CARGO_PKG_VERSION"))],
    };
    let scope = Scope { name: "sluice".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let spans = finished.iter().flat_map(spans).collect();
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans }];
    Request { resource_spans: vec![ResourceSpans { resource: Some(resource), scope_spans }] }
}

/// The request itself, its wait if it had to wait, and what was asked of a replica if one was.
fn spans(of: &Finished) -> Vec<Span> {
    let mut spans = vec![server(of)];
    if let Some(began) = of.dispatched {
        if !of.queued.is_zero() {
            let id = super::SpanId::new();
            spans.push(Span {
                name: "wait".to_owned(),
                kind: INTERNAL,
                attributes: vec![attribute("sluice.cold", Value::Flag(of.cold))],
                ..span(of, id.0, began.saturating_sub(of.queued), began)
            });
        }
        spans.push(call(of, began));
    }
    spans
}

fn server(of: &Finished) -> Span {
    let mut attributes = vec![
        text("http.request.method", of.method),
        text("url.path", cut(&of.path)),
        attribute("http.response.status_code", Value::Number(i64::from(of.status))),
        text("network.protocol.version", if of.protocol == "h2" { "2" } else { "1.1" }),
        text("client.address", of.client.to_string()),
        text("sluice.request_id", of.request_id.as_str()),
        text("sluice.outcome", of.outcome),
        attribute("sluice.cold", Value::Flag(of.cold)),
        attribute("sluice.queue.duration", Value::Decimal(of.queued.as_secs_f64())),
        attribute("sluice.attempts", Value::Number(i64::from(of.attempts))),
    ];
    attributes.extend(of.model.as_ref().map(|model| text("gen_ai.request.model", model.as_str())));
    if !of.code.is_empty() {
        attributes.push(text("error.type", of.code));
    }
    let name = match &of.model {
        Some(model) => format!("{} {model}", of.method),
        None => of.method.to_owned(),
    };
    Span {
        parent_span_id: of.spans.parent.map(|id| id.0.to_vec()).unwrap_or_default(),
        name,
        kind: SERVER,
        attributes,
        events: moments(of),
        status: (of.status >= 500).then_some(Status { code: ERROR }),
        ..span(of, of.spans.server.0, Duration::ZERO, of.took)
    }
}

fn call(of: &Finished, began: Duration) -> Span {
    let replica = of.replica.map(|replica| text("sluice.replica", replica.to_string()));
    Span {
        name: "replica".to_owned(),
        kind: CLIENT,
        attributes: replica.into_iter().collect(),
        status: (of.outcome == "upstream_error").then_some(Status { code: ERROR }),
        ..span(of, of.spans.call.0, began, of.took)
    }
}

fn moments(of: &Finished) -> Vec<Event> {
    let moments = [("first_byte", of.first_byte), ("first_token", of.first_event)];
    let events = moments
        .into_iter()
        .filter_map(|(name, at)| at.map(|at| Event { time_unix_nano: nanos(of, at), name: name.to_owned() }));
    events.collect()
}

fn span(of: &Finished, id: [u8; 8], from: Duration, to: Duration) -> Span {
    Span {
        trace_id: of.trace.0.to_vec(),
        span_id: id.to_vec(),
        parent_span_id: of.spans.server.0.to_vec(),
        start_time_unix_nano: nanos(of, from),
        end_time_unix_nano: nanos(of, to),
        ..Span::default()
    }
}

fn nanos(of: &Finished, at: Duration) -> u64 {
    let since = of.started.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from((since + at).as_nanos()).unwrap_or(u64::MAX)
}

fn cut(path: &str) -> &str {
    let end = (0..=PATH_MAX.min(path.len())).rev().find(|at| path.is_char_boundary(*at));
    path.get(..end.unwrap_or(0)).unwrap_or_default()
}
