// SPDX-License-Identifier: Apache-2.0
//! Ten thousand requests wait for one model to start.

use std::sync::Arc;

use serde_json::json;
use sluice_tests::client::{H2, Request, many};
use sluice_tests::harness::{Cost, Gateway, turn};

use super::crowd::{MARK, Sent};
use super::fate::{Fate, judge};
use crate::support::{fleet, model, queued, secs};

const PARKED: usize = 10_000;
/// HTTP/2 connections that carry them, so that neither side needs a descriptor per request.
const CONNECTIONS: usize = 50;

/// All wait at once before the model is ready, and all are answered, each once and with its own answer. Towards
/// clients that takes 50 connections of 200 streams, towards the replica as many as it takes requests at once.
#[tokio::test]
async fn chaos_ten_thousand_parked_requests_are_released_without_loss() {
    let _turn = turn(Cost::Alone).await;
    let keys = ["containerConcurrency: 64", "queue: {length: 10000}", "idleAfter: 5m", "minReplicas: 0"];
    let limits = "limits: {streamsPerConnection: 200}\n";
    let dir = tempfile::tempdir().unwrap();
    let gate = dir.path().join("closed");
    std::fs::write(&gate, "").unwrap();
    let script = json!({"idleClose": 500, "probe": {"redWhile": gate}}).to_string();
    let gw = Gateway::start(&format!("{limits}{}", fleet(&[model("m", &script, &keys)]))).await;
    let mut lines = Vec::new();
    for _ in 0..CONNECTIONS {
        lines.push(Arc::new(H2::open(gw.data).await.unwrap()));
    }
    let clients = tokio::spawn(many(PARKED, move |n| {
        let line = Arc::clone(&lines[n % CONNECTIONS]);
        let mark = format!("parked-{n}");
        let body = json!({"model": "m", "prompt": mark}).to_string().into_bytes();
        let request = Request::chat("m").field(MARK, &mark).act(json!({"echo": true}));
        let request = request.body(body.clone()).limit(secs(120.0));
        async move { Sent { mark, echo: Some(body), answer: line.exchange(&request).await } }
    }));
    queued(&gw, "m", PARKED).await;
    std::fs::remove_file(&gate).unwrap();
    let sent = clients.await.unwrap();
    let engines = gw.finished().await;
    let fates = judge(&sent, &engines, &[]);
    assert_eq!(fates.of(&Fate::Answered), PARKED, "{:?}", fates.count);
    assert!(engines.peak() <= 64 && engines.launches().len() == 1, "{}", engines.peak());
    let metrics = gw.metrics().await;
    assert_eq!(metrics.sum("sluice_requests_total", &[("code", "200")]), PARKED as f64);
    gw.leak_check().await;
}
