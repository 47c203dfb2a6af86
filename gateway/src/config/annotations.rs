// SPDX-License-Identifier: Apache-2.0
//! Knative's and KServe's annotations: those that say the same as a key of ours, and what becomes of the
//! rest.
//!
//! Owns their names, aliases and ranges. An annotation is never passed over in silence.

use std::rc::Rc;
use std::time::Duration;

use super::keys::{self, Key, Kind, Omitted::Words, Section};
use super::reader::{Set, Table, malformed};
use super::report::{Code, Fault};
use super::tree::{Node, Place, Value, Word, shown};

const KNATIVE: &str = "autoscaling.knative.dev/";
const KPA: &str = "kpa.autoscaling.knative.dev";
const HPA: &str = "hpa.autoscaling.knative.dev";

const MIN: &str = "autoscaling.knative.dev/min-scale";
const MAX: &str = "autoscaling.knative.dev/max-scale";
const TARGET: &str = "autoscaling.knative.dev/target";
const UTILIZATION: &str = "autoscaling.knative.dev/target-utilization-percentage";
const METRIC: &str = "autoscaling.knative.dev/metric";
const WINDOW: &str = "autoscaling.knative.dev/window";
const RETENTION: &str = "autoscaling.knative.dev/scale-to-zero-pod-retention-period";
const CLASS: &str = "autoscaling.knative.dev/class";

const fn known(name: &'static str, kind: Kind, about: &'static str) -> Key {
    Key { name, kind, default: Words("none"), about }
}

/// The annotations that are understood.
pub(super) static ANNOTATIONS: Section = Section {
    path: "models[].annotations",
    keys: &[
        known(MIN, Kind::Integer(0, 10_000), "`minReplicas`."),
        known(MAX, Kind::Integer(1, 10_000), "`maxReplicas`; 0 does not mean unlimited here."),
        known(TARGET, Kind::Decimal("0.01", "1000000"), "`scaleTarget`."),
        known(
            UTILIZATION,
            Kind::Decimal("1", "100"),
            "Percent of the target that is aimed at; 100 if left out.",
        ),
        known(METRIC, Kind::Choice(&["concurrency"], keys::OTHER_METRICS), "`scaleMetric`."),
        known(WINDOW, Kind::Duration("6s", "1h"), "`window`, in whole seconds."),
        known(RETENTION, Kind::Duration("0", "1h"), "`idleAfter`."),
        known(CLASS, Kind::Choice(&[KPA], &[HPA]), "Accepted; the profile `sized` decides all the same."),
    ],
};

/// Camel-case spellings that Knative takes as well, and what they stand for.
const ALIASES: &[(&str, &str)] = &[
    ("minScale", MIN),
    ("maxScale", MAX),
    ("targetUtilizationPercentage", UTILIZATION),
    ("scaleToZeroPodRetentionPeriod", RETENTION),
];

/// The other spellings, each with the name it stands for.
pub(super) fn aliases() -> impl Iterator<Item = (String, &'static str)> {
    ALIASES.iter().map(|(short, name)| (format!("{KNATIVE}{short}"), *name))
}

/// Known annotations that this version does not act on.
const LATER: &[&str] = &[
    "autoscaling.knative.dev/initial-scale",
    "autoscaling.knative.dev/initialScale",
    "autoscaling.knative.dev/activation-scale",
    "autoscaling.knative.dev/scale-down-delay",
    "autoscaling.knative.dev/scaleDownDelay",
    "autoscaling.knative.dev/panic-window-percentage",
    "autoscaling.knative.dev/panicWindowPercentage",
    "autoscaling.knative.dev/panic-threshold-percentage",
    "autoscaling.knative.dev/panicThresholdPercentage",
    "autoscaling.knative.dev/target-burst-capacity",
    "autoscaling.knative.dev/targetBurstCapacity",
    "autoscaling.knative.dev/metric-aggregation-algorithm",
    "autoscaling.knative.dev/metricAggregationAlgorithm",
    "serving.knative.dev/progress-deadline",
    "serving.kserve.io/deploymentMode",
    "serving.kserve.io/autoscalerClass",
    "serving.kserve.io/stop",
    "serving.kserve.io/targetUtilizationPercentage",
    "serving.kserve.io/metrics",
];

/// What a model's annotations say, under the names of our keys.
#[derive(Default)]
pub(super) struct Annotations {
    pub min_replicas: Option<Set<u64>>,
    pub max_replicas: Option<Set<u64>>,
    pub target: Option<Set<u64>>,
    /// Percent, in thousandths.
    pub utilization: Option<Set<u64>>,
    pub window: Option<Set<Duration>>,
    pub idle_after: Option<Set<Duration>>,
    /// Where the class is named.
    pub class: Option<Place>,
}

/// Reads the annotations of a model.
pub(super) fn read(model: &Table<'_>) -> Annotations {
    let Some(node) = model.node("annotations") else { return Annotations::default() };
    let Value::Map(entries) = &node.value else {
        model.reader.wrong_type("annotations", node, "a table of texts");
        return Annotations::default();
    };
    let understood = canonical(model, entries);
    let table = model.over(&ANNOTATIONS, &understood);
    table.choice(METRIC);
    let window = table.duration(WINDOW);
    if let Some(set) = window.filter(|set| set.value.subsec_nanos() != 0) {
        let fault = malformed(WINDOW, "a fraction of a second", "write whole seconds");
        model.reader.fault(Fault { place: set.place, ..fault });
    }
    let annotations = Annotations {
        min_replicas: table.integer(MIN),
        max_replicas: table.integer(MAX),
        target: table.milli(TARGET),
        utilization: table.milli(UTILIZATION),
        window,
        idle_after: table.duration(RETENTION),
        class: table.choice(CLASS).map(|set| set.place),
    };
    table.done();
    annotations
}

/// The entries that are understood, under their first names; every other one is a fault. Of two spellings of one
/// annotation the first name's counts, in whatever order they stand.
fn canonical(model: &Table<'_>, entries: &[(Word, Rc<Node>)]) -> Vec<(Word, Rc<Node>)> {
    let mut found: Vec<(Word, Rc<Node>)> = Vec::new();
    for (word, node) in entries {
        model.reader.show(word.place);
        let alias = ALIASES.iter().find(|(short, _)| word.text.strip_prefix(KNATIVE) == Some(*short));
        let name = alias.map_or(word.text.as_str(), |(_, name)| name);
        if ANNOTATIONS.find(name).is_none() {
            model.reader.fault(refusal(word));
            continue;
        }
        if alias.is_some() && entries.iter().any(|(other, _)| other.text == name) {
            if !matches!(node.value, Value::Scalar { .. }) {
                let message = format!("`{}` is a single value, not a list or a table", shown(&word.text));
                model.reader.fault(Fault::new(Code::WrongType, word.place, message));
            }
            let message = format!("`{}` is passed over: `{name}` is given, too", shown(&word.text));
            let fault = Fault::new(Code::NoEffect, word.place, message);
            model
                .reader
                .note(fault.help("as under Knative the spelling with hyphens wins; remove the other"));
            continue;
        }
        found.push((Word { text: name.to_owned(), place: word.place }, node.clone()));
    }
    found
}

fn refusal(word: &Word) -> Fault {
    let name = shown(&word.text);
    if LATER.contains(&word.text.as_str()) {
        let fault =
            Fault::new(Code::NotYet, word.place, format!("the annotation `{name}` is not supported yet"));
        return fault.help("the profile `sized` has no such setting; remove it");
    }
    let fault = Fault::new(Code::UnknownKey, word.place, format!("unknown annotation `{name}`"));
    let names = ANNOTATIONS.keys.iter().map(|key| key.name).chain(LATER.iter().copied());
    match keys::nearest(&word.text, names) {
        Some(near) => fault.help(format!("did you mean `{near}`?")),
        None => fault.help("annotations are for scaling; nothing reads this one, so remove it"),
    }
}
