// SPDX-License-Identifier: Apache-2.0
//! Field cases about models that sleep, and what must or must not wake them.

use std::collections::BTreeMap;
use std::sync::Arc;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use sluice_tests::chance::{Chance, percentile};
use sluice_tests::client::{Answer, Request, many};
use sluice_tests::clock::{self, ms};
use sluice_tests::harness::{Cost, Engines, Gateway, eventually, turn};
use sluice_tests::wire::Want;

use crate::support::{
    Leave, Visitor, after_events, between, fleet, in_flight, model, near, queued, secs, send,
};

fn listed(answer: &Answer) -> Vec<String> {
    let json = answer.expect(200).json();
    json["data"].as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn fc_32_a_sleeping_model_is_known_after_a_restart() {
    let _turn = turn(Cost::Light).await;
    let yaml = fleet(&[model("m", "{}", &["idleAfter: 500ms"])]);
    let mut gw = Gateway::start(&yaml).await;
    gw.warm("m").await;
    gw.settled("m", 0).await;
    assert!(gw.end(Signal::SIGTERM).await.success());
    gw.again().await;
    let second = Gateway::start(&yaml).await;
    let mut told = Vec::new();
    for gw in [&gw, &second] {
        let before = gw.engines().launches().len();
        let list = listed(&gw.send(Request::get("/v1/models")).await);
        tokio::time::sleep(ms(300)).await;
        assert_eq!(gw.engines().launches().len(), before, "listing wakes nothing");
        let served = gw.send(Request::chat("m")).await;
        assert_eq!(gw.engines().launches().len(), before + 1);
        let unknown = gw.send(Request::chat("nope")).await;
        told.push((list, served.status, unknown.status, unknown.error_code()));
    }
    assert_eq!(told[0], (vec!["m".to_owned()], 200, 404, "model_not_found".to_owned()));
    assert_eq!(told[0], told[1], "both answer alike");
    gw.leak_check().await;
    second.leak_check().await;
}

/// Where in its life a request is abandoned.
#[derive(Clone, Copy, Debug)]
enum Phase {
    QueuedAtZero,
    QueuedAtCapacity,
    UploadHalfSent,
    WaitingForHead,
    MidStream,
    AfterLastByte,
}

const PHASES: [Phase; 6] = [
    Phase::QueuedAtZero,
    Phase::QueuedAtCapacity,
    Phase::UploadHalfSent,
    Phase::WaitingForHead,
    Phase::MidStream,
    Phase::AfterLastByte,
];

/// One aborted request.
async fn abandon(gw: Arc<Gateway>, name: &'static str, phase: Phase, leave: Leave) {
    let act = match phase {
        Phase::WaitingForHead | Phase::QueuedAtCapacity => json!({"ttft": 5000}),
        Phase::MidStream => json!({"events": 500, "gap": 10}),
        _ => json!({}),
    };
    let request = Request::chat(name).act(act);
    let part =
        if matches!(phase, Phase::UploadHalfSent) { request.body.len() / 2 } else { request.body.len() };
    let visitor = Visitor::enter(gw.data, leave, &request, part).await;
    let visitor = match phase {
        Phase::MidStream => visitor.read(after_events(2)).await.1,
        Phase::AfterLastByte => {
            let (answer, visitor) = visitor.read(|_| Want::More).await;
            answer.expect(200);
            visitor
        }
        _ => {
            tokio::time::sleep(ms(40)).await;
            visitor
        }
    };
    visitor.leave().await;
}

/// A hundred of them, as many at once as the phase allows, and then everything must be as before.
async fn batch(gw: &Arc<Gateway>, name: &'static str, phase: Phase, leave: Leave) {
    let width = if matches!(phase, Phase::WaitingForHead | Phase::MidStream) { 2 } else { 20 };
    if !matches!(phase, Phase::QueuedAtZero) {
        gw.warm(name).await;
    }
    let mut holders = Vec::new();
    if matches!(phase, Phase::QueuedAtCapacity) {
        holders = (0..2).map(|_| send(Request::chat(name).act(json!({"ttft": 1500})), gw.data)).collect();
        in_flight(gw, name, 2).await;
    }
    for _ in 0..100 / width {
        let gw = gw.clone();
        many(width, move |_| abandon(gw.clone(), name, phase, leave)).await;
    }
    for holder in holders {
        holder.await.unwrap().expect(200);
    }
    let what = format!("{name}: gauges are zero after {phase:?} × {leave:?}");
    eventually(&what, secs(1.25), async || {
        let metrics = gw.metrics().await;
        let gauges = ["sluice_inflight", "sluice_queue_depth"].map(|g| metrics.sum(g, &[("model", name)]));
        assert!(gauges.iter().all(|g| *g >= 0.0), "{gauges:?}");
        (gauges == [0.0, 0.0]).then_some(())
    })
    .await;
    let to = gw.data;
    let pair = many(2, |_| Request::chat(name).act(json!({"ttft": 400})).send(to)).await;
    for answer in &pair {
        answer.expect(200);
    }
    let starts: Vec<_> =
        gw.engines().of(name).requests().iter().rev().take(2).map(|s| s.started.unwrap()).collect();
    assert!(between(starts[1], starts[0]).abs() < 0.2, "{name}: two run at once after {phase:?}");
    let last = pair.iter().map(|a| a.end_at).max().unwrap();
    gw.settled(name, 0).await;
    let term = *gw.engines().of(name).terms().last().unwrap();
    near(&format!("{name} sleeps after {phase:?}"), between(last, term), 1.0);
}

/// The four ways of leaving run beside each other, each on a model of its own.
#[tokio::test]
async fn fc_33_disconnects_leak_nothing() {
    let _turn = turn(Cost::Heavy).await;
    let names = ["fin", "rst", "h2stream", "h2connection"];
    let keys = ["containerConcurrency: 2", "idleAfter: 1s"];
    let script = r#"{"readyAt": 300}"#;
    let gw = Arc::new(Gateway::start(&fleet(&names.map(|n| model(n, script, &keys)))).await);
    let run = async |n: usize| {
        for phase in PHASES {
            batch(&gw, names[n], phase, Leave::ALL[n]).await;
        }
    };
    tokio::join!(run(0), run(1), run(2), run(3));
    gw.leak_check().await;
}

#[tokio::test]
async fn fc_34_the_idle_clock_starts_at_the_last_byte() {
    let _turn = turn(Cost::Light).await;
    let gw = Gateway::start(&fleet(&[model("m", "{}", &["idleAfter: 2s"])])).await;
    gw.send(Request::chat("m").act(json!({"events": 60, "gap": 100}))).await.expect(200);
    tokio::time::sleep(ms(1500)).await;
    gw.warm("m").await;
    tokio::time::sleep(ms(1500)).await;
    let last = gw.send(Request::chat("m")).await;
    last.expect(200);
    gw.settled("m", 0).await;
    let engines = gw.engines();
    assert_eq!(engines.launches().len(), 1);
    near("from the last byte to TERM", between(last.end_at, engines.terms()[0]), 2.0);
    gw.leak_check().await;
}

const DATA_POLLS: [&str; 6] = [
    "/v1/models",
    "/v1/models/m",
    "/v2/health/live",
    "/v2/health/ready",
    "/v2/models/m",
    "/v2/models/m/ready",
];
const ADMIN_POLLS: [&str; 5] = ["/livez", "/readyz", "/metrics", "/api/v1/models", "/api/v1/models/m"];

/// Polls everything twice a second until the handle is aborted; seconds each poll took.
fn poll(gw: &Gateway) -> tokio::task::JoinHandle<Vec<(&'static str, u16, f64)>> {
    let (data, admin) = (gw.data, gw.admin);
    tokio::spawn(async move {
        let mut all = Vec::new();
        for _ in 0..8 {
            let polls = DATA_POLLS.map(|p| (p, data)).into_iter().chain(ADMIN_POLLS.map(|p| (p, admin)));
            for (path, to) in polls {
                let answer = Request::get(path).limit(secs(5.0)).send(to).await;
                all.push((path, answer.status, answer.took()));
            }
            tokio::time::sleep(ms(500)).await;
        }
        all
    })
}

#[tokio::test]
async fn fc_35_polling_neither_wakes_nor_keeps_awake() {
    let _turn = turn(Cost::Light).await;
    let gw = Gateway::start(&fleet(&[model("m", "{}", &["idleAfter: 2s"])])).await;
    let polls = poll(&gw).await.unwrap();
    assert!(gw.engines().0.is_empty(), "never started");
    for (path, status, _) in &polls {
        let sleeping = *path == "/v2/models/m/ready";
        assert!(*status == 200 || (sleeping && (*status == 503 || *status == 400)), "{path}: {status}");
    }
    let times: Vec<_> = polls.iter().map(|p| p.2).collect();
    assert!(percentile(&times, 95) < 0.05, "{polls:?}");
    let answer = gw.send(Request::chat("m")).await;
    answer.expect(200);
    poll(&gw).await.unwrap();
    let engines = gw.engines();
    assert_eq!(engines.launches().len(), 1);
    near("sleeps in spite of polling", between(answer.end_at, engines.terms()[0]), 2.0);
    gw.leak_check().await;
}

/// One pair of exclusive models; requests land around the moment of the unload.
async fn race(gw: Arc<Gateway>, pair: usize) -> Vec<f64> {
    let mut chance = Chance::new(pair as u64);
    let names = [format!("a{pair}"), format!("b{pair}")];
    let mut times = Vec::new();
    for round in 0..34 {
        let answer = gw.send(Request::chat(chance.one::<String>(&names))).await;
        assert!(answer.is(200), "pair {pair} round {round}: {}", answer.brief());
        times.push(answer.took());
        let offset = chance.between(0, 450);
        tokio::time::sleep(ms(300 + offset) - ms(50)).await;
    }
    times
}

/// 272 instead of 1000 requests, on eight pairs at once, and shorter times: what races is the order of arrival, TERM
/// and end, and the offsets cover it from 50 ms before the unload to 250 ms after the end.
#[tokio::test]
async fn fc_36_an_arrival_at_the_moment_of_the_unload() {
    let _turn = turn(Cost::Heavy).await;
    let script = r#"{"readyAt": 100, "term": {"delay": 150}}"#;
    let pairs = 8;
    let mut yaml = String::from("groups:\n");
    let mut models = Vec::new();
    for n in 0..pairs {
        yaml += &format!("  - {{name: g{n}, exclusive: [a{n}, b{n}]}}\n");
        models.extend(["a", "b"].map(|m| model(&format!("{m}{n}"), script, &["idleAfter: 300ms"])));
    }
    let gw = Arc::new(Gateway::start(&(yaml + &fleet(&models))).await);
    let shared = gw.clone();
    let times = many(pairs, move |n| race(shared.clone(), n)).await.concat();
    let slowest = times.iter().fold(0.0, |a: f64, b| a.max(*b));
    assert!(slowest <= 0.1 + 1.0 + 0.15 + 0.25, "the slowest took {slowest} s");
    let engines = gw.engines();
    for pid in engines.pids() {
        let own = Engines(engines.0.iter().filter(|r| r.pid == pid).cloned().collect());
        let Some(term) = own.terms().first().copied() else { continue };
        assert!(own.requests().iter().all(|s| s.at <= term), "a request is sent to a replica after its TERM");
    }
    gw.warm("a0").await;
    gw.leak_check().await;
}

/// The busy model is called for 13 s instead of 25 s; the others have long slept by then.
#[tokio::test]
async fn fc_38_one_busy_model_keeps_only_itself_awake() {
    let _turn = turn(Cost::Heavy).await;
    let name = |n: usize| format!("m{n}");
    let models: Vec<_> = (0..60).map(|n| model(&name(n), "{}", &["idleAfter: 3s"])).collect();
    let gw = Gateway::start(&fleet(&models)).await;
    let to = gw.data;
    let each_once = tokio::spawn(many(60, move |n| {
        let request = Request::chat(&name(n));
        async move {
            tokio::time::sleep(ms(80 * n as u64)).await;
            request.send(to).await
        }
    }));
    let begun = clock::now();
    let mut last = 0;
    while between(begun, clock::now()) < 13.0 {
        last = gw.send(Request::chat("m0")).await.expect(200).end_at;
        tokio::time::sleep(secs(1.0)).await;
    }
    let answers = each_once.await.unwrap();
    let engines = gw.engines();
    let mut late = BTreeMap::new();
    for (n, answer) in answers.iter().enumerate().skip(1) {
        let terms = engines.of(&name(n)).terms();
        assert_eq!(terms.len(), 1, "m{n} sleeps once");
        late.insert(n, between(answer.expect(200).end_at, terms[0]));
    }
    let worst = late.values().fold(0.0, |a: f64, b| a.max((b - 3.0).abs()));
    assert!(worst <= 0.3, "3 s after the last answer: {late:?}");
    assert!(engines.of("m0").terms().is_empty(), "m0 stays");
    gw.settled("m0", 0).await;
    near("m0 sleeps too", between(last, gw.engines().of("m0").terms()[0]), 3.0);
    gw.leak_check().await;
}

#[tokio::test]
async fn a_person_can_wake_and_sleep_a_model() {
    let _turn = turn(Cost::Light).await;
    let gw = Gateway::start(&fleet(&[model("m", "{}", &["idleAfter: 5m"])])).await;
    let order = async |verb: &str| {
        let answer = gw.admin(Request::post(&format!("/api/v1/models/m:{verb}"), "")).await;
        assert!(matches!(answer.status, 200 | 202), "{}", answer.brief());
    };
    order("wake").await;
    gw.settled("m", 1).await;
    order("sleep").await;
    gw.settled("m", 0).await;
    let logs = gw.admin(Request::get("/api/v1/models/m/logs")).await;
    logs.expect(200);
    gw.warm("m").await;
    order("sleep").await;
    gw.settled("m", 0).await;
    assert_eq!(gw.engines().launches().len(), 2);
    let state: Value = gw.model("m").await["state"].clone();
    assert_eq!(state, "cold");
    assert_eq!(queued_now(&gw).await, 0.0);
    gw.leak_check().await;
}

async fn queued_now(gw: &Gateway) -> f64 {
    queued(gw, "m", 0).await;
    gw.metrics().await.sum("sluice_queue_depth", &[])
}
