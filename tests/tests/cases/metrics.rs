// SPDX-License-Identifier: Apache-2.0
//! Field cases about what is measured.

use serde_json::json;
use sluice_tests::chance::{Chance, percentile};
use sluice_tests::client::{Conn, Request, many};
use sluice_tests::harness::{Cost, Gateway, procs, turn};

use crate::support::{fleet, model};

fn strange_name(chance: &mut Chance) -> String {
    let letters = ['a', 'Z', '0', '"', '\\', '\n', 'é', '模', '{', '}', ',', '=', ' '];
    // Mostly short: the length matters for the memory, the number for the series.
    let longest = if chance.between(0, 9) == 0 { 4096 } else { 40 };
    let length = chance.between(1, longest);
    (0..length).map(|_| *chance.one(&letters)).chain(['!']).collect()
}

#[tokio::test]
async fn fc_45_unknown_names_mint_no_series() {
    let _turn = turn(Cost::Heavy).await;
    let gw = Gateway::start(&fleet(&[model("m", "{}", &["idleAfter: 1s"])])).await;
    gw.warm("m").await;
    gw.send(Request::chat("never heard of")).await.expect(404);
    let (series, memory) = (gw.metrics().await.samples.len(), procs::memory(gw.pid()).0);
    let to = gw.data;
    many(4, |n| async move {
        let mut chance = Chance::new(n as u64);
        let mut conn = Conn::open(to).await.unwrap();
        for _ in 0..5000 {
            let user = format!("user-{}", chance.number());
            let body = json!({"model": strange_name(&mut chance), "user": user, "messages": []});
            let answer = conn.exchange(&Request::post("/v1/chat/completions", body.to_string())).await;
            // A name that no model can have is a bad request, any other is unknown.
            assert!(answer.is(404) || answer.is(400), "{}", answer.brief());
        }
    })
    .await;
    gw.send(Request::chat("m").field("x-user", "somebody")).await.expect(200);
    let metrics = gw.metrics().await;
    assert!(metrics.samples.len() <= series + 20, "{} series, {series} before", metrics.samples.len());
    let users = |s: &&sluice_tests::harness::metrics::Sample| s.labels.values().any(|v| v.contains("user-"));
    assert_eq!(metrics.samples.iter().filter(users).count(), 0);
    let mut times = Vec::new();
    for _ in 0..5 {
        times.push(gw.admin(Request::get("/metrics")).await.expect(200).took());
    }
    assert!(percentile(&times, 50) < 0.2, "{times:?}");
    let rise = procs::memory(gw.pid()).0.saturating_sub(memory);
    assert!(rise < 20 << 20, "resident memory rose by {} KiB", rise >> 10);
    gw.leak_check().await;
}

#[tokio::test]
async fn the_promised_series_are_there() {
    let _turn = turn(Cost::Light).await;
    let gw = Gateway::start(&fleet(&[model("m", "{}", &["minReplicas: 1"])])).await;
    gw.settled("m", 1).await;
    gw.warm("m").await;
    gw.send(Request::chat("nope")).await.expect(404);
    let metrics = gw.metrics().await;
    let m = ("model", "m");
    assert_eq!(metrics.sum("sluice_requests_total", &[m, ("code", "200")]), 1.0);
    assert_eq!(metrics.sum("sluice_replicas", &[m, ("state", "ready")]), 1.0);
    assert_eq!(metrics.sum("sluice_desired_replicas", &[m]), 1.0);
    assert!(metrics.sum("sluice_refusals_total", &[]) >= 1.0);
    for gauge in ["sluice_inflight", "sluice_queue_depth"] {
        assert!(!metrics.find(gauge, &[m]).is_empty(), "{gauge}");
    }
}
