// SPDX-License-Identifier: Apache-2.0
//! The keys of a model that say how many replicas.
//!
//! Owns how a key and its annotation meet, and who decides by them. What they come to is the profile's affair.

mod kpa;
mod sized;

use std::time::Duration;

use sluice_core::ScaleSpec;

use super::annotations::{self, Annotations};
use super::autoscaler::Cluster;
use super::reader::{Set, Table};
use super::report::{Code, Fault};

/// Reads the scaling keys of a model whose replicas Sluice starts.
pub(super) fn read(model: &Table<'_>, cluster: &Cluster) -> ScaleSpec {
    let compat = model.choice("compat");
    let kpa = compat.as_ref().map_or(cluster.kpa, |set| set.value == "kpa");
    let said = annotations::read(model, kpa);
    let keys = Keys::read(model, &said);
    if let Some(set) = compat.filter(|set| keys.fixed && set.value == "kpa") {
        let fault = Fault::new(Code::NoEffect, set.place, "`compat` changes nothing for fixed addresses");
        model.reader.note(fault.help("there is one replica for each address; remove it"));
    }
    match kpa {
        true => kpa::read(model, &keys, &said, cluster),
        false => sized::read(model, &keys, &said),
    }
}

/// What both profiles read. Of a key and its annotation it is what both agree on.
struct Keys {
    min: Option<Set<u64>>,
    max: Option<Set<u64>>,
    target: Option<Set<f64>>,
    concurrency: Option<Set<u64>>,
    metric: Option<Set<String>>,
    window: Option<Set<Duration>>,
    idle_after: Option<Set<Duration>>,
    preload: Option<Set<bool>>,
    /// Addresses of somebody else's servers.
    fixed: bool,
}

impl Keys {
    fn read(model: &Table<'_>, said: &Annotations) -> Keys {
        let target = model.milli("scaleTarget");
        let target =
            target.map(|set| Set { value: set.value as f64 / 1e3, place: set.place, given: set.given });
        if let Some(set) = model.string("scaleMetricType") {
            let fault = Fault::new(Code::NoEffect, set.place, "`scaleMetricType` changes nothing");
            model.reader.note(fault.help("KServe accepts it and reads it nowhere, and so does sluice"));
        }
        Keys {
            min: merge(model, "minReplicas", model.integer("minReplicas"), said.min_replicas),
            max: merge(model, "maxReplicas", model.integer("maxReplicas"), said.max_replicas),
            target: merge(model, "scaleTarget", target, said.target),
            concurrency: model.integer("containerConcurrency"),
            metric: merge(model, "scaleMetric", model.choice("scaleMetric"), said.metric.clone()),
            window: merge(model, "window", model.duration("window"), said.window),
            idle_after: model.duration("idleAfter"),
            preload: model.switch("preload"),
            fixed: ["url", "urls"].iter().any(|name| model.place_of(name).is_some()),
        }
    }

    /// Refuses a least number of replicas above the greatest.
    fn check_bounds(&self, model: &Table<'_>, min: u64, max: Set<u64>) {
        if min > max.value {
            let place = self.min.filter(|set| set.given).map_or(max.place, |set| set.place);
            let message = format!(
                "`minReplicas` is {min} and `maxReplicas` on line {} is {}",
                max.place.line, max.value
            );
            let help = "the least number of replicas cannot be above the greatest";
            model.reader.fault(Fault::new(Code::Bounds, place, message).help(help));
        }
    }

    /// Notes defaults that differ, for files that use KServe's names at all. Fixed addresses are as many as they are.
    fn note_omitted(&self, model: &Table<'_>, min: bool, max: bool) {
        let named = ["maxReplicas", "minReplicas", "scaleTarget", "containerConcurrency", "annotations"];
        if self.fixed || !named.iter().any(|name| model.place_of(name).is_some()) {
            return;
        }
        let note = |message: &str, help: &str| {
            model.reader.note(Fault::new(Code::Deviation, model.place, message).help(help));
        };
        if min {
            note("an omitted `minReplicas` is 0 here and 1 under KServe", "write it out");
        }
        if max {
            note("an omitted `maxReplicas` is one replica here and unlimited under KServe", "write it out");
        }
    }
}

/// A key and its annotation: either may be set, both must agree.
fn merge<T: PartialEq>(
    model: &Table<'_>,
    name: &str,
    key: Option<Set<T>>,
    annotation: Option<Set<T>>,
) -> Option<Set<T>> {
    let (own, said) = match (key, annotation) {
        (Some(own), Some(said)) => (own, said),
        (key, annotation) => return key.or(annotation),
    };
    if !own.given {
        return Some(said);
    }
    if own.value != said.value {
        let message = format!("this annotation contradicts `{name}` on line {}", own.place.line);
        model.reader.fault(Fault::new(Code::Conflict, said.place, message).help("keep one of the two"));
    }
    Some(own)
}
