// SPDX-License-Identifier: Apache-2.0
//! Field cases about configurations that change under load.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use sluice_tests::client::Request;
use sluice_tests::clock::{self, ms};
use sluice_tests::engine::sha256;
use sluice_tests::harness::{Cost, Gateway, eventually, procs, turn};

use crate::support::{between, fleet, in_flight, model, near, secs, send};

fn numbered(n: usize) -> String {
    let other = model(&format!("other{n}"), "{}", &[]);
    fleet(&[model("m", "{}", &["minReplicas: 1"]), other])
}

async fn names(gw: &Gateway) -> Vec<String> {
    gw.models().await.iter().map(|m| m["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn fc_43_quick_edits_change_only_what_they_say() {
    let _turn = turn(Cost::Light).await;
    let mut gw = Gateway::start(&numbered(0)).await;
    gw.settled("m", 1).await;
    let stream = send(Request::chat("m").act(json!({"events": 100, "gap": 50})), gw.data);
    in_flight(&gw, "m", 1).await;
    let path = gw.config_path();
    for n in 1..=20 {
        let text = gw.expand(&numbered(n));
        match n % 4 {
            0 => std::fs::write(&path, &text).unwrap(),
            1 => gw.rewrite(&numbered(n)),
            2 => {
                std::fs::write(&path, "").unwrap();
                tokio::time::sleep(ms(5)).await;
                std::fs::write(&path, &text).unwrap();
            }
            _ => std::fs::write(&path, "models: [{name: m, comand: []}]\n").unwrap(),
        }
        tokio::time::sleep(ms(45)).await;
    }
    let written = clock::now();
    eventually("the last valid version is active", secs(2.25), async || {
        (names(&gw).await == ["m", "other20"]).then_some(())
    })
    .await;
    assert!(between(written, clock::now()) < 2.25);
    let answer = stream.await.unwrap();
    assert_eq!(answer.expect(200).engine_events().len(), 100);
    let engines = gw.finished().await;
    assert_eq!(engines.requests()[0].sent.1, sha256(&answer.body));
    assert_eq!((engines.launches().len(), engines.terms().len()), (1, 0), "one process, not restarted");
    std::fs::write(&path, "models: [{name: m, comand: []}]\n").unwrap();
    eventually("an invalid version is reported", secs(3.0), async || {
        gw.log().contains("comand").then_some(())
    })
    .await;
    assert_eq!(names(&gw).await, ["m", "other20"], "the last valid version stays");
    gw.leak_check().await;
}

fn watched(n: bool) -> String {
    let keys = ["idleAfter: 1s", "readiness: {readyPeriod: 200ms, timeout: 200ms, failures: 2}"];
    let mut models = vec![model("m", "{}", &keys)];
    if n {
        models.push(model("n", "{}", &keys));
    }
    fleet(&models)
}

/// Seconds until a stopped replica is no longer trusted.
async fn hang_noticed(gw: &Gateway, name: &str) -> f64 {
    gw.warm(name).await;
    let holder = send(Request::chat(name).act(json!({"ttft": 60000})), gw.data);
    in_flight(gw, name, 1).await;
    let pid = *gw.engines().of(name).pids().last().unwrap();
    let is_ready = |r: &Value| r["phase"] == "ready";
    let hung = gw.replicas(name).await.into_iter().find(is_ready).expect("it was warm")["id"].clone();
    let begun = clock::now();
    kill(Pid::from_raw(pid as i32), Signal::SIGSTOP).unwrap();
    eventually("a hung replica is noticed", secs(5.0), async || {
        // By its id: its successor may be ready before anybody looks.
        (!gw.replicas(name).await.iter().any(|r| r["id"] == hung && is_ready(r))).then_some(())
    })
    .await;
    let noticed = between(begun, clock::now());
    kill(Pid::from_raw(pid as i32), Signal::SIGCONT).unwrap();
    holder.abort();
    noticed
}

/// Seconds until a killed replica is replaced, while a request waits for it.
async fn death_noticed(gw: &Gateway, name: &str) -> f64 {
    gw.warm(name).await;
    let pid = *gw.engines().of(name).pids().last().unwrap();
    let begun = clock::now();
    kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
    eventually("a dead replica is noticed", secs(5.0), async || {
        let replicas = gw.replicas(name).await;
        replicas.iter().all(|r| r["phase"] != "ready" || !procs_dead(gw, name, pid)).then_some(())
    })
    .await;
    gw.warm(name).await;
    between(begun, clock::now())
}

/// Whether the newest process of the model is still the dead one.
fn procs_dead(gw: &Gateway, name: &str, pid: u32) -> bool {
    gw.engines().of(name).pids().last() == Some(&pid)
}

async fn sleeps(gw: &Gateway, name: &str) {
    let last = gw.send(Request::chat(name)).await.expect(200).end_at;
    gw.settled(name, 0).await;
    let term = *gw.engines().of(name).terms().last().unwrap();
    near("an idle model sleeps", between(last, term), 1.0);
}

#[tokio::test]
async fn fc_44_background_work_goes_on_after_reloads() {
    let _turn = turn(Cost::Light).await;
    let mut gw = Gateway::start(&watched(false)).await;
    let before = (hang_noticed(&gw, "m").await, death_noticed(&gw, "m").await);
    sleeps(&gw, "m").await;
    let (threads, descriptors) = (procs::threads(gw.pid()), procs::descriptors(gw.pid()));
    for round in 0..10 {
        let with = round % 2 == 0;
        gw.rewrite(&watched(with));
        gw.signal(Signal::SIGHUP);
        let expected: &[&str] = if with { &["m", "n"] } else { &["m"] };
        eventually("the reload is active", secs(3.0), async || (names(&gw).await == expected).then_some(()))
            .await;
        if with {
            gw.warm("n").await;
        }
    }
    eventually("n's last replica is gone", secs(5.0), async || gw.offspring().is_empty().then_some(())).await;
    let what = format!("{threads} threads and {descriptors} descriptors again");
    // A thread that answered a scrape stays for ten seconds.
    eventually(&what, secs(20.0), async || {
        (procs::threads(gw.pid()) <= threads && procs::descriptors(gw.pid()) <= descriptors + 2).then_some(())
    })
    .await;
    gw.rewrite(&watched(true));
    gw.signal(Signal::SIGHUP);
    for name in ["m", "n"] {
        eventually("known", secs(3.0), async || names(&gw).await.contains(&name.to_owned()).then_some(()))
            .await;
        let after = (hang_noticed(&gw, name).await, death_noticed(&gw, name).await);
        assert!(after.0 < before.0 + 0.5 && after.1 < before.1 + 0.5, "{name}: {after:?}, {before:?} before");
        sleeps(&gw, name).await;
    }
    let counted = gw.metrics().await.sum("sluice_requests_total", &[("model", "n")]);
    assert!(counted >= 2.0, "metrics advance: {counted}");
    gw.leak_check().await;
}

#[tokio::test]
async fn a_removed_model_finishes_what_it_has() {
    let _turn = turn(Cost::Light).await;
    let mut gw = Gateway::start(&watched(true)).await;
    let stream = send(Request::chat("n").act(json!({"events": 30, "gap": 50})), gw.data);
    in_flight(&gw, "n", 1).await;
    gw.rewrite(&watched(false));
    gw.signal(Signal::SIGHUP);
    eventually("n is unknown", secs(3.0), async || gw.send(Request::chat("n")).await.is(404).then_some(()))
        .await;
    assert_eq!(stream.await.unwrap().expect(200).engine_events().len(), 30);
    eventually("its replica is gone", secs(3.0), async || gw.offspring().is_empty().then_some(())).await;
    gw.leak_check().await;
}

#[tokio::test]
async fn a_new_version_that_cannot_start_leaves_the_former_one_at_work() {
    let _turn = turn(Cost::Light).await;
    let keys = ["minReplicas: 1", "maxReplicas: 1", "backoff: {first: 100ms, max: 100ms}"];
    let version = |script: &str| fleet(&[model("m", script, &keys)]);
    let mut gw = Gateway::start(&version("{}")).await;
    gw.settled("m", 1).await;
    let first = gw.engines().pids()[0];
    gw.rewrite(&version(
        r#"{"listenAt": 60000, "exit": {"code": 2, "after": 50, "stderr": "cannot load weights\n"}}"#,
    ));
    gw.signal(Signal::SIGHUP);
    let shown = eventually("the new version fails again and again", secs(20.0), async || {
        let fault = gw.model("m").await["fault"].clone();
        (fault["failures"].as_u64()? >= 3).then_some(fault)
    })
    .await;
    assert!(shown["cause"].as_str().unwrap().contains("cannot load weights"), "{shown}");
    gw.send(Request::chat("m")).await.expect(200);
    assert!(gw.engines().terms().is_empty(), "the former version was left alone");
    gw.rewrite(&version(r#"{"readyAt": 300}"#));
    gw.signal(Signal::SIGHUP);
    eventually("the former version goes once the next one is ready", secs(20.0), async || {
        gw.send(Request::chat("m")).await.expect(200);
        (!procs::alive(first)).then_some(())
    })
    .await;
    assert_eq!(gw.model("m").await["fault"], Value::Null);
    gw.leak_check().await;
}
