// SPDX-License-Identifier: Apache-2.0
//! The table of keys as JSON Schema (draft 2020-12), for editors and for checks before a file reaches Sluice.
//!
//! Owns its form only. The schema never refuses what the parser takes; what it cannot say (references, limits that
//! depend on each other, what environment variables hold) it lets pass, and `sluice check` finds.

use serde_json::{Map, Value, json};

use super::annotations::{self, ANNOTATIONS};
use super::keys::{self, Key, Kind, Omitted, Section};

/// A number as text.
const FLOAT: &str = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$";

/// Names of the keys of which a model has exactly one.
const ORIGINS: [&str; 3] = ["command", "url", "urls"];

/// The schema of a configuration file.
pub fn schema() -> Value {
    let mut whole = table(&keys::TOP);
    whole.insert("$schema".to_owned(), "https://json-schema.org/draft/2020-12/schema".into());
    whole.insert("title".to_owned(), "Configuration of Sluice".into());
    whole.insert("$defs".to_owned(), definitions());
    Value::Object(whole)
}

/// What many values share.
fn definitions() -> Value {
    json!({
        "env": {
            "description": "A text in which `${env.NAME}` stands for an environment variable.",
            "type": "string",
            "pattern": r"\$\{env\.",
        },
        "text": { "type": ["string", "number", "boolean"] },
        "texts": { "type": "array", "items": { "$ref": "#/$defs/text" } },
        "duration": {
            "anyOf": [
                { "const": 0 },
                { "type": "string", "pattern": r"^(0|([0-9]+(\.[0-9]+)?(ns|us|µs|μs|ms|s|m|h|d))+)$" },
                { "$ref": "#/$defs/env" },
            ],
        },
        "size": {
            "anyOf": [
                { "type": "number", "minimum": 0 },
                { "type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?([kMGT]i?|Ki)?$" },
                { "$ref": "#/$defs/env" },
            ],
        },
        "address": {
            "anyOf": [{ "type": "string", "pattern": "^.+:[0-9]+$" }, { "$ref": "#/$defs/env" }],
        },
        "url": {
            "anyOf": [
                { "type": "string", "pattern": "^[hH][tT][tT][pP][sS]?://[^/]+/?$" },
                { "$ref": "#/$defs/env" },
            ],
        },
    })
}

fn table(section: &Section) -> Map<String, Value> {
    let now = || section.keys.iter().filter(|key| !matches!(key.kind, Kind::Later(_)));
    let properties: Map<_, _> = now().map(|key| (key.name.to_owned(), property(key))).collect();
    let required: Vec<_> =
        now().filter(|key| matches!(key.default, Omitted::Required)).map(|key| key.name).collect();
    let mut out = Map::new();
    out.insert("type".to_owned(), "object".into());
    out.insert("additionalProperties".to_owned(), false.into());
    out.insert("properties".to_owned(), properties.into());
    if !required.is_empty() {
        out.insert("required".to_owned(), required.into());
    }
    if std::ptr::eq(section, &raw const keys::MODEL) {
        let one: Vec<_> = ORIGINS.iter().map(|name| json!({ "required": [name] })).collect();
        out.insert("oneOf".to_owned(), one.into());
    }
    out
}

/// A key: what its value may be, what it means, and what holds without it.
fn property(key: &Key) -> Value {
    let mut out = value(&key.kind);
    out.insert("description".to_owned(), key.about.trim().into());
    if let Omitted::Value(text) = key.default {
        // Numbers and switches are JSON as they stand; everything else is a text.
        let default = serde_json::from_str(text).unwrap_or_else(|_| text.into());
        out.insert("default".to_owned(), default);
    }
    out.into()
}

fn value(kind: &Kind) -> Map<String, Value> {
    let json = match kind {
        Kind::Integer(min, max) => number("integer", json!(min), json!(max), r"^\+?[0-9]+$"),
        Kind::Decimal(min, max) => number("number", bound(min), bound(max), r"^[0-9]+(\.[0-9]+)?$"),
        Kind::Float(min, max) => number("number", bound(min), bound(max), FLOAT),
        Kind::Duration(..) => refer("duration"),
        Kind::Limit(..) => json!({ "anyOf": [{ "const": "none" }, refer("duration")] }),
        Kind::Seconds(..) => {
            let seconds = [
                json!({ "const": "none" }),
                json!({ "type": "integer", "minimum": 1 }),
                json!({ "type": "string", "pattern": "^[0-9]+$" }),
                refer("duration"),
            ];
            json!({ "anyOf": seconds })
        }
        Kind::Size(..) => refer("size"),
        Kind::Switch => json!({ "anyOf": [{ "enum": [true, false, "true", "false"] }, refer("env")] }),
        Kind::Choice(words, _) => json!({ "anyOf": [{ "enum": words }, refer("env")] }),
        Kind::Text | Kind::Path | Kind::Secret => refer("text"),
        Kind::Address => refer("address"),
        Kind::Addresses => one_or_more("address"),
        Kind::Url => refer("url"),
        Kind::Urls => json!({ "type": "array", "minItems": 1, "items": refer("url") }),
        Kind::Words => json!({ "type": "array", "minItems": 1, "items": refer("text") }),
        Kind::Names => refer("texts"),
        Kind::Pairs => json!({ "type": "object", "additionalProperties": refer("text") }),
        Kind::Annotations => annotations(),
        Kind::Table(section) => table(section).into(),
        Kind::Tables(section) => json!({ "type": "array", "items": table(section) }),
        Kind::Later(_) => json!({ "not": {} }),
    };
    match json {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Annotations, and their other spellings with any text: where both stand the parser does not read these.
fn annotations() -> Value {
    let mut out = table(&ANNOTATIONS);
    if let Some(Value::Object(properties)) = out.get_mut("properties") {
        for (alias, name) in annotations::aliases() {
            let mut other = refer("text");
            other["description"] = format!("The same as `{name}`, which wins if both are given.").into();
            properties.insert(alias, other);
        }
    }
    out.into()
}

fn refer(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}

fn one_or_more(name: &str) -> Value {
    json!({ "anyOf": [refer(name), { "type": "array", "items": refer(name) }] })
}

/// A number, also as text: annotations are texts everywhere else.
fn number(kind: &str, min: Value, max: Value, pattern: &str) -> Value {
    let number = json!({ "type": kind, "minimum": min, "maximum": max });
    json!({ "anyOf": [number, { "type": "string", "pattern": pattern }, refer("env")] })
}

fn bound(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or(Value::Null)
}
