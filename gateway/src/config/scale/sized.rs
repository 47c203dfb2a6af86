// SPDX-License-Identifier: Apache-2.0
//! The scaling keys under Sluice's own profile, and where they differ from what the same words mean elsewhere.
//!
//! Owns how the target and the hard limit follow from each other.

use sluice_core::{Profile, ScaleSpec};

use super::super::annotations::Annotations;
use super::super::autoscaler::narrow;
use super::super::reader::{Set, Table, plain};
use super::super::report::{Code, Fault};
use super::super::tree::Place;
use super::super::units::show_milli;
use super::{Keys, merge};

/// Aimed at where neither a target nor a limit is set: Knative's default.
const DEFAULT_TARGET: u64 = 100_000;
/// The least target, as in Knative: 0.01.
const LEAST_TARGET: u64 = 10;

pub(super) fn read(model: &Table<'_>, keys: &Keys, said: &Annotations) -> ScaleSpec {
    if let Some(set) = keys.metric.as_ref().filter(|set| set.value != "concurrency") {
        let message = format!("`scaleMetric` cannot be `{}` yet", set.value);
        let fault = Fault::new(Code::NotYet, set.place, message);
        model.reader.fault(fault.help("the profile `sized` counts requests; `compat: kpa` knows `rps`"));
    }
    let idle_after = merge(model, "idleAfter", keys.idle_after, said.retention);
    let (min, max) = bounds(model, keys);
    let (target, concurrency) = target(keys);
    note_deviations(model, keys, said);
    ScaleSpec {
        min_replicas: narrow(min),
        max_replicas: narrow(max),
        target_milli: utilized(target, said.utilization),
        container_concurrency: narrow(concurrency),
        idle_after: plain(idle_after).into(),
        window: plain(keys.window).into(),
        preload: plain(keys.preload),
        profile: Profile::Sized,
    }
}

fn bounds(model: &Table<'_>, keys: &Keys) -> (u64, u64) {
    let min = plain(keys.min);
    let Some(max) = keys.max else { return (min, min.max(1)) };
    if max.value == 0 {
        let fault =
            Fault::new(Code::OutOfRange, max.place, "`maxReplicas` is out of range: allowed is 1 to 10000");
        let help = "0 does not mean unlimited here; it does under `compat: kpa`";
        model.reader.fault(fault.help(help));
    } else {
        keys.check_bounds(model, min, max);
    }
    (min, max.value)
}

/// The target in thousandths and the hard limit: each follows from the other where it is not set itself.
fn target(keys: &Keys) -> (u64, u64) {
    let target = keys.target.map(|set| (set.value * 1e3).round() as u64);
    let concurrency = match (keys.concurrency, target) {
        (Some(limit), _) => limit.value,
        (None, Some(target)) => target.div_ceil(1_000),
        (None, None) => 0,
    };
    let target = match target {
        Some(target) => target,
        None if concurrency > 0 => concurrency * 1_000,
        None => DEFAULT_TARGET,
    };
    (target, concurrency)
}

/// What somebody who knows the words from KServe or Knative would not expect.
fn note_deviations(model: &Table<'_>, keys: &Keys, said: &Annotations) {
    let note = |place: Place, message: String, help: &str| {
        model.reader.note(Fault::new(Code::Deviation, place, message).help(help));
    };
    let (target, concurrency) = target(keys);
    let set_target = keys.target.map(|set| set.place);
    let aimed = set_target.or(keys.concurrency.filter(|set| set.value > 0).map(|set| set.place));
    if let (Some(place), None) = (aimed, said.utilization) {
        let (whole, part) = (show_milli(target), show_milli(target * 70 / 100));
        let message =
            format!("a target of {whole} is {whole} requests per replica here and {part} under Knative");
        let help = "Knative aims at 70 % of it; \
                    `autoscaling.knative.dev/target-utilization-percentage` says which is meant";
        note(place, message, help);
    }
    if let (Some(place), None) = (set_target, keys.concurrency) {
        let message = format!("at most {concurrency} requests are sent to one replica at a time");
        let help = "an omitted `containerConcurrency` is `scaleTarget` here and unlimited under KServe; \
                    write it out, 0 is unlimited";
        note(place, message, help);
    }
    if let Some(place) = set_target.filter(|_| concurrency > 0 && target > concurrency * 1_000) {
        let message =
            format!("the target {} is above `containerConcurrency` {concurrency}", show_milli(target));
        let help = "Knative aims at `containerConcurrency` then; here replicas are added once requests wait";
        note(place, message, help);
    }
    let min_omitted = model.place_of("minReplicas").is_none() && said.min_replicas.is_none();
    keys.note_omitted(model, min_omitted, keys.max.is_none());
    if let Some(place) = said.class {
        let message = "the profile `sized` decides, not Knative's pod autoscaler".to_owned();
        note(
            place,
            message,
            "the keys keep their meaning, the arithmetic is another; `compat: kpa` has Knative's",
        );
    }
    if let Some(set) = said.retention {
        let message = "the last replica goes this long after the last byte".to_owned();
        note(set.place, message, "Knative waits for its window first; `idleAfter` says what holds here");
    }
}

fn utilized(target: u64, percent: Option<Set<f64>>) -> u64 {
    let percent_milli = percent.map_or(100_000, |set| (set.value * 1e3).round() as u64);
    (target.saturating_mul(percent_milli) / 100_000).max(LEAST_TARGET)
}
