// SPDX-License-Identifier: Apache-2.0
//! Sluice itself is stopped, killed, restarted and reloaded under load.

use nix::sys::signal::Signal;
use serde_json::json;
use sluice_tests::harness::{Cost, Gateway, Replica, eventually, turn};

use super::crowd::Crowd;
use super::fate::{Fate, Lost, judge};
use crate::support::{fleet, model, secs};

const CLIENTS: usize = 18;
/// So that kept connections are gone when the leak check counts.
const IDLE_CLOSE: &str = r#"{"idleClose": 500}"#;

fn one() -> String {
    fleet(&[model("m", IDLE_CLOSE, &["idleAfter: 5m", "maxReplicas: 2", "containerConcurrency: 20"])])
}

#[tokio::test]
async fn chaos_an_orderly_stop_loses_nothing() {
    let _turn = turn(Cost::Heavy).await;
    let mut gw = Gateway::start(&one()).await;
    let mut sent = Vec::new();
    for round in ["stop-a", "stop-b", "stop-c"] {
        gw.warm("m").await;
        let crowd = Crowd::start(gw.data, "m", round, CLIENTS);
        crowd.gets(150).await;
        let status = gw.end(Signal::SIGTERM).await;
        assert!(status.success(), "{status}");
        sent.extend(crowd.stop().await);
        gw.again().await;
    }
    let engines = gw.engines();
    assert!(engines.requests().iter().all(|s| s.ended.is_some()), "no request is cut at an engine");
    let fates = judge(&sent, &engines, &[]);
    let refused = fates.of(&Fate::Told(503, "draining".into()));
    let accounted = fates.of(&Fate::Answered) + fates.of(&Fate::Unsent) + refused;
    assert_eq!(accounted, fates.total(), "{:?}", fates.count);
    fates.lost_only(|refused| refused.attempts.is_empty());
    gw.leak_check().await;
}

/// Killed at any moment and started again: clients of the dead one know it, and everything else is answered.
#[tokio::test]
async fn chaos_a_killed_gateway_loses_only_what_was_on_its_wire() {
    let _turn = turn(Cost::Heavy).await;
    let outside = Replica::start("outside", &json!({"idleClose": 500})).await;
    let fixed = format!("  - name: u\n    url: http://{}\n    containerConcurrency: 20\n", outside.at);
    let mut gw = Gateway::start(&format!("{}{fixed}", one())).await;
    gw.warm("m").await;
    let crowds =
        [Crowd::start(gw.data, "m", "own", CLIENTS / 2), Crowd::start(gw.data, "u", "fixed", CLIENTS / 2)];
    let mut dead = Vec::new();
    for _ in 0..4 {
        for crowd in &crowds {
            crowd.gets(50).await;
        }
        dead.extend(gw.engines().pids());
        gw.end(Signal::SIGKILL).await;
        gw.again().await;
    }
    for crowd in &crowds {
        crowd.gets(50).await;
    }
    let [own, fixed] = crowds;
    dead.dedup();
    let sent = own.stop_and_settle(&gw, &dead).await;
    let fates = judge(&sent, &gw.engines(), &dead);
    fates.lost_only(|lost| cut_at_one(lost) && dead.contains(&lost.attempts[0].pid));
    assert!(fates.lost.len() <= 4 * CLIENTS / 2, "{:?}", fates.count);
    let sent = fixed.stop().await;
    let log = eventually("the fixed replica has ended its work", secs(5.0), async || {
        let log = outside.log();
        log.requests().iter().all(|s| s.started.is_none() || s.ended.is_some()).then_some(log)
    })
    .await;
    let fates = judge(&sent, &log, &[]);
    fates.lost_only(cut_at_one);
    assert!(fates.lost.len() <= 4 * CLIENTS / 2, "{:?}", fates.count);
    gw.leak_check().await;
}

/// It was with one engine when its gateway was killed.
fn cut_at_one(lost: &Lost) -> bool {
    lost.fate == Fate::Cut && lost.attempts.len() == 1
}

fn edition(n: usize) -> String {
    let keys = [
        "idleAfter: 5m".to_owned(),
        "containerConcurrency: 20".to_owned(),
        "maxReplicas: 2".to_owned(),
        format!("scaleTarget: {}", 10 + n % 7),
        format!("timeouts: {{queue: {}s}}", 60 + n),
    ];
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    let other = model(&format!("other{n}"), "{}", &[]);
    fleet(&[model("m", IDLE_CLOSE, &keys), other])
}

#[tokio::test]
async fn chaos_a_hundred_reloads_lose_nothing() {
    let _turn = turn(Cost::Heavy).await;
    let mut gw = Gateway::start(&edition(0)).await;
    gw.warm("m").await;
    let crowd = Crowd::start(gw.data, "m", "reload", CLIENTS);
    crowd.gets(20).await;
    for n in 1..=100 {
        gw.rewrite(&edition(n));
        gw.signal(Signal::SIGHUP);
        let name = format!("other{n}");
        let ask = async || (gw.model(&name).await["name"] == *name).then_some(());
        eventually("the new edition is active", secs(5.0), ask).await;
        crowd.gets(1).await;
    }
    let sent = crowd.stop_and_settle(&gw, &[]).await;
    let engines = gw.engines();
    let fates = judge(&sent, &engines, &[]);
    assert_eq!(fates.of(&Fate::Answered), fates.total(), "{:?}", fates.count);
    assert!(engines.launches().len() <= 2 && engines.terms().is_empty(), "no replica is started anew");
    assert!(gw.metrics().await.sum("sluice_config_reloads_total", &[("outcome", "ok")]) >= 100.0);
    gw.leak_check().await;
}
