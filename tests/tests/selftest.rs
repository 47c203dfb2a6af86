// SPDX-License-Identifier: Apache-2.0
//! Engine and client against each other: what the suites measure with must itself be right.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use sluice_tests::client::{Conn, H2, Request};
use sluice_tests::clock::{self, ms};
use sluice_tests::engine::journal::{Closer, Event, Outcome};
use sluice_tests::engine::sha256;
use sluice_tests::harness::{Engines, Replica, procs};
use sluice_tests::wire::{Ended, Want};

#[tokio::test]
async fn a_request_is_described_and_answered() {
    let engine = Replica::start("e", &json!({})).await;
    let body = "x".repeat(300_000);
    for request in [Request::post("/a?b", body.clone()), Request::post("/a?b", body.clone()).chunked(1000)] {
        let answer = request.field("X-Some", "thing").send(engine.at).await;
        assert_eq!(answer.expect(200).json()["sha256"], sha256(body.as_bytes()));
    }
    let seen = engine.log().requests();
    assert_eq!(seen.len(), 2);
    assert_eq!((seen[0].target.as_str(), seen[0].get("x-some")), ("/a?b", Some("thing")));
    assert_eq!(seen[1].body, Some((300_000, sha256(body.as_bytes()), true)));
    assert_eq!(seen[1].ended.unwrap().1, Outcome::Answered);
}

#[tokio::test]
async fn events_come_one_by_one_on_both_versions() {
    let engine = Replica::start("e", &json!({})).await;
    let request = Request::chat("m").act(json!({"events": 6, "gap": 40, "splits": {"2": 30}}));
    let h2 = H2::open(engine.at).await.unwrap();
    let answers = [request.clone().send(engine.at).await, h2.exchange(&request).await];
    engine.wait(|e| e.requests().iter().filter(|s| s.ended.is_some()).count() == 2).await;
    for (answer, seen) in answers.iter().zip(engine.log().requests()) {
        let events = answer.expect(200).engine_events();
        assert_eq!(events.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
        assert!(answer.text().ends_with("data: [DONE]\n\n"));
        assert!(answer.took() >= 0.22, "{}", answer.took());
        assert_eq!(seen.sent, (answer.body.len(), sha256(&answer.body)));
    }
}

#[tokio::test]
async fn faults_happen_where_they_should() {
    let engine = Replica::start("e", &json!({})).await;
    let fault = |fault: serde_json::Value| {
        Request::chat("m").act(json!({"events": 4, "fault": fault})).limit(ms(300)).send(engine.at)
    };
    let after_three = fault(json!({"at": "event", "event": 3, "how": "rst"})).await;
    assert_eq!((after_three.status, after_three.events().len(), after_three.ended), (200, 3, Ended::Reset));
    let head_only = fault(json!({"at": "head", "how": "fin"})).await;
    assert_eq!((head_only.status, head_only.body.len(), head_only.ended), (200, 0, Ended::Cut));
    let nothing = fault(json!({"at": "handler", "how": "rst"})).await;
    assert_eq!((nothing.status, nothing.ended), (0, Ended::Reset));
    let silent = fault(json!({"at": "body", "how": "hang"})).await;
    assert_eq!((silent.status, silent.ended), (0, Ended::TimedOut));
    assert_eq!(engine.log().handled(), 3);
}

#[tokio::test]
async fn answers_take_every_shape() {
    let engine = Replica::start("e", &json!({})).await;
    let act = |act| Request::chat("m").act(act).send(engine.at);
    let interim = act(json!({"interim": [103, 100], "trailers": [["X-T", "v"]]})).await;
    assert_eq!(interim.expect(200).interim.iter().map(|h| h.word(1)).collect::<Vec<_>>(), ["103", "100"]);
    assert_eq!(interim.trailers, [("X-T".to_owned(), "v".to_owned())]);
    let close = act(json!({"framing": "close", "body": "until the end"})).await;
    assert_eq!((close.version.as_str(), close.text().as_str()), ("HTTP/1.0", "until the end"));
    assert_eq!(act(json!({"size": 5_000_000})).await.expect(200).body.len(), 5_000_000);
    assert_eq!(act(json!({"status": 422, "body": "{}"})).await.expect(422).text(), "{}");
    let echo =
        Request::post("/", "abc").act(json!({"echo": true, "framing": "chunked"})).send(engine.at).await;
    assert_eq!((echo.expect(200).text().as_str(), echo.get("content-length")), ("abc", None));
    assert_eq!(act(json!({"raw": "HTTP/1.1 299 x\r\ncontent-length: 9\r\n\r\nab"})).await.ended, Ended::Cut);
    assert_eq!(act(json!({"unknown": 1})).await.status, 599);
}

#[tokio::test]
async fn departures_are_noticed() {
    let engine = Replica::start("e", &json!({})).await;
    let request = Request::chat("m").act(json!({"events": 100, "gap": 20}));
    let five =
        |a: &sluice_tests::client::Answer| if a.events().len() >= 5 { Want::Enough } else { Want::More };
    let mut conn = Conn::open(engine.at).await.unwrap();
    assert_eq!(conn.exchange_until(&request, five).await.ended, Ended::Left);
    conn.reset();
    let mut conn = Conn::open(engine.at).await.unwrap();
    conn.exchange_until(&request, five).await;
    let left = clock::now();
    drop(conn);
    let ends = |e: &Engines| e.requests().iter().filter(|s| s.ended.is_some()).count();
    engine.wait(|e| ends(e) == 2).await;
    let log = engine.log();
    assert!(log.requests().iter().all(|s| s.ended.unwrap().1 == Outcome::PeerGone));
    assert!(log.requests()[1].ended.unwrap().0 >= left);
    let by = |closer| log.times(|e| matches!(e, Event::Closed { by, .. } if *by == closer)).len();
    assert_eq!((by(Closer::PeerRst), by(Closer::PeerFin)), (1, 1));
}

#[tokio::test]
async fn h2_streams_can_be_cancelled_and_stalled() {
    let engine = Replica::start("e", &json!({})).await;
    let small = h2::client::Builder::new().initial_window_size(1000).clone();
    let h2 = H2::open_with(engine.at, &small).await.unwrap();
    let mut stream = h2.begin(&Request::chat("m").act(json!({"size": 5000}))).await.unwrap();
    stream.hold_window();
    let (answer, stream) = stream.finish(ms(300), |_| Want::More).await;
    assert_eq!((answer.status, answer.body.len(), answer.ended), (200, 1000, Ended::TimedOut));
    stream.cancel();
    engine.wait(|e| e.requests().iter().any(|s| matches!(s.ended, Some((_, Outcome::PeerGone))))).await;
    let answer = h2.exchange(&Request::chat("m").act(json!({"trailers": [["x-t", "v"]]}))).await;
    assert_eq!(answer.expect(200).trailers, [("x-t".to_owned(), "v".to_owned())]);
    let answer =
        h2.exchange(&Request::chat("m").act(json!({"fault": {"at": "handler", "how": "rst"}}))).await;
    assert_eq!(answer.ended, Ended::StreamReset(2));
    h2.close().await;
    engine.wait(|e| !e.times(|e| matches!(e, Event::Closed { .. })).is_empty()).await;
}

#[tokio::test]
async fn readiness_follows_the_script() {
    let engine =
        Replica::start("e", &json!({"readyAt": 400, "key": "K2", "probe": {"answers": [200, 503]}})).await;
    let probe = || Request::get("/health").field("authorization", "Bearer K2").send(engine.at);
    assert_eq!(Request::get("/health").send(engine.at).await.status, 401);
    assert_eq!(probe().await.status, 503);
    engine.wait(|e| !e.readies().is_empty()).await;
    assert_eq!([probe().await.status, probe().await.status, probe().await.status], [200, 503, 200]);
    let log = engine.log();
    assert!(log.readies()[0] - log.launches()[0] >= 400_000);
    let statuses: Vec<_> = log
        .0
        .iter()
        .filter_map(|r| if let Event::Probe { status, .. } = r.event { Some(status) } else { None })
        .collect();
    assert_eq!(statuses, [401, 503, 200, 503, 200]);
    assert_eq!(Request::chat("m").send(engine.at).await.status, 401);
}

#[tokio::test]
async fn a_full_engine_resets_and_an_idle_one_closes() {
    let engine = Replica::start("e", &json!({"maxConcurrent": 1, "idleClose": 100})).await;
    let first = tokio::spawn(Request::chat("m").act(json!({"ttft": 300})).send(engine.at));
    engine.wait(|e| e.handled() == 1).await;
    assert_eq!(Request::chat("m").send(engine.at).await.ended, Ended::Reset);
    first.await.unwrap().expect(200);
    let mut conn = Conn::open(engine.at).await.unwrap();
    conn.exchange(&Request::chat("m")).await.expect(200);
    assert_eq!(conn.rest(ms(2000)).await.1, Ended::Whole);
}

#[tokio::test]
async fn signals_and_exits_follow_the_script() {
    let mut finishing = Replica::start("e", &json!({"term": {"mode": "finish", "delay": 50}})).await;
    let running = tokio::spawn(Request::chat("m").act(json!({"ttft": 300})).send(finishing.at));
    finishing.wait(|e| e.handled() == 1).await;
    finishing.signal(Signal::SIGTERM);
    running.await.unwrap().expect(200);
    assert_eq!(finishing.child().wait().unwrap().code(), Some(0));
    let mut deaf = Replica::start("e", &json!({"term": {"mode": "ignore"}, "grandchild": true})).await;
    let family = procs::children(deaf.child().id());
    deaf.signal(Signal::SIGTERM);
    deaf.wait(|e| !e.terms().is_empty()).await;
    assert!(deaf.child().try_wait().unwrap().is_none());
    assert_eq!(family.len(), 1);
    kill(Pid::from_raw(family[0].pid as i32), Signal::SIGKILL).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let lock = json!({"lock": dir.path().join("lock")});
    let _holder = Replica::start("e", &lock).await;
    assert_eq!(Replica::launch("e", &lock).child().wait().unwrap().code(), Some(70));
    let mut crash =
        Replica::launch("e", &json!({"exit": {"code": 3, "after": 50, "stderr": "no such file\n"}}));
    assert_eq!(crash.child().wait().unwrap().code(), Some(3));
    assert_eq!(crash.log().exits(), [3]);
}
