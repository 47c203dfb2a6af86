// SPDX-License-Identifier: Apache-2.0
//! Edge inputs from clients, to the byte: the rows of the edge table that only a whole connection can show. Each test
//! names its row.

use h2::client::Builder;
use serde_json::json;
use sluice_tests::client::{Alpn, Answer, Authority, Conn, H2, Request, many};
use sluice_tests::clock::{self, ms};
use sluice_tests::engine::sha256;
use sluice_tests::harness::{Cost, Gateway, eventually, turn};
use sluice_tests::wire::{Ended, Want};

use crate::support::{after_events, between, fleet, in_flight, model, near, queued, secs, send};

/// A warm model behind short limits.
async fn gateway(keys: &[&str]) -> Gateway {
    let limits = "limits: {headTimeout: 1s, idleTimeout: 2s, bodyTimeout: 1s, writeTimeout: 1s}\n";
    let keys = [&["idleAfter: 1s"], keys].concat();
    let gw = Gateway::start(&format!("{limits}{}", fleet(&[model("m", "{}", &keys)]))).await;
    gw.warm("m").await;
    gw
}

fn chat_bytes(version: &str, more: &str) -> Vec<u8> {
    let body = r#"{"model":"m"}"#;
    format!(
        "POST /v1/chat/completions HTTP/{version}\r\nhost: x\r\ncontent-length: {}\r\n{more}\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Sends these bytes and reads everything until the gateway closes.
async fn transcript(gw: &Gateway, bytes: &[u8]) -> (String, Ended, f64) {
    let mut conn = Conn::open(gw.data).await.unwrap();
    conn.send(bytes).await.unwrap();
    let begun = clock::now();
    let (got, ended) = conn.rest(secs(10.0)).await;
    (String::from_utf8_lossy(&got).into_owned(), ended, between(begun, clock::now()))
}

#[tokio::test]
async fn f17_a_body_that_stalls_is_timed_out() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&["containerConcurrency: 1"]).await;
    let (got, ended, took) =
        transcript(&gw, b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{\"m")
            .await;
    assert!(got.starts_with("HTTP/1.1 408 ") && ended == Ended::Whole, "{got} {ended:?}");
    near("the body deadline", took, 1.0);
    assert_eq!(gw.engines().handled(), 1);
    gw.warm("m").await;
    gw.leak_check().await;
}

#[tokio::test]
async fn f18_surplus_bytes_never_reach_the_replica_as_body() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&[]).await;
    let bytes = [chat_bytes("1.1", "").as_slice(), b"SURPLUS\r\n\r\n"].concat();
    let (got, _, _) = transcript(&gw, &bytes).await;
    assert!(got.starts_with("HTTP/1.1 200 "), "{got}");
    assert!(got.contains("HTTP/1.1 400 "), "the surplus is a request of its own, and a bad one: {got}");
    let seen = gw.engines().requests();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[1].body, Some((13, sha256(br#"{"model":"m"}"#), true)));
    gw.leak_check().await;
}

#[tokio::test]
async fn f21_pipelined_requests_are_answered_in_order() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&[]).await;
    let slow = chat_bytes("1.1", "x-engine: {\"ttft\":200,\"body\":\"first\"}\r\n");
    let quick = chat_bytes("1.1", "x-engine: {\"body\":\"second\"}\r\n");
    let mut conn = Conn::open(gw.data).await.unwrap();
    conn.send([slow, quick].concat()).await.unwrap();
    assert_eq!(conn.answer("POST").await.expect(200).text(), "first");
    let second = conn.answer("POST").await;
    assert!(second.ended != Ended::TimedOut, "served or closed");
    if second.status != 0 {
        assert_eq!(second.expect(200).text(), "second");
    }
    drop(conn);
    gw.leak_check().await;
}

#[tokio::test]
async fn f22_nothing_is_tunnelled_behind_a_refused_upgrade() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&[]).await;
    let more = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\nx-engine: {\"status\":403,\"body\":\"no\"}\r\n";
    let behind = chat_bytes("1.1", "x-engine: {\"body\":\"behind\"}\r\n");
    let mut conn = Conn::open(gw.data).await.unwrap();
    conn.send([chat_bytes("1.1", more), behind].concat()).await.unwrap();
    let refused = conn.answer("POST").await;
    assert!(refused.status >= 400, "{}", refused.brief());
    let next = conn.answer("POST").await;
    assert!(next.status == 0 || next.is(200) || next.is(400), "{}", next.brief());
    for seen in gw.engines().requests() {
        let (length, _, complete) = seen.body.unwrap();
        assert!(complete && length < 100, "each request came on its own");
    }
    drop(conn);
    gw.leak_check().await;
}

#[tokio::test]
async fn f23_a_100_comes_before_the_body_is_read() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&[]).await;
    let bytes = chat_bytes("1.1", "expect: 100-continue\r\n");
    let head = bytes.len() - 13;
    let mut conn = Conn::open(gw.data).await.unwrap();
    conn.send(&bytes[..head]).await.unwrap();
    assert_eq!(conn.head().await.unwrap().unwrap().word(1), "100");
    conn.send(&bytes[head..]).await.unwrap();
    let answer = conn.answer("POST").await;
    assert!(answer.interim.is_empty());
    answer.expect(200);
    drop(conn);
    gw.leak_check().await;
}

#[tokio::test]
async fn f25_f26_a_body_above_the_limit_is_refused_as_soon_as_that_is_known() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&["bodyLimit: 64Ki"]).await;
    let declared = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 65537\r\n\r\n";
    let mut conn = Conn::open(gw.data).await.unwrap();
    conn.send(declared).await.unwrap();
    let answer = conn.answer("POST").await;
    assert_eq!(answer.expect(413).error_code(), "request_too_large");
    assert_eq!(answer.get("connection"), Some("close"));

    let mut conn = Conn::open(gw.data).await.unwrap();
    conn.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        .await
        .unwrap();
    let chunk = [b"8000\r\n".as_slice(), &[b' '; 0x8000], b"\r\n"].concat();
    conn.send(&chunk).await.unwrap();
    conn.send(&chunk).await.unwrap();
    assert_eq!(conn.rest(ms(200)).await.1, Ended::TimedOut, "as much as allowed is not refused");
    conn.send(b"1\r\nx\r\n").await.unwrap();
    let answer = conn.answer("POST").await;
    assert_eq!(answer.expect(413).error_code(), "request_too_large");
    assert_eq!(gw.engines().handled(), 1);
    drop(conn);
    gw.leak_check().await;
}

#[tokio::test]
async fn l24_one_leading_line_end_is_ignored() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&[]).await;
    let mut conn = Conn::open(gw.data).await.unwrap();
    conn.send([b"\r\n".as_slice(), &chat_bytes("1.1", "")].concat()).await.unwrap();
    conn.answer("POST").await.expect(200);
    drop(conn);
    gw.leak_check().await;
}

#[tokio::test]
async fn l25_http_1_0_without_host_is_never_forwarded_without_one() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&[]).await;
    let text = String::from_utf8(chat_bytes("1.0", "")).unwrap().replace("host: x\r\n", "");
    let (got, ended, _) = transcript(&gw, text.as_bytes()).await;
    assert_eq!(ended, Ended::Whole, "an HTTP/1.0 connection ends with its answer");
    if got.starts_with("HTTP/1.1 200") {
        assert!(gw.engines().requests().last().unwrap().get("host").is_some_and(|h| !h.is_empty()));
        assert!(!got.to_lowercase().contains("transfer-encoding"), "1.0 knows no chunks: {got}");
    } else {
        assert!(got.starts_with("HTTP/1.1 400"), "{got}");
    }
    gw.leak_check().await;
}

#[tokio::test]
async fn l26_the_shortest_request_is_answered() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&[]).await;
    let (got, ended, took) = transcript(&gw, b"GET / HTTP/1.0\r\n\r\n").await;
    assert!(got.starts_with("HTTP/1.") && ended == Ended::Whole && took < 0.9, "{got} {ended:?} {took}");
    gw.leak_check().await;
}

#[tokio::test]
async fn l27_l28_slow_and_silent_clients_are_let_go() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&[]).await;
    let slow = async {
        let mut conn = Conn::open(gw.data).await.unwrap();
        let begun = clock::now();
        let _ = conn.drip(&chat_bytes("1.1", "")[..16], ms(150)).await;
        let (got, ended) = conn.rest(secs(5.0)).await;
        (String::from_utf8_lossy(&got).into_owned(), ended, between(begun, clock::now()))
    };
    let silent = transcript(&gw, b"");
    let half_preface = transcript(&gw, b"PRI * HTTP/2.0\r\n");
    let (slow, silent, half_preface) = tokio::join!(slow, silent, half_preface);
    assert!(slow.0.starts_with("HTTP/1.1 408 ") || slow.0.is_empty(), "{slow:?}");
    assert_ne!(slow.1, Ended::TimedOut);
    assert!(slow.2 < 2.8, "{slow:?}");
    assert_eq!((silent.0.as_str(), silent.1), ("", Ended::Whole));
    near("silence", silent.2, 1.0);
    assert_ne!(half_preface.1, Ended::TimedOut);
    near("half a preface", half_preface.2, 1.0);
    gw.leak_check().await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_at_its_deadline() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&[]).await;
    let mut conn = Conn::open(gw.data).await.unwrap();
    conn.exchange(&Request::chat("m")).await.expect(200);
    let mut h2 = H2::open(gw.data).await.unwrap();
    h2.exchange(&Request::chat("m")).await.expect(200);
    let begun = clock::now();
    let ((got, ended), end2) = tokio::join!(conn.rest(secs(5.0)), h2.ended(secs(5.0)));
    assert_eq!((got.len(), ended), (0, Ended::Whole));
    assert_eq!(end2, Some(Ok(())));
    near("the idle deadline", between(begun, clock::now()), 2.0);
    gw.leak_check().await;
}

#[tokio::test]
async fn l30_a_tls_hello_on_the_plain_port_is_refused() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&[]).await;
    let hello = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 506]].concat();
    let (got, ended, took) = transcript(&gw, &hello).await;
    assert!(got.is_empty() || got.starts_with("HTTP/1.1 400 "), "{got}");
    assert!(ended != Ended::TimedOut && took < 0.9, "{ended:?} after {took} s");
    gw.leak_check().await;
}

#[tokio::test]
async fn t01_an_empty_last_frame_ends_the_body_once() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&[]).await;
    let h2 = H2::open(gw.data).await.unwrap();
    for _ in 0..3 {
        let mut stream = h2.begin_head(&Request::post("/v1/chat/completions", ""), false).await.unwrap();
        stream.frame(r#"{"model":"m"}"#, false).unwrap();
        stream.frame("", true).unwrap();
        let (answer, _) = stream.finish(secs(5.0), |_| Want::More).await;
        assert_eq!(answer.expect(200).json()["sha256"], sha256(br#"{"model":"m"}"#));
    }
    drop(h2);
    gw.leak_check().await;
}

/// Fills the only slot of the model for a second.
async fn occupy(gw: &Gateway) -> tokio::task::JoinHandle<Answer> {
    let holder = send(Request::chat("m").act(json!({"ttft": 1000})), gw.data);
    in_flight(gw, "m", 1).await;
    holder
}

#[tokio::test]
async fn t13_a_parked_upload_does_not_stop_another_on_the_same_connection() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&["containerConcurrency: 1"]).await;
    let holder = occupy(&gw).await;
    let h2 = H2::open(gw.data).await.unwrap();
    let body = |fill: usize| format!(r#"{{"model":"m","x":"{}"}}"#, "p".repeat(fill));
    let parked = h2.begin(&Request::post("/v1/chat/completions", body(300 << 10))).await.unwrap();
    let parked = tokio::spawn(parked.finish(secs(10.0), |_| Want::More));
    queued(&gw, "m", 1).await;
    // The second one is refused for its model, which can be known only when its whole body was read.
    let second = format!(r#"{{"x":"{}","model":"nope"}}"#, "p".repeat(300 << 10));
    let begun = clock::now();
    h2.exchange(&Request::post("/v1/chat/completions", second)).await.expect(404);
    assert!(between(begun, clock::now()) < 0.5, "the second upload progresses while the first is parked");
    parked.await.unwrap().0.expect(200);
    holder.await.unwrap().expect(200);
    drop(h2);
    gw.leak_check().await;
}

#[tokio::test]
async fn t14_a_stream_reset_while_parked_leaves_the_queue_at_once() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&["containerConcurrency: 1"]).await;
    let holder = occupy(&gw).await;
    let h2 = H2::open(gw.data).await.unwrap();
    let request = Request::chat("m");
    let mut stream = h2.begin_head(&request, false).await.unwrap();
    stream.push(request.body.clone(), true).await.unwrap();
    queued(&gw, "m", 1).await;
    stream.cancel();
    let left = clock::now();
    queued(&gw, "m", 0).await;
    assert!(between(left, clock::now()) < 0.35);
    holder.await.unwrap().expect(200);
    assert_eq!(gw.engines().handled(), 2, "the cancelled one never reaches the replica");
    drop(h2);
    gw.leak_check().await;
}

#[tokio::test]
async fn t15_goaway_lets_streams_finish() {
    let _turn = turn(Cost::Light).await;
    let mut gw = gateway(&[]).await;
    let mut h2 = H2::open(gw.data).await.unwrap();
    let stream = h2.begin(&Request::chat("m").act(json!({"events": 20, "gap": 50}))).await.unwrap();
    let (begun, stream) = stream.finish(secs(5.0), after_events(2)).await;
    assert_eq!(begun.ended, Ended::Left);
    gw.signal(nix::sys::signal::Signal::SIGTERM);
    let (rest, _) = stream.finish(secs(5.0), |_| Want::More).await;
    assert_eq!(rest.ended, Ended::Whole);
    assert!(rest.text().ends_with("data: [DONE]\n\n"), "{}", rest.text());
    assert_eq!(h2.ended(secs(2.0)).await, Some(Ok(())));
    assert!(gw.exited(secs(5.0)).await.unwrap().success());
}

#[tokio::test]
async fn t17_both_versions_share_a_port() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&[]).await;
    let h2 = H2::open(gw.data).await.unwrap();
    let request = Request::chat("m");
    let (one, two) = tokio::join!(gw.send(request.clone()), h2.exchange(&request));
    assert_eq!((one.expect(200).version.as_str(), two.expect(200).version.as_str()), ("HTTP/1.1", "HTTP/2"));
    let mut dripping = Conn::open(gw.data).await.unwrap();
    dripping.drip(b"PO", ms(100)).await.unwrap();
    dripping.send(&chat_bytes("1.1", "")[2..]).await.unwrap();
    dripping.answer("POST").await.expect(200);
    drop((h2, dripping));
    gw.leak_check().await;
}

#[tokio::test]
async fn t18_cookies_are_joined_for_an_http_1_replica() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&[]).await;
    let h2 = H2::open(gw.data).await.unwrap();
    h2.exchange(&Request::chat("m").field("cookie", "a=1").field("cookie", "b=2")).await.expect(200);
    let seen = gw.engines().requests().pop().unwrap();
    let cookies: Vec<_> = seen.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case("cookie")).collect();
    assert_eq!(cookies.len(), 1, "{cookies:?}");
    assert_eq!(cookies[0].1, "a=1; b=2");
    drop(h2);
    gw.leak_check().await;
}

#[tokio::test]
async fn many_streams_on_one_connection_are_all_answered() {
    let _turn = turn(Cost::Light).await;
    let gw = gateway(&["containerConcurrency: 10"]).await;
    let settings = Builder::new().initial_max_send_streams(50).clone();
    let h2 = std::sync::Arc::new(H2::open_with(gw.data, &settings).await.unwrap());
    let shared = h2.clone();
    let answers = many(200, move |n| {
        let h2 = shared.clone();
        let request = Request::chat("m").act(json!({"ttft": 5, "body": n.to_string()}));
        async move { h2.exchange(&request).await }
    })
    .await;
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(answer.expect(200).text(), n.to_string());
    }
    assert!(gw.engines().peak() <= 10);
    drop((answers, h2));
    gw.leak_check().await;
}

#[tokio::test]
async fn tls_carries_both_versions() {
    let _turn = turn(Cost::Light).await;
    let mut gw = Gateway::prepare("", &[]);
    let authority = Authority::write(gw.dir());
    let (tls, _lease) = sluice_tests::harness::spare_address();
    gw.rewrite(&format!(
        "tls: {{listen: '{tls}', certificate: @dir/cert.pem, key: @dir/key.pem}}\n{}",
        fleet(&[model("m", "{}", &["idleAfter: 1s"])])
    ));
    gw.launch();
    gw.ready().await;
    for (alpn, name) in [(Alpn::Http1, b"http/1.1".to_vec()), (Alpn::Http2, b"h2".to_vec())] {
        assert_eq!(authority.negotiated(tls, alpn).await.unwrap(), Some(name));
    }
    let request = Request::chat("m").act(json!({"events": 3, "gap": 20}));
    let mut one = authority.open(tls).await.unwrap();
    let two = authority.open_h2(tls).await.unwrap();
    let (one, two) = tokio::join!(one.exchange(&request), two.exchange(&request));
    assert_eq!((one.expect(200).engine_events().len(), two.expect(200).engine_events().len()), (3, 3));
    let mut plain = Conn::open(tls).await.unwrap();
    plain.send(&chat_bytes("1.1", "")).await.unwrap();
    let (got, ended) = plain.rest(secs(5.0)).await;
    assert!(!String::from_utf8_lossy(&got).contains("200 "), "plain text is not served on the TLS port");
    assert_ne!(ended, Ended::TimedOut);
    eventually("connections are gone", secs(1.0), async || {
        (gw.metrics().await.sum("sluice_inflight", &[]) == 0.0).then_some(())
    })
    .await;
    gw.leak_check().await;
}
