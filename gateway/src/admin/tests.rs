// SPDX-License-Identifier: Apache-2.0
//! The admin API against stand-ins for everything behind it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use sluice_core::{ModelName, ReplicaId};
use sluice_scaler::{Command, CommandError};
use tokio::sync::watch;
use tower::ServiceExt;

use super::fakes::{Fake, broken, cold, line, replica, warm};
use super::guard::Reach;
use super::problem::Kind;
use super::{Admin, AdminError, AdminState, ModelLoad, routes};

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

pub(super) fn router(fake: &Fake) -> Router {
    behind(fake.state())
}

pub(super) fn behind(state: AdminState) -> Router {
    let (stop, stopping) = watch::channel(false);
    // The server holds the sender for as long as it serves.
    std::mem::forget(stop);
    routes::router(state, Reach::Loopback, stopping)
}

pub(super) async fn ask(router: &Router, method: &str, path: &str) -> Response<Body> {
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    router.clone().oneshot(request).await.unwrap()
}

pub(super) async fn text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub(super) async fn document(response: Response<Body>) -> Value {
    serde_json::from_str(&text(response).await).unwrap()
}

pub(super) async fn problem(response: Response<Body>, kind: Kind) -> String {
    assert_eq!(response.status(), kind.status());
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
    let document = document(response).await;
    assert_eq!(document["type"], format!("https://sluice.dev/problems/{}", kind.slug()));
    assert_eq!(document["status"], kind.status().as_u16());
    document["detail"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn livez_answers_in_every_stage() {
    let fake = Fake::new(vec![], vec![]);
    fake.readiness.drain();
    let response = ask(&router(&fake), "GET", "/livez").await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(text(response).await, "ok\n");
}

#[tokio::test]
async fn readyz_follows_the_stage_and_its_checks() {
    let fake = Fake::new(vec![], vec![]);
    let router = router(&fake);
    let ask = async |path: &str| {
        let response = ask(&router, "GET", path).await;
        (response.status().as_u16(), text(response).await)
    };
    assert_eq!(ask("/readyz").await, (503, "not ready: starting\n".to_owned()));
    fake.readiness.ready();
    assert_eq!(ask("/readyz").await, (200, "ready\n".to_owned()));
    fake.readiness.check("listeners", Err("127.0.0.1:8080 is lost".to_owned()));
    let verbose = "[+] stage: ok\n[-] listeners: 127.0.0.1:8080 is lost\n\
                   not ready: listeners: 127.0.0.1:8080 is lost\n";
    assert_eq!(ask("/readyz?verbose").await, (503, verbose.to_owned()));
    fake.readiness.check("listeners", Ok(()));
    fake.readiness.drain();
    assert_eq!(ask("/readyz").await, (503, "not ready: draining\n".to_owned()));
}

#[tokio::test]
async fn metrics_have_the_exposition_content_type() {
    let response = ask(&router(&Fake::new(vec![], vec![])), "GET", "/metrics").await;
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/plain; version=0.0.4; charset=utf-8");
    assert_eq!(text(response).await, "# TYPE sluice_build_info gauge\nsluice_build_info 1\n");
}

#[tokio::test]
async fn a_model_is_shown_with_its_load_and_its_measured_starts() {
    let fake = Fake::new(vec![cold("org/gemma:2b"), warm("tiny")], vec![]);
    let load = ModelLoad { in_flight: 3, queued: 2, ..ModelLoad::default() };
    fake.loads.0.lock().unwrap().insert(ModelName::from("tiny"), load);
    let router = router(&fake);

    let list = document(ask(&router, "GET", "/api/v1/models").await).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    let expected = json!({
        "name": "org/gemma:2b", "state": "cold", "ready": 0, "starting": 0, "leaving": 0, "wanted": 0,
        "desired": 0, "pinned": null, "reason": "idle for 5m", "inFlight": null, "queued": null, "idleMs": null,
        "wake": {"p50Ms": 800, "p90Ms": 1100, "samples": 4}, "fault": null,
        "next": null,
    });
    assert_eq!(list["items"][0], expected);
    for path in ["/api/v1/models/org/gemma:2b", "/api/v1/models/org%2Fgemma%3A2b"] {
        assert_eq!(document(ask(&router, "GET", path).await).await, expected, "{path}");
    }

    let tiny = document(ask(&router, "GET", "/api/v1/models/tiny").await).await;
    assert_eq!((&tiny["inFlight"], &tiny["queued"]), (&json!(3), &json!(2)));
    assert_eq!(tiny["wake"], json!({"p50Ms": null, "p90Ms": null, "samples": 0}));
}

#[tokio::test]
async fn a_fault_is_shown_with_its_cause() {
    let list =
        document(ask(&router(&Fake::new(vec![broken("m", 3)], vec![])), "GET", "/api/v1/models").await).await;
    let cause = "exit status 1: no such file: weights.gguf";
    let expected = json!({"cause": cause, "failures": 3, "answersWaiters": true, "retryInMs": 0});
    assert_eq!(list["items"][0]["fault"], expected);
}

#[tokio::test]
async fn replicas_are_listed_filtered_and_found() {
    let fake = Fake::new(vec![warm("a"), warm("b")], vec![replica("a")]);
    let by_replica = BTreeMap::from([(ReplicaId(7), 2)]);
    let load = ModelLoad { in_flight: 2, by_replica, ..ModelLoad::default() };
    fake.loads.0.lock().unwrap().insert(ModelName::from("a"), load);
    let router = router(&fake);

    let one = document(ask(&router, "GET", "/api/v1/replicas/r7").await).await;
    assert_eq!((&one["id"], &one["model"], &one["phase"]), (&json!("r7"), &json!("a"), &json!("ready")));
    assert_eq!((&one["address"], &one["inFlight"]), (&json!("127.0.0.1:41000"), &json!(2)));
    assert!(one["since"].as_str().unwrap().ends_with('Z') && one["ageMs"].is_u64());

    let items = async |path: &str| {
        let list = document(ask(&router, "GET", path).await).await;
        list["items"].as_array().unwrap().len()
    };
    assert_eq!(items("/api/v1/replicas").await, 1);
    assert_eq!(items("/api/v1/replicas?model=a").await, 1);
    assert_eq!(items("/api/v1/replicas?model=b").await, 0);
    problem(ask(&router, "GET", "/api/v1/replicas?model=c").await, Kind::UnknownModel).await;
    problem(ask(&router, "GET", "/api/v1/replicas?mdoel=a").await, Kind::InvalidParameter).await;
    problem(ask(&router, "GET", "/api/v1/replicas/r8").await, Kind::UnknownReplica).await;
}

#[tokio::test]
async fn orders_reach_the_scaler() {
    let (seen, orders) = mpsc::channel();
    let on = Box::new(move |command: &Command, _: &_| {
        seen.send(command.clone()).unwrap();
        Ok(())
    });
    let fake = Fake::with(vec![cold("org/gemma:2b")], vec![], on);
    let router = router(&fake);
    let model = ModelName::from("org/gemma:2b");
    for (path, order) in [
        ("/api/v1/models/org/gemma:2b:wake", Command::Wake(model.clone())),
        ("/api/v1/models/org%2Fgemma%3A2b%3Asleep", Command::Sleep(model.clone())),
    ] {
        let response = ask(&router, "POST", path).await;
        assert_eq!(response.status(), StatusCode::ACCEPTED);
        assert_eq!(document(response).await["name"], "org/gemma:2b");
        assert_eq!(orders.try_recv().unwrap(), order);
    }
}

#[tokio::test]
async fn refused_orders_say_why() {
    let fixed = Box::new(|command: &Command, _: &_| match command {
        Command::Wake(model) => Err(CommandError::FixedModel(model.clone())),
        _ => Err(CommandError::Stopped),
    });
    let router = router(&Fake::with(vec![warm("m")], vec![], fixed));
    problem(ask(&router, "POST", "/api/v1/models/m:wake").await, Kind::FixedModel).await;
    problem(ask(&router, "POST", "/api/v1/models/m:sleep").await, Kind::ScalerStopped).await;
    let detail = problem(ask(&router, "POST", "/api/v1/models/n:wake").await, Kind::UnknownModel).await;
    assert_eq!(detail, "model \"n\" is not configured");
}

#[tokio::test]
async fn a_wrong_method_names_the_right_ones() {
    let router = router(&Fake::new(vec![warm("m")], vec![]));
    for (method, path, allow) in [
        ("POST", "/api/v1/models", "GET,HEAD"),
        ("DELETE", "/api/v1/models/m", "GET,HEAD,PATCH"),
        ("PATCH", "/api/v1/models/m/logs", "GET,HEAD"),
        ("POST", "/api/v1/models/m", "GET,HEAD,PATCH"),
        ("POST", "/api/v1/models/m:eat", "GET,HEAD,PATCH"),
        ("PUT", "/livez", "GET,HEAD"),
    ] {
        let response = ask(&router, method, path).await;
        assert_eq!(response.headers()[header::ALLOW], allow, "{method} {path}");
        problem(response, Kind::MethodNotAllowed).await;
    }
}

#[tokio::test]
async fn an_unknown_path_is_a_problem() {
    let router = router(&Fake::new(vec![], vec![]));
    for path in ["/", "/api/v1", "/api/v1/models/", "/api/v2/models", "/v1/models"] {
        problem(ask(&router, "GET", path).await, Kind::UnknownRoute).await;
    }
    problem(ask(&router, "GET", "/api/v1/models/nobody").await, Kind::UnknownModel).await;
    problem(ask(&router, "GET", "/api/v1/models/%ff").await, Kind::UnknownModel).await;
}

#[tokio::test]
async fn orders_of_foreign_pages_are_refused() {
    let router = router(&Fake::new(vec![cold("m")], vec![]));
    let request = Request::post("/api/v1/models/m:wake")
        .header(header::HOST, "127.0.0.1:8081")
        .header(header::ORIGIN, "https://elsewhere.example")
        .body(Body::empty());
    problem(router.oneshot(request.unwrap()).await.unwrap(), Kind::ForeignOrigin).await;
}

#[tokio::test]
async fn logs_give_the_tail_and_then_what_comes() {
    let fake = Fake::new(vec![warm("m")], vec![]);
    *fake.logs.lines.lock().unwrap() = vec![line("one"), line("two")];
    let router = router(&fake);
    let expected =
        "{\"at\":\"1970-01-01T00:00:01Z\",\"replica\":\"r7\",\"stream\":\"stderr\",\"text\":\"two\"}\n";
    let response = ask(&router, "GET", "/api/v1/models/m/logs?tail=1").await;
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/x-ndjson");
    assert_eq!(text(response).await, expected);

    let mut body = ask(&router, "GET", "/api/v1/models/m/logs?tail=1&follow=true").await.into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), expected);
    fake.logs.live.send(line("three")).unwrap();
    let next = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(next, expected.replace("two", "three"));

    problem(ask(&router, "GET", "/api/v1/models/n/logs").await, Kind::UnknownModel).await;
    problem(ask(&router, "GET", "/api/v1/models/m/logs?tail=x").await, Kind::InvalidParameter).await;
    problem(ask(&router, "GET", "/api/v1/models/m/logs?tail=10001").await, Kind::InvalidParameter).await;
}

#[tokio::test]
async fn a_slow_follower_is_told_what_it_missed() {
    let fake = Fake::new(vec![warm("m")], vec![]);
    let mut body = ask(&router(&fake), "GET", "/api/v1/models/m/logs?tail=0&follow=true").await.into_body();
    for number in 0..10 {
        fake.logs.live.send(line(&number.to_string())).unwrap();
    }
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    let first: Value = serde_json::from_slice(&first).unwrap();
    assert_eq!(first["stream"], "sluice");
    assert_eq!(first["text"], "6 lines are missing here: they came faster than they were read");
    let next = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&next).unwrap()["text"], "6");
}

#[tokio::test]
async fn followers_are_few_and_their_slots_come_back() {
    let fake = Fake::new(vec![warm("m")], vec![]);
    let router = router(&fake);
    let path = "/api/v1/models/m/logs?follow=true";
    let mut followers = Vec::new();
    for _ in 0..32 {
        followers.push(ask(&router, "GET", path).await);
    }
    problem(ask(&router, "GET", path).await, Kind::Overloaded).await;
    followers.clear();
    let freed = async {
        while ask(&router, "GET", path).await.status() != StatusCode::OK {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), freed).await.expect("a slot is free again");
}

#[tokio::test]
async fn the_configuration_tells_the_fate_of_the_last_reload() {
    let fake = Fake::new(vec![], vec![]);
    let router = router(&fake);
    {
        let mut report = fake.report.lock().unwrap();
        report.file = "sluice.yaml".to_owned();
        report.digest = "sha256:0a".to_owned();
    }
    let config = document(ask(&router, "GET", "/api/v1/config").await).await;
    let expected = json!({
        "file": "sluice.yaml", "digest": "sha256:0a", "loadedAt": "1970-01-01T00:00:00Z", "lastReload": null,
        "changedByApi": {},
    });
    assert_eq!(config, expected);
    {
        let mut report = fake.report.lock().unwrap();
        report.reloaded_at_unix_ms = Some(2_000);
        report.errors = vec!["3:5: unknown key".to_owned()];
    }
    let config = document(ask(&router, "GET", "/api/v1/config").await).await;
    let expected =
        json!({"at": "1970-01-01T00:00:02Z", "outcome": "refused", "errors": ["3:5: unknown key"]});
    assert_eq!(config["lastReload"], expected);
}

#[tokio::test]
async fn the_journal_is_dumped_as_it_is() {
    let response = ask(&router(&Fake::new(vec![], vec![])), "GET", "/api/v1/journal").await;
    assert_eq!(text(response).await, "{\"at\":1}\n{\"at\":2}\n");
}

#[tokio::test(start_paused = true)]
async fn a_silent_scaler_costs_a_timeout_and_many_are_shed() {
    let (handle, _nobody_reads) = sluice_scaler::Handle::new();
    let fake = Fake::new(vec![], vec![]);
    let mut state = fake.state();
    state.handle = handle;
    let router = behind(state);
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let router = router.clone();
        waiting.spawn(async move { ask(&router, "GET", "/api/v1/journal").await });
    }
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
    let shed = ask(&router, "GET", "/api/v1/models").await;
    assert_eq!(shed.headers()[header::RETRY_AFTER], "1");
    problem(shed, Kind::Overloaded).await;
    assert_eq!(ask(&router, "GET", "/livez").await.status(), StatusCode::OK);
    while let Some(late) = waiting.join_next().await {
        problem(late.unwrap(), Kind::Timeout).await;
    }
    assert_eq!(ask(&router, "GET", "/api/v1/models").await.status(), StatusCode::OK);
}

#[test]
fn an_address_that_others_can_reach_needs_permission() {
    let fake = Fake::new(vec![], vec![]);
    let open: SocketAddr = "0.0.0.0:8081".parse().unwrap();
    let refused = Admin::start(open, fake.state()).unwrap_err();
    assert!(matches!(refused, AdminError::Exposed(_)));
    let text = refused.to_string();
    assert!(text.contains("127.0.0.1:8081") && text.contains("adminTokens"), "{text}");
}

#[test]
fn a_taken_address_is_named() {
    let fake = Fake::new(vec![], vec![]);
    let first = Admin::start(LOOPBACK, fake.state()).unwrap();
    let second = Admin::start(first.address(), fake.state()).unwrap_err();
    assert!(second.to_string().contains(&first.address().to_string()), "{second}");
}

#[test]
fn stopping_ends_followers_cleanly_and_frees_the_port() {
    use std::io::{Read, Write};
    let fake = Fake::new(vec![warm("m")], vec![]);
    *fake.logs.lines.lock().unwrap() = vec![line("one")];
    // An address of its own, so that no other test takes the port once it is free.
    let own = SocketAddr::from(([127, 0, 0, 77], 0));
    let admin = Admin::start(own, fake.state()).unwrap();
    let address = admin.address();
    let mut follower = std::net::TcpStream::connect(address).unwrap();
    follower.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    follower.write_all(b"GET /api/v1/models/m/logs?follow=true HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut start = [0; 12];
    follower.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");
    admin.stop();
    let mut rest = String::new();
    follower.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("\"text\":\"one\"") && rest.ends_with("\r\n0\r\n\r\n"), "{rest}");
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn it_answers_while_rendering_metrics_takes_long() {
    use std::io::{Read, Write};
    let fake = Fake::new(vec![], vec![]);
    let mut state = fake.state();
    let (release, held) = mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    state.metrics = Arc::new(move |_| {
        let _ = held.lock().unwrap().recv();
        "late".to_owned()
    });
    let admin = Admin::start(LOOPBACK, state).unwrap();
    let ask = |path: &str| {
        let mut stream = std::net::TcpStream::connect(admin.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        stream
    };
    let read = |mut stream: std::net::TcpStream| {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let scrape = ask("/metrics");
    assert!(read(ask("/livez")).ends_with("ok\n"));
    release.send(()).unwrap();
    assert!(read(scrape).ends_with("late"));
}
