// SPDX-License-Identifier: Apache-2.0
//! Mission scenarios, from the files that a newcomer would write.

use std::path::Path;

use serde_json::json;
use sluice_tests::client::{Answer, Request, many};
use sluice_tests::harness::{Cost, Gateway, eventually, turn};
use tokio::task::JoinHandle;

use crate::support::{Leave, Visitor, all_ok, in_flight, queued, secs, send};

const NAME: &str = "bert-classifier";

fn scenario(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios").join(file);
    std::fs::read_to_string(path).unwrap()
}

fn predict(ms: u64) -> Request {
    let request = Request::post("/v1/models/bert-classifier:predict", r#"{"instances": ["fine"]}"#);
    request.act(json!({"ttft": ms})).limit(secs(60.0))
}

/// Clients that hold so many requests open.
async fn hold(gw: &Gateway, n: usize) -> Vec<Visitor> {
    let mut held = Vec::new();
    for _ in 0..n {
        let request = predict(60_000);
        held.push(Visitor::enter(gw.data, Leave::Fin, &request, request.body.len()).await);
    }
    held
}

async fn release(held: Vec<Visitor>) {
    for visitor in held {
        visitor.leave().await;
    }
}

/// So many in flight bring so many replicas, neither more nor fewer, and the rest waits.
async fn steps(gw: &Gateway) {
    let mut held = Vec::new();
    for (total, replicas) in [(10, 2), (50, 10), (60, 10)] {
        held.extend(hold(gw, total - held.len()).await);
        gw.settled(NAME, replicas).await;
        let flying = total.min(50);
        in_flight(gw, NAME, flying).await;
        queued(gw, NAME, total - flying).await;
        let desired = gw.model(NAME).await["desired"].as_u64();
        assert_eq!(desired, Some(replicas), "{total} in flight");
    }
    assert!(gw.engines().peak() <= 5, "never more than five at one replica");
    assert_eq!(gw.engines().launches().len(), 10);
    release(held).await;
}

#[tokio::test]
async fn ms_02_the_classifier_follows_its_load() {
    let _turn = turn(Cost::Heavy).await;
    let gw = Gateway::start(&scenario("ms-02.yaml")).await;
    gw.settled(NAME, 1).await;
    steps(&gw).await;
    gw.settled(NAME, 1).await;
    gw.send(predict(0)).await.expect(200);
    gw.leak_check().await;
}

#[tokio::test]
async fn ms_02_the_classifier_sleeps_without_load() {
    let _turn = turn(Cost::Heavy).await;
    let gw = Gateway::start(&scenario("ms-02-zero.yaml")).await;
    gw.settled(NAME, 0).await;
    steps(&gw).await;
    gw.settled(NAME, 0).await;
    let next: JoinHandle<Answer> = send(predict(0), gw.data);
    queued(&gw, NAME, 1).await;
    next.await.unwrap().expect(200);
    assert_eq!(gw.engines().launches().len(), 11, "the next request is held for one more start");
    gw.leak_check().await;
}

#[tokio::test]
async fn ms_02_everybody_is_served() {
    let _turn = turn(Cost::Heavy).await;
    let gw = Gateway::start(&scenario("ms-02-zero.yaml")).await;
    let to = gw.data;
    let answers = many(120, |_| predict(100).send(to)).await;
    all_ok(&answers);
    eventually("it goes back to zero", secs(10.0), async || gw.offspring().is_empty().then_some(())).await;
    assert!(gw.engines().peak() <= 5);
    gw.leak_check().await;
}
