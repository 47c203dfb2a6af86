// SPDX-License-Identifier: Apache-2.0
//! The document, the committed file and the router say the same.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;

use super::*;

#[test]
fn the_committed_document_is_the_one_that_the_code_makes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json");
    if std::env::var_os("SLUICE_UPDATE_DOCS").is_some_and(|value| value == "1") {
        std::fs::write(path, text_of_document()).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap();
    assert!(
        committed == text_of_document(),
        "docs/openapi.json is old: run this once with SLUICE_UPDATE_DOCS=1"
    );
}

#[test]
fn every_route_of_the_router_is_in_the_document() {
    let source = include_str!("routes.rs");
    let routed: BTreeSet<String> =
        source.split(".route(\"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()).collect();
    // What lies below a wildcard is told apart by the handler.
    let mounted = |path: &str| match path {
        path if path.starts_with("/api/v1/models/") => "/api/v1/models/{*rest}".to_owned(),
        path if path.starts_with("/api/v1/replicas/") => "/api/v1/replicas/{id}".to_owned(),
        path => path.to_owned(),
    };
    let documented: BTreeSet<String> = operations().iter().map(|operation| mounted(operation.path)).collect();
    assert_eq!(routed, documented);
}

#[test]
fn references_lead_somewhere_and_ids_are_taken_once() {
    fn walk(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| match value.as_str() {
                Some(text) if key == "$ref" => drop(found.insert(text.to_owned())),
                _ => walk(value, found),
            }),
            Value::Array(items) => items.iter().for_each(|item| walk(item, found)),
            _ => {}
        }
    }
    let document = document();
    let mut references = BTreeSet::new();
    walk(&document, &mut references);
    assert!(references.len() > 5, "{references:?}");
    for reference in references {
        let pointer = reference.strip_prefix('#').expect("a local reference");
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
    let ids: BTreeSet<_> = operations().iter().map(|operation| operation.id).collect();
    assert_eq!(ids.len(), operations().len());
}
