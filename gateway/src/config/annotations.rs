// SPDX-License-Identifier: Apache-2.0
//! Knative's and KServe's annotations: their names, other spellings and ranges, and what becomes of those that have no
//! meaning here.
//!
//! An annotation is never passed over in silence. Must not know how one meets the key of the same meaning.

use std::rc::Rc;
use std::time::Duration;

use super::autoscaler::{self, MOST};
use super::keys::{self, Key, Kind, Omitted::Words, Section};
use super::reader::{Set, Table};
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
const INITIAL: &str = "autoscaling.knative.dev/initial-scale";
const ACTIVATION: &str = "autoscaling.knative.dev/activation-scale";
const DELAY: &str = "autoscaling.knative.dev/scale-down-delay";
const PANIC_WINDOW: &str = "autoscaling.knative.dev/panic-window-percentage";
const PANIC_THRESHOLD: &str = "autoscaling.knative.dev/panic-threshold-percentage";
const BURST: &str = "autoscaling.knative.dev/target-burst-capacity";
const ALGORITHM: &str = "autoscaling.knative.dev/metric-aggregation-algorithm";
const PROGRESS: &str = "serving.knative.dev/progress-deadline";
const MODE: &str = "serving.kserve.io/deploymentMode";
const STOP: &str = "serving.kserve.io/stop";

const fn known(name: &'static str, kind: Kind, about: &'static str) -> Key {
    Key { name, kind, default: Words("none"), about }
}

/// The annotations that are understood.
pub(super) static ANNOTATIONS: Section = Section {
    path: "models[].annotations",
    keys: &[
        known(MIN, Kind::Integer(0, MOST), "`minReplicas`."),
        known(MAX, Kind::Integer(0, i32::MAX as u64), "`maxReplicas`; 0 is unlimited under `compat: kpa`."),
        known(TARGET, Kind::Float("0.01", "1e9"), "`scaleTarget`."),
        known(
            UTILIZATION,
            Kind::Float("1", "100"),
            "Percent of the target that is aimed at. Left out, it is 100, and under `compat: kpa` 70.",
        ),
        known(METRIC, keys::METRIC, "`scaleMetric`."),
        known(WINDOW, Kind::Duration("6s", "1h"), "`window`, in whole seconds."),
        known(
            RETENTION,
            Kind::Duration("0", "1h"),
            "`idleAfter`; under `compat: kpa` how long the last replica stays once none is wanted.",
        ),
        known(
            CLASS,
            Kind::Choice(&[KPA], &[HPA]),
            "Accepted; without `compat: kpa` the profile `sized` decides all the same.",
        ),
        known(
            INITIAL,
            Kind::Integer(0, MOST),
            "`compat: kpa`: replicas at the model's first start; 0 only with `allow-zero-initial-scale`.",
        ),
        known(
            ACTIVATION,
            Kind::Integer(2, MOST),
            "`compat: kpa`: never fewer as long as there is any demand; between min-scale and max-scale.",
        ),
        known(
            DELAY,
            Kind::Duration("0", "1h"),
            "`compat: kpa`: fewer replicas only once fewer were wanted for so long; whole seconds.",
        ),
        known(PANIC_WINDOW, Kind::Float("1", "100"), "`compat: kpa`: percent of `window`."),
        known(
            PANIC_THRESHOLD,
            Kind::Float("110", "1000"),
            "`compat: kpa`: panic begins when percent of the ready replicas are wanted.",
        ),
        known(
            BURST,
            Kind::Float("-1", "1e9"),
            "`compat: kpa`: 0 or more, or -1: seconds without any request then count for nothing rather than as zero.",
        ),
        known(
            ALGORITHM,
            Kind::Text,
            "`compat: kpa`: `linear` or `weighted-exponential`; how a window becomes one number.",
        ),
        known(
            PROGRESS,
            Kind::Duration("0", "24h"),
            "`compat: kpa`: a start that nobody waits for is given up so long, and 30 s, after it was wanted; whole \
             seconds.",
        ),
        known(
            MODE,
            Kind::Choice(&["Knative", "Serverless", "Standard", "RawDeployment"], &[]),
            "Accepted; on one machine there is one mode.",
        ),
        known(
            STOP,
            Kind::Choice(&["false"], &["true"]),
            "Only `false`; to stop a model take it out of the file, or order `sluice sleep`.",
        ),
    ],
};

/// Camel-case spellings that Knative takes as well, and what they stand for.
const ALIASES: &[(&str, &str)] = &[
    ("minScale", MIN),
    ("maxScale", MAX),
    ("targetUtilizationPercentage", UTILIZATION),
    ("scaleToZeroPodRetentionPeriod", RETENTION),
    ("initialScale", INITIAL),
    ("scaleDownDelay", DELAY),
    ("panicWindowPercentage", PANIC_WINDOW),
    ("panicThresholdPercentage", PANIC_THRESHOLD),
    ("targetBurstCapacity", BURST),
    ("metricAggregationAlgorithm", ALGORITHM),
];

/// The other spellings, each with the name it stands for.
pub(super) fn aliases() -> impl Iterator<Item = (String, &'static str)> {
    ALIASES.iter().map(|(short, name)| (format!("{KNATIVE}{short}"), *name))
}

/// Annotations that mean something only under `compat: kpa`.
const KPA_ONLY: &[&str] =
    &[INITIAL, ACTIVATION, DELAY, PANIC_WINDOW, PANIC_THRESHOLD, BURST, ALGORITHM, PROGRESS];

/// Annotations that are known and refused, and what to do instead.
pub(super) const REFUSED: &[(&str, &str)] = &[
    (
        "serving.kserve.io/autoscalerClass",
        "`compat` says whose rules decide: `kpa` or Sluice's own; remove it",
    ),
    (
        "serving.kserve.io/targetUtilizationPercentage",
        "a former name; write `autoscaling.knative.dev/target-utilization-percentage`",
    ),
    ("serving.kserve.io/metrics", "a former name; write `autoscaling.knative.dev/metric`"),
];

/// What a model's annotations say.
#[derive(Default)]
pub(super) struct Annotations {
    pub min_replicas: Option<Set<u64>>,
    pub max_replicas: Option<Set<u64>>,
    pub target: Option<Set<f64>>,
    /// Percent.
    pub utilization: Option<Set<f64>>,
    pub metric: Option<Set<String>>,
    pub window: Option<Set<Duration>>,
    pub retention: Option<Set<Duration>>,
    /// Where the class is named.
    pub class: Option<Place>,
    pub initial: Option<Set<u64>>,
    pub activation: Option<Set<u64>>,
    pub delay: Option<Set<Duration>>,
    pub panic_window: Option<Set<f64>>,
    pub panic_threshold: Option<Set<f64>>,
    pub burst: Option<Set<f64>>,
    pub algorithm: Option<Set<String>>,
    pub progress: Option<Set<Duration>>,
}

/// Reads the annotations of a model; `kpa` if it is scaled by Knative's rules.
pub(super) fn read(model: &Table<'_>, kpa: bool) -> Annotations {
    let Some(node) = model.node("annotations") else { return Annotations::default() };
    let Value::Map(entries) = &node.value else {
        model.reader.wrong_type("annotations", node, "a table of texts");
        return Annotations::default();
    };
    let understood = canonical(model, entries, kpa);
    let table = model.over(&ANNOTATIONS, &understood);
    let annotations = Annotations {
        min_replicas: table.integer(MIN),
        max_replicas: table.integer(MAX),
        target: table.float(TARGET),
        utilization: table.float(UTILIZATION),
        metric: table.choice(METRIC),
        window: table.whole_seconds(WINDOW),
        retention: table.duration(RETENTION),
        class: table.choice(CLASS).map(|set| set.place),
        initial: table.integer(INITIAL),
        activation: table.integer(ACTIVATION),
        delay: table.whole_seconds(DELAY),
        panic_window: table.float(PANIC_WINDOW),
        panic_threshold: table.float(PANIC_THRESHOLD),
        burst: autoscaler::burst(&table, BURST),
        algorithm: table.string(ALGORITHM),
        progress: table.whole_seconds(PROGRESS),
    };
    note_kserve(&table);
    table.done();
    annotations
}

/// What KServe acts on and nothing here does.
fn note_kserve(table: &Table<'_>) {
    if let Some(set) = table.choice(MODE) {
        let message = format!("`{MODE}: {}` changes nothing", shown(&set.value));
        let help = "on one machine there is one mode; `compat: kpa` gives Knative's arithmetic";
        table.reader.note(Fault::new(Code::NoEffect, set.place, message).help(help));
    }
    table.choice(STOP);
}

/// The entries that are understood, under their first names; every other one is a fault. Of two spellings of one
/// annotation the first name's counts, in whatever order they stand.
fn canonical(model: &Table<'_>, entries: &[(Word, Rc<Node>)], kpa: bool) -> Vec<(Word, Rc<Node>)> {
    let mut found: Vec<(Word, Rc<Node>)> = Vec::new();
    for (word, node) in entries {
        model.reader.show(word.place);
        let alias = ALIASES.iter().find(|(short, _)| word.text.strip_prefix(KNATIVE) == Some(*short));
        let name = alias.map_or(word.text.as_str(), |(_, name)| name);
        if ANNOTATIONS.find(name).is_none() {
            model.reader.fault(refusal(word));
            continue;
        }
        if !kpa && KPA_ONLY.contains(&name) {
            let message = format!("the annotation `{}` has a meaning only under `compat: kpa`", shown(name));
            let fault = Fault::new(Code::NotHere, word.place, message);
            model.reader.fault(
                fault.help("the profile `sized` has no such setting; remove it, or add `compat: kpa`"),
            );
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
    if let Some((_, instead)) = REFUSED.iter().find(|(known, _)| *known == word.text) {
        let message = format!("the annotation `{name}` is not supported");
        return Fault::new(Code::NotYet, word.place, message).help(*instead);
    }
    let fault = Fault::new(Code::UnknownKey, word.place, format!("unknown annotation `{name}`"));
    let names = ANNOTATIONS.keys.iter().map(|key| key.name);
    match keys::nearest(&word.text, names) {
        Some(near) => fault.help(format!("did you mean `{near}`?")),
        None => fault.help("annotations are for scaling; nothing reads this one, so remove it"),
    }
}
