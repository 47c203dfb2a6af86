// SPDX-License-Identifier: Apache-2.0
//! Every metric of the table is exposed and moves with its cause, and nothing else is exposed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;

use sluice_core::{ModelState, WakeEstimate};
use sluice_scaler::Handle;
use sluice_wire::usage::Usage;

use super::table::METRICS;
use super::*;
use crate::admission::testkit::{ms, ready, replica, starting};
use crate::config::parse;
use crate::route::Table;

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A table with one model, and the status and counts of a scaler.
struct World {
    table: std::sync::Arc<Table>,
    status: FleetStatus,
    counts: BTreeMap<ModelName, Counts>,
}

impl World {
    fn new() -> World {
        let text = "models:\n  - {name: m, command: [sh]}\n";
        let loaded = parse(text, "sluice.yaml", &|_| None).unwrap();
        let (handle, _inputs) = Handle::new();
        let table = Table::new(handle);
        table.configure(&loaded.settings);
        let status = ModelStatus {
            name: "m".into(),
            state: ModelState::Ready,
            ready: 1,
            starting: 0,
            leaving: 0,
            wanted: None,
            desired: 1,
            reason: "demand".into(),
            wake: WakeEstimate { samples: 3, p50: ms(1500), p90: ms(2500) },
            fault: None,
            pinned: None,
            next: None,
        };
        let status = FleetStatus { at: ms(1_000), models: vec![status], replicas: Vec::new() };
        let decisions = BTreeMap::from([("demand".to_owned(), 4)]);
        let counts = Counts { ready: 3, failed: 2, died: 1, decisions };
        World { table, status, counts: BTreeMap::from([("m".into(), counts)]) }
    }

    fn model(&self) -> std::sync::Arc<crate::admission::Model> {
        self.table.get("m").unwrap()
    }

    fn text(&self, format: Format) -> String {
        let sources = Sources {
            table: &self.table,
            status: &self.status,
            counts: &self.counts,
            now: ms(1_250),
            ready: true,
            connections: 7,
            connections_refused: 2,
            connections_limit: 20_000,
            body_memory: 1 << 20,
            body_memory_limit: 1 << 30,
        };
        render(format, &sources)
    }

    fn value(&self, series: &str) -> Option<f64> {
        let text = self.text(Format::Text);
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
        Some(value.parse().unwrap())
    }
}

/// Names of the families that have a sample, by the table's names.
fn families(text: &str) -> BTreeSet<String> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let names = samples.map(|line| line.split(['{', ' ']).next().unwrap());
    names
        .map(|name| {
            let stem = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let known = |name: &str| METRICS.iter().any(|metric| metric.name == name);
            stem.filter(|stem| known(stem)).unwrap_or(name).to_owned()
        })
        .collect()
}

fn stream() -> Ended {
    Ended {
        api: "openai",
        code: 200,
        took: secs(11),
        first_byte: Some(secs(1)),
        first_event: Some(secs(1)),
        events: 6,
        usage: Some(Usage { input: 7, output: 5 }),
        bytes_in: 10,
        bytes_out: 100,
        attempts: 3,
    }
}

#[test]
fn every_metric_of_the_table_is_exposed_and_nothing_else() {
    let world = World::new();
    world.table.unknown().turned_away("model_not_found");
    let model = world.model();
    let metrics = model.metrics();
    metrics.ended(&stream());
    metrics.upstream_failed("upstream_timeout");
    model.publish(ms(0), Some(&ready(&[replica(1, 4)])));
    let table: BTreeSet<String> = METRICS.iter().map(|metric| metric.name.to_owned()).collect();
    assert_eq!(families(&world.text(Format::Text)), table);
    let openmetrics = world.text(Format::OpenMetrics);
    assert_eq!(families(&openmetrics), table);
}

#[test]
fn what_is_counted_of_a_request_moves_when_it_ends() {
    let world = World::new();
    let model = world.model();
    model.metrics().ended(&stream());
    for (series, value) in [
        (r#"sluice_requests_total{model="m",api="openai",code="200"}"#, 1.0),
        (r#"sluice_request_duration_seconds_sum{model="m"}"#, 11.0),
        (r#"sluice_time_to_first_byte_seconds_sum{model="m"}"#, 1.0),
        (r#"sluice_time_to_first_token_seconds_sum{model="m"}"#, 1.0),
        (r#"sluice_inter_token_seconds_sum{model="m"}"#, 2.0),
        (r#"sluice_inter_token_seconds_count{model="m"}"#, 1.0),
        (r#"sluice_stream_events_total{model="m"}"#, 6.0),
        (r#"sluice_tokens_total{model="m",direction="input"}"#, 7.0),
        (r#"sluice_tokens_total{model="m",direction="output"}"#, 5.0),
        (r#"sluice_request_body_bytes_total{model="m"}"#, 10.0),
        (r#"sluice_response_body_bytes_total{model="m"}"#, 100.0),
        (r#"sluice_retries_total{model="m"}"#, 2.0),
    ] {
        assert_eq!(world.value(series), Some(value), "{series}");
    }
    model.metrics().ended(&Ended { api: "kserve", code: 499, ..Ended::default() });
    assert_eq!(world.value(r#"sluice_requests_total{model="m",api="kserve",code="499"}"#), Some(1.0));
    assert_eq!(world.value(r#"sluice_time_to_first_byte_seconds_count{model="m"}"#), Some(1.0));
}

#[test]
fn what_goes_wrong_is_counted_under_its_word() {
    let world = World::new();
    let model = world.model();
    let metrics = model.metrics();
    metrics.turned_away("request_too_large");
    metrics.refused(&Reason::NotInTime);
    metrics.upstream_failed("cut_off");
    metrics.cancelled(Phase::Waiting);
    metrics.cancelled(Phase::InFlight);
    metrics.waited(secs(2), false);
    metrics.waited(secs(3), true);
    for (series, value) in [
        (r#"sluice_refusals_total{model="m",reason="request_too_large"}"#, 1.0),
        (r#"sluice_refusals_total{model="m",reason="not_in_time"}"#, 1.0),
        (r#"sluice_refusals_total{model="m",reason="queue_full"}"#, 0.0),
        (r#"sluice_upstream_errors_total{model="m",kind="cut_off"}"#, 1.0),
        (r#"sluice_client_cancels_total{model="m",phase="waiting"}"#, 1.0),
        (r#"sluice_client_cancels_total{model="m",phase="in_flight"}"#, 1.0),
        (r#"sluice_queue_wait_seconds_sum{model="m"}"#, 5.0),
        (r#"sluice_cold_start_seconds_sum{model="m",rung="start"}"#, 3.0),
    ] {
        assert_eq!(world.value(series), Some(value), "{series}");
    }
}

#[test]
fn a_forecast_is_compared_with_what_became_of_it() {
    let metrics = ModelMetrics::default();
    let count = || (metrics.eta_error.snapshot().count, metrics.eta_error.snapshot().sum);
    let coming = ModelRoute { ready_at: Some(ms(12_000)), ..starting() };
    let there = |since| ready(&[sluice_core::ReplicaRoute { ready_since: ms(since), ..replica(1, 4) }]);
    metrics.routed(ms(9_000), &starting());
    metrics.routed(ms(10_000), &there(9_500));
    assert_eq!(count().0, 0, "nothing was foretold");
    metrics.routed(ms(10_000), &coming);
    metrics.routed(ms(11_500), &ModelRoute { ready_at: Some(ms(20_000)), ..coming.clone() });
    metrics.routed(ms(13_001), &there(13_000));
    assert_eq!(count(), (1, 1.5), "the first word counts: three seconds instead of two");
    metrics.routed(ms(20_000), &coming);
    metrics.routed(ms(21_000), &ModelRoute { starting: 0, ..coming.clone() });
    metrics.routed(ms(30_000), &there(29_000));
    metrics.routed(ms(40_000), &coming);
    metrics.routed(ms(41_000), &there(30_000));
    assert_eq!(count().0, 1, "a start that failed and a drain that was called off prove nothing");
}

#[test]
fn gauges_and_counts_come_from_their_owners() {
    let world = World::new();
    world.model().publish(ms(0), Some(&ready(&[replica(4, 8)])));
    for (series, value) in [
        (r#"sluice_inflight{model="m",replica="r4"}"#, 0.0),
        (r#"sluice_queue_depth{model="m",class="standard"}"#, 0.0),
        (r#"sluice_replicas{model="m",state="ready"}"#, 1.0),
        (r#"sluice_desired_replicas{model="m"}"#, 1.0),
        (r#"sluice_scale_decisions_total{model="m",reason="demand"}"#, 4.0),
        (r#"sluice_replica_starts_total{model="m",outcome="ready"}"#, 3.0),
        (r#"sluice_replica_starts_total{model="m",outcome="failed"}"#, 2.0),
        (r#"sluice_replica_deaths_total{model="m"}"#, 1.0),
        (r#"sluice_wake_estimate_seconds{model="m",quantile="0.9"}"#, 2.5),
        ("sluice_connections", 7.0),
        ("sluice_connections_refused_total", 2.0),
        ("sluice_connections_limit", 20_000.0),
        ("sluice_body_memory_bytes", 1_048_576.0),
        ("sluice_ready", 1.0),
        ("sluice_scaler_status_age_seconds", 0.25),
    ] {
        assert_eq!(world.value(series), Some(value), "{series}");
    }
    let fds = world.value("process_open_fds").unwrap();
    assert!(fds >= 3.0 && fds <= world.value("process_max_fds").unwrap(), "{fds}");
    assert!(world.value("process_resident_memory_bytes").unwrap() > 1e6);
    assert!(world.value("process_cpu_seconds_total").unwrap() >= 0.0);
    assert!(world.value("process_start_time_seconds").unwrap() > 1.5e9);
}

#[test]
fn series_of_a_model_go_with_it() {
    let world = World::new();
    world.model().metrics().ended(&stream());
    let none = parse("models: []\n", "sluice.yaml", &|_| None).unwrap();
    world.table.configure(&none.settings);
    let text = World { status: FleetStatus::default(), ..world }.text(Format::Text);
    assert!(!text.contains(r#"model="m""#), "{text}");
}

#[test]
fn a_model_called_unknown_is_not_exposed_twice() {
    let world = World::new();
    let loaded = parse("models:\n  - {name: unknown, command: [sh]}\n", "sluice.yaml", &|_| None).unwrap();
    world.table.configure(&loaded.settings);
    world.table.unknown().ended(&stream());
    let text = world.text(Format::Text);
    let lines: Vec<&str> = text.lines().filter(|line| line.contains(r#"model="unknown""#)).collect();
    let series: BTreeSet<&str> = lines.iter().map(|line| line.rsplit_once(' ').unwrap().0).collect();
    assert_eq!(series.len(), lines.len());
}

#[test]
fn reloads_and_lost_lines_are_counted() {
    let world = World::new();
    let seen = |series: &str| world.value(series).unwrap();
    let names = [
        r#"sluice_config_reloads_total{outcome="ok"}"#,
        r#"sluice_config_reloads_total{outcome="error"}"#,
        "sluice_log_lines_lost_total",
    ];
    let before = names.map(seen);
    config_reloaded(true);
    let loaded_at = seen("sluice_config_last_reload_success_timestamp_seconds");
    config_reloaded(false);
    log_line_lost();
    assert_eq!(seen("sluice_config_last_reload_successful"), 0.0);
    assert_eq!(seen("sluice_config_last_reload_success_timestamp_seconds"), loaded_at);
    for (name, before) in names.iter().zip(before) {
        assert!(seen(name) > before, "{name}");
    }
    assert!(loaded_at > 1.5e9);
}
