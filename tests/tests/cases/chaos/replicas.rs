// SPDX-License-Identifier: Apache-2.0
//! Replicas that are killed, hang, are slow, or lie about their readiness, under load.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use sluice_tests::client::Request;
use sluice_tests::clock;
use sluice_tests::engine::journal::Event;
use sluice_tests::harness::{Cost, Gateway, Replica, eventually, turn};

use super::crowd::{Crowd, Sent};
use super::fate::{Fate, judge};
use crate::support::{fleet, model, secs};

const CLIENTS: usize = 18;

fn three(keys: &[&str]) -> String {
    let always = ["minReplicas: 3", "maxReplicas: 3", "containerConcurrency: 20"];
    fleet(&[model("m", r#"{"idleClose": 500}"#, &[&always, keys].concat())])
}

/// The gateway counted every request that reached it, and no other.
async fn counted(gw: &Gateway, sent: &[Sent], unsent: usize) {
    let total = (sent.len() - unsent) as f64;
    let ask = async || (gw.metrics().await.sum("sluice_requests_total", &[]) == total).then_some(());
    eventually(&format!("{total} requests are counted"), secs(3.0), ask).await;
}

/// A ready replica's process.
fn newest(gw: &Gateway, known: &[u32]) -> u32 {
    let engines = gw.engines();
    let fresh = engines.0.iter().rev().find(|r| matches!(r.event, Event::Ready) && !known.contains(&r.pid));
    fresh.expect("a replica lives").pid
}

#[tokio::test]
async fn chaos_killed_replicas_lose_only_what_was_with_them() {
    let _turn = turn(Cost::Heavy).await;
    let gw = Gateway::start(&three(&[])).await;
    gw.settled("m", 3).await;
    let crowd = Crowd::start(gw.data, "m", "kill", CLIENTS);
    let (mut dead, mut kills) = (Vec::new(), Vec::new());
    for _ in 0..6 {
        crowd.gets(60).await;
        let pid = newest(&gw, &dead);
        kills.push(clock::now());
        kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
        dead.push(pid);
    }
    crowd.gets(60).await;
    let sent = crowd.stop_and_settle(&gw, &dead).await;
    let fates = judge(&sent, &gw.engines(), &dead);
    fates.lost_only(|lost| match lost.attempts.as_slice() {
        // Sent to a process that was killed before it read this.
        [] => kills.iter().any(|at| lost.begun < at + 500_000 && lost.known >= *at),
        attempts => attempts.iter().any(|s| dead.contains(&s.pid) && s.ended.is_none()),
    });
    assert_eq!(fates.of(&Fate::Unsent), 0, "{:?}", fates.count);
    assert!(fates.lost.len() <= 6 * CLIENTS && fates.of(&Fate::Answered) >= 420, "{:?}", fates.count);
    counted(&gw, &sent, 0).await;
    gw.settled("m", 3).await;
    gw.leak_check().await;
}

#[tokio::test]
async fn chaos_a_hung_replica_loses_only_what_was_with_it() {
    let _turn = turn(Cost::Heavy).await;
    let gw = Gateway::start(&three(&[
        "readiness: {readyPeriod: 200ms, timeout: 300ms, failures: 2}",
        "timeouts: {firstByte: 2s, betweenBytes: 2s}",
        "drainDeadline: 3s",
        "stopDeadline: 1s",
    ]))
    .await;
    gw.settled("m", 3).await;
    let crowd = Crowd::start(gw.data, "m", "hang", CLIENTS);
    crowd.gets(60).await;
    let (hung, stopped) = (newest(&gw, &[]), clock::now());
    kill(Pid::from_raw(hung as i32), Signal::SIGSTOP).unwrap();
    // Far more than one answer for each client: nobody is stuck behind the hung replica.
    crowd.gets(40 * CLIENTS).await;
    let sent = crowd.stop_and_settle(&gw, &[hung]).await;
    let fates = judge(&sent, &gw.engines(), &[hung]);
    fates.lost_only(|lost| match lost.attempts.as_slice() {
        // Sent before the hang was noticed, and never read.
        [] => lost.known >= stopped && lost.begun < stopped + 2_500_000,
        attempts => attempts.iter().any(|s| s.pid == hung),
    });
    assert_eq!(fates.of(&Fate::Unsent), 0, "{:?}", fates.count);
    assert!(!fates.lost.is_empty() && fates.lost.len() <= 2 * CLIENTS, "{:?}", fates.count);
    counted(&gw, &sent, 0).await;
    eventually("the hung replica is replaced", secs(10.0), async || {
        (gw.engines().launches().len() == 4).then_some(())
    })
    .await;
    gw.settled("m", 3).await;
    gw.leak_check().await;
}

/// Fixed addresses, which Sluice can only leave alone.
fn fixed(replicas: &[&Replica], keys: &[&str]) -> String {
    let urls: Vec<_> = replicas.iter().map(|r| format!("http://{}", r.at)).collect();
    let mut text = format!("models:\n  - name: m\n    urls: [{}]\n", urls.join(", "));
    keys.iter().for_each(|key| text += &format!("    {key}\n"));
    text
}

async fn ready(gw: &Gateway, n: u64) {
    let ask = async || (gw.model("m").await["ready"] == n).then_some(());
    eventually("the fixed replicas are ready", secs(10.0), ask).await;
}

#[tokio::test]
async fn chaos_a_slow_replica_gets_less_and_loses_nothing() {
    let _turn = turn(Cost::Heavy).await;
    let quick = Replica::start("quick", &json!({"idleClose": 500, "act": {"ttft": 10}})).await;
    let slow = Replica::start("slow", &json!({"idleClose": 500, "act": {"ttft": 1000}})).await;
    let gw = Gateway::start(&fixed(&[&quick, &slow], &["containerConcurrency: 8"])).await;
    ready(&gw, 2).await;
    let to = gw.data;
    let clients = sluice_tests::client::many(8, |_| async move {
        for _ in 0..20 {
            Request::chat("m").send(to).await.expect(200);
        }
    });
    clients.await;
    let (many, few) = (quick.log().handled(), slow.log().handled());
    assert_eq!(many + few, 160, "each request is handled once");
    assert!(few > 0 && many > 2 * few, "{many} at the quick one, {few} at the slow one");
    gw.leak_check().await;
}

/// Says that it is ready, and breaks every request.
#[tokio::test]
async fn chaos_a_replica_that_lies_about_its_readiness_is_set_aside() {
    let _turn = turn(Cost::Heavy).await;
    let honest = Replica::start("honest", &json!({"idleClose": 500, "act": {"ttft": 20}})).await;
    let liar =
        Replica::start("liar", &json!({"idleClose": 500, "act": {"fault": {"at": "body", "how": "rst"}}}))
            .await;
    let gw = Gateway::start(&fixed(&[&honest, &liar], &["containerConcurrency: 8"])).await;
    ready(&gw, 2).await;
    let to = gw.data;
    let clients = sluice_tests::client::many(8, |_| async move {
        let mut answers = Vec::new();
        for _ in 0..50 {
            answers.push(Request::chat("m").send(to).await);
        }
        answers
    });
    let answers: Vec<_> = clients.await.concat();
    let good = answers.iter().filter(|a| a.is(200)).count();
    let told = answers.iter().filter(|a| a.is(502) && !a.error_code().is_empty()).count();
    assert_eq!(good + told, 400, "all are answered or told");
    assert_eq!(honest.log().handled(), good, "each answer is the honest one's");
    let heads = liar.log().times(|e| matches!(e, Event::Head { .. })).len();
    assert_eq!(heads, told, "what the liar took is told, and not sent again");
    assert!(told > 0 && told < 100, "{told} of 400 went to the liar");
    gw.leak_check().await;
}

/// Takes its readiness back again and again, and serves all the time.
#[tokio::test]
async fn chaos_readiness_that_flaps_costs_no_request() {
    let _turn = turn(Cost::Heavy).await;
    let dir = tempfile::tempdir().unwrap();
    let red = dir.path().join("red");
    let script = json!({"idleClose": 500, "probe": {"redWhile": red}});
    let steady = Replica::start("steady", &json!({"idleClose": 500})).await;
    let flapping = Replica::start("flapping", &script).await;
    let keys = ["readiness: {period: 20ms, readyPeriod: 20ms, failures: 1}", "containerConcurrency: 20"];
    let gw = Gateway::start(&fixed(&[&steady, &flapping], &keys)).await;
    ready(&gw, 2).await;
    let crowd = Crowd::start(gw.data, "m", "flap", CLIENTS);
    for _ in 0..8 {
        std::fs::write(&red, "").unwrap();
        ready(&gw, 1).await;
        crowd.gets(CLIENTS).await;
        std::fs::remove_file(&red).unwrap();
        ready(&gw, 2).await;
        crowd.gets(CLIENTS).await;
    }
    let sent = crowd.stop().await;
    let both = async || {
        let mut both = steady.log();
        both.0.extend(flapping.log().0);
        both.requests().iter().all(|s| s.ended.is_some()).then_some(both)
    };
    let both = eventually("every handler has ended", secs(5.0), both).await;
    let fates = judge(&sent, &both, &[]);
    assert_eq!(fates.of(&Fate::Answered), fates.total(), "{:?}", fates.count);
    assert!(flapping.log().handled() > 0);
    counted(&gw, &sent, 0).await;
    gw.leak_check().await;
}
