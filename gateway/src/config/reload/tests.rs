// SPDX-License-Identifier: Apache-2.0
//! What a reload touches.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use crate::config::parse;

const BASE: &str = "models:\n  - {name: a, command: [sh]}\n  - {name: b, command: [sh], maxReplicas: 2}\n";

fn settings(text: &str) -> Settings {
    parse(text, "sluice.yaml", &|_| None).unwrap_or_else(|report| panic!("{report}")).settings
}

fn change(new: &str) -> Change {
    diff(&settings(BASE), &settings(new))
}

fn names(names: &[&str]) -> Vec<ModelName> {
    names.iter().map(|name| ModelName::from(*name)).collect()
}

#[test]
fn the_same_is_no_change_however_it_is_written_and_whenever_it_is_read() {
    let other =
        "# x\nmodels:\n- command: ['sh']\n  name: b\n  maxReplicas: 2\n- {name: a, command: [\"sh\"]}\n";
    assert!(change(other).is_empty());
    let (old, mut later) = (settings(BASE), settings(BASE));
    for model in later.models.values_mut() {
        Arc::make_mut(model).created += 100;
    }
    assert!(diff(&old, &later).is_empty());
    assert_eq!(diff(&old, &later).to_string(), "nothing changed");
}

#[test]
fn models_come_go_and_change() {
    let new = "models:\n  - {name: b, command: [sh], maxReplicas: 3}\n  - {name: c, command: [sh]}\n";
    let change = change(new);
    let expected = Change {
        models_added: names(&["c"]),
        removed: names(&["a"]),
        changed: names(&["b"]),
        ..Change::default()
    };
    assert_eq!(change, expected);
    assert_eq!(change.to_string(), "models added: c; models removed: a; models changed: b");
}

#[test]
fn only_another_command_replaces_replicas() {
    let touched = |line: &str| {
        let change = change(&BASE.replace("{name: a, command: [sh]}", line));
        assert_eq!((change.models_added.len(), change.removed.len()), (0, 0));
        (change.changed, change.replaced)
    };
    assert_eq!(touched("{name: a, command: [sh, x]}"), (names(&["a"]), names(&["a"])));
    assert_eq!(touched("{name: a, command: [sh], env: {A: b}}"), (names(&["a"]), names(&["a"])));
    for keys in ["readiness: {path: /x}", "idleAfter: 1s", "bodyLimit: 1Mi", "backendKey: k", "groups: [g]"] {
        assert_eq!(
            touched(&format!("{{name: a, command: [sh], {keys}}}")),
            (names(&["a"]), names(&[])),
            "{keys}"
        );
    }
}

#[test]
fn keys_of_the_file_take_effect_at_once_or_after_a_restart() {
    let with = |line: &str| change(&format!("{line}\n{BASE}"));
    for (line, key) in [
        ("limits: {connections: 5}", "limits"),
        ("shutdown: {deadline: 1s}", "shutdown"),
        ("memory: 1Gi", "memory"),
    ] {
        assert_eq!(with(line), Change { live: vec![key], ..Change::default() });
    }
    let fixed = [
        ("listen: 127.0.0.1:1", "listen"),
        ("admin: 127.0.0.1:1", "admin"),
        ("threads: 1000", "threads"),
        ("tls: {listen: 127.0.0.1:1, certificate: a, key: b}", "tls"),
    ];
    for (line, key) in fixed {
        let change = with(line);
        assert_eq!(change, Change { restart_required: vec![key], ..Change::default() });
        assert_eq!(change.to_string(), format!("changed, in effect after a restart of sluice: {key}"));
    }
}

#[test]
fn models_keep_the_time_of_their_first_load() {
    let old = settings(BASE);
    let mut new = settings(&BASE.replace("maxReplicas: 2", "bodyLimit: 1Mi"));
    new.models.insert("c".into(), new.models["a"].clone());
    for model in new.models.values_mut() {
        Arc::make_mut(model).created += 100;
    }
    let born = new.models["c"].created;
    carry_over(&old, &mut new);
    assert!(Arc::ptr_eq(&old.models["a"], &new.models["a"]), "an unchanged model is the very same value");
    assert_eq!((new.models["b"].created, new.models["b"].body_limit), (old.models["b"].created, 1 << 20));
    assert_eq!(new.models["c"].created, born);
}
