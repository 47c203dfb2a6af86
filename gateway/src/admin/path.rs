// SPDX-License-Identifier: Apache-2.0
//! Model names in the API's paths: both `meta/llama-3:8b` as it is and `meta%2Fllama-3%3A8b`.
//!
//! The last raw `/logs` or `/settings` of a path and the last `:verb` of a POST belong to the API. A model whose own
//! name ends like that is reached by percent-encoding it, so every model can be named.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// What a path below `/api/v1/models/` without a verb names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// The model.
    Model(String),
    /// Its replicas' output.
    Logs(String),
    /// Its settings.
    Settings(String),
}

/// What a POST below `/api/v1/models/` orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// At least one replica.
    Wake,
    /// No replica.
    Sleep,
    /// So many replicas.
    Scale,
    /// All present replicas go.
    Drain,
}

/// Splits the raw rest of such a path. `None` if the name is empty or is not UTF-8 after decoding.
pub fn read(rest: &str) -> Option<Read> {
    if let Some(name) = rest.strip_suffix("/logs") {
        return decode(name).map(Read::Logs);
    }
    match rest.strip_suffix("/settings") {
        Some(name) => decode(name).map(Read::Settings),
        None => decode(rest).map(Read::Model),
    }
}

/// Splits the raw rest of a POST's path into name and verb; the colon may be `%3A`. `None` without a known verb.
pub fn order(rest: &str) -> Option<(String, Verb)> {
    let decoded = decode(rest)?;
    let (name, verb) = decoded.rsplit_once(':')?;
    let verb = match verb {
        "wake" => Verb::Wake,
        "sleep" => Verb::Sleep,
        "scale" => Verb::Scale,
        "drain" => Verb::Drain,
        _ => return None,
    };
    (!name.is_empty()).then(|| (name.to_owned(), verb))
}

/// `name` as one path segment.
pub fn encode(name: &str) -> String {
    utf8_percent_encode(name, PLAIN).to_string()
}

fn decode(raw: &str) -> Option<String> {
    let name = percent_decode_str(raw).decode_utf8().ok()?;
    (!name.is_empty()).then(|| name.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_raw_and_encoded() {
        let name = "meta/llama-3:8b";
        assert_eq!(read(name), Some(Read::Model(name.to_owned())));
        assert_eq!(read(&encode(name)), Some(Read::Model(name.to_owned())));
        assert_eq!(read(&format!("{name}/logs")), Some(Read::Logs(name.to_owned())));
        assert_eq!(read(&format!("{}/logs", encode(name))), Some(Read::Logs(name.to_owned())));
    }

    #[test]
    fn a_name_that_looks_like_the_api_is_reached_encoded() {
        assert_eq!(read(&encode("x/logs")), Some(Read::Model("x/logs".to_owned())));
        assert_eq!(read(&format!("{}/logs", encode("x/logs"))), Some(Read::Logs("x/logs".to_owned())));
        assert_eq!(order("a:wake:sleep"), Some(("a:wake".to_owned(), Verb::Sleep)));
    }

    #[test]
    fn verbs_may_follow_an_encoded_colon() {
        assert_eq!(order("gemma:wake"), Some(("gemma".to_owned(), Verb::Wake)));
        assert_eq!(order("org%2Fgemma%3A2b%3Asleep"), Some(("org/gemma:2b".to_owned(), Verb::Sleep)));
        assert_eq!(order("gemma"), None);
        assert_eq!(order("gemma:eat"), None);
        assert_eq!(order(":wake"), None);
    }

    #[test]
    fn empty_and_broken_names_are_nobody() {
        assert_eq!(read(""), None);
        assert_eq!(read("/logs"), None);
        assert_eq!(read("%ff"), None);
    }
}
