// SPDX-License-Identifier: Apache-2.0
//! Finds the model that a JSON body names, and refuses bodies that could name two.
//!
//! Owns what of a body must be sound before it may be routed: all of it is checked, nothing of it is kept.
//! Must not know which models exist. No message repeats a byte of the body: prompts do not belong in answers
//! or logs.

mod quick;

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Nested arrays and objects at most.
pub const DEPTH_MAX: usize = 64;

const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Why a body names no model. The client gets [`BadBody::STATUS`], nothing is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBody {
    /// Nothing, or only white space.
    #[error("the request body is empty; send a JSON object with a \"model\"")]
    Empty,
    /// Not UTF-8; bytes before the fault are `at`.
    #[error("the request body is not valid UTF-8 at byte {at}")]
    NotUtf8 {
        /// Offset of the first bad byte.
        at: usize,
    },
    /// JSON of another kind.
    #[error("the request body is not a JSON object; send one with a \"model\"")]
    NotObject,
    /// Not JSON. Lines and columns (in bytes) count from 1; a byte order mark does not count.
    #[error("the request body is not valid JSON at line {line} column {column}")]
    Syntax {
        /// Line of the fault.
        line: usize,
        /// Column of the fault.
        column: usize,
    },
    /// The body stops inside its JSON.
    #[error("the request body ends before its JSON does, at line {line} column {column}")]
    Truncated {
        /// Line of the end.
        line: usize,
        /// Column of the end.
        column: usize,
    },
    /// Deeper than [`DEPTH_MAX`].
    #[error("the request body nests deeper than {DEPTH_MAX} levels at byte {at}")]
    TooDeep {
        /// Offset of the bracket that is one too many.
        at: usize,
    },
    /// No top-level `model`.
    #[error("the request body has no \"model\"; name the model to use")]
    MissingModel,
    /// `model` is something else than a string.
    #[error("\"model\" is {found} and must be a string")]
    WrongType {
        /// What it is, with an article.
        found: &'static str,
    },
    /// `model` is an empty string.
    #[error("\"model\" must not be empty")]
    EmptyName,
    /// Two top-level keys that some reader takes for `model`.
    #[error("the request body has more than one \"model\"; keep one")]
    Duplicate,
}

impl BadBody {
    /// The status of every such answer.
    pub const STATUS: u16 = 400;

    /// The `code` of the error object.
    pub fn code(&self) -> &'static str {
        match self {
            BadBody::Empty => "empty_body",
            BadBody::NotUtf8 { .. } => "invalid_utf8",
            BadBody::NotObject | BadBody::Syntax { .. } | BadBody::Truncated { .. } => "invalid_json",
            BadBody::TooDeep { .. } => "nesting_too_deep",
            BadBody::MissingModel => "missing_model",
            BadBody::WrongType { .. } | BadBody::EmptyName => "invalid_model",
            BadBody::Duplicate => "duplicate_model",
        }
    }

    /// The `param` of the error object: `model` when that is at fault.
    pub fn param(&self) -> Option<&'static str> {
        match self {
            BadBody::MissingModel | BadBody::WrongType { .. } | BadBody::EmptyName | BadBody::Duplicate => {
                Some("model")
            }
            _ => None,
        }
    }
}

/// The top-level `model` of a JSON object, unescaped; borrowed unless it has escapes.
///
/// White space and a byte order mark may stand before the object. Keys are compared after unescaping, and a
/// second key that differs from `model` in letter case alone counts as a repetition, because some readers
/// take it for one. Any string that is not empty is found, of any length and with any characters: whoever looks
/// it up says that it is unknown.
pub fn find_model(body: &[u8]) -> Result<Cow<'_, str>, BadBody> {
    let text = std::str::from_utf8(body).map_err(|e| BadBody::NotUtf8 { at: e.valid_up_to() })?;
    let json = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    match quick::model(json) {
        Some(name) => Ok(Cow::Borrowed(name)),
        None => read(text, json),
    }
}

/// Any body, without haste and with an account of what is wrong. `json` is the end of `text`.
fn read<'a>(text: &'a str, json: &'a str) -> Result<Cow<'a, str>, BadBody> {
    match json.bytes().find(|c| !matches!(c, b' ' | b'\t' | b'\r' | b'\n')) {
        None => return Err(BadBody::Empty),
        Some(b'{') => {}
        // Not worth reading on to tell sound JSON of another kind from noise.
        Some(_) => return Err(BadBody::NotObject),
    }
    if let Some(at) = too_deep(json.as_bytes()) {
        return Err(BadBody::TooDeep { at: at + (text.len() - json.len()) });
    }
    let mut reader = serde_json::Deserializer::from_str(json);
    let found = reader.deserialize_map(Body).and_then(|found| reader.end().map(|()| found));
    match found.map_err(|e| position(&e))? {
        Found { model: None, .. } => Err(BadBody::MissingModel),
        Found { keys: 2.., .. } => Err(BadBody::Duplicate),
        Found { model: Some(Value::Other(found)), .. } => Err(BadBody::WrongType { found }),
        Found { model: Some(Value::Text(name)), .. } if name.is_empty() => Err(BadBody::EmptyName),
        Found { model: Some(Value::Text(name)), .. } => Ok(name),
    }
}

fn position(error: &serde_json::Error) -> BadBody {
    let (line, column) = (error.line(), error.column());
    if error.is_eof() { BadBody::Truncated { line, column } } else { BadBody::Syntax { line, column } }
}

/// The offset of the first bracket beyond [`DEPTH_MAX`] in what may be JSON. A walk without a stack: the
/// reader behind it sets no bound on what it skips.
fn too_deep(json: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0, 0usize);
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => {
                at = end_of_string(json, at + 1);
                continue;
            }
            b'[' | b'{' => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Some(at);
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    None
}

/// The offset behind the closing quote of a string whose content starts at `at`.
fn end_of_string(json: &[u8], mut at: usize) -> usize {
    while let Some(found) = memchr::memchr2(b'"', b'\\', json.get(at..).unwrap_or_default()) {
        at += found;
        if json.get(at) == Some(&b'"') {
            return at + 1;
        }
        at += 2;
    }
    json.len()
}

/// What the top level of a body holds.
struct Found<'a> {
    /// The value of the first `model`.
    model: Option<Value<'a>>,
    /// Keys that some reader takes for `model`.
    keys: usize,
}

struct Body;

impl<'a> Visitor<'a> for Body {
    type Value = Found<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Found<'a>, A::Error> {
        let mut found = Found { model: None, keys: 0 };
        while let Some(key) = map.next_key_seed(Key)? {
            if key != Name::Other {
                found.keys += 1;
            }
            if key == Name::Model && found.model.is_none() {
                found.model = Some(map.next_value_seed(AnyValue)?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    Model,
    /// `Model`, `MODEL`, …
    Alike,
    Other,
}

struct Key;

impl<'a> DeserializeSeed<'a> for Key {
    type Value = Name;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Name, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key {
    type Value = Name;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Name, E> {
        Ok(match key {
            "model" => Name::Model,
            _ if key.eq_ignore_ascii_case("model") => Name::Alike,
            _ => Name::Other,
        })
    }
}

enum Value<'a> {
    Text(Cow<'a, str>),
    Other(&'static str),
}

struct AnyValue;

impl<'a> DeserializeSeed<'a> for AnyValue {
    type Value = Value<'a>;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Value<'a>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for AnyValue {
    type Value = Value<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<Value<'a>, E> {
        Ok(Value::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value<'a>, E> {
        Ok(Value::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<Value<'a>, E> {
        Ok(Value::Other("null"))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Value<'a>, E> {
        Ok(Value::Other("a boolean"))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Value<'a>, E> {
        Ok(Value::Other("a number"))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Value<'a>, E> {
        Ok(Value::Other("a number"))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value<'a>, E> {
        Ok(Value::Other("a number"))
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<Value<'a>, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Other("an array"))
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Value<'a>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Value::Other("an object"))
    }
}

#[cfg(test)]
mod tests;
