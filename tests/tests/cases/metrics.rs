// SPDX-License-Identifier: Apache-2.0
//! Field cases about what is measured.

use std::collections::BTreeSet;

use serde_json::json;
use sluice_tests::chance::{Chance, percentile};
use sluice_tests::client::{Conn, Request, many};
use sluice_tests::harness::metrics::Metrics;
use sluice_tests::harness::{Cost, Gateway, eventually, procs, turn};

use crate::support::{Leave, Visitor, after_events, endless, fleet, model, secs};

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

#[tokio::test]
async fn tokens_are_those_that_answers_state() {
    let gw = Gateway::start(&fleet(&[model("m", "{}", &[])])).await;
    let whole = json!({"choices": [{"text": "x".repeat(9_000)}], "usage": {"prompt_tokens": 7, "completion_tokens": 20}});
    let last = json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}});
    let stream = format!("data: {{\"usage\":null}}\n\ndata: {last}\n\ndata: [DONE]\n\n");
    let streamed = json!({"body": stream, "headers": [["content-type", "text/event-stream"]]});
    for act in [json!({"body": whole.to_string()}), streamed, json!({"events": 3})] {
        gw.send(Request::chat("m").act(act)).await.expect(200);
    }
    gw.send(Request::chat("m").act(json!({"status": 500, "body": last.to_string()}))).await.expect(500);
    let tokens =
        |metrics: &Metrics, way| metrics.sum("sluice_tokens_total", &[("model", "m"), ("direction", way)]);
    eventually("all are counted", secs(10.0), async || {
        let metrics = gw.metrics().await;
        (tokens(&metrics, "input") == 10.0 && tokens(&metrics, "output") == 24.0).then_some(())
    })
    .await;
}

/// Names in the document, which is generated from the table in the program.
fn documented() -> BTreeSet<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let names = rows.map(|(name, _)| name).filter(|n| n.starts_with("sluice_") || n.starts_with("process_"));
    names.map(str::to_owned).collect()
}

/// The metric that a sample belongs to.
fn family(name: &str, documented: &BTreeSet<String>) -> String {
    let stem = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
    stem.filter(|stem| documented.contains(*stem)).unwrap_or(name).to_owned()
}

#[tokio::test]
async fn every_documented_metric_is_there_and_moves_with_its_cause() {
    let _turn = turn(Cost::Light).await;
    let fails = r#"{"exit": {"code": 3, "after": 1}}"#;
    let models = [model("m", "{}", &["idleAfter: 5m"]), model("bad", fails, &["minReplicas: 1"])];
    let yaml = fleet(&models);
    let mut gw = Gateway::start(&yaml).await;
    let stream = || Request::chat("m").act(json!({"events": 4, "gap": 20}));
    // The second start is foretold.
    gw.send(stream()).await.expect(200);
    gw.admin(Request::post("/api/v1/models/m:sleep", "")).await;
    gw.settled("m", 0).await;
    let mut open = Conn::open(gw.data).await.unwrap();
    open.exchange(&stream()).await.expect(200);
    gw.send(Request::chat("nobody")).await.expect(404);
    let broken = Request::chat("m").act(json!({"raw": "no answer\r\n\r\n"}));
    gw.send(broken).await.expect(502);
    let left = Visitor::enter(gw.data, Leave::Rst, &endless("m"), endless("m").body.len()).await;
    left.read(after_events(1)).await.1.leave().await;
    gw.rewrite("models: nonsense");
    eventually("the reload is refused", secs(10.0), async || {
        let refused = ("outcome", "error");
        (gw.metrics().await.sum("sluice_config_reloads_total", &[refused]) >= 1.0).then_some(())
    })
    .await;
    let started = ("outcome", "failed");
    eventually("a start has failed and the client has left", secs(10.0), async || {
        let metrics = gw.metrics().await;
        let left = metrics.sum("sluice_client_cancels_total", &[("phase", "in_flight")]) == 1.0;
        (left && metrics.sum("sluice_replica_starts_total", &[started]) >= 1.0).then_some(())
    })
    .await;

    let (metrics, documented) = (gw.metrics().await, documented());
    let exposed: BTreeSet<String> = metrics.samples.iter().map(|s| family(&s.name, &documented)).collect();
    assert_eq!(exposed, documented);
    let still: BTreeSet<&str> = documented
        .iter()
        .filter(|name| metrics.sum(name, &[]) == 0.0 && metrics.sum(&format!("{name}_count"), &[]) == 0.0)
        .map(String::as_str)
        .collect();
    let idle = [
        "sluice_body_memory_bytes",
        "sluice_config_last_reload_successful",
        "sluice_connections_refused_total",
        "sluice_inflight",
        "sluice_journal_lost_inputs_total",
        "sluice_log_lines_lost_total",
        "sluice_queue_depth",
        "sluice_replica_deaths_total",
        "sluice_retries_total",
        "sluice_tokens_total",
        "sluice_traced_requests_total",
    ];
    assert_eq!(still, idle.into());
    drop(open);
    let m = ("model", "m");
    assert_eq!(metrics.sum("sluice_stream_events_total", &[m]), 10.0 + 1.0);
    assert_eq!(metrics.sum("sluice_cold_start_seconds_count", &[m, ("rung", "start")]), 2.0);
    assert_eq!(metrics.sum("sluice_eta_error_ratio_count", &[m]), 1.0);
    assert_eq!(metrics.sum("sluice_requests_total", &[m, ("api", "openai"), ("code", "499")]), 1.0);
    assert_eq!(metrics.sum("sluice_upstream_errors_total", &[m, ("kind", "upstream_error")]), 1.0);
    gw.rewrite(&yaml);
    gw.leak_check().await;
}

#[tokio::test]
async fn prometheus_gets_openmetrics() {
    let _turn = turn(Cost::Light).await;
    let gw = Gateway::start(&fleet(&[model("m", "{}", &[])])).await;
    let accept = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    let answer = gw.admin(Request::get("/metrics").field("accept", accept)).await;
    let text = answer.expect(200).text();
    assert!(text.ends_with("\n# EOF\n") && text.contains("\n# TYPE sluice_requests counter\n"));
}
