// SPDX-License-Identifier: Apache-2.0
//! What the API has changed of the models in the file.
//!
//! A change is kept per key, with a digest of what the file said then. A file that says something else of that key now
//! has been edited since, and the edit wins. Owns merging (RFC 7396), what is kept, and how settings are shown with
//! their origins and without secrets. Must not know where it is stored, nor how a configuration comes into force.

use std::collections::BTreeMap;
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use sha2::{Digest, Sha256};
use sluice_core::ModelName;

use super::Env;
use super::expand::expand;
use super::keys::{self, Kind, Omitted, Section};
use super::settings::Settings;
use super::tree::{Node, Place, Value, Word};
use super::units::show_milli;

/// Shown in place of a secret.
const HIDDEN: &str = "***";

/// Changes by model and key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Overlay(BTreeMap<String, Vec<Entry>>);

/// One changed key.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Where it stands in the model, such as `queue`, `length`.
    path: Vec<String>,
    /// What it is now; `None` takes the file's away.
    value: Option<Json>,
    /// Of what the file said then.
    file: String,
}

// Values may be secrets.
impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.key())
    }
}

/// A change that is no longer in force, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Of this model.
    pub model: String,
    /// This key.
    pub key: String,
    /// In words.
    pub why: &'static str,
}

/// One model as it is written: in the file, and with the overlay. May hold secrets.
#[derive(Clone, PartialEq)]
pub struct Written {
    file: Json,
    merged: Json,
}

impl std::fmt::Debug for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(written)")
    }
}

/// The settings of one model in force, to be shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// Every key with its value, defaults filled in, secrets hidden.
    pub settings: Json,
    /// Of each key with a value: `file`, `api`, `annotation` or `default`.
    pub origins: BTreeMap<String, &'static str>,
}

impl Entry {
    fn key(&self) -> String {
        self.path.join(".")
    }
}

impl Overlay {
    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The changed keys of a model, as `queue.length`.
    pub fn keys(&self, model: &str) -> Vec<String> {
        self.0.get(model).map(|entries| entries.iter().map(Entry::key).collect()).unwrap_or_default()
    }

    /// Models with changes, and the changed keys.
    pub fn all_keys(&self) -> BTreeMap<String, Vec<String>> {
        self.0.keys().map(|model| (model.clone(), self.keys(model))).collect()
    }

    /// This and `patch` for one model. What comes to be as the file says is no change any more.
    pub fn patched(&self, model: &str, written: &Written, patch: &Json) -> Overlay {
        let mut wanted = written.merged.clone();
        merge(&mut wanted, patch);
        let mut entries = Vec::new();
        compare(Some(&written.file), Some(&wanted), &mut Vec::new(), &mut entries);
        self.with(model, entries)
    }

    /// This without changes of one model.
    pub fn without(&self, model: &str) -> Overlay {
        self.with(model, Vec::new())
    }

    /// Only what it says of this model.
    pub(super) fn only(&self, model: &str) -> Overlay {
        Overlay(
            self.0
                .get_key_value(model)
                .map(|(name, entries)| (name.clone(), entries.clone()))
                .into_iter()
                .collect(),
        )
    }

    pub(super) fn models(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    /// Everything of both; `other` is about other models.
    pub(super) fn and(&self, other: &Overlay) -> Overlay {
        Overlay(
            self.0.iter().chain(&other.0).map(|(name, entries)| (name.clone(), entries.clone())).collect(),
        )
    }

    fn with(&self, model: &str, entries: Vec<Entry>) -> Overlay {
        let mut all = self.0.clone();
        match entries.is_empty() {
            true => drop(all.remove(model)),
            false => drop(all.insert(model.to_owned(), entries)),
        }
        Overlay(all)
    }

    /// Forgets what the file has edited since, and what is about models that it lacks.
    pub(super) fn settle(&self, written: &BTreeMap<String, Written>) -> (Overlay, Vec<Dropped>) {
        let (mut kept, mut dropped) = (self.clone(), Vec::new());
        for (model, entries) in &mut kept.0 {
            let file = written.get(model).map(|written| &written.file);
            entries.retain(|entry| {
                let why = match file {
                    None => "the model is no longer in the file",
                    Some(file) if digest(lookup(file, &entry.path)) != entry.file => {
                        "the file says something else than before"
                    }
                    Some(_) => return true,
                };
                dropped.push(Dropped { model: model.clone(), key: entry.key(), why });
                false
            });
        }
        kept.0.retain(|_, entries| !entries.is_empty());
        (kept, dropped)
    }

    /// The whole file's tree with the changes in it, and each model as it is written.
    pub(super) fn apply(&self, root: &Rc<Node>, env: Env<'_>) -> (Rc<Node>, BTreeMap<String, Written>) {
        let mut written = BTreeMap::new();
        let Value::Map(top) = &root.value else { return (root.clone(), written) };
        let mut top = top.clone();
        for (word, list) in &mut top {
            let Value::List(items) = &list.value else { continue };
            if word.text != "models" {
                continue;
            }
            let items = items.iter().map(|item| self.apply_to_model(item, env, &mut written)).collect();
            *list = Rc::new(Node::made(list.place, Value::List(items)));
        }
        (Rc::new(Node::made(root.place, Value::Map(top))), written)
    }

    fn apply_to_model(
        &self,
        item: &Rc<Node>,
        env: Env<'_>,
        written: &mut BTreeMap<String, Written>,
    ) -> Rc<Node> {
        let Value::Map(entries) = &item.value else { return item.clone() };
        let name = entries.iter().find(|(word, _)| word.text == "name").map(|(_, node)| &node.value);
        let Some(Value::Scalar { text, .. }) = name else { return item.clone() };
        let Ok(name) = expand(text, env) else { return item.clone() };
        // Nothing of the file may show in the place of what is not from it.
        let at = Place { end: item.place.start, ..item.place };
        let mut merged = item.clone();
        for entry in self.0.get(&name).into_iter().flatten() {
            merged = Rc::new(with(&merged, &entry.path, entry.value.as_ref(), at));
        }
        written.insert(name, Written { file: json(item), merged: json(&merged) });
        merged
    }
}

impl Written {
    /// Changes with every change of the settings, and only then.
    pub fn version(&self) -> String {
        digest(Some(&self.merged))[..32].to_owned()
    }

    /// The settings in force. `model` was read from this.
    pub fn shown(&self, model: &ModelName, settings: &Settings) -> Shown {
        let mut shown = Shown { settings: Json::Null, origins: BTreeMap::new() };
        shown.settings = Json::Object(self.table(&keys::MODEL, &mut Vec::new(), &mut shown.origins));
        self.fill_in(model, settings, &mut shown);
        shown
    }

    fn table(
        &self,
        section: &Section,
        path: &mut Vec<String>,
        origins: &mut BTreeMap<String, &'static str>,
    ) -> Map<String, Json> {
        let mut out = Map::new();
        for key in section.keys.iter().filter(|key| !matches!(key.kind, Kind::Later(_))) {
            path.push(key.name.to_owned());
            let (now, file) = (lookup(&self.merged, path), lookup(&self.file, path));
            let value = match (key.kind, now, &key.default) {
                (Kind::Table(section), ..) => Some(Json::Object(self.table(section, path, origins))),
                (_, Some(now), _) => Some(hidden(&key.kind, now)),
                (_, None, Omitted::Value(text)) => Some(scalar(text)),
                _ => None,
            };
            if !matches!(key.kind, Kind::Table(_)) && (value.is_some() || now != file) {
                let origin = match (now == file, now.is_some()) {
                    (false, _) => "api",
                    (true, true) => "file",
                    (true, false) => "default",
                };
                origins.insert(path.join("."), origin);
            }
            out.insert(key.name.to_owned(), value.unwrap_or(Json::Null));
            path.pop();
        }
        out
    }

    /// Values that follow from others, and those that annotations say.
    fn fill_in(&self, model: &ModelName, settings: &Settings, shown: &mut Shown) {
        let (Some(spec), Some(own)) = (settings.plan.fleet.models.get(model), settings.models.get(model))
        else {
            return;
        };
        let scale = &spec.scale;
        let annotated = lookup(&self.merged, &["annotations".to_owned()]).is_some();
        let derived = [
            ("minReplicas", scale.min_replicas.into()),
            ("maxReplicas", scale.max_replicas.into()),
            ("scaleTarget", scalar(&show_milli(scale.target_milli))),
            ("containerConcurrency", scale.container_concurrency.into()),
            ("idleAfter", duration(scale.idle_after.0)),
            ("window", duration(scale.window.0)),
            ("bodyMemory", own.body_memory.into()),
        ];
        for (key, value) in derived {
            if lookup(&self.merged, &[key.to_owned()]).is_some() {
                continue;
            }
            let slot = &mut shown.settings[key];
            let same = *slot == value || same_duration(slot, &value);
            if !same {
                let origin = if annotated && key != "bodyMemory" && !slot.is_null() {
                    "annotation"
                } else {
                    "default"
                };
                let origin = if shown.origins.get(key) == Some(&"api") { "api" } else { origin };
                shown.origins.insert(key.to_owned(), origin);
                *slot = value;
            }
        }
        let bytes = &mut shown.settings["queue"]["bytes"];
        if bytes.is_null() {
            *bytes = own.queue_bytes.into();
            shown.origins.entry("queue.bytes".to_owned()).or_insert("default");
        }
    }
}

/// RFC 7396.
fn merge(target: &mut Json, patch: &Json) {
    let Json::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Json::Object(Map::new());
    }
    let Json::Object(target) = target else { return };
    for (key, value) in patch {
        match value {
            Json::Null => drop(target.remove(key)),
            _ => merge(target.entry(key.as_str()).or_insert(Json::Null), value),
        }
    }
}

/// What to change of `file` so that it becomes `wanted`, key by key.
fn compare(file: Option<&Json>, wanted: Option<&Json>, path: &mut Vec<String>, out: &mut Vec<Entry>) {
    if file == wanted {
        return;
    }
    let empty = Map::new();
    if let Some(Json::Object(wanted)) = wanted
        && !wanted.is_empty()
        && file.is_none_or(Json::is_object)
    {
        let file = file.and_then(Json::as_object).unwrap_or(&empty);
        let gone = file.keys().filter(|key| !wanted.contains_key(*key));
        for key in wanted.keys().chain(gone) {
            path.push(key.clone());
            compare(file.get(key), wanted.get(key), path, out);
            path.pop();
        }
        return;
    }
    out.push(Entry { path: path.clone(), value: wanted.cloned(), file: digest(file) });
}

fn lookup<'a>(document: &'a Json, path: &[String]) -> Option<&'a Json> {
    path.iter().try_fold(document, |at, key| at.get(key))
}

/// Of a value, or of its absence.
fn digest(value: Option<&Json>) -> String {
    let text = value.map(Json::to_string).unwrap_or_default();
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `node` with the value at `path`, or without what is there.
fn with(node: &Node, path: &[String], value: Option<&Json>, at: Place) -> Node {
    let mut entries = match &node.value {
        Value::Map(entries) => entries.clone(),
        _ => Vec::new(),
    };
    if let Some((key, rest)) = path.split_first() {
        let found = entries.iter().position(|(word, _)| word.text == *key);
        let (word, old) = match found.map(|found| entries.remove(found)) {
            Some((word, old)) => (word, Some(old)),
            None => (Word { text: key.clone(), place: at }, None),
        };
        let new = match (rest.is_empty(), value) {
            (true, None) => None,
            (true, Some(value)) => Some(made(value, at)),
            (false, _) => {
                let nothing = Rc::new(Node::made(at, Value::Map(Vec::new())));
                Some(with(&old.unwrap_or(nothing), rest, value, at))
            }
        };
        entries.extend(new.map(|new| (word, Rc::new(new))));
    }
    Node::made(node.place, Value::Map(entries))
}

fn made(value: &Json, at: Place) -> Node {
    let plain = |text: String| Value::Scalar { text, plain: true };
    let value = match value {
        Json::Null => plain("null".to_owned()),
        Json::Bool(_) | Json::Number(_) => plain(value.to_string()),
        Json::String(text) => Value::Scalar { text: text.clone(), plain: false },
        Json::Array(items) => Value::List(items.iter().map(|item| Rc::new(made(item, at))).collect()),
        Json::Object(map) => {
            let word = |key: &String| Word { text: key.clone(), place: at };
            Value::Map(map.iter().map(|(key, value)| (word(key), Rc::new(made(value, at)))).collect())
        }
    };
    Node::made(at, value)
}

fn json(node: &Node) -> Json {
    match &node.value {
        Value::Scalar { .. } if node.is_null() => Json::Null,
        Value::Scalar { text, plain: true } => scalar(text),
        Value::Scalar { text, plain: false } => Json::String(text.clone()),
        Value::List(items) => items.iter().map(|item| json(item)).collect(),
        Value::Map(entries) => {
            Json::Object(entries.iter().map(|(word, node)| (word.text.clone(), json(node))).collect())
        }
    }
}

/// A number or switch where the text is exactly how one is written.
fn scalar(text: &str) -> Json {
    let value: Option<Json> = serde_json::from_str(text).ok();
    let value = value.filter(|value| value.is_number() || value.is_boolean());
    let exact = |value: &Json| serde_json::to_string(value).is_ok_and(|written| written == text);
    value.filter(exact).unwrap_or_else(|| Json::String(text.to_owned()))
}

fn hidden(kind: &Kind, value: &Json) -> Json {
    match (kind, value) {
        (Kind::Secret, _) => HIDDEN.into(),
        (Kind::Pairs, Json::Object(map)) => {
            Json::Object(map.keys().map(|key| (key.clone(), HIDDEN.into())).collect())
        }
        (Kind::Pairs, _) => HIDDEN.into(),
        _ => value.clone(),
    }
}

/// As in the file.
pub(super) fn duration(micros: u64) -> Json {
    match micros / 1_000 {
        ms if ms % 1_000 == 0 => format!("{}s", ms / 1_000).into(),
        ms => format!("{ms}ms").into(),
    }
}

fn same_duration(a: &Json, b: &Json) -> bool {
    let parse = |value: &Json| value.as_str().and_then(super::units::duration);
    parse(a).is_some() && parse(a) == parse(b)
}

#[cfg(test)]
#[path = "overlay_tests.rs"]
mod tests;
