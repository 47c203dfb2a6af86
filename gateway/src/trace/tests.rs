// SPDX-License-Identifier: Apache-2.0
//! What the replica is told of a trace, what is recorded, and what becomes of it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::SystemTime;

use prost::Message as _;
use sluice_scaler::launch::Origin;

use super::*;

const CLIENT: &str =
    "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\ntracestate: a=1\r\n";

/// A tracer whose collector does not exist.
fn tracer(sample_milli: u32) -> Tracer {
    let endpoint = Origin { tls: false, host: "127.0.0.1".to_owned(), port: 1 };
    Tracer::start(&Tracing { endpoint, sample_milli, headers: Vec::new() }).unwrap()
}

fn after(tracer: Option<&Tracer>, lines: &str) -> (Trace, String) {
    let mut lines = lines.as_bytes().to_vec();
    let trace = begin(tracer, &mut lines);
    (trace, String::from_utf8(lines).unwrap())
}

#[test]
fn without_a_tracer_lines_go_on_as_they_came() {
    for lines in ["", CLIENT, "traceparent: nonsense\r\n", "tracestate: a=1\r\n"] {
        let (trace, out) = after(None, lines);
        assert_eq!((out.as_str(), trace.spans), (lines, None));
        assert_eq!(trace.id.is_some(), lines == CLIENT);
    }
}

#[test]
fn a_trace_that_its_sender_records_is_continued_with_a_span_of_ours() {
    let (trace, out) = after(Some(&tracer(0)), CLIENT);
    let spans = trace.spans.unwrap();
    let call = spans.call;
    assert_eq!(
        out,
        format!("traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-{call}-01\r\ntracestate: a=1\r\n")
    );
    assert_eq!(spans.parent.unwrap().to_string(), "00f067aa0ba902b7");
    assert_ne!(spans.server, spans.call);
}

#[test]
fn a_trace_that_its_sender_does_not_record_goes_on_unchanged() {
    let lines = CLIENT.replace("-01", "-00");
    let (trace, out) = after(Some(&tracer(1000)), &lines);
    assert_eq!((out, trace.spans), (lines, None));
    assert_eq!(trace.id.unwrap().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
}

#[test]
fn what_is_no_trace_is_replaced_by_a_new_one() {
    let twice = CLIENT.repeat(2);
    for lines in ["", "traceparent: 00-x\r\ntracestate: a=1\r\n", "tracestate: a=1\r\n", &twice] {
        let (trace, out) = after(Some(&tracer(1000)), lines);
        let spans = trace.spans.unwrap();
        assert_eq!(out, format!("traceparent: 00-{}-{}-01\r\n", trace.id.unwrap(), spans.call));
        assert_eq!(spans.parent, None);
    }
    let (trace, out) = after(Some(&tracer(0)), "");
    assert!(trace.spans.is_none() && out.ends_with("-00\r\n"), "{out}");
}

#[test]
fn the_share_of_new_traces_is_kept() {
    let tracer = tracer(250);
    let sampled = (0..4000).filter(|_| after(Some(&tracer), "").0.spans.is_some()).count();
    // Six standard deviations.
    assert!((836..=1164).contains(&sampled), "{sampled}");
}

fn finished() -> Finished {
    let secs = Duration::from_secs;
    Finished {
        trace: TraceId([7; 16]),
        spans: Spans { parent: Some(SpanId([1; 8])), server: SpanId([2; 8]), call: SpanId([3; 8]) },
        started: SystemTime::UNIX_EPOCH + secs(1000),
        took: secs(9),
        request_id: "id".into(),
        method: "POST",
        path: "/v1/chat/completions".into(),
        protocol: "h2",
        client: [127, 0, 0, 1].into(),
        model: Some("m".into()),
        status: 502,
        outcome: "upstream_error",
        code: "upstream_error",
        queued: secs(2),
        cold: true,
        dispatched: Some(secs(3)),
        first_byte: Some(secs(4)),
        first_event: None,
        replica: Some(sluice_core::ReplicaId(5)),
        attempts: 2,
    }
}

#[test]
fn a_request_is_a_server_span_with_its_wait_and_its_call() {
    let request = otlp::request(&[finished()]);
    let read = otlp::Request::decode(request.encode_to_vec().as_slice()).unwrap();
    assert_eq!(read, request);
    let spans = &read.resource_spans[0].scope_spans[0].spans;
    let [server, wait, call] = spans.as_slice() else { panic!("{spans:?}") };
    let secs = |n: u64| n * 1_000_000_000;
    let times = |span: &otlp::Span| (span.start_time_unix_nano, span.end_time_unix_nano);
    assert_eq!((server.name.as_str(), wait.name.as_str(), call.name.as_str()), ("POST m", "wait", "replica"));
    assert_eq!(times(server), (secs(1000), secs(1009)));
    assert_eq!(times(wait), (secs(1001), secs(1003)));
    assert_eq!(times(call), (secs(1003), secs(1009)));
    assert_eq!(server.parent_span_id, [1; 8]);
    assert!(wait.parent_span_id == [2; 8] && call.parent_span_id == [2; 8] && call.span_id == [3; 8]);
    assert!(server.status.is_some() && call.status.is_some() && wait.status.is_none());
    assert_eq!((server.events.len(), server.events[0].name.as_str()), (1, "first_byte"));
    assert!(spans.iter().all(|span| span.trace_id == [7; 16]));
}

#[test]
fn a_request_that_was_refused_has_no_call() {
    let refused = Finished { dispatched: None, status: 429, ..finished() };
    let request = otlp::request(&[refused]);
    let spans = &request.resource_spans[0].scope_spans[0].spans;
    assert_eq!(spans.len(), 1);
    assert_eq!(spans[0].status, None, "it is the client's error, not ours");
}

#[test]
fn what_does_not_fit_is_dropped_and_nobody_waits() {
    let settings = Tracing {
        // Not routed anywhere: the export hangs until its limit.
        endpoint: Origin { tls: false, host: "192.0.2.1".to_owned(), port: 4318 },
        sample_milli: 1000,
        headers: Vec::new(),
    };
    let tracer = Tracer::start(&settings).unwrap();
    let dropped = || crate::telemetry::traced_so_far(crate::telemetry::Spans::Dropped);
    let before = dropped();
    for _ in 0..6000 {
        tracer.record(finished());
    }
    assert!(dropped() > before);
}
