// SPDX-License-Identifier: Apache-2.0
//! The admin API against real replicas: orders for numbers and drains, settings that change and stay, tokens.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use sluice_tests::client::{Answer, Request};
use sluice_tests::harness::{Cost, Gateway, eventually, turn};

use crate::support::{fleet, in_flight, model, secs, send};

const PATCH: &str = "application/merge-patch+json";

async fn order(gw: &Gateway, path: &str, body: &str) -> Answer {
    gw.admin(Request::post(path, body).limit(secs(40.0))).await
}

async fn patch(gw: &Gateway, query: &str, body: Value) -> Answer {
    let request = Request::new("PATCH", &format!("/api/v1/models/m{query}")).body(body.to_string());
    gw.admin(request.field("content-type", PATCH)).await
}

async fn settings(gw: &Gateway) -> Value {
    gw.admin(Request::get("/api/v1/models/m/settings")).await.expect(200).json()
}

#[tokio::test]
async fn a_scale_order_brings_so_many_replicas_and_a_drained_one_is_replaced() {
    let _turn = turn(Cost::Light).await;
    let gw = Gateway::start(&fleet(&[model("m", "{}", &["maxReplicas: 3", "idleAfter: 60s"])])).await;
    order(&gw, "/api/v1/models/m:scale", r#"{"replicas": 4}"#).await.expect(409);
    let effects = order(&gw, "/api/v1/models/m:scale?dryRun=true", r#"{"replicas": 2}"#).await;
    assert_eq!(effects.expect(200).json()["starts"], json!({"m": 2}));
    assert!(gw.replicas("m").await.is_empty(), "a dry run starts nothing");
    let scaled = order(&gw, "/api/v1/models/m:scale?wait=30", r#"{"replicas": 2}"#).await;
    assert_eq!(scaled.expect(200).json()["ready"], 2);

    let stream = send(Request::chat("m").act(json!({"events": 60, "gap": 20})), gw.data);
    in_flight(&gw, "m", 1).await;
    let replicas = gw.replicas("m").await;
    let busy = replicas.iter().find(|replica| replica["inFlight"] == 1).unwrap();
    let id = busy["id"].as_str().unwrap();
    let drained = order(&gw, &format!("/api/v1/replicas/{id}:drain?wait=30"), "").await;
    assert_eq!(drained.expect(200).json()["note"], "gone");
    assert_eq!(stream.await.unwrap().expect(200).engine_events().len(), 60, "it finished what it had");
    gw.settled("m", 2).await;
    assert!(gw.replicas("m").await.iter().all(|replica| replica["id"] != id));

    order(&gw, "/api/v1/models/m:scale?wait=30", r#"{"replicas": 0}"#).await.expect(200);
    assert!(gw.replicas("m").await.is_empty());
    gw.leak_check().await;
}

#[tokio::test]
async fn a_drained_model_serves_on_with_fresh_replicas() {
    let _turn = turn(Cost::Light).await;
    let gw = Gateway::start(&fleet(&[model("m", "{}", &["minReplicas: 1"])])).await;
    gw.settled("m", 1).await;
    let stream = send(Request::chat("m").act(json!({"events": 40, "gap": 20})), gw.data);
    in_flight(&gw, "m", 1).await;
    order(&gw, "/api/v1/models/m:drain", "").await.expect(202);
    gw.send(Request::chat("m")).await.expect(200);
    assert_eq!(stream.await.unwrap().expect(200).engine_events().len(), 40);
    gw.settled("m", 1).await;
    let engines = gw.finished().await;
    assert_eq!((engines.launches().len(), engines.terms().len()), (2, 1));
    gw.leak_check().await;
}

#[tokio::test]
async fn settings_change_at_once_touch_nothing_else_and_outlive_a_restart() {
    let _turn = turn(Cost::Light).await;
    let file = |window: &str| {
        let keys = ["minReplicas: 1", &format!("window: {window}")];
        fleet(&[model("m", "{}", &keys), model("other", "{}", &["minReplicas: 1"])])
    };
    let mut gw = Gateway::start(&file("60s")).await;
    gw.settled("m", 1).await;
    gw.settled("other", 1).await;

    let tried = patch(&gw, "?dryRun=true", json!({"idleAfter": "7s"})).await;
    assert_eq!(tried.expect(200).json()["changed"], json!(["idleAfter"]));
    assert_eq!(settings(&gw).await["origins"]["idleAfter"], "default");
    let wrong = patch(&gw, "", json!({"minReplicas": 9, "maxReplicas": 2})).await;
    assert_eq!(wrong.expect(422).json()["errors"][0]["code"], "SLU0023");
    let made = patch(&gw, "", json!({"minReplicas": 2, "maxReplicas": 2, "window": "1s"})).await;
    assert_eq!(made.expect(200).json()["restarts"], json!([]));
    let tag = made.get("etag").unwrap().to_owned();
    gw.settled("m", 2).await;
    let reset = Request::new("DELETE", "/api/v1/models/m/settings").field("if-match", "\"old\"");
    gw.admin(reset).await.expect(412);
    assert_eq!((gw.engines().of("other").launches().len(), gw.engines().terms().len()), (1, 0));

    gw.end(Signal::SIGTERM).await;
    gw.again().await;
    gw.settled("m", 2).await;
    assert_eq!(gw.admin(Request::get("/api/v1/models/m/settings")).await.get("etag"), Some(tag.as_str()));

    // Whoever edits the same key later wins.
    gw.rewrite(&file("30s"));
    eventually("the edit is in force", secs(10.0), async || {
        let now = settings(&gw).await;
        (now["settings"]["window"] == "30s" && now["origins"]["window"] == "file").then_some(())
    })
    .await;
    let config = gw.admin(Request::get("/api/v1/config")).await.expect(200).json();
    assert_eq!(config["changedByApi"], json!({"m": ["maxReplicas", "minReplicas"]}));
    gw.admin(Request::new("DELETE", "/api/v1/models/m/settings").field("if-match", "*")).await.expect(200);
    gw.settled("m", 1).await;
    gw.leak_check().await;
}

#[tokio::test]
async fn tokens_are_needed_once_there_are_some_and_are_renewed_live() {
    let _turn = turn(Cost::Light).await;
    let token = |word: &str| format!("Bearer {word}");
    // SHA-256 of `one` and of `two`.
    let one = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";
    let two = "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3";
    let yaml = format!("adminTokens: tokens\n{}", fleet(&[model("m", "{}", &[])]));
    let mut gw = Gateway::prepare(&yaml, &[]);
    let file = gw.dir().join("tokens");
    let write = |line: &str| {
        use std::os::unix::fs::PermissionsExt;
        let fresh = file.with_extension("new");
        std::fs::write(&fresh, line).unwrap();
        std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::rename(&fresh, &file).unwrap();
    };
    write(&format!("a viewer {one}\n"));
    gw.launch();
    gw.ready().await;
    let ask = async |method: &str, path: &str, word: &str| {
        gw.admin(Request::new(method, path).field("authorization", &token(word))).await
    };
    assert_eq!(
        gw.admin(Request::get("/metrics")).await.expect(401).get("www-authenticate"),
        Some("Bearer realm=\"sluice\"")
    );
    ask("GET", "/metrics", "one").await.expect(200);
    ask("POST", "/api/v1/models/m:wake", "one").await.expect(403);
    write(&format!("b operator {two}\n"));
    eventually("the new file is in force", secs(10.0), async || {
        ask("GET", "/metrics", "two").await.is(200).then_some(())
    })
    .await;
    ask("GET", "/metrics", "one").await.expect(401);
    ask("POST", "/api/v1/models/m:wake", "two").await.expect(202);
    write("nonsense\n");
    eventually("the nonsense is refused", secs(10.0), async || {
        gw.log().contains("admin_tokens_refused").then_some(())
    })
    .await;
    ask("GET", "/metrics", "two").await.expect(200);
}
