// SPDX-License-Identifier: Apache-2.0
//! Knative's cluster-wide settings, the keys of its ConfigMap `config-autoscaler`: what holds under `compat: kpa` where
//! a model says nothing.
//!
//! Owns their names and ranges. Must not know models.

use std::time::Duration;

use sluice_core::kpa::Settings;

use super::keys::{Key, Kind, Omitted, Omitted::Value, Section};
use super::reader::{Set, Table, malformed, plain};
use super::report::{Code, Fault};

/// Most replicas that one model may have: more are no machine's.
pub(super) const MOST: u64 = 10_000;

const fn key(name: &'static str, kind: Kind, default: Omitted, about: &'static str) -> Key {
    Key { name, kind, default, about }
}

/// The keys, in Knative's spelling.
pub(super) static CLUSTER: Section = Section {
    path: "configAutoscaler",
    keys: &[
        key(
            "container-concurrency-target-default",
            Kind::Float("0.01", "1e9"),
            Value("100"),
            "Target per replica where a model sets neither `scaleTarget` nor `containerConcurrency`.",
        ),
        key(
            "container-concurrency-target-percentage",
            Kind::Float("0", "100"),
            Value("70"),
            "Utilization of a target of concurrency; up to 1 it is a fraction, above that percent.",
        ),
        key(
            "requests-per-second-target-default",
            Kind::Float("0.01", "1e9"),
            Value("200"),
            "Target per replica of `scaleMetric: rps`; its utilization is 70 percent.",
        ),
        key("target-burst-capacity", Kind::Float("-1", "1e9"), Value("211"), "As the annotation."),
        key("stable-window", Kind::Duration("6s", "1h"), Value("60s"), "`window`, in whole seconds."),
        key("panic-window-percentage", Kind::Float("1", "100"), Value("10"), "As the annotation."),
        key("panic-threshold-percentage", Kind::Float("110", "1000"), Value("200"), "As the annotation."),
        key(
            "max-scale-up-rate",
            Kind::Float("1", "1e9"),
            Value("1000"),
            "One decision asks for at most so many times the ready replicas; above 1.",
        ),
        key(
            "max-scale-down-rate",
            Kind::Float("1", "1e9"),
            Value("2"),
            "One decision leaves at least this part of the ready replicas; above 1.",
        ),
        key(
            "enable-scale-to-zero",
            Kind::Switch,
            Value("true"),
            "`false`: every model keeps one replica where zero would be decided.",
        ),
        key(
            "scale-to-zero-grace-period",
            Kind::Duration("1ms", "1h"),
            Value("30s"),
            "Longest wait for the gateway to be in the path. Here it always is, so it never delays.",
        ),
        key(
            "scale-to-zero-pod-retention-period",
            Kind::Duration("0", "1h"),
            Value("0s"),
            "How long the last replica stays once none is wanted.",
        ),
        key("scale-down-delay", Kind::Duration("0", "1h"), Value("0s"), "As the annotation."),
        key("initial-scale", Kind::Integer(0, MOST), Value("1"), "As the annotation."),
        key("allow-zero-initial-scale", Kind::Switch, Value("false"), "Whether initial-scale may be 0."),
        key("min-scale", Kind::Integer(0, MOST), Value("0"), "`minReplicas` of models that leave it out."),
        key(
            "max-scale",
            Kind::Integer(0, i32::MAX as u64),
            Omitted::Words("1"),
            "`maxReplicas` of models that leave it out; 0 is unlimited.",
        ),
        key(
            "max-scale-limit",
            Kind::Integer(0, i32::MAX as u64),
            Value("0"),
            "Largest `maxReplicas` that a model may set, which then may not be 0; 0 is no limit.",
        ),
        key("activator-capacity", Kind::Float("1", "1e9"), Value("100"), "Read; here the gateway is one."),
        key(
            "pod-autoscaler-class",
            Kind::Choice(&["kpa.autoscaling.knative.dev"], &["hpa.autoscaling.knative.dev"]),
            Value("kpa.autoscaling.knative.dev"),
            "Read; `compat` says who decides.",
        ),
    ],
};

/// What holds where a model says nothing.
pub(super) struct Cluster {
    /// Models are scaled by Knative's rules.
    pub kpa: bool,
    /// With every field that the file may set.
    pub settings: Settings,
    /// `max-scale`, if it is set.
    pub max_scale: Option<u64>,
    pub allow_zero_initial_scale: bool,
    /// 0 is no limit.
    pub max_scale_limit: u64,
}

/// Reads the keys.
pub(super) fn read(table: &Table<'_>, kpa: bool) -> Cluster {
    let float = |name| plain(table.float(name));
    let micros = |set: Option<Set<Duration>>| plain(set).into();
    let initial = table.integer("initial-scale");
    let allow_zero_initial_scale = plain(table.switch("allow-zero-initial-scale"));
    refuse_zero(table, "initial-scale", initial, allow_zero_initial_scale);
    let max_scale = table.integer("max-scale");
    let limit = plain(table.integer("max-scale-limit"));
    refuse_beyond(table, "max-scale", max_scale, limit);
    let percentage = float("container-concurrency-target-percentage");
    let settings = Settings {
        concurrency_target_default: float("container-concurrency-target-default"),
        concurrency_target_fraction: if percentage > 1.0 { percentage / 100.0 } else { percentage },
        rps_target_default: float("requests-per-second-target-default"),
        min_scale: narrow(plain(table.integer("min-scale"))),
        initial_scale: narrow(plain(initial)),
        scale_down_delay: micros(table.whole_seconds("scale-down-delay")),
        window: micros(table.whole_seconds("stable-window")),
        panic_window_percentage: float("panic-window-percentage"),
        panic_threshold_percentage: float("panic-threshold-percentage"),
        target_burst_capacity: plain(burst(table, "target-burst-capacity")),
        retention: micros(table.duration("scale-to-zero-pod-retention-period")),
        enable_scale_to_zero: plain(table.switch("enable-scale-to-zero")),
        scale_to_zero_grace_period: micros(table.duration("scale-to-zero-grace-period")),
        max_scale_up_rate: above_one(table, "max-scale-up-rate"),
        max_scale_down_rate: above_one(table, "max-scale-down-rate"),
        activator_capacity: float("activator-capacity"),
        ..Settings::default()
    };
    if percentage == 0.0 {
        let place = table.place_of("container-concurrency-target-percentage").unwrap_or(table.place);
        let message = "`container-concurrency-target-percentage` is out of range: allowed is above 0 to 100";
        table.reader.fault(Fault::new(Code::OutOfRange, place, message));
    }
    table.choice("pod-autoscaler-class");
    table.done();
    let max_scale = max_scale.map(|set| set.value);
    Cluster { kpa, settings, max_scale, allow_zero_initial_scale, max_scale_limit: limit }
}

/// Target burst capacity: 0 or more, or -1.
pub(super) fn burst(table: &Table<'_>, name: &'static str) -> Option<Set<f64>> {
    let set = table.float(name)?;
    if set.value < 0.0 && set.value != -1.0 {
        let help = "write 0 or more, or -1 for unlimited";
        table.reader.fault(Fault { place: set.place, ..malformed(name, &set.value.to_string(), help) });
    }
    Some(set)
}

/// An initial scale of zero must be allowed.
pub(super) fn refuse_zero(table: &Table<'_>, name: &str, initial: Option<Set<u64>>, allowed: bool) {
    if let Some(set) = initial.filter(|set| set.value == 0 && !allowed) {
        let message = format!("`{name}` cannot be 0");
        let help = "`configAutoscaler` must have `allow-zero-initial-scale: true` for that, as under Knative";
        table.reader.fault(Fault::new(Code::OutOfRange, set.place, message).help(help));
    }
}

/// With a limit no maximum may be above it, nor be unlimited.
pub(super) fn refuse_beyond(table: &Table<'_>, name: &str, max: Option<Set<u64>>, limit: u64) {
    if let Some(set) = max.filter(|set| limit > 0 && (set.value == 0 || set.value > limit)) {
        let message = format!("`{name}` is {} where `max-scale-limit` is {limit}", set.value);
        let help = format!("write a number from 1 to {limit}");
        table.reader.fault(Fault::new(Code::Bounds, set.place, message).help(help));
    }
}

fn above_one(table: &Table<'_>, name: &'static str) -> f64 {
    let Some(set) = table.float(name) else { return 2.0 };
    if set.value <= 1.0 {
        let message = format!("`{name}` is out of range: allowed is above 1");
        table.reader.fault(Fault::new(Code::OutOfRange, set.place, message));
    }
    set.value
}

pub(super) fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
