// SPDX-License-Identifier: Apache-2.0
//! Edge outputs of replicas, to the byte: hostile or broken answers. Each test names its row of the edge table.

use serde_json::{Value, json};
use sluice_tests::client::{Answer, Conn, H2, Request};
use sluice_tests::clock::{self, ms};
use sluice_tests::engine::journal::{Closer, Event};
use sluice_tests::harness::{Cost, Gateway, eventually, turn};
use sluice_tests::wire::{Ended, Want};

use crate::support::{after_events, between, endless, fleet, in_flight, model, near, secs};

async fn gateway(keys: &[&str]) -> Gateway {
    let keys = [&["idleAfter: 1s"], keys].concat();
    let limits = "limits: {writeTimeout: 1s}\n";
    let gw = Gateway::start(&format!("{limits}{}", fleet(&[model("m", "{}", &keys)]))).await;
    gw.warm("m").await;
    gw
}

/// One answer over each version.
async fn both(gw: &Gateway, act: Value) -> [Answer; 2] {
    let request = Request::chat("m").act(act);
    let h2 = H2::open(gw.data).await.unwrap();
    [gw.send(request.clone()).await, h2.exchange(&request).await]
}

/// Nothing is wrong with the model afterwards, and nothing of one answer shows up in the next.
async fn intact(gw: Gateway) {
    for _ in 0..3 {
        let answer = gw.send(Request::chat("m").act(json!({"body": "intact"}))).await;
        assert_eq!(answer.expect(200).text(), "intact");
    }
    assert_eq!(gw.engines().launches().len(), 1);
    gw.leak_check().await;
}

#[tokio::test]
async fn u04_bytes_beyond_the_body_are_dropped() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&[]).await;
    let surplus = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nPOISON";
    for answer in both(&gw, json!({"body": "right", "surplus": surplus})).await {
        assert_eq!(answer.expect(200).text(), "right");
    }
    intact(gw).await;
}

#[tokio::test]
async fn u07_interim_answers_are_forwarded_on_http_1() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&[]).await;
    let [one, two] = both(&gw, json!({"interim": [103], "body": "right"})).await;
    assert_eq!(one.expect(200).interim.iter().map(|h| h.word(1)).collect::<Vec<_>>(), ["103"]);
    assert_eq!((one.text().as_str(), two.expect(200).text().as_str()), ("right", "right"));
    let mut conn = Conn::open(gw.data).await.unwrap();
    let old = String::from_utf8(Request::chat("m").act(json!({"interim": [103]})).bytes()).unwrap();
    conn.send(old.replacen("HTTP/1.1", "HTTP/1.0", 1)).await.unwrap();
    let answer = conn.answer("POST").await;
    assert!(answer.interim.is_empty(), "HTTP/1.0 knows no interim answer");
    answer.expect(200);
    drop(conn);
    intact(gw).await;
}

#[tokio::test]
async fn u12_a_body_that_ends_with_the_connection_is_framed_anew() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&[]).await;
    for answer in both(&gw, json!({"framing": "close", "size": 100_000})).await {
        assert_eq!(answer.expect(200).body.len(), 100_000);
    }
    let mut conn = Conn::open(gw.data).await.unwrap();
    let request = Request::chat("m").act(json!({"framing": "close", "body": "kept"}));
    for _ in 0..2 {
        let answer = conn.exchange(&request).await;
        assert_eq!(
            (answer.expect(200).text().as_str(), answer.get("transfer-encoding")),
            ("kept", Some("chunked"))
        );
    }
    drop(conn);
    intact(gw).await;
}

#[tokio::test]
async fn u14_garbage_and_silence_are_502() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&["retryStale: false"]).await;
    for raw in [
        "",
        "garbage without a head\r\n\r\n",
        "HTTP/1.1 abc\r\n\r\n",
        "\u{0}\u{1}\u{2}\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno-end: ",
    ] {
        for answer in both(&gw, json!({"raw": raw})).await {
            assert_eq!(answer.expect(502).error_code(), "upstream_error", "{raw:?}");
        }
    }
    intact(gw).await;
}

#[tokio::test]
async fn u15_u16_a_truncated_answer_is_seen_as_truncated() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&[]).await;
    let short = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc";
    let unended = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n";
    let malformed = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\nabc\r\n0\r\n\r\n";
    for raw in [short, unended, malformed] {
        let [one, two] = both(&gw, json!({"raw": raw})).await;
        // On HTTP/2 the reset may overtake the head that is still queued.
        assert!(
            one.status == 200 && matches!(two.status, 200 | 0),
            "{raw:?}: {} {}",
            one.brief(),
            two.brief()
        );
        assert!(matches!(one.ended, Ended::Cut | Ended::Reset), "{raw:?}: {:?} {}", one.ended, one.text());
        assert!(matches!(two.ended, Ended::StreamReset(_)), "{raw:?}: {:?}", two.ended);
        assert!("abc".starts_with(&one.text()) && "abc".starts_with(&two.text()), "{raw:?}");
    }
    intact(gw).await;
}

#[tokio::test]
async fn u20_trailers_are_consistent() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&[]).await;
    let act = json!({"body": "right", "headers": [["trailer", "x-sum"]], "trailers": [["x-sum", "5"]]});
    let [one, two] = both(&gw, act).await;
    assert_eq!((one.expect(200).text(), two.expect(200).text()), ("right".to_owned(), "right".to_owned()));
    assert!(one.trailers.is_empty() && one.get("trailer").is_none(), "it did not ask for trailers: {one:?}");
    assert_eq!(two.trailers, [("x-sum".to_owned(), "5".to_owned())], "{two:?}");
    intact(gw).await;
}

#[tokio::test]
async fn u22_a_body_after_head_is_not_forwarded() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&[]).await;
    let raw = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nPOISON";
    let mut conn = Conn::open(gw.data).await.unwrap();
    let head = Request::new("HEAD", "/v1/chat/completions?model=m")
        .act(json!({"raw": raw}))
        .body(r#"{"model":"m"}"#);
    conn.send(head.bytes()).await.unwrap();
    let answer = conn.answer("HEAD").await;
    assert!(answer.body.is_empty() && answer.status > 0, "{}", answer.brief());
    let next = conn.exchange(&Request::chat("m").act(json!({"body": "intact"}))).await;
    assert!(next.status == 0 || next.text() == "intact", "{}", next.brief());
    drop(conn);
    intact(gw).await;
}

#[tokio::test]
async fn u23_an_answer_before_the_body_is_complete_is_forwarded() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&[]).await;
    let body = format!(r#"{{"model":"m","x":"{}"}}"#, "z".repeat(8 << 20));
    let act = json!({"early": true, "status": 422, "body": "enough"});
    for request in [Request::chat("m").body(body.clone()), Request::chat("m").body(body).chunked(64 << 10)] {
        let answer = gw.send(request.act(act.clone())).await;
        assert_eq!(answer.expect(422).text(), "enough");
    }
    intact(gw).await;
}

#[tokio::test]
async fn u24_silence_inside_a_stream_frees_the_slot() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&["containerConcurrency: 1", "timeouts: {betweenBytes: 1s}"]).await;
    let act = json!({"events": 3, "fault": {"at": "head", "how": "hang"}});
    let answer = gw.send(Request::chat("m").act(act)).await;
    assert!(matches!(answer.ended, Ended::Cut | Ended::Reset), "{}", answer.brief());
    near("the limit between bytes", between(answer.head_at, answer.end_at), 1.0);
    intact(gw).await;
}

/// A client that asks for a large answer and takes nothing of it.
async fn stops_reading(gw: &Gateway, h2: bool) {
    let request = Request::chat("m").act(json!({"size": 64 << 20}));
    let begun = clock::now();
    let closed = |gw: &Gateway| {
        let engines = gw.engines().since(begun);
        !engines
            .times(|e| matches!(e, Event::Closed { by: Closer::PeerFin | Closer::PeerRst, .. }))
            .is_empty()
    };
    let one = if h2 { None } else { Some(Conn::open(gw.data).await.unwrap()) };
    let mut held = Vec::new();
    if let Some(mut conn) = one {
        conn.shrink(4096).unwrap();
        conn.send(request.bytes()).await.unwrap();
        held.push(conn);
    }
    let settings = h2::client::Builder::new().initial_window_size(1000).clone();
    let two = H2::open_with(gw.data, &settings).await.unwrap();
    let mut parked = None;
    if h2 {
        let mut stream = two.begin(&request).await.unwrap();
        stream.hold_window();
        parked = Some(tokio::spawn(stream.finish(secs(20.0), |_| Want::More)));
    }
    in_flight(gw, "m", 1).await;
    eventually("the replica is let go", secs(4.0), async || closed(gw).then_some(())).await;
    in_flight(gw, "m", 0).await;
    assert!(between(begun, clock::now()) > 0.9, "not before the write timeout");
    if let Some(parked) = parked {
        parked.abort();
    }
}

#[tokio::test]
async fn u25_a_client_that_stops_reading_frees_the_slot() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&["containerConcurrency: 1"]).await;
    stops_reading(&gw, false).await;
    stops_reading(&gw, true).await;
    intact(gw).await;
}

#[tokio::test]
async fn a_slow_reader_gets_every_byte() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&[]).await;
    let mut conn = Conn::open(gw.data).await.unwrap();
    conn.shrink(64 << 10).unwrap();
    let request = Request::chat("m").act(json!({"size": 4 << 20})).field("connection", "close");
    conn.send(request.bytes()).await.unwrap();
    // Slower than the write timeout in all, but never silent for so long.
    let mut taken = 0;
    for _ in 0..6 {
        tokio::time::sleep(ms(300)).await;
        let (some, ended) = conn.some(64 << 10).await;
        assert_eq!(ended, None);
        taken += some;
    }
    let (rest, ended) = conn.rest(secs(20.0)).await;
    assert_eq!(ended, Ended::Whole);
    taken += rest.len();
    assert!(taken > 4 << 20, "{taken}");
    drop(conn);
    intact(gw).await;
}

#[tokio::test]
async fn u26_the_replica_is_let_go_when_the_client_leaves() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&[]).await;
    let mut conn = Conn::open(gw.data).await.unwrap();
    let begun = conn.exchange_until(&endless("m"), after_events(2)).await;
    assert_eq!(begun.ended, Ended::Left);
    let left = clock::now();
    drop(conn);
    let ended =
        eventually("the replica sees it", secs(2.0), async || gw.engines().requests()[1].ended).await.0;
    assert!(between(left, ended) < 0.1 + 0.25, "after {} s", between(left, ended));
    intact(gw).await;
}
