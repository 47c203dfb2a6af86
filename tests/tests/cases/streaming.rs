// SPDX-License-Identifier: Apache-2.0
//! Field cases about answers that come event by event.

use serde_json::{Value, json};
use sluice_tests::chance::percentile;
use sluice_tests::client::{Answer, H2, Request};
use sluice_tests::clock;
use sluice_tests::engine::journal::{Closer, Event};
use sluice_tests::engine::sha256;
use sluice_tests::harness::{Cost, Gateway, eventually, turn};
use sluice_tests::wire::Ended;

use crate::support::{
    Leave, Visitor, after_events, between, endless, fleet, model, near, queued, secs, send,
};

fn forty(model: &str, gzip: bool) -> Request {
    let request = Request::chat(model).act(json!({"events": 40, "gap": 50}));
    if gzip { request.field("accept-encoding", "gzip") } else { request }
}

/// Asks for forty events over either version.
async fn stream(gw: &Gateway, model: &str, h2: bool, gzip: bool) -> Answer {
    if !h2 {
        return gw.send(forty(model, gzip)).await;
    }
    H2::open(gw.data).await.unwrap().exchange(&forty(model, gzip)).await
}

fn delays(answer: &Answer) -> Vec<u64> {
    answer.expect(200).engine_events().iter().map(|(_, delay)| *delay).collect()
}

#[tokio::test]
async fn fc_14_events_arrive_one_by_one() {
    let _turn = turn(Cost::Alone).await;
    let names = ["warm", "z1", "z2", "z3", "z4"];
    let models = names.map(|n| model(n, r#"{"readyAt": 200}"#, &["idleAfter: 1s"]));
    let gw = Gateway::start(&fleet(&models)).await;
    gw.warm("warm").await;
    let port = gw.engines().0[0].port;
    let direct = tokio::spawn(forty("warm", false).send(([127, 0, 0, 1], port).into()));
    let answers = tokio::join!(
        stream(&gw, "warm", false, false),
        stream(&gw, "warm", false, true),
        stream(&gw, "warm", true, false),
        stream(&gw, "warm", true, true),
        stream(&gw, "z1", false, false),
        stream(&gw, "z2", false, true),
        stream(&gw, "z3", true, false),
        stream(&gw, "z4", true, true),
    );
    // What this machine needs without a gateway is measured at the same time.
    let without = percentile(&delays(&direct.await.unwrap()), 99);
    let sent: Vec<_> = gw.finished().await.requests().into_iter().map(|s| s.sent.1).collect();
    for answer in <[Answer; 8]>::from(answers) {
        let delays = delays(&answer);
        assert_eq!(delays.len(), 40);
        let with = percentile(&delays, 99);
        assert!(
            with <= without + 20_000,
            "an event takes {with} us through the gateway and {without} us without"
        );
        let mut times: Vec<_> = answer.events().iter().map(|e| e.at).collect();
        times.dedup();
        assert!(times.len() >= 38, "{} distinct arrivals", times.len());
        assert!(sent.contains(&sha256(&answer.body)), "bytes and their order are unchanged");
        assert_eq!(answer.get("content-encoding"), None);
        assert_eq!(answer.get("x-accel-buffering"), Some("no"));
        assert!(answer.get("cache-control").is_some_and(|c| c.contains("no-cache")));
    }
    let own = json!({"events": 1, "headers": [["cache-control", "private"], ["x-accel-buffering", "yes"]]});
    let answer = gw.send(Request::chat("warm").act(own)).await;
    assert_eq!(
        (answer.get("cache-control"), answer.get("x-accel-buffering")),
        (Some("private"), Some("yes"))
    );
    gw.leak_check().await;
}

/// Two replicas, each with a kept connection, and an act that only the first to meet it carries out.
async fn fc_15(mut fault: Value, body: usize) -> (Gateway, Answer, Vec<sluice_tests::harness::Seen>, String) {
    let keys = ["minReplicas: 2", "maxReplicas: 2"];
    let gw = Gateway::start(&fleet(&[model("m", "{}", &keys)])).await;
    gw.settled("m", 2).await;
    let warm = || send(Request::chat("m").act(json!({"ttft": 200})), gw.data);
    let pair = [warm(), warm()];
    for one in pair {
        one.await.unwrap().expect(200);
    }
    assert_eq!(gw.engines().pids().len(), 2);
    let begun = clock::now();
    fault["once"] = gw.dir().join("taken").display().to_string().into();
    let mut request = Request::chat("m").act(json!({"events": 6, "gap": 20, "fault": fault}));
    if body > 0 {
        let text = format!(r#"{{"model":"m","x":"{}"}}"#, "z".repeat(body));
        request = request.body(text);
    }
    let sum = sha256(&request.body);
    let answer = gw.send(request).await;
    let seen = gw.engines().since(begun).requests();
    (gw, answer, seen, sum)
}

fn assert_unclean(answer: &Answer, events: usize) {
    assert_eq!(answer.status, 200);
    assert!(matches!(answer.ended, Ended::Cut | Ended::Reset), "the end is unclean: {:?}", answer.ended);
    assert!(!answer.text().contains("[DONE]"));
    let numbers: Vec<_> = answer.engine_events().iter().map(|(n, _)| *n).collect();
    assert_eq!(numbers, (0..events as u64).collect::<Vec<_>>(), "no event twice");
    let extra: Vec<_> = answer.events().into_iter().skip(events).collect();
    assert!(extra.len() <= 1 && extra.iter().all(|e| e.text.contains("\"error\"")), "{extra:?}");
}

#[tokio::test]
async fn fc_15_a_stream_that_broke_is_not_replayed() {
    let _turn = turn(Cost::Light).await;
    let (gw, answer, seen, _) = fc_15(json!({"at": "event", "event": 3, "how": "rst"}), 0).await;
    assert_unclean(&answer, 3);
    assert_eq!(seen.len(), 1, "the other replica is untouched");
    gw.leak_check().await;
}

#[tokio::test]
async fn fc_15_a_request_that_a_kept_connection_swallowed_is_retried() {
    let _turn = turn(Cost::Light).await;
    let fault = json!({"at": "body", "how": "rst", "reused": true});
    let (gw, answer, seen, sum) = fc_15(fault, 3 << 20).await;
    assert_eq!(answer.expect(200).engine_events().len(), 6);
    assert_eq!(seen.len(), 2);
    assert_eq!((seen[0].started.is_some(), seen[1].started.is_some()), (false, true));
    assert_ne!(seen[0].pid, seen[1].pid, "the retry goes to the other replica");
    assert_eq!(seen[1].body.as_ref().unwrap().1, sum);
    gw.leak_check().await;
}

#[tokio::test]
async fn fc_15_a_head_alone_commits() {
    let _turn = turn(Cost::Light).await;
    let (gw, answer, seen, _) = fc_15(json!({"at": "head", "how": "rst"}), 0).await;
    assert_unclean(&answer, 0);
    assert_eq!(seen.len(), 1, "the other replica is untouched");
    gw.leak_check().await;
}

/// One client occupies the only slot and leaves; the next one, queued, must be served at once.
async fn fc_16(gw: &Gateway, leave: Leave, first: &Request, five_events: bool) {
    let visitor = Visitor::enter(gw.data, leave, first, first.body.len()).await;
    let visitor = if five_events {
        let (answer, visitor) = visitor.read(after_events(5)).await;
        assert_eq!(answer.ended, Ended::Left);
        visitor
    } else {
        tokio::time::sleep(secs(1.0)).await;
        visitor
    };
    let next = send(Request::chat("m"), gw.data);
    queued(gw, "m", 1).await;
    let before = gw.engines().requests().len();
    let left = clock::now();
    visitor.leave().await;
    next.await.unwrap().expect(200);
    let seen = gw.engines().requests();
    let closed = seen[before - 1].ended.expect("the replica saw the end").0;
    assert!(
        between(left, closed) < 0.5,
        "{leave:?}: the replica sees the close after {} s",
        between(left, closed)
    );
    let started = seen[before].started.unwrap();
    assert!(between(left, started) < 0.5, "{leave:?}: the next starts after {} s", between(left, started));
}

#[tokio::test]
async fn fc_16_a_client_that_leaves_frees_the_replica() {
    let _turn = turn(Cost::Light).await;
    let gw = Gateway::start(&fleet(&[model("m", "{}", &["containerConcurrency: 1", "idleAfter: 2s"])])).await;
    gw.warm("m").await;
    let silent = Request::chat("m").act(json!({"ttft": 20000}));
    for leave in [Leave::Fin, Leave::Rst, Leave::H2Stream] {
        fc_16(&gw, leave, &endless("m"), true).await;
        fc_16(&gw, leave, &silent, false).await;
    }
    let engines = gw.engines();
    assert_eq!(engines.launches().len(), 1, "a cancel is not the replica's fault");
    assert_eq!(engines.peak(), 1);
    let closed = engines.times(|e| matches!(e, Event::Closed { by: Closer::PeerFin | Closer::PeerRst, .. }));
    assert!(closed.len() >= 6);
    let metrics = gw.metrics().await;
    let cancelled = metrics.sum("sluice_client_cancels_total", &[("model", "m"), ("phase", "in_flight")]);
    assert_eq!(cancelled, 6.0, "told as the client's cancel");
    assert_eq!(metrics.sum("sluice_requests_total", &[("model", "m"), ("code", "502")]), 0.0);
    gw.leak_check().await;
}

#[tokio::test]
async fn fc_17_defaults_never_cut_a_slow_stream() {
    let _turn = turn(Cost::Light).await;
    let gw = Gateway::start(&fleet(&[model("m", "{}", &[])])).await;
    let act = json!({"events": 8, "gap": 4000, "ttft": 40000, "pauses": {"4": 36000}});
    let answer = gw.send(Request::chat("m").act(act).limit(secs(130.0))).await;
    assert_eq!(answer.expect(200).engine_events().len(), 8);
    let seen = gw.finished().await.requests();
    assert_eq!(seen[0].sent, (answer.body.len(), sha256(&answer.body)));
    near("the whole answer", answer.took(), 100.0);
}

#[tokio::test]
async fn fc_17_a_limit_between_bytes_cuts_detectably() {
    let _turn = turn(Cost::Light).await;
    let keys = ["timeouts: {betweenBytes: 2s}", "idleAfter: 1s"];
    let gw = Gateway::start(&fleet(&[model("m", "{}", &keys)])).await;
    gw.warm("m").await;
    let request = Request::chat("m").act(json!({"events": 4, "gap": 20, "pauses": {"2": 5000}}));
    let h2 = H2::open(gw.data).await.unwrap();
    let (one, two) = tokio::join!(gw.send(request.clone()), h2.exchange(&request));
    assert_unclean(&one, 2);
    assert!(matches!(two.ended, Ended::StreamReset(_)), "{:?}", two.ended);
    for answer in [one, two] {
        let last = answer.events()[1].at;
        near("from the last event to the end", between(last, answer.end_at), 2.0);
    }
    drop(h2);
    gw.leak_check().await;
}

#[tokio::test]
async fn an_event_cut_in_the_middle_gets_no_error_event() {
    let _turn = turn(Cost::Light).await;
    let keys = ["timeouts: {betweenBytes: 500ms}", "idleAfter: 1s"];
    let gw = Gateway::start(&fleet(&[model("m", "{}", &keys)])).await;
    let answer = gw.send(Request::chat("m").act(json!({"events": 3, "splits": {"1": 3000}}))).await;
    assert!(matches!(answer.ended, Ended::Cut | Ended::Reset), "{:?}", answer.ended);
    assert!(!answer.text().contains("error"), "nothing is put into an unfinished event: {}", answer.text());
    eventually("the slot is free", secs(2.0), async || {
        (gw.metrics().await.sum("sluice_inflight", &[]) == 0.0).then_some(())
    })
    .await;
    gw.leak_check().await;
}
