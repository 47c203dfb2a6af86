// SPDX-License-Identifier: Apache-2.0
//! The life of the whole: what is started without a request, what fits the memory budget, and a stop that is urgent.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;
use sluice_tests::client::Request;
use sluice_tests::harness::{Cost, Gateway, eventually, procs, turn};

const SECS: fn(u64) -> Duration = Duration::from_secs;

#[tokio::test]
async fn a_preloaded_model_is_ready_before_its_first_request_and_sleeps_without_one() {
    let _turn = turn(Cost::Light).await;
    let gw = Gateway::start(
        r#"
models:
  - {name: m, command: @engine m {}
     , preload: true, idleAfter: 2s}
"#,
    )
    .await;
    gw.settled("m", 1).await;
    assert_eq!(gw.engines().requests().len(), 0);
    gw.settled("m", 0).await;
    gw.leak_check().await;
}

#[tokio::test]
async fn what_does_not_fit_the_memory_budget_waits_until_there_is_room() {
    let _turn = turn(Cost::Light).await;
    let gw = Gateway::start(
        r#"
memory: 3Gi
models:
  - {name: a, command: @engine a {}
     , memory: 2Gi, idleAfter: 1s}
  - {name: b, command: @engine b {}
     , memory: 2Gi, idleAfter: 1s}
"#,
    )
    .await;
    let (a, b) = tokio::join!(gw.send(Request::chat("a")), gw.send(Request::chat("b")));
    a.expect(200);
    b.expect(200);
    let engines = gw.engines();
    let (first, second) = (engines.of("a").launches()[0], engines.of("b").launches()[0]);
    let (early, late) = if first < second { ("a", second) } else { ("b", first) };
    assert!(engines.of(early).terms()[0] < late, "one after the other");
    gw.leak_check().await;
}

#[tokio::test]
async fn a_second_signal_ends_everything_at_once() {
    let _turn = turn(Cost::Light).await;
    let mut gw = Gateway::start(
        r#"
models:
  - {name: m, command: @engine m {"term":{"mode":"ignore"}}
     , idleAfter: 1s}
"#,
    )
    .await;
    gw.warm("m").await;
    let to = gw.data;
    let stream =
        tokio::spawn(async move { Request::chat("m").act(json!({"events": 600, "gap": 50})).send(to).await });
    eventually("the stream", SECS(10), async || {
        (gw.metrics().await.sum("sluice_inflight", &[("model", "m")]) > 0.0).then_some(())
    })
    .await;
    let engine = gw.engines().pids()[0];
    gw.signal(Signal::SIGTERM);
    eventually("the orderly stop", SECS(10), async || gw.log().contains("stopping").then_some(())).await;
    assert!(procs::alive(engine), "the stream still runs");
    gw.signal(Signal::SIGTERM);
    let status = gw.exited(SECS(5)).await.expect("it does not wait for the stream");
    assert_eq!(status.code(), Some(143));
    eventually("the end of the engine", SECS(5), async || (!procs::alive(engine)).then_some(())).await;
    assert_ne!(stream.await.unwrap().ended, sluice_tests::wire::Ended::Whole);
}
