// SPDX-License-Identifier: Apache-2.0
//! Field cases about bodies, heads and connections on their way through.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::{Value, json};
use sluice_tests::chance::Chance;
use sluice_tests::client::{Conn, Request, many};
use sluice_tests::clock::{self, ms};
use sluice_tests::engine::sha256;
use sluice_tests::harness::{Cost, Gateway, procs, turn};
use sluice_tests::wire::Ended;

use crate::support::{all_ok, between, fleet, model, near, secs, send};

const MIB: usize = 1 << 20;

fn prompt(bytes: usize) -> Vec<u8> {
    let head = br#"{"messages":[{"role":"user","content":""#;
    let tail = br#""}],"model":"m"}"#;
    let fill = bytes - head.len() - tail.len();
    [&head[..], &vec![b'x'; fill], &tail[..]].concat()
}

#[tokio::test]
async fn fc_01_body_limit_holds_where_the_model_is_read() {
    let _turn = turn(Cost::Heavy).await;
    let gw = Gateway::start(&fleet(&[model("m", "{}", &["bodyLimit: 32Mi", "idleAfter: 4s"])])).await;
    gw.warm("m").await;
    let before = procs::memory(gw.pid()).0;
    for size in [19 * MIB / 10, 21 * MIB / 10, 8 * MIB, 31 * MIB] {
        let whole = Request::post("/v1/chat/completions", prompt(size));
        for request in [whole.clone(), whole.clone().chunked(64 << 10)] {
            let answer = gw.send(request).await;
            assert_eq!(answer.expect(200).json()["sha256"], sha256(&whole.body), "{size}");
        }
    }
    for request in [Request::post("/v1/chat/completions", prompt(33 * MIB))] {
        for request in [request.clone(), request.chunked(64 << 10)] {
            let answer = gw.send(request).await;
            assert!(!answer.expect(413).json()["error"]["message"].as_str().unwrap().is_empty());
        }
    }
    assert_eq!(gw.engines().handled(), 9, "eight and the one that warmed");
    let to = gw.data;
    let answers = many(8, |_| Request::post("/v1/chat/completions", prompt(31 * MIB)).send(to)).await;
    all_ok(&answers);
    let rise = procs::memory(gw.pid()).1.saturating_sub(before) as usize;
    assert!(rise < 2 * 8 * 32 * MIB, "resident memory rose by {} MiB", rise / MIB);
    gw.leak_check().await;
}

/// What a parser takes as `model` that keeps the first, or the last, of repeated keys.
struct Readings {
    first: Option<Value>,
    last: Option<Value>,
    count: usize,
}

impl<'de> Deserialize<'de> for Readings {
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Readings, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Readings;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Readings, M::Error> {
                let mut found = Readings { first: None, last: None, count: 0 };
                while let Some(key) = map.next_key::<String>()? {
                    // Some readers match keys without regard to case, so such a twin is a repetition too.
                    found.count += usize::from(key.eq_ignore_ascii_case("model"));
                    if key != "model" {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    let value: Value = map.next_value()?;
                    found.first.get_or_insert_with(|| value.clone());
                    found.last = Some(value);
                }
                Ok(found)
            }
        }
        input.deserialize_map(Keys)
    }
}

/// A chat body with models named at the top, inside, escaped, early and late.
fn mixture(chance: &mut Chance) -> String {
    let keys = ["\"model\"", "\"mod\\u0065l\"", "\"\\u006dodel\"", "\"Model\"", "\"model \""];
    let models = ["\"cheap\"", "\"big\"", "\"ch\\u0065ap\""];
    let mut members: Vec<String> = Vec::new();
    for _ in 0..chance.between(0, 2) {
        members.push(format!("{}:{}", chance.one(&keys), chance.one(&models)));
    }
    members.push(format!("\"model\":{}", chance.one(&models)));
    let size = if chance.between(0, 19) == 0 { MIB as u64 } else { chance.between(0, 200) };
    let inner = format!(
        "{{\"role\":\"user\",\"model\":{},\"content\":\"{}\"}}",
        chance.one(&models),
        "p".repeat(size as usize)
    );
    members.push(format!("\"messages\":[{inner}]"));
    members.push(format!("\"metadata\":{{\"model\":{}}}", chance.one(&models)));
    for i in (1..members.len()).rev() {
        members.swap(i, chance.between(0, i as u64) as usize);
    }
    let space = *chance.one(&["", " ", "\n\t"]);
    format!("{space}{{{space}{}{space}}}", members.join(&format!("{space},{space}")))
}

#[tokio::test]
async fn fc_04_two_model_keys_are_refused() {
    let _turn = turn(Cost::Light).await;
    let keys = ["idleAfter: 2s"];
    let gw = Gateway::start(&fleet(&[model("cheap", "{}", &keys), model("big", "{}", &keys)])).await;
    let late =
        format!(r#"{{"model":"cheap","messages":[{{"content":"{}"}}],"model":"big"}}"#, "x".repeat(MIB));
    for body in [r#"{"model":"cheap","model":"big"}"#, r#"{"model":"cheap","mod\u0065l":"big"}"#, &late] {
        gw.send(Request::post("/v1/chat/completions", body)).await.expect(400);
    }
    assert!(gw.engines().launches().is_empty(), "nothing is started for a refused request");
    let nested = r#"{"messages":[{"model":"big"}],"model":"cheap"}"#;
    let answer = gw.send(Request::post("/v1/chat/completions", nested)).await;
    assert_eq!(answer.expect(200).json()["engine"], "cheap");

    let mut chance = Chance::new(4);
    let bodies: Vec<String> = (0..500).map(|_| mixture(&mut chance)).collect();
    let mut conn = Conn::open(gw.data).await.unwrap();
    let mut forwarded = 0;
    for body in &bodies {
        let readings: Readings = serde_json::from_str(body).unwrap();
        let answer = conn.exchange(&Request::post("/v1/chat/completions", body.as_str())).await;
        if readings.count != 1 {
            answer.expect(400);
            continue;
        }
        forwarded += 1;
        assert!(answer.is(200), "{body}: {}", answer.brief());
        let told = answer.expect(200).json();
        assert_eq!(Some(&told["engine"]), readings.first.as_ref(), "{body}");
        assert_eq!(readings.first, readings.last, "{body}");
        assert_eq!(told["sha256"], sha256(body.as_bytes()));
    }
    assert!((100..400).contains(&forwarded), "the mixture has both kinds: {forwarded}");
    drop(conn);
    gw.leak_check().await;
}

#[tokio::test]
async fn fc_05_json_under_another_content_type_is_routed() {
    let _turn = turn(Cost::Light).await;
    let gw = Gateway::start(&fleet(&[model("m", "{}", &["idleAfter: 1s"])])).await;
    let plain = br#"{"model":"m","messages":[]}"#;
    let blank = [b"\r\n\n \n".as_slice(), plain].concat();
    let bom = [b"\xef\xbb\xbf".as_slice(), plain].concat();
    let json = "application/json";
    let variants: [(Option<&str>, &[u8]); 7] = [
        (Some("application/x-www-form-urlencoded"), plain),
        (Some("text/plain"), plain),
        (None, plain),
        (Some("application/json; charset=utf-8"), plain),
        (Some("application/vnd.api+json"), plain),
        (Some(json), &blank),
        (Some(json), &bom),
    ];
    for (kind, body) in variants {
        let request = Request::post("/v1/chat/completions", body).without("content-type");
        let request = kind.map_or(request.clone(), |kind| request.clone().field("content-type", kind));
        let answer = gw.send(request).await;
        assert_eq!(answer.expect(200).json()["sha256"], sha256(body), "{kind:?}");
        assert_eq!(gw.engines().requests().last().unwrap().get("content-type"), kind);
    }
    gw.leak_check().await;
}

#[tokio::test]
async fn fc_07_a_bad_body_is_the_clients_fault() {
    let _turn = turn(Cost::Light).await;
    let keys = ["idleAfter: 1s"];
    let gw = Gateway::start(&fleet(&[model("m", "{}", &keys), model("v", "{}", &keys)])).await;
    let deep = "[".repeat(100_000);
    let deep_inside = format!(r#"{{"messages":{}"#, "[".repeat(100_000));
    let bad: [(&[u8], u16); 14] = [
        (b"", 400),
        (b"{}", 400),
        (br#"{"model":null}"#, 400),
        (br#"{"model":123}"#, 400),
        (br#"{"model":["m"]}"#, 400),
        (br#"{"model":""}"#, 400),
        (b"[]", 400),
        (br#""x""#, 400),
        (br#"{"model":"m","messages":[{"ro"#, 400),
        (b"{\"model\":\"m\",\"x\":\"\xff\xfe\"}", 400),
        (b"{\"model\":\"\xff\"}", 400),
        (deep.as_bytes(), 400),
        (deep_inside.as_bytes(), 400),
        (br#"{"model":"unknown"}"#, 404),
    ];
    let mut conn = Conn::open(gw.data).await.unwrap();
    for (body, status) in bad {
        let answer = conn.exchange(&Request::post("/v1/chat/completions", body)).await;
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        assert!(answer.is(status), "{shown}: {}", answer.brief());
        let error = &answer.json()["error"];
        assert_eq!(error["type"], "invalid_request_error", "{shown}: {error}");
        let message = error["message"].as_str().unwrap();
        let leaks = ["panicked", ".rs", "serde", "::", "stack"];
        assert!(!message.is_empty() && !leaks.iter().any(|l| message.contains(l)), "{shown}: {message}");
        conn.exchange(&Request::chat("v")).await.expect(200);
    }
    let unknown = conn.exchange(&Request::chat("nope")).await;
    assert_eq!(
        (unknown.error_code().as_str(), unknown.get("x-should-retry")),
        ("model_not_found", Some("false"))
    );
    drop(conn);
    let mut short = Conn::open(gw.data).await.unwrap();
    short
        .send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n{\"model\":\"m\"}")
        .await
        .unwrap();
    short.fin().await.unwrap();
    let answer = short.answer("POST").await;
    assert!(answer.status == 0 || answer.status == 400, "{}", answer.brief());
    assert!(gw.engines().of("m").0.is_empty(), "no replica is started or asked for a bad request");
    assert_eq!(gw.engines().of("v").handled(), bad.len());
    assert!(procs::alive(gw.pid()));
    gw.leak_check().await;
}

/// The gateway that FC-09 asks 100 times a variant, with a pause around the moment of the idle close.
async fn fc_09(act: Value, script: &str, pauses: (u64, u64)) {
    let gw =
        Gateway::start(&fleet(&[model("m", script, &["idleAfter: 2s", "readiness: {readyPeriod: 1h}"])]))
            .await;
    gw.warm("m").await;
    let mut body = prompt(MIB);
    let mut chance = Chance::new(9);
    for n in 0..100 {
        tokio::time::sleep(Duration::from_micros(chance.between(pauses.0 * 1000, pauses.1 * 1000))).await;
        body[50] = b'a' + (n % 26) as u8;
        let request = Request::post("/v1/chat/completions", body.clone()).act(act.clone());
        let answer = gw.send(request).await;
        assert!(answer.is(200), "request {n}: {}", answer.brief());
        let seen = gw.engines().requests().into_iter().rfind(|s| s.started.is_some()).unwrap();
        assert_eq!(seen.body.unwrap(), (body.len(), sha256(&body), true));
    }
    assert_eq!(gw.engines().handled(), 101, "each handler runs once");
    assert_eq!(gw.engines().launches().len(), 1, "the replica stays in rotation");
    gw.leak_check().await;
}

/// The replica's idle limit is 100 ms instead of 1 s and the pauses shrink with it: the race is between the close
/// and the next request, and its width does not depend on how long the connection was idle.
#[tokio::test]
async fn fc_09_idle_connection_closed_by_the_replica() {
    let _turn = turn(Cost::Heavy).await;
    fc_09(json!({"events": 3, "gap": 1}), r#"{"idleClose": 100}"#, (95, 105)).await;
}

#[tokio::test]
async fn fc_09_old_connection_reset_by_the_replica() {
    let _turn = turn(Cost::Heavy).await;
    let fault = json!({"at": "request", "how": "rst", "reused": true, "olderThan": 100});
    fc_09(json!({"events": 3, "gap": 1, "fault": fault}), "{}", (20, 40)).await;
}

#[tokio::test]
async fn fc_09_reset_of_a_fresh_connection_is_not_retried() {
    let _turn = turn(Cost::Light).await;
    let gw = Gateway::start(&fleet(&[model("m", "{}", &["idleAfter: 1s"])])).await;
    let fault = json!({"fault": {"at": "handler", "how": "rst"}});
    let answer = gw.send(Request::post("/v1/chat/completions", prompt(MIB)).act(fault)).await;
    assert_eq!(answer.expect(502).error_code(), "upstream_error");
    assert_eq!(gw.engines().handled(), 1);
    gw.warm("m").await;
    assert_eq!(gw.engines().launches().len(), 1, "the replica stays in rotation");
    gw.leak_check().await;
}

fn expecting(model: &str, act: Value) -> (Request, Vec<u8>) {
    let head = format!(r#"{{"model":"{model}","x":""#);
    let body = format!("{head}{}\"}}", "y".repeat(200_000 - head.len() - 2));
    (Request::post("/v1/chat/completions", body).act(act).field("expect", "100-continue"), vec![])
}

/// Sends the head, waits for 100, sends the body; returns the seconds until 100 and the final answer.
async fn after_continue(gw: &Gateway, model: &str, act: Value) -> (f64, sluice_tests::client::Answer) {
    let (request, _) = expecting(model, act);
    let mut conn = Conn::open(gw.data).await.unwrap();
    let begun = clock::now();
    conn.send(request.head_bytes()).await.unwrap();
    let interim = conn.head().await.unwrap().unwrap();
    assert_eq!(interim.word(1), "100", "{}", interim.line);
    let waited = between(begun, clock::now());
    conn.send(&request.body).await.unwrap();
    let answer = conn.answer("POST").await;
    assert!(answer.interim.is_empty(), "exactly one 100");
    assert_eq!(answer.expect(200).json()["sha256"], sha256(&request.body));
    (waited, answer)
}

#[tokio::test]
async fn fc_10_expect_100_continue() {
    let _turn = turn(Cost::Light).await;
    let keys = ["idleAfter: 1s", "bodyLimit: 1Mi"];
    let gw = Gateway::start(&fleet(&[model("m", "{}", &keys), model("cold", r#"{"readyAt": 3000}"#, &keys)]))
        .await;
    gw.warm("m").await;
    after_continue(&gw, "m", json!({})).await;
    let (waited, answer) = after_continue(&gw, "cold", json!({})).await;
    assert!(waited < 1.0, "the body is needed to know the model, but 100 came after {waited} s");
    near("the request waits for the start", answer.took() + waited, 3.0);
    after_continue(&gw, "m", json!({"interim": [100]})).await;

    let mut large = Conn::open(gw.data).await.unwrap();
    large.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2000000\r\n\r\n").await.unwrap();
    let refused = large.answer("POST").await;
    assert!(refused.interim.is_empty() && refused.is(413), "{}", refused.brief());

    let (request, _) = expecting("m", json!({}));
    let old = String::from_utf8(request.head_bytes()).unwrap().replacen("HTTP/1.1", "HTTP/1.0", 1);
    let mut conn = Conn::open(gw.data).await.unwrap();
    conn.send(old).await.unwrap();
    let (early, _) = conn.rest(ms(300)).await;
    assert!(early.is_empty(), "an HTTP/1.0 client gets no interim answer");
    conn.send(&request.body).await.unwrap();
    let answer = conn.answer("POST").await;
    assert!(answer.interim.is_empty());
    answer.expect(200);
    drop((conn, large));
    gw.leak_check().await;
}

#[tokio::test]
async fn a_client_that_is_told_to_go_away_can_read_why() {
    let _turn = turn(Cost::Light).await;
    let gw = Gateway::start(&fleet(&[model("m", "{}", &["bodyLimit: 1Mi", "idleAfter: 1s"])])).await;
    // The whole body is written before anything is read: an early close must not destroy the answer.
    let mut conn = Conn::open(gw.data).await.unwrap();
    let request = Request::post("/v1/chat/completions", vec![b'x'; 3 * MIB]).chunked(64 << 10);
    let sent = tokio::time::timeout(secs(10.0), conn.send(request.bytes())).await;
    assert!(sent.is_ok(), "the gateway goes on reading for a while");
    let answer = conn.answer("POST").await;
    assert_eq!(answer.expect(413).error_code(), "request_too_large");
    assert_ne!(conn.rest(secs(10.0)).await.1, Ended::TimedOut, "the connection does not stay open");
    let next = send(Request::chat("m"), gw.data).await.unwrap();
    next.expect(200);
    gw.leak_check().await;
}
