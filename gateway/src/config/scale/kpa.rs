// SPDX-License-Identifier: Apache-2.0
//! The scaling keys under `compat: kpa`: Knative's meanings, defaults and refusals.
//!
//! Owns how a model's keys, its annotations and the cluster's settings come together.

use std::time::Duration;

use sluice_core::kpa::{Algorithm, Metric, Settings};
use sluice_core::{Micros, Profile, ScaleSpec};

use super::super::annotations::Annotations;
use super::super::autoscaler::{self, Cluster, MOST, narrow};
use super::super::reader::{Set, Table, malformed, plain};
use super::super::report::{Code, Fault};
use super::Keys;

/// Knative's least stable window.
const LEAST_WINDOW: Duration = Duration::from_secs(6);

pub(super) fn read(model: &Table<'_>, keys: &Keys, said: &Annotations, cluster: &Cluster) -> ScaleSpec {
    let (min, max) = bounds(model, keys, cluster);
    autoscaler::refuse_zero(model, "initial-scale", said.initial, cluster.allow_zero_initial_scale);
    check_activation(model, said, min, max);
    note_deviations(model, keys, said, cluster);
    let base = &cluster.settings;
    let micros = |set: Option<Set<Duration>>, base: Micros| set.map_or(base, |set| set.value.into());
    let settings = Settings {
        metric: match keys.metric.as_ref().map(|set| set.value.as_str()) {
            Some("rps") => Metric::Rps,
            _ => Metric::Concurrency,
        },
        algorithm: algorithm(model, said),
        container_concurrency: narrow(plain(keys.concurrency)),
        target: keys.target.map(|set| set.value),
        target_utilization_percentage: said.utilization.map(|set| set.value),
        min_scale: narrow(min),
        max_scale: narrow(if max == 0 { MOST } else { max.min(MOST) }),
        initial_scale: said.initial.map_or(base.initial_scale, |set| narrow(set.value)),
        activation_scale: narrow(plain(said.activation)),
        scale_down_delay: micros(said.delay, base.scale_down_delay),
        window: micros(window(model, keys), base.window),
        panic_window_percentage: said.panic_window.map_or(base.panic_window_percentage, |set| set.value),
        panic_threshold_percentage: said
            .panic_threshold
            .map_or(base.panic_threshold_percentage, |set| set.value),
        target_burst_capacity: said.burst.map_or(base.target_burst_capacity, |set| set.value),
        retention: micros(said.retention, base.retention),
        progress_deadline: micros(said.progress, base.progress_deadline),
        ..base.clone()
    };
    ScaleSpec {
        min_replicas: settings.min_scale,
        max_replicas: settings.max_scale,
        target_milli: (settings.resolve().total * 1e3).round() as u64,
        container_concurrency: settings.container_concurrency,
        idle_after: plain(keys.idle_after).into(),
        window: settings.window,
        preload: false,
        profile: Profile::Kpa(Box::new(settings)),
    }
}

/// Fewest and most replicas; 0 is unlimited.
fn bounds(model: &Table<'_>, keys: &Keys, cluster: &Cluster) -> (u64, u64) {
    let min = keys.min.filter(|set| set.given).map_or(cluster.settings.min_scale.into(), |set| set.value);
    autoscaler::refuse_beyond(model, "maxReplicas", keys.max, cluster.max_scale_limit);
    match (keys.max, cluster.max_scale) {
        (Some(max), _) => {
            if max.value > 0 {
                keys.check_bounds(model, min, max);
            }
            (min, max.value)
        }
        (None, Some(0)) => (min, 0),
        (None, max) => (min, max.unwrap_or(1).max(min)),
    }
}

/// `activation-scale` lies between the bounds.
fn check_activation(model: &Table<'_>, said: &Annotations, min: u64, max: u64) {
    let Some(set) = said.activation else { return };
    let message = match set.value {
        activation if activation < min => format!("activation-scale {activation} is below min-scale {min}"),
        activation if max > 0 && activation > max => {
            format!("activation-scale {activation} is above max-scale {max}")
        }
        _ => return,
    };
    let help = "it must lie between the two, as under Knative";
    model.reader.fault(Fault::new(Code::Bounds, set.place, message).help(help));
}

/// The stable window, if the model says one.
fn window(model: &Table<'_>, keys: &Keys) -> Option<Set<Duration>> {
    let set = keys.window.filter(|set| set.given)?;
    if set.value < LEAST_WINDOW {
        let fault = Fault::new(Code::OutOfRange, set.place, "`window` is out of range: allowed is 6s to 1h");
        model.reader.fault(fault.help("under `compat: kpa` it is Knative's stable window"));
    } else if set.value.subsec_nanos() != 0 && model.place_of("window").is_some() {
        let fault = malformed("window", "a fraction of a second", "write whole seconds");
        model.reader.fault(Fault { place: set.place, ..fault });
    }
    Some(set)
}

/// As Knative: any other text is linear, save where the class is named.
fn algorithm(model: &Table<'_>, said: &Annotations) -> Algorithm {
    let Some(set) = &said.algorithm else { return Algorithm::Linear };
    match set.value.as_str() {
        "linear" => Algorithm::Linear,
        "weighted-exponential" | "weightedExponential" => Algorithm::WeightedExponential,
        other => {
            let name = "metric-aggregation-algorithm";
            let help = "write `linear` or `weighted-exponential`";
            let fault = Fault { place: set.place, ..malformed(name, other, help) };
            match said.class {
                Some(_) => model.reader.fault(fault),
                None => {
                    let message = format!("`{name}` is none that is known, and counts as `linear`");
                    model.reader.note(Fault { code: Code::NoEffect, message, ..fault });
                }
            }
            Algorithm::Linear
        }
    }
}

/// What somebody who knows the words from KServe or Knative, or from Sluice's own profile, would not expect.
fn note_deviations(model: &Table<'_>, keys: &Keys, said: &Annotations, cluster: &Cluster) {
    let min_omitted = keys.min.is_none_or(|set| !set.given) && said.min_replicas.is_none();
    keys.note_omitted(model, min_omitted, keys.max.is_none() && cluster.max_scale.is_none());
    let note = |set: Option<Set<()>>, message: &str, help: &str| {
        if let Some(set) = set.filter(|set| set.given) {
            model.reader.note(Fault::new(Code::NoEffect, set.place, message).help(help));
        }
    };
    let bare = |place, given| Some(Set { value: (), place, given });
    note(
        keys.idle_after.and_then(|set| bare(set.place, set.given)),
        "`idleAfter` only ends orders under `compat: kpa`",
        "the way to zero is Knative's: `window`, then scale-to-zero-pod-retention-period",
    );
    note(
        keys.preload.filter(|set| set.value).and_then(|set| bare(set.place, set.given)),
        "`preload` changes nothing under `compat: kpa`",
        "the annotation initial-scale says how many replicas start at first",
    );
    let beyond = keys.max.filter(|set| set.value > MOST);
    note(
        beyond.and_then(|set| bare(set.place, set.given)),
        "no model has more than 10000 replicas here",
        "write that many, or 0",
    );
}
