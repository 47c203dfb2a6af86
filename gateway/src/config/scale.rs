// SPDX-License-Identifier: Apache-2.0
//! The keys of a model that say how many replicas, and where they differ from what the same words mean
//! elsewhere.
//!
//! Owns how a key and its annotation meet and how the target and the hard limit follow from each other.

use sluice_core::ScaleSpec;

use super::annotations::{self, Annotations};
use super::reader::{Set, Table, plain};
use super::report::{Code, Fault};
use super::tree::Place;
use super::units::show_milli;

/// Aimed at where neither a target nor a limit is set: Knative's default.
const DEFAULT_TARGET: u64 = 100_000;
/// The least target, as in Knative: 0.01.
const LEAST_TARGET: u64 = 10;

/// Reads the scaling keys of a model whose replicas Sluice starts.
pub(super) fn read(model: &Table<'_>) -> ScaleSpec {
    let said = annotations::read(model);
    model.choice("scaleMetric");
    let keys = Keys {
        min: merge(model, "minReplicas", model.integer("minReplicas"), said.min_replicas),
        max: merge(model, "maxReplicas", model.integer("maxReplicas"), said.max_replicas),
        target: merge(model, "scaleTarget", model.milli("scaleTarget"), said.target),
        concurrency: model.integer("containerConcurrency"),
    };
    let idle_after = merge(model, "idleAfter", model.duration("idleAfter"), said.idle_after);
    let window = merge(model, "window", model.duration("window"), said.window);
    let (min, max) = keys.bounds(model);
    let (target, concurrency) = keys.target();
    keys.note_deviations(model, &said);
    ScaleSpec {
        min_replicas: narrow(min),
        max_replicas: narrow(max),
        target_milli: utilized(target, said.utilization),
        container_concurrency: narrow(concurrency),
        idle_after: plain(idle_after).into(),
        window: plain(window).into(),
        preload: plain(model.switch("preload")),
    }
}

struct Keys {
    min: Option<Set<u64>>,
    max: Option<Set<u64>>,
    target: Option<Set<u64>>,
    concurrency: Option<Set<u64>>,
}

impl Keys {
    fn bounds(&self, model: &Table<'_>) -> (u64, u64) {
        let min = plain(self.min);
        let Some(max) = self.max else { return (min, min.max(1)) };
        if min > max.value {
            let place = self.min.map_or(max.place, |set| set.place);
            let message = format!(
                "`minReplicas` is {min} and `maxReplicas` on line {} is {}",
                max.place.line, max.value
            );
            let help = "the least number of replicas cannot be above the greatest";
            model.reader.fault(Fault::new(Code::Bounds, place, message).help(help));
        }
        (min, max.value)
    }

    /// The target in thousandths and the hard limit: each follows from the other where it is not set itself.
    fn target(&self) -> (u64, u64) {
        let concurrency = match (self.concurrency, self.target) {
            (Some(limit), _) => limit.value,
            (None, Some(target)) => target.value.div_ceil(1_000),
            (None, None) => 0,
        };
        let target = match self.target {
            Some(target) => target.value,
            None if concurrency > 0 => concurrency * 1_000,
            None => DEFAULT_TARGET,
        };
        (target, concurrency)
    }

    /// What somebody who knows the words from KServe or Knative would not expect.
    fn note_deviations(&self, model: &Table<'_>, said: &Annotations) {
        let note = |place: Place, message: String, help: &str| {
            model.reader.note(Fault::new(Code::Deviation, place, message).help(help));
        };
        let (target, concurrency) = self.target();
        let aimed = self.target.or(self.concurrency.filter(|set| set.value > 0));
        if let (Some(set), None) = (aimed, said.utilization) {
            let (whole, part) = (show_milli(target), show_milli(target * 70 / 100));
            let message =
                format!("a target of {whole} is {whole} requests per replica here and {part} under Knative");
            let help = "Knative aims at 70 % of it; \
                        `autoscaling.knative.dev/target-utilization-percentage` says which is meant";
            note(set.place, message, help);
        }
        if let (Some(set), None) = (self.target, self.concurrency) {
            let message = format!("at most {concurrency} requests are sent to one replica at a time");
            let help = "an omitted `containerConcurrency` is `scaleTarget` here and unlimited under KServe; \
                        write it out, 0 is unlimited";
            note(set.place, message, help);
        }
        if let Some(set) = self.target.filter(|set| concurrency > 0 && set.value > concurrency * 1_000) {
            let message =
                format!("the target {} is above `containerConcurrency` {concurrency}", show_milli(target));
            let help =
                "Knative aims at `containerConcurrency` then; here replicas are added once requests wait";
            note(set.place, message, help);
        }
        self.note_omitted(model, said);
        if let Some(place) = said.class {
            let message = "the profile `sized` decides, not Knative's pod autoscaler".to_owned();
            note(
                place,
                message,
                "the keys keep their meaning, the arithmetic is another; remove the annotation",
            );
        }
        if let Some(set) = said.idle_after {
            let message = "the last replica goes this long after the last byte".to_owned();
            note(set.place, message, "Knative waits for its window first; `idleAfter` says what holds here");
        }
    }

    /// Defaults that differ, for files that use KServe's names at all. Fixed addresses are as many as they are.
    fn note_omitted(&self, model: &Table<'_>, said: &Annotations) {
        let named = ["maxReplicas", "minReplicas", "scaleTarget", "containerConcurrency", "annotations"];
        let fixed = ["url", "urls"].iter().any(|name| model.place_of(name).is_some());
        if fixed || !named.iter().any(|name| model.place_of(name).is_some()) {
            return;
        }
        let note = |message: &str, help: &str| {
            model.reader.note(Fault::new(Code::Deviation, model.place, message).help(help));
        };
        if model.place_of("minReplicas").is_none() && said.min_replicas.is_none() {
            note("an omitted `minReplicas` is 0 here and 1 under KServe", "write it out");
        }
        if self.max.is_none() {
            note("an omitted `maxReplicas` is one replica here and unlimited under KServe", "write it out");
        }
    }
}

/// A key and its annotation: either may be set, both must agree.
fn merge<T: PartialEq + Copy>(
    model: &Table<'_>,
    name: &str,
    key: Option<Set<T>>,
    annotation: Option<Set<T>>,
) -> Option<Set<T>> {
    let (Some(own), Some(said)) = (key, annotation) else { return key.or(annotation) };
    if !own.given {
        return annotation;
    }
    if own.value != said.value {
        let message = format!("this annotation contradicts `{name}` on line {}", own.place.line);
        model.reader.fault(Fault::new(Code::Conflict, said.place, message).help("keep one of the two"));
    }
    key
}

fn utilized(target: u64, percent_milli: Option<Set<u64>>) -> u64 {
    let percent = percent_milli.map_or(100_000, |set| set.value);
    (target.saturating_mul(percent) / 100_000).max(LEAST_TARGET)
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
