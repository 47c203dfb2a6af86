// SPDX-License-Identifier: Apache-2.0
//! What a restart of Sluice keeps: desired counts, windows, measured starts; and what a spoilt journal costs.

use std::fs;
use std::path::PathBuf;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use sluice_tests::client::{Request, many};
use sluice_tests::harness::{Cost, Gateway, Replica, turn};

use crate::support::{all_ok, fleet, model, secs};

fn three() -> String {
    fleet(&[model("m", r#"{"readyAt": 300}"#, &["maxReplicas: 3", "scaleTarget: 1"])])
}

/// Has six requests at once until three replicas are ready, and then nothing to do.
async fn three_replicas(gw: &Gateway, name: &'static str) {
    let to = gw.data;
    // Long enough for Knative's averages to see them.
    let events = if name == "k" { 80 } else { 20 };
    let held = move |_| Request::chat(name).act(json!({"events": events, "gap": 50})).send(to);
    all_ok(&many(6, held).await);
    gw.settled(name, 3).await;
}

/// Decisions since the start that changed desired.
async fn changes(gw: &Gateway) -> Vec<Value> {
    let answer = gw.admin(Request::get("/api/v1/decisions?limit=1000")).await;
    let mut all = answer.expect(200).json()["items"].as_array().unwrap().clone();
    all.retain(|decision| decision["before"] != decision["after"] && decision["model"] != "u");
    all
}

/// Files of the journal, oldest first.
fn segments(gw: &Gateway) -> Vec<PathBuf> {
    let state = fs::read_dir(gw.dir().join("state/sluice")).unwrap().map(|entry| entry.unwrap().path());
    let is_journal = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("journal-");
    let folder: Vec<_> = state.filter(is_journal).collect();
    assert_eq!(folder.len(), 1);
    let mut files: Vec<_> = fs::read_dir(&folder[0]).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    files
}

async fn restart_keeps_everything(signal: Signal) {
    let _turn = turn(Cost::Light).await;
    let outside = Replica::start("outside", &json!({})).await;
    let fixed = format!("  - name: u\n    url: http://{}\n", outside.at);
    let kpa = model("k", "{}", &["compat: kpa", "maxReplicas: 3", "scaleTarget: 1"]);
    let mut gw = Gateway::start(&format!("{}{fixed}{kpa}", three())).await;
    three_replicas(&gw, "m").await;
    three_replicas(&gw, "k").await;
    gw.settled("u", 1).await;
    let before = gw.model("m").await;
    for round in 1..=2 {
        gw.end(signal).await;
        gw.again().await;
        let now = gw.model("m").await;
        assert_eq!(now["desired"], 3, "round {round}: {now}");
        assert!(
            now["wake"]["samples"].as_u64() >= before["wake"]["samples"].as_u64(),
            "round {round}: {now}"
        );
        assert_eq!(gw.model("k").await["desired"], 3, "round {round}");
        gw.settled("m", 3).await;
        gw.settled("k", 3).await;
        gw.settled("u", 1).await;
        assert_eq!(changes(&gw).await, Vec::<Value>::new(), "round {round}");
    }
    assert_eq!(outside.log().launches().len(), 1, "nobody restarts what is not ours");
    gw.leak_check().await;
}

#[tokio::test]
async fn a_stopped_sluice_starts_again_with_the_same_replicas() {
    restart_keeps_everything(Signal::SIGTERM).await;
}

#[tokio::test]
async fn a_killed_sluice_starts_again_with_the_same_replicas() {
    restart_keeps_everything(Signal::SIGKILL).await;
}

/// A spoilt end costs what was in it, a spoilt folder everything but the start.
#[tokio::test]
async fn a_spoilt_journal_is_passed_over() {
    let _turn = turn(Cost::Light).await;
    let mut gw = Gateway::start(&three()).await;
    three_replicas(&gw, "m").await;
    gw.end(Signal::SIGKILL).await;
    let last = segments(&gw).pop().unwrap();
    let mut torn = fs::read(&last).unwrap();
    torn.extend(br#"{"now":17"#);
    fs::write(&last, torn).unwrap();
    gw.again().await;
    gw.settled("m", 3).await;
    gw.end(Signal::SIGTERM).await;
    for file in segments(&gw) {
        fs::write(file, [0xff, b'\n', 0, 7]).unwrap();
    }
    gw.again().await;
    assert!(gw.log().contains("journal_segment_passed_over"), "{}", gw.log());
    assert_eq!(gw.model("m").await["desired"], 0);
    three_replicas(&gw, "m").await;
    gw.end(Signal::SIGKILL).await;
    gw.again().await;
    gw.settled("m", 3).await;
    gw.leak_check().await;
}

#[tokio::test]
async fn the_directory_of_the_service_manager_is_used() {
    let _turn = turn(Cost::Light).await;
    let place = tempfile::tempdir().unwrap();
    let ours = place.path().join("ours");
    let listed = format!("{}:/nonexistent", ours.display());
    let gw = Gateway::start_with(&three(), &[("STATE_DIRECTORY", &listed)]).await;
    let names = fs::read_dir(&ours).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(names.collect::<String>().contains("journal-"));
    gw.leak_check().await;
}

/// A directory that cannot be used costs the journal; one that was named says so instead of starting.
#[tokio::test]
async fn a_state_directory_that_cannot_be_used_matters_if_it_was_named() {
    let _turn = turn(Cost::Light).await;
    let mut gw = Gateway::prepare(&three(), &[]);
    let config = gw.config_path();
    fs::create_dir_all(gw.dir().join("state/sluice")).unwrap();
    let named = gw.expand(&format!("stateDirectory: kept/here\n{}", three()));
    fs::write(&config, named).unwrap();
    fs::write(gw.dir().join("kept"), "in the way").unwrap();
    gw.launch();
    let status = gw.exited(secs(15.0)).await.expect("it does not start");
    assert_eq!(status.code(), Some(1));
    assert!(gw.log().contains("kept/here"), "{}", gw.log());
    fs::remove_file(gw.dir().join("kept")).unwrap();
    gw.again().await;
    gw.end(Signal::SIGTERM).await;
    assert_eq!(
        fs::read_dir(gw.dir().join("kept/here/journal")).unwrap().count(),
        3,
        "two segments and a lock"
    );

    gw.rewrite(&three());
    gw.again().await;
    gw.end(Signal::SIGTERM).await;
    let folder = segments(&gw)[0].parent().unwrap().to_owned();
    fs::remove_dir_all(&folder).unwrap();
    fs::write(&folder, "in the way").unwrap();
    gw.again().await;
    assert!(gw.log().contains("journal_not_kept"), "{}", gw.log());
    gw.warm("m").await;
    gw.leak_check().await;
}
