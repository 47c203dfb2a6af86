// SPDX-License-Identifier: Apache-2.0
//! `compat: kpa` with real replicas and requests: that the live loop decides by Knative's rules. What these decide is
//! tested against the recorded decisions of the real autoscaler, in the core.

use std::time::Duration;

use serde_json::{Value, json};
use sluice_tests::client::Request;
use sluice_tests::harness::{Cost, Gateway, eventually, turn};

use crate::support::{fleet, model, send};

/// Knative's rules, its shortest window, nothing at the start.
const KPA: &str =
    "compat: kpa\nconfigAutoscaler: {initial-scale: 0, allow-zero-initial-scale: true, stable-window: 6s}\n";

/// One request per replica, whole.
const ONE_EACH: &[&str] = &[
    "scaleTarget: 1",
    "maxReplicas: 0",
    "annotations: {autoscaling.knative.dev/target-utilization-percentage: '100'}",
];

/// So many events of 50 ms each.
fn stream(events: u32) -> Request {
    Request::chat("m").act(json!({"events": events, "gap": 50})).limit(Duration::from_secs(70))
}

async fn document(gw: &Gateway, path: &str) -> Value {
    gw.admin(Request::get(path)).await.expect(200).json()
}

#[tokio::test]
async fn knatives_rules_wake_grow_explain_and_put_to_sleep() {
    let _turn = turn(Cost::Light).await;
    let gw = Gateway::start(&format!("{KPA}{}", fleet(&[model("m", "{}", ONE_EACH)]))).await;
    assert_eq!(gw.engines().launches().len(), 0);
    let streams: Vec<_> = (0..4).map(|_| send(stream(160), gw.data)).collect();
    eventually("there are four replicas", Duration::from_secs(30), async || {
        (gw.engines().launches().len() >= 4).then_some(())
    })
    .await;
    for stream in streams {
        stream.await.unwrap().expect(200);
    }
    eventually("nothing is there any more", Duration::from_secs(60), async || {
        gw.replicas("m").await.is_empty().then_some(())
    })
    .await;
    let list = document(&gw, "/api/v1/decisions?model=m").await;
    let told = list["items"].as_array().unwrap();
    let grown = told.iter().find(|d| d["after"].as_u64() >= Some(4)).expect("a decision for four");
    assert!(grown["sized"].is_null());
    let kpa = &grown["kpa"];
    assert_eq!((kpa["target"].as_f64(), kpa["max"].as_u64()), (Some(1.0), Some(10_000)));
    assert!(kpa["wantPanic"].as_f64() >= Some(4.0), "{kpa}");
    assert!(kpa["panic"].as_f64() > Some(3.0), "{kpa}");
    assert_eq!(told.last().unwrap()["after"], json!(0));
    gw.leak_check().await;
}

#[tokio::test]
async fn a_model_changes_between_the_profiles_while_it_serves() {
    let _turn = turn(Cost::Light).await;
    let gw = Gateway::start(&fleet(&[model("m", "{}", &["maxReplicas: 2"])])).await;
    gw.warm("m").await;
    for (patch, profile) in [(json!({"compat": "kpa"}), "kpa"), (json!({"compat": null}), "none")] {
        let stream = send(stream(20), gw.data);
        let request = Request::new("PATCH", "/api/v1/models/m").body(patch.to_string());
        gw.admin(request.field("content-type", "application/merge-patch+json")).await.expect(200);
        let settings = document(&gw, "/api/v1/models/m/settings").await;
        let shown = settings["settings"]["compat"].as_str().unwrap_or("none");
        assert_eq!(shown, profile, "{settings}");
        stream.await.unwrap().expect(200);
        gw.send(Request::chat("m")).await.expect(200);
    }
    assert_eq!(gw.engines().launches().len(), 1, "the replica stays");
    gw.leak_check().await;
}
