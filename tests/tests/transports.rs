// SPDX-License-Identifier: Apache-2.0
//! Ways between client and replica beside plain HTTP/1: TLS on both sides, HTTP/2 replicas, bodies sent on as they come.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use sluice_tests::client::{Alpn, Authority};
use sluice_tests::client::{Conn, H2, Request};
use sluice_tests::engine::sha256;
use sluice_tests::harness::{Cost, Gateway, eventually, turn};
use sluice_tests::wire::Want;

const MIB: usize = 1 << 20;
const SECS: fn(u64) -> Duration = Duration::from_secs;

fn chat_with(model: &str, size: usize) -> Request {
    let text = "x".repeat(size);
    Request::post("/v1/chat/completions", format!(r#"{{"messages":"{text}","model":"{model}"}}"#))
}

/// A port that was free a moment ago.
fn free_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn a_body_over_the_budget_is_streamed_where_the_head_names_the_model_and_refused_elsewhere() {
    let _turn = turn(Cost::Light).await;
    let gw = Gateway::start(
        r#"
limits: {bodyMemory: 4Mi}
models:
  - {name: m, command: @engine m {}
     , containerConcurrency: 1, bodyLimit: 4Mi, bodyMemory: 4Mi, idleAfter: 1s}
  - {name: n, command: @engine n {}
     , containerConcurrency: 4, bodyLimit: 4Mi, bodyMemory: 4Mi, idleAfter: 1s}
"#,
    )
    .await;
    gw.warm("m").await;
    gw.warm("n").await;
    let blocker = Request::chat("m").act(json!({"ttft": 6000}));
    let to = gw.data;
    let blocked = tokio::spawn(async move { blocker.send(to).await });
    eventually("the blocker at its replica", SECS(10), async || {
        (gw.metrics().await.sum("sluice_inflight", &[("model", "m")]) > 0.0).then_some(())
    })
    .await;
    let parked = chat_with("m", 3 * MIB);
    let full = async {
        // The parked body holds most of the budget.
        eventually("a parked body", SECS(10), async || {
            (gw.metrics().await.sum("sluice_body_memory_bytes", &[]) > 3e6).then_some(())
        })
        .await;
        let by_body = gw.send(chat_with("n", 2 * MIB)).await;
        assert_eq!((by_body.status, by_body.error_code()), (503, "body_memory_full".to_owned()));
        assert!(by_body.retry_after().is_some());
        for request in [chat_with("n", 2 * MIB), chat_with("n", 2 * MIB).chunked(60_000)] {
            let sum = sha256(&request.body);
            let streamed = gw.send(request.field("x-sluice-model", "n")).await;
            streamed.expect(200);
            let seen = gw.engines().of("n").requests().pop().unwrap();
            assert_eq!(seen.body.unwrap().1, sum, "byte-exact");
        }
        let request = chat_with("n", 2 * MIB);
        let sum = sha256(&request.body);
        let h2 = H2::open(gw.data).await.unwrap();
        h2.exchange(&request.field("x-sluice-model", "n")).await.expect(200);
        let seen = gw.engines().of("n").requests().pop().unwrap();
        assert_eq!(seen.body.unwrap().1, sum, "byte-exact over HTTP/2");
    };
    let (waited, ()) = tokio::join!(gw.send(parked), full);
    waited.expect(200);
    blocked.await.unwrap().expect(200);
    gw.leak_check().await;
}

#[tokio::test]
async fn http2_replicas_serve_both_protocols() {
    let _turn = turn(Cost::Light).await;
    let gw = Gateway::start(
        r#"
models:
  - {name: m, command: @engine m {}
     , protocol: http2, containerConcurrency: 8, idleAfter: 1s}
"#,
    )
    .await;
    let body = chat_with("m", 300_000);
    let sum = sha256(&body.body);
    let act = json!({"events": 3, "trailers": [["x-sum", "3"]]});
    let one = gw.send(body.clone().act(act.clone())).await;
    one.expect(200);
    assert_eq!(one.events().len(), 4, "three events and the end");
    let h2 = H2::open(gw.data).await.unwrap();
    let two = h2.exchange(&body.act(act)).await;
    two.expect(200);
    assert_eq!(two.trailers, [("x-sum".to_owned(), "3".to_owned())]);
    for seen in gw.engines().of("m").requests() {
        assert_eq!(seen.body.unwrap().1, sum);
    }
    gw.leak_check().await;
}

#[tokio::test]
async fn request_trailers_reach_the_replica_over_every_pair_of_protocols() {
    let _turn = turn(Cost::Light).await;
    let gw = Gateway::start(
        r#"
models:
  - {name: one, command: @engine one {}
     , containerConcurrency: 8, idleAfter: 1s}
  - {name: two, command: @engine two {}
     , protocol: http2, containerConcurrency: 8, idleAfter: 1s}
"#,
    )
    .await;
    for name in ["one", "two"] {
        gw.warm(name).await;
        let whole = chat_with(name, 1_000);
        let (sum, size) = (sha256(&whole.body), whole.body.len());
        let mut raw = whole.clone().chunked(400).bytes();
        raw.truncate(raw.len() - 2);
        raw.extend_from_slice(b"x-sum: 7\r\ncontent-length: 9\r\n\r\n");
        let mut conn = Conn::open(gw.data).await.unwrap();
        conn.send(&raw).await.unwrap();
        conn.answer("POST").await.expect(200);
        let h2 = H2::open(gw.data).await.unwrap();
        let mut stream = h2.begin_head(&whole, false).await.unwrap();
        stream.push(whole.body.clone(), false).await.unwrap();
        let trailers = [("x-sum", "7"), ("content-length", "9")];
        stream
            .trailers(trailers.map(|(n, v)| (n.parse().unwrap(), v.parse().unwrap())).into_iter().collect())
            .unwrap();
        stream.finish(SECS(10), |_| Want::More).await.0.expect(200);
        let seen = gw.engines().of(name).requests();
        for request in seen.iter().rev().take(2) {
            assert_eq!(request.body, Some((size, sum.clone(), true)), "{name}");
            assert_eq!(request.trailers, [("x-sum".to_owned(), "7".to_owned())], "{name}: {request:?}");
        }
    }
    assert!(!gw.log().contains("client_gone"), "an answer that ended with its last frame was served");
    gw.leak_check().await;
}

#[tokio::test]
async fn a_client_that_is_silent_until_the_response_head_is_served() {
    let _turn = turn(Cost::Light).await;
    let gw = Gateway::start(
        r#"
models:
  - {name: m, command: @engine m {}
     , protocol: http2, containerConcurrency: 8, idleAfter: 1s}
"#,
    )
    .await;
    let h2 = H2::open(gw.data).await.unwrap();
    let request = Request::post("/any.Service/Call", Vec::new())
        .field("x-sluice-model", "m")
        .act(json!({"early": true, "events": 2, "gap": 200}));
    let stream = h2.begin_head(&request, false).await.unwrap();
    let (answer, mut stream) =
        stream.finish(SECS(10), |a| if a.status > 0 { Want::Enough } else { Want::More }).await;
    assert_eq!(answer.status, 200, "the head comes before a byte of the body was sent");
    stream.push("late", true).await.unwrap();
    let (answer, _) = stream.finish(SECS(10), |_| Want::More).await;
    assert!(String::from_utf8_lossy(&answer.body).contains("[DONE]"), "{}", answer.text());
    gw.leak_check().await;
}

#[tokio::test]
async fn tls_offers_both_protocols_and_takes_over_a_renewed_certificate() {
    let _turn = turn(Cost::Light).await;
    let tls = free_address();
    let mut gw = Gateway::prepare(
        &format!(
            r#"
tls: {{listen: "{tls}", certificate: @dir/cert.pem, key: @dir/key.pem}}
models:
  - {{name: m, command: @engine m {{}}
     , containerConcurrency: 8, idleAfter: 1s}}
"#
        ),
        &[],
    );
    let old = Authority::write(gw.dir());
    gw.launch();
    gw.ready().await;
    let mut kept = old.open(tls).await.unwrap();
    kept.exchange(&Request::chat("m")).await.expect(200);
    old.open_h2(tls).await.unwrap().exchange(&Request::chat("m")).await.expect(200);
    assert_eq!(old.negotiated(tls, Alpn::Http2).await.unwrap().as_deref(), Some(&b"h2"[..]));

    // A key that does not belong to the certificate is refused and the old pair stays.
    let key = std::fs::read(gw.dir().join("key.pem")).unwrap();
    let new = Authority::write(gw.dir());
    let new_key = std::fs::read(gw.dir().join("key.pem")).unwrap();
    std::fs::write(gw.dir().join("key.pem"), key).unwrap();
    eventually("the refusal", SECS(10), async || gw.log().contains("certificate_refused").then_some(()))
        .await;
    old.open(tls).await.expect("the old pair stays");
    std::fs::write(gw.dir().join("key.pem"), new_key).unwrap();
    eventually("the new certificate", SECS(10), async || new.open(tls).await.ok()).await;
    assert!(old.open(tls).await.is_err(), "new handshakes get the new certificate");
    kept.exchange(&Request::chat("m")).await.expect(200);
    gw.leak_check().await;
}

#[tokio::test]
async fn another_certificate_file_is_taken_by_a_reload_or_refused_with_it() {
    let _turn = turn(Cost::Light).await;
    let tls = free_address();
    let text = |pair: &str| {
        format!(
            r#"
tls: {{listen: "{tls}", certificate: @dir/{pair}/cert.pem, key: @dir/{pair}/key.pem}}
models:
  - {{name: m, command: @engine m {{}}
     }}
"#
        )
    };
    let mut gw = Gateway::prepare(&text("one"), &[]);
    let [one, two] = ["one", "two"].map(|pair| {
        std::fs::create_dir(gw.dir().join(pair)).unwrap();
        Authority::write(&gw.dir().join(pair))
    });
    gw.launch();
    gw.ready().await;
    one.open(tls).await.unwrap();

    gw.rewrite(&text("three"));
    eventually("the refusal", SECS(10), async || gw.log().contains("config_refused").then_some(())).await;
    let last = gw.admin(Request::get("/api/v1/config")).await.expect(200).json()["lastReload"].clone();
    assert!(last["errors"][0].as_str().unwrap().contains("three/cert.pem"), "{last}");
    one.open(tls).await.expect("the former pair stays");

    gw.rewrite(&text("two"));
    eventually("the other pair", SECS(10), async || two.open(tls).await.ok()).await;
    // From now on the new files are those that are watched.
    let three = Authority::write(&gw.dir().join("two"));
    eventually("the renewed pair", SECS(10), async || three.open(tls).await.ok()).await;
    gw.leak_check().await;
}

fn certificate_for_localhost(dir: &Path) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(dir.join("cert.pem"), made.cert.pem()).unwrap();
    let key = dir.join("key.pem");
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
}

#[tokio::test]
async fn replicas_behind_tls_are_verified_and_named_by_their_own_host() {
    let _turn = turn(Cost::Light).await;
    let tls = free_address();
    let mut behind = Gateway::prepare(
        &format!(
            r#"
tls: {{listen: "{tls}", certificate: @dir/cert.pem, key: @dir/key.pem}}
models:
  - {{name: m, command: @engine m {{}}
     , containerConcurrency: 8, idleAfter: 1s}}
"#
        ),
        &[],
    );
    certificate_for_localhost(behind.dir());
    behind.launch();
    behind.ready().await;
    let port = tls.port();
    let yaml = format!(
        r#"
models:
  - {{name: m, url: "https://localhost:{port}", readiness: {{path: /v2/health/live}}, timeouts: {{coldStart: 2s}}}}
"#
    );
    let roots = behind.dir().join("cert.pem").display().to_string();
    let front = Gateway::start_with(&yaml, &[("SSL_CERT_FILE", &roots)]).await;
    for _ in 0..3 {
        front.send(Request::chat("m")).await.expect(200);
    }
    let host = format!("localhost:{port}");
    let seen = behind.engines().of("m").requests();
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|s| s.get("host") == Some(host.as_str())), "{seen:?}");
    front.leak_check().await;

    let stranger = Gateway::start_with(&yaml, &[]).await;
    let refused = stranger.send(Request::chat("m")).await;
    assert!([502, 503, 504].contains(&refused.status), "an unknown authority: {}", refused.brief());
    assert_eq!(behind.engines().of("m").requests().len(), 3);
    stranger.leak_check().await;
    behind.leak_check().await;
}
