// SPDX-License-Identifier: Apache-2.0
//! Lines as they arrive at the reader.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::*;

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines that `work` logs under the filter, each an object without its time.
fn logged(text: &str, work: impl FnOnce()) -> Vec<Value> {
    let kept = Kept::default();
    let sink = Sink::start(Box::new(kept.clone()), json::notice).unwrap();
    let layer = json::Json::new(sink.clone()).with_filter(filter(text).unwrap());
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), work);
    sink.flush(Duration::from_secs(20));
    let bytes = kept.0.lock().unwrap().clone();
    let lines = String::from_utf8(bytes).unwrap();
    let object = |line: &str| {
        let mut object: Value = serde_json::from_str(line).expect(line);
        let ts = object.as_object_mut().unwrap().remove("ts").expect("every line has its time");
        assert!(ts.as_str().unwrap().ends_with('Z'), "{ts}");
        object
    };
    lines.lines().map(object).collect()
}

fn wide() -> Wide<'static> {
    Wide {
        request_id: "0190-a",
        model: Some("gemma"),
        method: "POST",
        path: "/v1/chat/completions?api_key=hidden",
        status: 200,
        api: "openai",
        protocol: "http/1.1",
        duration: Duration::from_nanos(1_234_567),
        queued: Duration::from_millis(2),
        cold: true,
        first_byte: Some(Duration::from_millis(1)),
        bytes_in: 10,
        bytes_out: 20,
        replica: Some(ReplicaId(7)),
        attempts: 1,
        outcome: "served",
        code: "",
        client: "127.0.0.1:5000",
        trace: None,
    }
}

#[test]
fn a_request_is_one_flat_object_without_its_query() {
    let expected = json!({
        "level": "info", "target": "sluice::request", "msg": "request", "request_id": "0190-a",
        "model": "gemma", "method": "POST", "path": "/v1/chat/completions", "status": 200, "api": "openai",
        "protocol": "http/1.1", "duration_ms": 1.235, "queue_ms": 2.0, "cold": true, "ttfb_ms": 1.0,
        "bytes_in": 10, "bytes_out": 20, "replica": "r7", "attempts": 1, "outcome": "served",
        "client": "127.0.0.1:5000",
    });
    assert_eq!(logged("", || wide().emit()), [expected]);
}

#[test]
fn what_is_unknown_is_absent() {
    let unknown =
        Wide { model: None, api: "", first_byte: None, replica: None, code: "unknown_url", ..wide() };
    let lines = logged("info", || unknown.emit());
    let object = lines[0].as_object().unwrap();
    for field in ["model", "api", "ttfb_ms", "replica"] {
        assert!(!object.contains_key(field), "{field}");
    }
    assert_eq!(object["code"], "unknown_url");
}

#[test]
fn what_clients_made_up_is_escaped_and_cut() {
    let (path, model) = (format!("/\"\n\u{1b}{}", "é".repeat(300)), "é".repeat(100));
    let lines = logged("info", || Wide { path: &path, model: Some(&model), ..wide() }.emit());
    let cut = lines[0]["path"].as_str().unwrap();
    assert!(path.starts_with(cut) && cut.len() == 256, "{}", cut.len());
    assert_eq!(lines[0]["model"], "é".repeat(64));
}

#[test]
fn the_filter_silences_requests() {
    let work = || {
        assert!(!Wide::wanted());
        wide().emit();
        tracing::warn!(name: "x", cause = ?"a\"b", count = -1, "backend_lost");
    };
    let expected = json!({
        "level": "warn", "target": "sluice_gateway::logging::tests", "msg": "backend_lost",
        "cause": "\"a\\\"b\"", "count": -1,
    });
    assert_eq!(logged("warn", work), [expected]);
    assert_eq!(logged("info,sluice::request=off", || wide().emit()), Vec::<Value>::new());
    logged("info", || assert!(Wide::wanted()));
}

#[test]
fn a_wrong_filter_is_an_error_that_says_what_to_write() {
    let error = filter("sluice=loud").unwrap_err().to_string();
    assert!(error.contains("SLUICE_LOG=\"sluice=loud\"") && error.contains("sluice=debug"), "{error}");
}

#[test]
fn the_notice_of_lost_lines_is_a_line_like_the_others() {
    let line: Value = serde_json::from_str(json::notice(3).trim_end()).unwrap();
    assert_eq!(
        (&line["level"], &line["msg"], &line["lines"]),
        (&json!("warn"), &json!("log_lines_lost"), &json!(3))
    );
}

#[test]
fn repeats_are_counted_until_the_period_is_over() {
    let repeat = Repeat::every(Duration::from_secs(10));
    assert_eq!(repeat.due_at(5), Some(0));
    assert_eq!(repeat.due_at(5), None);
    assert_eq!(repeat.due_at(10_004), None);
    assert_eq!(repeat.due_at(10_005), Some(2));
    assert_eq!(repeat.due_at(30_000), Some(0));
}

#[test]
fn texts_and_shown_values_are_escaped_where_they_must_be() {
    let shown = "quote \" and \\ and\nline, é";
    let lines = logged("info", || {
        tracing::info!(text = shown, display = %shown, debug = ?shown, plain = %"é and 1");
    });
    assert_eq!(lines[0]["text"], shown);
    assert_eq!(lines[0]["display"], shown);
    assert_eq!(lines[0]["debug"], format!("{shown:?}"));
    assert_eq!(lines[0]["plain"], "é and 1");
}
