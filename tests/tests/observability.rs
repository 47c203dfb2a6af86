// SPDX-License-Identifier: Apache-2.0
//! What is shipped for those who watch Sluice names only what there is: dashboard, alert rules, the operators' page.
//!
//! The metrics' names are read from their documentation, which is generated from the program.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).expect(path)
}

/// Kind and labels of each metric.
fn documented() -> BTreeMap<String, (String, Vec<String>)> {
    let text = read("docs/metrics.md");
    let rows = text.lines().filter(|line| line.starts_with("| `sluice_") || line.starts_with("| `process_"));
    let metrics: BTreeMap<_, _> = rows
        .map(|row| {
            let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
            let labels = cells[2].split(", ").map(|label| label.trim_matches('`').to_owned());
            let labels = labels.filter(|label| !label.is_empty()).collect();
            (cells[0].trim_matches('`').to_owned(), (cells[1].to_owned(), labels))
        })
        .collect();
    assert!(metrics.len() > 30, "{metrics:?}");
    metrics
}

/// Words of a PromQL expression that stand outside of strings.
fn words(expression: &str) -> BTreeSet<String> {
    let outside: String = expression.split('"').step_by(2).collect::<Vec<_>>().join(" ");
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':' || c == '$';
    outside.split(|c| !is_word(c)).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// The metrics that an expression names.
fn metrics_of(expression: &str) -> BTreeSet<String> {
    words(expression)
        .into_iter()
        .filter(|word| word.starts_with("sluice_") || word.starts_with("process_"))
        .collect()
}

/// Names used by `expressions` all exist, and so do the labels they are grouped by or selected with.
#[track_caller]
fn check(place: &str, expressions: &[String]) -> BTreeSet<String> {
    let known = documented();
    let mut used = BTreeSet::new();
    for expression in expressions {
        let mut labels: BTreeSet<String> = ["le", "instance", "job"].map(str::to_owned).into();
        let metrics = metrics_of(expression);
        assert!(!metrics.is_empty() || expression.contains("up{"), "{place} names no metric: {expression}");
        for name in &metrics {
            let stem = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let base = stem.filter(|stem| known.get(*stem).is_some_and(|(kind, _)| kind == "histogram"));
            let base = base.unwrap_or(name);
            let (kind, own) = known.get(base).unwrap_or_else(|| panic!("{place}: there is no {name}"));
            assert!(kind != "histogram" || base != name, "{place}: {name} has only buckets, sum and count");
            labels.extend(own.iter().cloned());
            used.insert(base.to_owned());
        }
        for label in labels_of(expression) {
            assert!(labels.contains(&label), "{place}: {label} is no label of {metrics:?}: {expression}");
        }
    }
    used
}

/// Labels in selectors and in `by`, `on` and `ignoring` lists.
fn labels_of(expression: &str) -> BTreeSet<String> {
    let mut labels = BTreeSet::new();
    for part in expression.split('{').skip(1) {
        let selector = part.split('}').next().unwrap();
        for matcher in selector.split(',').filter(|matcher| matcher.contains(['=', '~'])) {
            labels.insert(matcher.split(['=', '!']).next().unwrap().trim().to_owned());
        }
    }
    for list in ["by (", "on (", "ignoring (", "without ("] {
        for part in expression.split(list).skip(1) {
            labels.extend(part.split(')').next().unwrap().split(',').map(|label| label.trim().to_owned()));
        }
    }
    labels
}

/// Every text under the key `name`, at any depth.
fn texts(value: &Value, name: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(text) if key == name => found.push(text.clone()),
                    value => texts(value, name, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| texts(value, name, found)),
        _ => {}
    }
}

fn rules() -> Value {
    serde_saphyr::from_str(&read("deploy/prometheus/alerts.yaml")).unwrap()
}

#[test]
fn the_dashboard_uses_only_metrics_that_exist_and_shows_nearly_all() {
    let dashboard: Value = serde_json::from_str(&read("deploy/grafana/sluice.json")).unwrap();
    let mut expressions = Vec::new();
    texts(&dashboard, "expr", &mut expressions);
    assert!(expressions.len() > 30);
    let used = check("sluice.json", &expressions);
    let mut queries = Vec::new();
    texts(&dashboard["templating"], "query", &mut queries);
    for query in queries.iter().filter(|query| query.contains('(')) {
        metrics_of(query).iter().for_each(|name| assert!(documented().contains_key(name), "{name}"));
    }
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "two panels have one id");
    }
    let unseen: Vec<_> = documented().into_keys().filter(|name| !used.contains(name)).collect();
    assert!(unseen.len() < 15, "the dashboard does not show {unseen:?}");
}

#[test]
fn alert_rules_use_only_metrics_that_exist_and_each_says_what_to_do() {
    let rules = rules();
    let mut expressions = Vec::new();
    texts(&rules, "expr", &mut expressions);
    check("alerts.yaml", &expressions);
    let (mut alerts, mut runbooks) = (Vec::new(), Vec::new());
    texts(&rules, "alert", &mut alerts);
    texts(&rules, "runbook", &mut runbooks);
    assert_eq!((alerts.len(), runbooks.len()), (expressions.len(), expressions.len()));
    let page = read("docs/operators.md");
    for (alert, runbook) in alerts.iter().zip(&runbooks) {
        assert_eq!(*runbook, format!("docs/operators.md#{}", alert.to_lowercase()));
        assert!(page.contains(&format!("\n#### {alert}\n")), "operators.md says nothing of {alert}");
    }
    for heading in page.lines().filter_map(|line| line.strip_prefix("#### Sluice")) {
        assert!(alerts.contains(&format!("Sluice{heading}")), "there is no rule Sluice{heading}");
    }
}

#[test]
fn queries_in_the_documents_use_only_metrics_that_exist() {
    for path in ["docs/metrics.md", "docs/operators.md"] {
        let text = read(path);
        for block in text.split("```promql\n").skip(1) {
            let block = block.split("```").next().unwrap();
            let queries = block.split("\n\n").map(|query| {
                query.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
            });
            check(path, &queries.collect::<Vec<_>>());
        }
        let known = documented();
        for word in text.split('`').skip(1).step_by(2).filter(|word| word.starts_with("sluice_")) {
            let name = word.split(['{', '[']).next().unwrap();
            assert!(known.contains_key(name), "{path} speaks of {name}");
        }
    }
}

#[test]
fn words_in_strings_are_no_metrics() {
    let expression = r#"sum by (le) (rate(sluice_x_bucket{a="sluice_y", b!~"z"}[5m])) > on (c) process_z"#;
    assert_eq!(metrics_of(expression), ["process_z", "sluice_x_bucket"].map(str::to_owned).into());
    assert_eq!(labels_of(expression), ["a", "b", "c", "le"].map(str::to_owned).into());
}
