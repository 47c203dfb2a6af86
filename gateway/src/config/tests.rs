// SPDX-License-Identifier: Apache-2.0
//! Documents in, settings or problems out.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;

fn load_text(text: &str) -> Result<Loaded, Report> {
    parse(text, "sluice.yaml", &|name| (name == "SET").then(|| "from-env".to_owned()))
}

#[test]
fn reads_the_ten_line_classifier() {
    let text = r#"
listen: 127.0.0.1:8080
admin: 127.0.0.1:8081
models:
  - name: bert-classifier
    command: ["python3", "serve.py", "--port", "${PORT}"]
    minReplicas: 1
    maxReplicas: 10
    scaleTarget: 5
    scaleMetric: concurrency
"#;
    let loaded = load_text(text).map_err(|r| r.to_string()).unwrap();
    let model = &loaded.settings.plan.fleet.models["bert-classifier"];
    assert_eq!((model.scale.min_replicas, model.scale.max_replicas), (1, 10));
    assert_eq!((model.scale.target_milli, model.scale.container_concurrency), (5_000, 5));
}

#[test]
fn reports_everything_at_once_and_shows_no_secret() {
    let text = "models:\n  - name: a b\n    comand: [x, sk-secret]\n    minReplica: 3\n    idleAfter: 5\n";
    let report = load_text(text).unwrap_err();
    let ids: Vec<_> = report.problems.iter().map(|p| (p.code.id(), p.line, p.column)).collect();
    let expected =
        [("SLU0012", 2, 5), ("SLU0014", 2, 11), ("SLU0010", 3, 5), ("SLU0010", 4, 5), ("SLU0014", 5, 16)];
    assert_eq!(ids, expected);
    assert!(!report.to_string().contains("secret"));
}
