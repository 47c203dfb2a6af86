// SPDX-License-Identifier: Apache-2.0
//! Field cases about replicas that go.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::json;
use sluice_tests::chance::Chance;
use sluice_tests::client::{Answer, Conn, H2, Request};
use sluice_tests::clock::{self, ms};
use sluice_tests::engine::journal::Event;
use sluice_tests::engine::sha256;
use sluice_tests::harness::{Cost, Engines, Gateway, eventually, procs, turn};
use sluice_tests::wire::{Ended, Want};
use tokio::task::JoinHandle;

use crate::support::{between, fleet, in_flight, model, near, secs, send};

#[tokio::test]
async fn fc_39_stopping_ends_whatever_the_replica_does() {
    let _turn = turn(Cost::Light).await;
    let script = r#"{"term": {"mode": "ignore"}, "grandchild": true}"#;
    let gw = Gateway::start(&fleet(&[model("m", script, &["idleAfter: 500ms", "stopDeadline: 2s"])])).await;
    gw.warm("m").await;
    let (pid, port) = (gw.engines().0[0].pid, gw.engines().0[0].port);
    let open = [
        Conn::open(([127, 0, 0, 1], port).into()).await.unwrap(),
        Conn::open(([127, 0, 0, 1], port).into()).await.unwrap(),
    ];
    gw.admin(Request::post("/api/v1/models/m:sleep", "")).await;
    eventually("TERM arrives", secs(2.0), async || (!gw.engines().terms().is_empty()).then_some(())).await;
    let term = gw.engines().terms()[0];
    let family: Vec<_> = gw.offspring();
    assert_eq!(family.len(), 2, "the replica and its child: {family:?}");
    let next = send(Request::chat("m"), gw.data);
    eventually("the whole group is gone", secs(3.25), async || {
        family.iter().all(|p| !procs::alive(p.pid)).then_some(())
    })
    .await;
    near("from TERM to the end", between(term, clock::now()), 2.0);
    drop(open);
    let answer = next.await.unwrap();
    answer.expect(200);
    assert_ne!(answer.json()["pid"], pid, "a fresh replica serves it");
    // The second one ignores TERM as well, so the leak check has to wait for its stop deadline.
    gw.settled("m", 0).await;
    assert!(TcpListener::bind(("127.0.0.1", port)).is_ok(), "the port is free");
    gw.leak_check().await;
}

/// Streams `count` answers of so many events 50 ms apart, and tells which process each came from.
async fn streams(gw: &Gateway, count: usize, events: u32) -> Vec<(u32, JoinHandle<Answer>)> {
    let mut all = Vec::new();
    for n in 0..count {
        let known = gw.engines().handled();
        let tag = format!("{n}-{}", clock::now());
        let request = Request::chat("m").act(json!({"events": events, "gap": 50})).field("x-tag", &tag);
        let task = send(request.limit(secs(60.0)), gw.data);
        let seen = eventually("the stream has begun", secs(5.0), async || {
            let engines = gw.engines();
            (engines.handled() > known).then_some(())?;
            engines.requests().into_iter().find(|s| s.get("x-tag") == Some(&tag) && s.started.is_some())
        })
        .await;
        all.push((seen.pid, task));
    }
    all
}

fn scaled(replicas: u32, more: &[&str]) -> String {
    let (min, max) = (format!("minReplicas: {replicas}"), format!("maxReplicas: {replicas}"));
    let keys = [&[min.as_str(), max.as_str(), "containerConcurrency: 10", "window: 100ms"], more].concat();
    fleet(&[model("m", "{}", &keys)])
}

/// Two streams on two replicas, then one replica has to go; returns the streams' answers, ended.
async fn fc_40(deadline: &str) -> (Gateway, Vec<(u32, Answer)>, u64) {
    let drain = format!("drainDeadline: {deadline}");
    let mut gw = Gateway::start(&scaled(2, &[&drain])).await;
    gw.settled("m", 2).await;
    let running = streams(&gw, 2, 80).await;
    assert_ne!(running[0].0, running[1].0, "one stream on each replica");
    tokio::time::sleep(secs(0.5)).await;
    let lowered = clock::now();
    gw.rewrite(&scaled(1, &[&drain]));
    gw.signal(Signal::SIGHUP);
    eventually("one replica leaves", secs(3.0), async || (gw.model("m").await["leaving"] == 1).then_some(()))
        .await;
    let left = clock::now();
    for _ in 0..10 {
        gw.warm("m").await;
        tokio::time::sleep(ms(200)).await;
    }
    let mut answers = Vec::new();
    for (pid, task) in running {
        answers.push((pid, task.await.unwrap()));
    }
    gw.settled("m", 1).await;
    let new: Vec<_> = gw.engines().since(left).requests().iter().map(|s| s.pid).collect();
    let victim = victim(&gw.engines());
    assert!(!new.contains(&victim), "the leaving replica gets no new request");
    (gw, answers, lowered)
}

/// The process that was told to stop.
fn victim(engines: &Engines) -> u32 {
    let mut told = engines.0.iter().filter(|r| matches!(&r.event, Event::Signal { .. }));
    told.next_back().expect("a replica was stopped").pid
}

#[tokio::test]
async fn fc_40_scaling_down_lets_streams_finish() {
    let _turn = turn(Cost::Light).await;
    let (gw, answers, _) = fc_40("30s").await;
    for (_, answer) in &answers {
        assert_eq!(answer.expect(200).engine_events().len(), 80);
    }
    let engines = gw.finished().await;
    let sent: Vec<_> = engines.requests().into_iter().map(|s| s.sent.1).collect();
    assert!(answers.iter().all(|(_, a)| sent.contains(&sha256(&a.body))));
    let gone = victim(&engines);
    let end = engines.requests().iter().filter(|s| s.pid == gone).map(|s| s.ended.unwrap().0).max().unwrap();
    assert!(engines.terms()[0] >= end, "no TERM before its last answer has ended");
    gw.leak_check().await;
}

#[tokio::test]
async fn fc_40_the_drain_deadline_cuts_detectably() {
    let _turn = turn(Cost::Light).await;
    let (gw, answers, lowered) = fc_40("1s").await;
    let gone = victim(&gw.engines());
    for (pid, answer) in answers {
        if pid == gone {
            assert!(matches!(answer.ended, Ended::Cut | Ended::Reset), "{}", answer.brief());
            assert!(!answer.text().contains("[DONE]"));
            near("cut at the drain deadline", between(lowered, answer.end_at), 1.0);
        } else {
            answer.expect(200);
        }
    }
    gw.leak_check().await;
}

#[tokio::test]
async fn fc_40_the_gateways_own_stop_finishes_streams() {
    let _turn = turn(Cost::Light).await;
    let mut gw = Gateway::start(&fleet(&[model("m", "{}", &["idleAfter: 5m"])])).await;
    gw.warm("m").await;
    let request = Request::chat("m").act(json!({"events": 40, "gap": 50}));
    let one = send(request.clone(), gw.data);
    let mut h2 = H2::open(gw.data).await.unwrap();
    let two = h2.begin(&request).await.unwrap();
    let two = tokio::spawn(two.finish(secs(30.0), |_| Want::More));
    let idle = Conn::open(gw.data).await.unwrap();
    in_flight(&gw, "m", 2).await;
    gw.signal(Signal::SIGTERM);
    eventually("new connections are refused", secs(1.0), async || {
        Conn::open(gw.data).await.is_err().then_some(())
    })
    .await;
    let late = h2.exchange(&Request::chat("m")).await;
    assert_ne!(late.status, 200, "a new stream is refused");
    let mut idle = idle;
    assert_ne!(idle.rest(secs(2.0)).await.1, Ended::TimedOut, "idle connections are closed");
    for answer in [one.await.unwrap(), two.await.unwrap().0] {
        assert_eq!(answer.expect(200).engine_events().len(), 40);
    }
    assert_eq!(h2.ended(secs(2.0)).await, Some(Ok(())), "the h2 connection ends in order");
    assert!(gw.exited(secs(3.0)).await.unwrap().success());
    assert!(gw.offspring().is_empty());
}

/// Starts streams until the three replicas carry 2, 2 and 1 or so, then ends some of them.
async fn fc_41(gw: &mut Gateway, chance: &mut Chance, none_idle: bool) {
    gw.rewrite(&scaled(3, &[]));
    gw.signal(Signal::SIGHUP);
    gw.settled("m", 3).await;
    let before = gw.engines().terms().len();
    let mut running = streams(gw, if none_idle { 5 } else { 4 }, 50).await;
    let mut load: BTreeMap<u32, usize> = BTreeMap::new();
    running.iter().for_each(|(pid, _)| *load.entry(*pid).or_default() += 1);
    assert_eq!(load.len(), 3, "least loaded first: {load:?}");
    if !none_idle {
        let singles: Vec<_> = load.iter().filter(|(_, n)| **n == 1).map(|(pid, _)| *pid).collect();
        let idle = *chance.one(&singles);
        let at = running.iter().position(|(pid, _)| *pid == idle).unwrap();
        let (_, task) = running.remove(at);
        task.abort();
        in_flight(gw, "m", 3).await;
        load.insert(idle, 0);
    }
    let least = *load.iter().min_by_key(|(_, n)| **n).unwrap().0;
    gw.rewrite(&scaled(2, &[]));
    gw.signal(Signal::SIGHUP);
    eventually("one replica is told to stop", secs(8.0), async || {
        (gw.engines().terms().len() == before + 1).then_some(())
    })
    .await;
    assert_eq!(victim(&gw.engines()), least, "load by process: {load:?}");
    for (_, task) in running {
        assert_eq!(task.await.unwrap().expect(200).engine_events().len(), 50, "no stream is broken");
    }
}

/// Eight rounds instead of fifty: the placement is random in each, and choosing by chance would pass all with
/// probability 3^-8.
#[tokio::test]
async fn fc_41_the_idle_replica_is_removed() {
    let _turn = turn(Cost::Light).await;
    let mut gw = Gateway::start(&scaled(3, &[])).await;
    let mut chance = Chance::new(41);
    for round in 0..8 {
        fc_41(&mut gw, &mut chance, round % 4 == 3).await;
    }
    gw.leak_check().await;
}

#[tokio::test]
async fn fc_42_children_end_with_the_gateway() {
    let _turn = turn(Cost::Light).await;
    let keys = ["idleAfter: 5m", "stopDeadline: 1s"];
    let script = r#"{"grandchild": true}"#;
    let mut gw = Gateway::start(&fleet(&[model("a", script, &keys), model("b", script, &keys)])).await;
    let mut bystander = Command::new(env!("CARGO_BIN_EXE_fake-engine")).arg("--grandchild").spawn().unwrap();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGKILL, Signal::SIGABRT] {
        gw.warm("a").await;
        gw.warm("b").await;
        let family = gw.offspring();
        assert_eq!(family.len(), 4, "two replicas and two grandchildren: {family:?}");
        let status = gw.end(signal).await;
        let orderly = matches!(signal, Signal::SIGTERM | Signal::SIGINT);
        assert_eq!(status.success(), orderly, "{signal}: {status}");
        if orderly {
            assert!(gw.offspring().is_empty(), "{signal}: {:?}", gw.offspring());
        }
        gw.again().await;
        eventually("what the former gateway started is gone", secs(3.0), async || {
            family.iter().all(|p| !procs::alive(p.pid)).then_some(())
        })
        .await;
        assert!(bystander.try_wait().unwrap().is_none(), "{signal}: a stranger was touched");
    }
    gw.warm("a").await;
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}
