// SPDX-License-Identifier: Apache-2.0
//! Settings changed one by one after the fact, for a look at what would have been decided with them.
//!
//! A value is read and checked by the reader of the file, in a document made of what the model had and what is changed.
//! Owns which settings matter to decisions. Must not know what comes of them.

use std::fmt;

use serde_json::{Map, Value as Json, json};
use sluice_core::kpa;
use sluice_core::{FleetSpec, ModelName, ModelSpec, Profile, ScaleSpec, Source};

use super::keys::nearest;
use super::tree::shown;
use super::units::{milli, show_milli};
use super::{overlay, parse};

const KNATIVE: &str = "annotations.autoscaling.knative.dev/";

/// One changed setting: `models.NAME.KEY=VALUE`.
#[derive(Clone, Debug)]
pub struct Change {
    model: ModelName,
    key: &'static Key,
    value: String,
}

/// Why a setting cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// Not `PATH=VALUE`, or a path that does not begin with `models.`.
    #[error("`{0}` is no setting: write models.NAME.KEY=VALUE, such as models.gemma.scaleTarget=8")]
    Form(String),
    /// Nobody of that name was decided about.
    #[error("`{setting}`: there is no model of that name in the journal, which knows {known}")]
    Model {
        /// As it was given.
        setting: String,
        /// Names.
        known: String,
    },
    /// A key that does not exist, or that decides nothing.
    #[error("`{setting}`: `{key}` decides nothing{near}; these do: {known}")]
    Key {
        /// As it was given.
        setting: String,
        /// What stands for the key.
        key: String,
        /// A key of a similar name.
        near: String,
        /// All keys.
        known: String,
    },
    /// It has fixed addresses.
    #[error("`{0}` has fixed addresses, about which nothing is decided")]
    Fixed(ModelName),
    /// A value that the key cannot have, or not with the others.
    #[error("`models.{model}`: {message}")]
    Value {
        /// Of which model.
        model: ModelName,
        /// In words.
        message: String,
    },
}

/// A setting that matters to decisions.
#[derive(Debug)]
struct Key {
    name: &'static str,
    /// Takes it, and nothing else, from the first over to the second.
    take: fn(&ScaleSpec, &mut ScaleSpec),
}

/// For a setting that is the same under both profiles, or that only Knative's has.
macro_rules! key {
    ($name:literal, $own:ident, $kpa:ident) => {
        Key {
            name: $name,
            take: |from, to| {
                to.$own = from.$own.clone();
                both(from, to, |from, to| to.$kpa = from.$kpa.clone());
            },
        }
    };
    ($name:literal, $kpa:ident) => {
        Key { name: $name, take: |from, to| both(from, to, |from, to| to.$kpa = from.$kpa.clone()) }
    };
}

static KEYS: &[Key] = &[
    key!("minReplicas", min_replicas, min_scale),
    key!("maxReplicas", max_replicas, max_scale),
    key!("scaleTarget", target_milli, target),
    key!("window", window, window),
    key!("containerConcurrency", container_concurrency, container_concurrency),
    key!("scaleMetric", metric),
    Key { name: "idleAfter", take: |from, to| to.idle_after = from.idle_after },
    Key { name: "compat", take: |from, to| *to = from.clone() },
    key!("annotations.autoscaling.knative.dev/target-utilization-percentage", target_utilization_percentage),
    key!("annotations.autoscaling.knative.dev/initial-scale", initial_scale),
    key!("annotations.autoscaling.knative.dev/activation-scale", activation_scale),
    key!("annotations.autoscaling.knative.dev/scale-down-delay", scale_down_delay),
    key!("annotations.autoscaling.knative.dev/panic-window-percentage", panic_window_percentage),
    key!("annotations.autoscaling.knative.dev/panic-threshold-percentage", panic_threshold_percentage),
    key!("annotations.autoscaling.knative.dev/target-burst-capacity", target_burst_capacity),
    key!("annotations.autoscaling.knative.dev/scale-to-zero-pod-retention-period", retention),
];

fn both(from: &ScaleSpec, to: &mut ScaleSpec, take: impl Fn(&kpa::Settings, &mut kpa::Settings)) {
    if let (Profile::Kpa(from), Profile::Kpa(to)) = (&from.profile, &mut to.profile) {
        take(from, to);
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "models.{}.{}={}", self.model, self.key.name, self.value)
    }
}

impl Change {
    /// Reads `models.NAME.KEY=VALUE`; names may have points. `models` are those that there are.
    ///
    /// # Errors
    /// If it is none, or names a model or key that there is not.
    pub fn read<'a>(
        text: &str,
        models: impl Iterator<Item = &'a ModelName> + Clone,
    ) -> Result<Change, ChangeError> {
        let form = || ChangeError::Form(shown(text));
        let (path, value) = text.split_once('=').ok_or_else(form)?;
        let path = path.strip_prefix("models.").ok_or_else(form)?;
        let after = |name: &ModelName| path.strip_prefix(name.as_str())?.strip_prefix('.');
        let named = models.clone().filter_map(|name| Some((name, after(name)?)));
        let Some((model, key)) = named.max_by_key(|(name, _)| name.as_str().len()) else {
            let known: Vec<String> = models.take(20).map(|name| format!("`{name}`")).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(ChangeError::Model { setting: shown(text), known });
        };
        let Some(key) = KEYS.iter().find(|known| known.name == key) else {
            let names = || KEYS.iter().map(|key| key.name);
            let near = nearest(key, names()).map(|near| format!(" (did you mean `{near}`?)"));
            return Err(ChangeError::Key {
                setting: shown(text),
                key: shown(key),
                near: near.unwrap_or_default(),
                known: names().collect::<Vec<_>>().join(", "),
            });
        };
        Ok(Change { model: model.clone(), key, value: value.to_owned() })
    }
}

/// Changes what is changed in a fleet that may have these models.
///
/// # Errors
/// If a value is not one that the key can have, or does not fit the model's other settings.
pub fn apply(changes: &[Change], fleet: &mut FleetSpec) -> Result<(), ChangeError> {
    for (name, spec) in &mut fleet.models {
        let own: Vec<&Change> = changes.iter().filter(|change| change.model == *name).collect();
        if !own.is_empty() {
            change(name, spec, &own)?;
        }
    }
    Ok(())
}

fn change(name: &ModelName, spec: &mut ModelSpec, changes: &[&Change]) -> Result<(), ChangeError> {
    if matches!(spec.source, Source::Fixed(_)) {
        return Err(ChangeError::Fixed(name.clone()));
    }
    let wrong = |message: String| ChangeError::Value { model: name.clone(), message };
    let mut document = as_written(&spec.scale);
    for change in changes {
        let key = change.key.name;
        match key.strip_prefix("annotations.") {
            None => drop(document.insert(key.to_owned(), json!(change.value))),
            Some(annotation) => {
                let said = document.entry("annotations").or_insert_with(|| json!({}));
                said[annotation] = json!(change.value);
            }
        }
    }
    let by_kpa = document.get("compat").is_some_and(|compat| *compat == "kpa");
    if let Some(other) = changes.iter().map(|change| change.key).find(|key| !by_kpa && is_knatives(key)) {
        return Err(wrong(format!("`{}` decides nothing without `compat: kpa`", other.name)));
    }
    let text = json!({ "models": [document] }).to_string();
    let read = parse(&text, "settings", &|_| None).map_err(|report| {
        let said = report.problems.iter().map(|problem| match &problem.help {
            Some(help) => format!("{}; {help}", problem.message),
            None => problem.message.clone(),
        });
        wrong(said.collect::<Vec<_>>().join(". "))
    })?;
    let read = read.settings.plan.fleet.models.into_values().next();
    let Some(read) = read else { return Ok(()) };
    for change in changes {
        (change.key.take)(&read.scale, &mut spec.scale);
    }
    if let Profile::Kpa(settings) = &spec.scale.profile {
        spec.scale.target_milli = (settings.resolve().total * 1e3).round() as u64;
    }
    Ok(())
}

/// What only Knative's arithmetic asks for.
fn is_knatives(key: &Key) -> bool {
    key.name.starts_with(KNATIVE) || key.name == "scaleMetric" || key.name == "containerConcurrency"
}

/// The settings as a file would have them.
fn as_written(scale: &ScaleSpec) -> Map<String, Json> {
    let mut document = Map::new();
    let mut say = |key: &str, value: Json| drop(document.insert(key.to_owned(), value));
    say("name", json!("m"));
    say("command", json!(["m"]));
    say("minReplicas", json!(scale.min_replicas));
    say("maxReplicas", json!(scale.max_replicas));
    say("containerConcurrency", json!(scale.container_concurrency));
    say("window", overlay::duration(scale.window.0));
    say("idleAfter", overlay::duration(scale.idle_after.0));
    match &scale.profile {
        Profile::Sized => say("scaleTarget", json!(show_milli(scale.target_milli))),
        Profile::Kpa(settings) => {
            say("compat", json!("kpa"));
            let target = settings.target.map(|target| target.to_string());
            if let Some(target) = target.filter(|target| milli(target).is_some()) {
                say("scaleTarget", json!(target));
            }
        }
    }
    document
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    fn fleet() -> FleetSpec {
        let text = "models:\n- {name: a, command: [x], maxReplicas: 4, scaleTarget: 2}\n\
            - {name: a.b-2.5, command: [x], maxReplicas: 4}\n\
            - {name: k, command: [x], compat: kpa, maxReplicas: 9, scaleTarget: 10}\n- {name: u, url: 'http://u'}\n";
        parse(text, "f", &|_| None).unwrap().settings.plan.fleet
    }

    fn with(settings: &[&str]) -> Result<FleetSpec, ChangeError> {
        let mut fleet = fleet();
        let read = |text: &&str| Change::read(text, fleet.models.keys());
        let changes = settings.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        apply(&changes, &mut fleet)?;
        Ok(fleet)
    }

    #[test]
    fn one_setting_changes_and_nothing_else() {
        let mut expected = fleet();
        assert_eq!(with(&[]).unwrap(), expected);
        expected.models.get_mut("a").unwrap().scale.target_milli = 8_000;
        assert_eq!(with(&["models.a.scaleTarget=8"]).unwrap(), expected);
        let mut expected = fleet();
        let dotted = &mut expected.models.get_mut("a.b-2.5").unwrap().scale;
        (dotted.window, dotted.max_replicas) = (sluice_core::Micros::from_secs(9), 7);
        assert_eq!(with(&["models.a.b-2.5.window=9s", "models.a.b-2.5.maxReplicas=7"]).unwrap(), expected);
    }

    #[test]
    fn settings_of_one_model_are_checked_together() {
        let both = ["models.a.minReplicas=5", "models.a.maxReplicas=6"];
        assert_eq!(with(&both).unwrap().models["a"].scale.min_replicas, 5);
        let Err(error) = with(&both[..1]) else { panic!() };
        assert!(error.to_string().contains("`minReplicas` is 5"), "{error}");
    }

    #[test]
    fn knatives_settings_change_with_it_and_are_nothing_without() {
        let scale = |settings: &[&str]| with(settings).unwrap().models["k"].scale.clone();
        let Profile::Kpa(settings) = scale(&["models.k.scaleTarget=20"]).profile else { panic!() };
        assert_eq!(settings.target, Some(20.0));
        assert_eq!(scale(&["models.k.scaleTarget=20"]).target_milli, 20_000);
        let panic = "models.k.annotations.autoscaling.knative.dev/panic-threshold-percentage=300";
        let Profile::Kpa(settings) = scale(&[panic]).profile else { panic!() };
        assert_eq!(settings.panic_threshold_percentage, 300.0);
        assert!(with(&[&panic.replace("s.k.", "s.a.")]).unwrap_err().to_string().contains("compat: kpa"));
        let by_kpa = with(&["models.a.compat=kpa", "models.a.window=30s"]).unwrap();
        assert!(matches!(by_kpa.models["a"].scale.profile, Profile::Kpa(_)));
        assert_eq!(scale(&["models.k.compat=none"]).profile, Profile::Sized);
    }

    #[test]
    fn what_is_no_setting_is_told() {
        let told = |text: &str| with(&[text]).unwrap_err().to_string();
        assert!(told("scaleTarget").contains("models.NAME.KEY=VALUE"));
        assert!(told("models.c.window=1s").contains("knows `a`, `a.b-2.5`"));
        assert!(told("models.a.scaleTarge=1").contains("did you mean `scaleTarget`?"));
        assert!(told("models.a.scaleTarget=0").contains("out of range: allowed is 0.01"));
        assert!(told("models.a.window=soon").contains("`window` cannot be `soon`"));
        assert!(told("models.u.minReplicas=1").contains("fixed addresses"));
    }
}
