// SPDX-License-Identifier: Apache-2.0
//! Traces: what replicas are told, what a collector gets, what is in the log.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use sluice_tests::client::Request;
use sluice_tests::harness::{Cost, Gateway, eventually, turn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::{fleet, model, secs};

const CLIENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Head and body of a request.
type Export = (String, Vec<u8>);

/// A collector that keeps the requests it gets, and answers with one status.
struct Collector {
    at: SocketAddr,
    requests: Arc<Mutex<Vec<Export>>>,
}

impl Collector {
    async fn start(status: u16) -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = requests.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (mut bytes, mut room) = (Vec::new(), [0; 4096]);
                let (head, body) = loop {
                    let n = stream.read(&mut room).await.unwrap_or(0);
                    bytes.extend_from_slice(&room[..n]);
                    if let Some(whole) = split(&bytes) {
                        break whole;
                    }
                    assert!(n > 0, "an export broke off");
                };
                kept.lock().unwrap().push((head, body));
                let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n");
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Collector { at, requests }
    }

    /// All spans that came so far.
    fn spans(&self) -> Vec<Span> {
        let requests = self.requests.lock().unwrap();
        requests.iter().flat_map(|(_, body)| spans(body)).collect()
    }

    async fn with_name(&self, name: &str, count: usize) -> Vec<Span> {
        eventually(&format!("{count} spans {name}"), secs(10.0), async || {
            let found: Vec<Span> = self.spans().into_iter().filter(|span| span.name == name).collect();
            (found.len() >= count).then_some(found)
        })
        .await
    }
}

/// Head and body, once both are whole.
fn split(bytes: &[u8]) -> Option<Export> {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_ascii_lowercase();
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length: "))?.parse::<usize>().unwrap();
    (bytes.len() >= end + length).then(|| (head, bytes[end..end + length].to_vec()))
}

/// One span, as a reader of its own makes it out.
#[derive(Clone, Debug, Default)]
struct Span {
    trace: String,
    id: String,
    parent: String,
    name: String,
    kind: u64,
    attributes: Vec<String>,
}

/// The fields of a protobuf message: number, and a varint or the bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (first, rest) = bytes.split_first().expect("a whole message");
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                break;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let (value, size) = match tag & 7 {
            0 => (varint(&mut bytes), 0),
            1 => (0, 8),
            2 => (0, varint(&mut bytes) as usize),
            5 => (0, 4),
            other => panic!("wire type {other}"),
        };
        let (data, rest) = bytes.split_at(size);
        bytes = rest;
        found.push((tag >> 3, value, data));
    }
    found
}

fn inner(message: &[u8], number: u64) -> Vec<&[u8]> {
    fields(message).into_iter().filter(|field| field.0 == number).map(|field| field.2).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// By the numbers of opentelemetry-proto: ResourceSpans 1, ScopeSpans 2, Span 2.
fn spans(body: &[u8]) -> Vec<Span> {
    let scopes = inner(body, 1).into_iter().flat_map(|resource| inner(resource, 2));
    let raw = scopes.flat_map(|scope| inner(scope, 2));
    raw.map(|message| {
        let mut span = Span::default();
        for (number, value, data) in fields(message) {
            match number {
                1 => span.trace = hex(data),
                2 => span.id = hex(data),
                4 => span.parent = hex(data),
                5 => span.name = String::from_utf8(data.to_vec()).unwrap(),
                6 => span.kind = value,
                9 => span.attributes.push(String::from_utf8_lossy(data).into_owned()),
                _ => {}
            }
        }
        span
    })
    .collect()
}

/// The field as the engine got it with the n-th request.
fn seen(gw: &Gateway, n: usize, name: &str) -> Option<String> {
    gw.engines().requests()[n].get(name).map(str::to_owned)
}

fn trace_ids_in_log(gw: &Gateway) -> Vec<Value> {
    let log = gw.log();
    let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events.filter(|event| event["msg"] == "request").map(|event| event["trace_id"].clone()).collect()
}

fn traced(at: SocketAddr, more: &str) -> String {
    format!("tracing: {{endpoint: 'http://{at}'{more}}}\n{}", fleet(&[model("m", "{}", &[])]))
}

#[tokio::test]
async fn without_tracing_the_clients_context_goes_on_as_it_came() {
    let _turn = turn(Cost::Light).await;
    let gw = Gateway::start(&fleet(&[model("m", "{}", &[])])).await;
    let request = || Request::chat("m");
    gw.send(request().field("traceparent", CLIENT).field("tracestate", "a=1")).await.expect(200);
    gw.send(request().field("traceparent", "nonsense")).await.expect(200);
    gw.send(request()).await.expect(200);
    gw.finished().await;
    assert_eq!(seen(&gw, 0, "traceparent").as_deref(), Some(CLIENT));
    assert_eq!(seen(&gw, 0, "tracestate").as_deref(), Some("a=1"));
    assert_eq!(seen(&gw, 1, "traceparent").as_deref(), Some("nonsense"));
    assert_eq!(seen(&gw, 2, "traceparent"), None);
    let logged = eventually("three requests are logged", secs(5.0), async || {
        Some(trace_ids_in_log(&gw)).filter(|ids| ids.len() == 3)
    })
    .await;
    assert_eq!(logged, [json!("4bf92f3577b34da6a3ce929d0e0e4736"), Value::Null, Value::Null]);
    gw.leak_check().await;
}

#[tokio::test]
async fn a_collector_gets_a_span_of_each_request_with_its_wait_and_its_call() {
    let _turn = turn(Cost::Light).await;
    let collector = Collector::start(200).await;
    let gw = Gateway::start(&traced(collector.at, ", headers: {x-key: secret}")).await;
    let client = Request::chat("m").field("traceparent", CLIENT).field("tracestate", "a=1");
    gw.send(client).await.expect(200);
    let servers = collector.with_name("POST m", 1).await;
    let server = &servers[0];
    assert_eq!((server.trace.as_str(), server.parent.as_str()), (&CLIENT[3..35], &CLIENT[36..52]));
    assert_eq!(server.kind, 2);
    let call = &collector.with_name("replica", 1).await[0];
    let wait = &collector.with_name("wait", 1).await[0];
    for span in [call, wait] {
        assert_eq!((&span.trace, &span.parent), (&server.trace, &server.id));
    }
    assert_eq!(seen(&gw, 0, "traceparent").unwrap(), format!("00-{}-{}-01", call.trace, call.id));
    assert_eq!(seen(&gw, 0, "tracestate").as_deref(), Some("a=1"));
    let has = |text: &str| server.attributes.iter().any(|attribute| attribute.contains(text));
    assert!(has("http.request.method") && has("/v1/chat/completions") && has("sluice.request_id"));
    assert!(!server.attributes.concat().contains("messages"), "no prompt");

    // Over HTTP/2, without a context: a trace begins here.
    let h2 = sluice_tests::client::H2::open(gw.data).await.unwrap();
    h2.begin(&Request::chat("m")).await.unwrap().finish(secs(10.0), |_| sluice_tests::wire::Want::More).await;
    let servers = collector.with_name("POST m", 2).await;
    assert_eq!((servers[1].parent.as_str(), servers[1].trace.len()), ("", 32));
    assert!(seen(&gw, 1, "traceparent").unwrap().starts_with(&format!("00-{}-", servers[1].trace)));
    let logged = trace_ids_in_log(&gw);
    assert_eq!(logged, [json!(servers[0].trace), json!(servers[1].trace)]);
    let head = collector.requests.lock().unwrap()[0].0.clone();
    assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
    assert!(head.contains("\r\ncontent-type: application/x-protobuf\r\n") && head.contains("x-key: secret"));
    eventually("both exports are counted", secs(5.0), async || {
        let exported = ("outcome", "exported");
        (gw.metrics().await.sum("sluice_traced_requests_total", &[exported]) == 2.0).then_some(())
    })
    .await;
    assert!(!gw.log().contains("secret"));
    gw.leak_check().await;
}

#[tokio::test]
async fn requests_do_not_notice_a_collector_that_fails_and_the_last_spans_leave_at_the_end() {
    let _turn = turn(Cost::Light).await;
    let collector = Collector::start(503).await;
    let mut gw = Gateway::start(&traced(collector.at, ", sample: 1")).await;
    gw.warm("m").await;
    collector.with_name("POST m", 1).await;
    eventually("the failure is counted", secs(5.0), async || {
        let failed = ("outcome", "failed");
        (gw.metrics().await.sum("sluice_traced_requests_total", &[failed]) == 1.0).then_some(())
    })
    .await;
    gw.warm("m").await;
    assert!(gw.end(nix::sys::signal::Signal::SIGTERM).await.success());
    assert_eq!(collector.with_name("POST m", 2).await.len(), 2);
    assert!(gw.log().contains("traces_not_exported"));
}
