// SPDX-License-Identifier: Apache-2.0
//! What a reload touches.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use crate::config::effect::{Effect, effect};
use crate::config::keys::{Kind, SECTIONS};
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
fn other_certificates_are_taken_at_once_other_listeners_after_a_restart() {
    let with = |keys: &str| settings(&format!("tls: {{{keys}}}\n{BASE}"));
    let old = with("listen: 127.0.0.1:1, certificate: a, key: b");
    let cases: &[(&str, &[&'static str], &[&'static str])] = &[
        ("listen: 127.0.0.1:1, certificate: c, key: b", &["tls.certificate"], &[]),
        ("listen: 127.0.0.1:1, certificate: a, key: c", &["tls.key"], &[]),
        ("listen: 127.0.0.1:2, certificate: a, key: b", &[], &["tls.listen"]),
        (
            "listen: ['127.0.0.1:1', '127.0.0.1:2'], certificate: c, key: d",
            &["tls.certificate", "tls.key"],
            &["tls.listen"],
        ),
    ];
    for (keys, live, fixed) in cases {
        assert!(live.iter().all(|key| documented(key) == Effect::NewConnections), "{live:?}");
        assert!(fixed.iter().all(|key| documented(key) == Effect::Restart), "{fixed:?}");
        let expected = Change { live: live.to_vec(), restart_required: fixed.to_vec(), ..Change::default() };
        assert_eq!(diff(&old, &with(keys)), expected, "{keys}");
    }
    for (old, new) in [(&old, &settings(BASE)), (&settings(BASE), &old)] {
        assert_eq!(diff(old, new), Change { restart_required: vec!["tls"], ..Change::default() });
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

/// Every key of the file itself but those of `groups` and `models`.
const FILE_KEYS: &[(&str, &str)] = &[
    ("listen", "listen: 127.0.0.1:1"),
    ("admin", "admin: 127.0.0.1:1"),
    ("adminTokens", "adminTokens: x"),
    ("stateDirectory", "stateDirectory: x"),
    ("tls", "tls: {listen: 127.0.0.1:1, certificate: a, key: b}"),
    ("threads", "threads: 1000"),
    ("tracing", "tracing: {endpoint: 'http://c:4318'}"),
    ("tracing.endpoint", "tracing: {endpoint: 'http://c:4318'}"),
    ("tracing.sample", "tracing: {endpoint: 'http://c:4318', sample: 0.5}"),
    ("tracing.headers", "tracing: {endpoint: 'http://c:4318', headers: {a: b}}"),
    ("limits", "limits: {connections: 1}"),
    ("shutdown", "shutdown: {deadline: 1s}"),
    ("memory", "memory: 1Gi"),
    ("limits.connections", "limits: {connections: 1}"),
    ("limits.connectionsPerSource", "limits: {connectionsPerSource: 1}"),
    ("limits.headTimeout", "limits: {headTimeout: 1s}"),
    ("limits.idleTimeout", "limits: {idleTimeout: 1s}"),
    ("limits.bodyTimeout", "limits: {bodyTimeout: 1s}"),
    ("limits.writeTimeout", "limits: {writeTimeout: 1s}"),
    ("limits.bodyMemory", "limits: {bodyMemory: 2Gi}"),
    ("limits.streamsPerConnection", "limits: {streamsPerConnection: 1}"),
    ("shutdown.drainDelay", "shutdown: {drainDelay: 1s}"),
    ("shutdown.deadline", "shutdown: {deadline: 1s}"),
];

/// Every key of `configAutoscaler`: models under `compat: kpa` take it over and keep their replicas.
const CLUSTER_KEYS: &[(&str, &str)] = &[
    ("container-concurrency-target-default", "50"),
    ("container-concurrency-target-percentage", "80"),
    ("requests-per-second-target-default", "100"),
    ("target-burst-capacity", "-1"),
    ("stable-window", "30s"),
    ("panic-window-percentage", "20"),
    ("panic-threshold-percentage", "300"),
    ("max-scale-up-rate", "10"),
    ("max-scale-down-rate", "3"),
    ("enable-scale-to-zero", "false"),
    ("scale-to-zero-grace-period", "10s"),
    ("scale-to-zero-pod-retention-period", "10s"),
    ("scale-down-delay", "10s"),
    ("initial-scale", "2"),
    ("min-scale", "1"),
    ("max-scale", "7"),
    ("activator-capacity", "200"),
];

/// Those that only say what may be set, or of which only one value is possible.
const CLUSTER_RULES: &[&str] = &["allow-zero-initial-scale", "max-scale-limit", "pod-autoscaler-class"];

/// Every key of a model with a `command`.
const MODEL_KEYS: &[(&str, &str)] = &[
    ("env", "env: {A: b}"),
    ("workingDirectory", "workingDirectory: /"),
    ("stopCommand", "stopCommand: [a]"),
    ("readiness", "readiness: {path: /x}"),
    ("backendKey", "backendKey: k"),
    ("passCredentials", "passCredentials: true"),
    ("protocol", "protocol: http2"),
    ("compat", "compat: kpa"),
    ("scaleMetric", "compat: kpa, scaleMetric: rps"),
    ("timeoutSeconds", "timeoutSeconds: 5"),
    ("responseStartTimeoutSeconds", "responseStartTimeoutSeconds: 5"),
    ("idleTimeoutSeconds", "idleTimeoutSeconds: 5"),
    ("minReplicas", "minReplicas: 1"),
    ("maxReplicas", "maxReplicas: 2"),
    ("scaleTarget", "scaleTarget: 2"),
    ("containerConcurrency", "containerConcurrency: 2"),
    ("timeout", "timeout: 5"),
    ("timeouts", "timeouts: {total: 5s}"),
    ("idleAfter", "idleAfter: 1s"),
    ("window", "window: 1s"),
    ("startDeadline", "startDeadline: 1s"),
    ("stopDeadline", "stopDeadline: 1s"),
    ("drainDeadline", "drainDeadline: 1s"),
    ("startAttempts", "startAttempts: 1"),
    ("backoff", "backoff: {first: 1s}"),
    ("bodyLimit", "bodyLimit: 1Mi"),
    ("bodyMemory", "bodyMemory: 64Mi"),
    ("queue", "queue: {length: 1}"),
    ("memory", "memory: 1Gi"),
    ("groups", "groups: [g]"),
    ("preload", "preload: true"),
    ("retryStale", "retryStale: false"),
    ("annotations", "annotations: {autoscaling.knative.dev/max-scale: '2'}"),
    ("readiness.path", "readiness: {path: /x}"),
    ("readiness.period", "readiness: {period: 1s}"),
    ("readiness.readyPeriod", "readiness: {readyPeriod: 1s}"),
    ("readiness.timeout", "readiness: {timeout: 1s}"),
    ("readiness.successes", "readiness: {successes: 2}"),
    ("readiness.failures", "readiness: {failures: 2}"),
    ("readiness.headers", "readiness: {headers: {a: b}}"),
    ("timeouts.coldStart", "timeouts: {coldStart: 1s}"),
    ("timeouts.queue", "timeouts: {queue: 1s}"),
    ("timeouts.connect", "timeouts: {connect: 2s}"),
    ("timeouts.firstByte", "timeouts: {firstByte: 1s}"),
    ("timeouts.betweenBytes", "timeouts: {betweenBytes: 1s}"),
    ("timeouts.total", "timeouts: {total: 1s}"),
    ("backoff.first", "backoff: {first: 1s}"),
    ("backoff.max", "backoff: {max: 1s}"),
    ("queue.length", "queue: {length: 1}"),
    ("queue.bytes", "queue: {bytes: 64Mi}"),
];

/// Keys with a test of their own, or of which only one value is possible.
const ELSEWHERE: &[&str] = &[
    "compat",
    "configAutoscaler",
    "groups",
    "models",
    "models[].name",
    "models[].command",
    "models[].url",
    "models[].urls",
    "tls.listen",
    "tls.certificate",
    "tls.key",
];
const NO_EFFECT: &str = "models[].scaleMetricType";
const FROM_A_FILE: &str = "models[].backendKeyFile";

/// What the documentation says of a key.
fn documented(path: &str) -> Effect {
    let (section, name) = path.rsplit_once('.').unwrap_or(("", path));
    let section = SECTIONS.iter().find(|one| one.path == section).unwrap();
    let key = section.keys.iter().find(|key| key.name == name).unwrap();
    // Of a table without an effect of its own any other value is that of one of its keys.
    effect(section, key).unwrap_or(Effect::AtOnce)
}

#[test]
fn a_changed_key_has_its_effect_and_touches_nothing_else() {
    for (key, line) in FILE_KEYS {
        let top = key.split('.').next().unwrap();
        let change = change(&format!("{line}\n{BASE}"));
        let expected = match documented(key) {
            Effect::Restart => Change { restart_required: vec![top], ..Change::default() },
            Effect::AtOnce | Effect::NewConnections => Change { live: vec![top], ..Change::default() },
            other => panic!("{key}: {other:?}"),
        };
        assert_eq!(change, expected, "{key}");
    }
    for (key, line) in MODEL_KEYS {
        let new = format!("{{name: a, command: [sh], {line}}}");
        let change = change(&BASE.replace("{name: a, command: [sh]}", &new));
        let replaced = match documented(&format!("models[].{key}")) {
            Effect::NewReplicas => names(&["a"]),
            Effect::AtOnce => Vec::new(),
            other => panic!("{key}: {other:?}"),
        };
        let expected = Change { changed: names(&["a"]), replaced, ..Change::default() };
        assert_eq!(change, expected, "{key}");
    }
}

#[test]
fn knatives_settings_touch_models_under_its_rules_only() {
    let kpa =
        BASE.replace("{name: b,", "{name: b, compat: kpa,").replace("maxReplicas: 2", "annotations: {}");
    let only_b = Change { changed: names(&["b"]), ..Change::default() };
    for (key, value) in CLUSTER_KEYS {
        let new = format!("configAutoscaler: {{{key}: {value}}}\n{kpa}");
        assert_eq!(diff(&settings(&kpa), &settings(&new)), only_b, "{key}");
        assert!(change(&format!("configAutoscaler: {{{key}: {value}}}\n{BASE}")).is_empty(), "{key}");
    }
    for line in ["allow-zero-initial-scale: true", "max-scale-limit: 9"] {
        let new = format!("configAutoscaler: {{{line}}}\n{kpa}");
        assert!(diff(&settings(&kpa), &settings(&new)).is_empty(), "{line}");
    }
    assert_eq!(change(&format!("compat: kpa\n{BASE}")).changed, names(&["a", "b"]));
}

#[test]
fn groups_touch_their_members_only_and_another_address_replaces() {
    let three = format!("{BASE}  - {{name: c, command: [sh]}}\n");
    let change =
        diff(&settings(&three), &settings(&format!("groups: [{{name: g, exclusive: [a, c]}}]\n{three}")));
    assert_eq!(change, Change { changed: names(&["a", "c"]), ..Change::default() });
    let fixed = |url: &str| settings(&BASE.replace("command: [sh]}", &format!("{url}}}")));
    for (old, new) in [("url: http://a", "url: http://b"), ("urls: [http://a]", "urls: [http://b]")] {
        let change = diff(&fixed(old), &fixed(new));
        let expected = Change { changed: names(&["a"]), replaced: names(&["a"]), ..Change::default() };
        assert_eq!(change, expected, "{old}");
    }
    for key in ["command", "url", "urls"] {
        assert_eq!(documented(&format!("models[].{key}")), Effect::NewReplicas);
    }
}

#[test]
fn a_key_read_from_a_file_changes_its_model_only() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let with = || {
        let line = format!("{{name: a, command: [sh], backendKeyFile: {}}}", file.path().display());
        settings(&BASE.replace("{name: a, command: [sh]}", &line))
    };
    std::fs::write(file.path(), "one").unwrap();
    let old = with();
    std::fs::write(file.path(), "two").unwrap();
    assert_eq!(diff(&old, &with()), Change { changed: names(&["a"]), ..Change::default() });
}

#[test]
fn every_key_has_an_effect_that_is_tested() {
    let tested = |path: &str| {
        let file = FILE_KEYS.iter().any(|(key, _)| *key == path);
        let cluster = CLUSTER_KEYS.iter().map(|(key, _)| *key).chain(CLUSTER_RULES.iter().copied());
        let mut cluster = cluster.map(|key| format!("configAutoscaler.{key}"));
        let model = MODEL_KEYS.iter().any(|(key, _)| format!("models[].{key}") == path);
        file || model
            || cluster.any(|key| key == path)
            || ELSEWHERE.contains(&path)
            || path == NO_EFFECT
            || path == FROM_A_FILE
    };
    for section in SECTIONS.iter().filter(|section| section.path != "groups[]") {
        for key in section.keys.iter().filter(|key| !matches!(key.kind, Kind::Later(_))) {
            let dot = if section.path.is_empty() { "" } else { "." };
            let path = format!("{}{dot}{}", section.path, key.name);
            assert!(tested(&path), "`{path}` lacks a row that says what a reload does with it");
        }
    }
}
