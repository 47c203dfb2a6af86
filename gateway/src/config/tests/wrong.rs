// SPDX-License-Identifier: Apache-2.0
//! What is wrong: codes, places, suggestions and notes.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;

/// A line among a model's keys, and the one error that it is.
const WRONG_LINES: &[(&str, &str, usize)] = &[
    ("minReplica: 1", "SLU0010", 5),
    ("gpu: {memory: 2Gi}", "SLU0011", 5),
    ("compat: hpa", "SLU0011", 13),
    ("compat: knative", "SLU0014", 13),
    ("profile: sized", "SLU0011", 5),
    ("minReplicas: -1", "SLU0014", 18),
    ("minReplicas: many", "SLU0014", 18),
    ("minReplicas: 1.5", "SLU0014", 18),
    ("minReplicas: 99999", "SLU0015", 18),
    ("minReplicas: 99999999999999999999", "SLU0014", 18),
    ("maxReplicas: 0", "SLU0015", 18),
    ("minReplicas: [1]", "SLU0013", 18),
    ("minReplicas:", "SLU0013", 16),
    ("minReplicas: ~", "SLU0013", 18),
    ("minReplicas: 2\n    maxReplicas: 1", "SLU0023", 18),
    ("scaleTarget: 0", "SLU0015", 18),
    ("scaleTarget: 1.2345", "SLU0014", 18),
    ("scaleMetric: rps", "SLU0011", 18),
    ("scaleMetric: concurency", "SLU0014", 18),
    ("containerConcurrency: 1000001", "SLU0015", 27),
    ("timeout: 5 minutes", "SLU0014", 14),
    ("timeout: 0", "SLU0015", 14),
    ("timeout: 5\n    timeouts: {total: 6s}", "SLU0020", 14),
    ("idleAfter: 30", "SLU0014", 16),
    ("idleAfter: 30sec", "SLU0014", 16),
    ("idleAfter: 31d", "SLU0015", 16),
    ("window: 1ms", "SLU0015", 13),
    ("bodyLimit: 32MB", "SLU0014", 16),
    ("bodyLimit: 100Gi", "SLU0015", 16),
    ("bodyLimit: 2Mi\n    bodyMemory: 1Mi", "SLU0023", 0),
    ("queue: {length: 0}", "SLU0015", 21),
    ("queue: {bytes: 1Mi}", "SLU0023", 20),
    ("queue: {lenght: 1}", "SLU0010", 13),
    ("queue: 5", "SLU0013", 12),
    ("preload: yes", "SLU0014", 14),
    ("protocol: http3", "SLU0011", 15),
    ("protocol: grpc", "SLU0014", 15),
    ("backoff: {first: 1m, max: 1s}", "SLU0023", 22),
    ("readiness: {path: health}", "SLU0014", 23),
    ("readiness: {headers: {'a b': c}}", "SLU0014", 27),
    ("env: [A=b]", "SLU0013", 10),
    ("env: {A: }", "SLU0013", 0),
    ("env: {A=B: c}", "SLU0014", 11),
    ("env: {A: '${env.UNSET}'}", "SLU0016", 14),
    ("env: {A: '${env.}'}", "SLU0017", 14),
    ("env: {A: '${env.SET'}", "SLU0017", 14),
    ("backendKey: ''", "SLU0014", 17),
    ("backendKey: 'a b'", "SLU0014", 17),
    ("backendKeyFile: /no/such/file", "SLU0018", 21),
    ("backendKey: a\n    backendKeyFile: /dev/null", "SLU0020", 0),
    ("backendKey: a\n    passCredentials: true", "SLU0020", 0),
    ("url: http://a", "SLU0020", 5),
    ("stopCommand: stop it", "SLU0013", 18),
    ("stopCommand: []", "SLU0014", 18),
    ("groups: g", "SLU0013", 13),
    ("annotations: {autoscaling.knative.dev/min-scale: x}", "SLU0014", 54),
    ("annotations: {autoscaling.knative.dev/max-scale: '0'}", "SLU0015", 54),
    ("annotations: {autoscaling.knative.dev/metric: rps}", "SLU0011", 51),
    ("annotations: {autoscaling.knative.dev/window: 5s}", "SLU0015", 51),
    ("annotations: {autoscaling.knative.dev/window: 6500ms}", "SLU0014", 51),
    ("annotations: {autoscaling.knative.dev/target-utilization-percentage: '0.7'}", "SLU0015", 74),
    ("annotations: {autoscaling.knative.dev/class: hpa.autoscaling.knative.dev}", "SLU0011", 50),
    ("annotations: {autoscaling.knative.dev/initial-scale: '1'}", "SLU0024", 19),
    ("annotations: {autoscaling.knative.dev/panicWindowPercentage: '10'}", "SLU0024", 19),
    ("annotations: {autoscaling.knative.dev/min-scal: '1'}", "SLU0010", 19),
    ("annotations: {serving.kserve.io/autoscalerClass: hpa}", "SLU0011", 19),
    ("annotations: {serving.kserve.io/autoscalerClass: kpa}", "SLU0011", 19),
    ("annotations: {serving.kserve.io/stop: 'true'}", "SLU0011", 43),
    ("annotations: {serving.kserve.io/metrics: cpu}", "SLU0011", 19),
    ("annotations: {serving.kserve.io/deploymentMode: Modelmesh}", "SLU0014", 53),
    ("timeoutSeconds: 5s", "SLU0014", 21),
    ("timeoutSeconds: 5\n    timeout: 6s", "SLU0020", 21),
    ("idleTimeoutSeconds: 5\n    timeouts: {betweenBytes: 6s}", "SLU0020", 25),
    ("annotations: {example.org/team: a}", "SLU0010", 19),
    (
        "minReplicas: 2\n    maxReplicas: 5\n    annotations: {autoscaling.knative.dev/min-scale: '1'}",
        "SLU0020",
        0,
    ),
    ("memory: 1Mi\n    memory: 1Mi", "SLU0007", 0),
    ("timeouts: {coldStart: none}", "SLU0014", 27),
    ("workingDirectory: ''", "SLU0014", 23),
    ("<<: {preload: true}", "SLU0010", 5),
    ("preload: !!bool true", "SLU0006", 0),
];

#[test]
fn wrong_lines_are_one_error_each_at_their_place() {
    for (lines, code, column) in WRONG_LINES {
        let report = errors(&format!("models:\n  - name: m\n    command: [sh]\n    {lines}\n"));
        let found = places(&report.problems);
        assert_eq!(found.len(), 1, "{lines}: {report}");
        assert_eq!(found[0].0, *code, "{lines}: {report}");
        if *column > 0 {
            assert_eq!((found[0].1, found[0].2), (4, *column), "{lines}: {report}");
        }
        assert!(report.problems[0].excerpt.contains('^'), "{lines}: {report}");
    }
}

#[test]
fn wrong_documents() {
    let cases: &[(&str, &[At])] = &[
        ("", &[("SLU0003", 0, 0)]),
        ("# only a comment\n", &[("SLU0003", 0, 0)]),
        ("lis", &[("SLU0003", 1, 1)]),
        ("- a\n", &[("SLU0003", 1, 1)]),
        ("listen: 127.0.0.1:1\n", &[("SLU0012", 1, 1)]),
        ("models:\n", &[("SLU0013", 1, 7)]),
        ("models: []\n---\nmodels: []\n", &[("SLU0003", 2, 1)]),
        ("models: [\n", &[("SLU0002", 1, 9)]),
        ("modles: []\n", &[("SLU0010", 1, 1)]),
        ("models: []\ngpus: auto\nprojects: []\n", &[("SLU0011", 2, 1), ("SLU0011", 3, 1)]),
        ("models: []\nminReplicas: 1\n", &[("SLU0010", 2, 1)]),
        ("models: []\nlisten: localhost:80\n", &[("SLU0014", 2, 9)]),
        ("models: []\nlisten: [127.0.0.1:80, :90]\n", &[("SLU0014", 2, 24)]),
        ("models: []\nlisten: []\n", &[("SLU0014", 2, 1)]),
        ("models: []\nlisten: 127.0.0.1:8081\n", &[("SLU0021", 2, 9)]),
        ("models: []\nadmin: 0.0.0.0:8080\n", &[("SLU0021", 2, 8), ("SLU0012", 2, 8)]),
        ("models: []\ntls: {listen: 127.0.0.1:1, certificate: c}\n", &[("SLU0012", 2, 6)]),
        ("models: [{name: m, command: [a]}, {name: m, command: [a]}]\n", &[("SLU0021", 1, 42)]),
        ("models: [{command: [a]}]\n", &[("SLU0012", 1, 10)]),
        ("models: [{name: m}]\n", &[("SLU0012", 1, 10)]),
        ("models: [{name: 'a b', command: [a]}]\n", &[("SLU0014", 1, 17)]),
        ("models: [{name: m, command: []}]\n", &[("SLU0014", 1, 29)]),
        ("models: [{name: m, command: ['']}]\n", &[("SLU0014", 1, 30)]),
        ("models: [{name: m, url: 'ftp://a'}]\n", &[("SLU0014", 1, 25)]),
        ("models: [{name: m, url: 'http://a/v1'}]\n", &[("SLU0014", 1, 25)]),
        ("models: [{name: m, url: 'http://u:p@a'}]\n", &[("SLU0014", 1, 25)]),
        ("models: [{name: m, url: 'http://a:99999'}]\n", &[("SLU0014", 1, 25)]),
        ("models: [{name: m, urls: [http://a, http://a:80]}]\n", &[("SLU0021", 1, 37)]),
        ("models: [{name: m, urls: []}]\n", &[("SLU0014", 1, 26)]),
        (
            "models: [{name: m, url: http://a, minReplicas: 1, preload: true}]\n",
            &[("SLU0024", 1, 35), ("SLU0024", 1, 51)],
        ),
        (
            "groups: [{name: g, exclusive: [gema, gemma]}]\nmodels: [{name: gemma, command: [a]}]\n",
            &[("SLU0022", 1, 32)],
        ),
        ("groups: [{name: g, exclusive: [m]}]\nmodels: [{name: m, url: http://a}]\n", &[("SLU0024", 1, 32)]),
        (
            "groups: [{name: g, exclusive: [m, m]}]\nmodels: [{name: m, command: [a]}]\n",
            &[("SLU0021", 1, 35)],
        ),
        ("memory: 1Gi\nmodels: [{name: m, command: [a], memory: 2Gi}]\n", &[("SLU0023", 2, 42)]),
        ("limits: {bodyMemory: 1Mi}\nmodels: [{name: m, command: [a]}]\n", &[("SLU0023", 1, 22)]),
        (
            "limits: {bodyMemory: 64Mi}\nmodels: [{name: m, command: [a], bodyMemory: 65Mi}]\n",
            &[("SLU0023", 2, 46)],
        ),
        ("models: [{name: ä, command: [a], preload: x}]\n", &[("SLU0014", 1, 43)]),
        ("models: [*a]\n", &[("SLU0002", 1, 10)]),
        ("models: &a [*a]\n", &[("SLU0005", 1, 13)]),
        ("? [a]\n: b\nmodels: []\n", &[("SLU0006", 1, 3)]),
    ];
    let mut wrong = String::new();
    for (text, expected) in cases {
        let report = errors(text);
        if places(&report.problems) != *expected {
            wrong += &format!(
                "{text}expected {expected:?}
{report}
"
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn ten_errors_are_ten() {
    let text = "\
listn: 127.0.0.1:1
admin: 8081
limits:
  connections: 0
models:
  - name: a b
    command: sh
    minReplicas: 3
    maxReplicas: 2
    idleAfter: 5
  - name: m
    command: [sh]
    bodyLimit: 1MB
    protocol: h2
    annotations: {example.org/x: y}
    env: {A: '${env.UNSET}'}
";
    let expected = [
        ("SLU0010", 1, 1),
        ("SLU0014", 2, 8),
        ("SLU0015", 4, 16),
        ("SLU0014", 6, 11),
        ("SLU0013", 7, 14),
        ("SLU0023", 8, 18),
        ("SLU0014", 10, 16),
        ("SLU0014", 13, 16),
        ("SLU0014", 14, 15),
        ("SLU0010", 15, 19),
        ("SLU0016", 16, 14),
    ];
    assert_eq!(places(&errors(text).problems), expected);
}

#[test]
fn suggestions() {
    let cases = [
        (model("min-replicas: 1"), "did you mean `minReplicas`?"),
        (model("maxreplicas: 1"), "did you mean `maxReplicas`?"),
        (model("headTimeout: 1s"), "this key belongs into `limits`"),
        (model("shutdown: {}"), "this key belongs at the top of the file"),
        (model("protocol: http"), "did you mean `http1`?"),
        (model("memory: 2GB"), "did you mean `2G`?"),
        (model("memory: 2gi"), "did you mean `2Gi`?"),
        (
            model("annotations: {serving.kserve.io/targetUtilizationPercentage: '80'}"),
            "a former name; write `autoscaling.knative.dev/target-utilization-percentage`",
        ),
        (
            model("annotations: {autoscaling.knative.dev/minscale: 1}"),
            "did you mean `autoscaling.knative.dev/min-scale`?",
        ),
        (model("maxReplicas: 0"), "0 does not mean unlimited here; it does under `compat: kpa`"),
        (
            "models: []\nlisten: :9000\n".to_owned(),
            "write an IP address and a port: `127.0.0.1:9000`, or `0.0.0.0:9000` for all",
        ),
        (
            "groups: [{name: g, exclusive: [lama]}]\nmodels: [{name: llama, command: [a]}]\n".to_owned(),
            "did you mean `llama`?",
        ),
    ];
    for (text, help) in cases {
        let report = errors(&text);
        assert_eq!(report.problems[0].help.as_deref(), Some(help), "{report}");
    }
    assert_eq!(errors(&model("qqqqq: 1")).problems[0].help, None);
}

#[test]
fn a_conflict_names_both_lines() {
    let report = errors(&model(
        "minReplicas: 2\nmaxReplicas: 5\nannotations:\n  autoscaling.knative.dev/min-scale: '1'",
    ));
    assert_eq!(places(&report.problems), [("SLU0020", 7, 42)]);
    assert_eq!(report.problems[0].message, "this annotation contradicts `minReplicas` on line 4");
}

#[test]
fn cut_off_files_are_refused() {
    let text =
        "listen: 127.0.0.1:1\nmodels:\n  - name: m\n    command: [\"sh\", \"-c\"]\n    env: {A: \"b\"}\n";
    valid(text);
    // Until the command is whole; after that a prefix may be a file in its own right.
    let end = text.find("    env").unwrap();
    for cut in (0..end - 1).filter(|cut| text.is_char_boundary(*cut)) {
        errors(&text[..cut]);
    }
}

#[test]
fn alias_bombs_are_refused_at_once() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..30 {
        let of = n - 1;
        text += &format!(
            "a{n}: &a{n} [*a{of}, *a{of}, *a{of}, *a{of}, *a{of}, *a{of}, *a{of}, *a{of}, *a{of}, *a{of}]\n"
        );
    }
    let report = errors(&text);
    assert_eq!(report.problems.last().unwrap().code, Code::TooLarge, "{report}");
    assert_eq!(errors(&"[".repeat(100_000)).problems[0].code, Code::Syntax);
    assert_eq!(errors(&format!("models: []\n#{}", "x".repeat(9 << 20))).problems[0].code, Code::TooLarge);
}

#[test]
fn a_file_of_errors_is_listed_up_to_a_bound() {
    let text: String = (0..5_000).map(|n| format!("k{n}: 1\n")).collect();
    assert_eq!(errors(&text).problems.len(), 500);
}

#[test]
fn files_that_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sluice.yaml");
    assert_eq!(places(&load(&path).unwrap_err().problems), [("SLU0001", 0, 0)]);
    std::fs::write(&path, b"models: [\xff]\n").unwrap();
    let report = load(&path).unwrap_err();
    assert_eq!(places(&report.problems), [("SLU0001", 0, 0)]);
    assert!(report.to_string().contains("byte 9 begins no character"), "{report}");
}

#[test]
fn deviations_and_warnings_are_noted() {
    let util = "annotations: {autoscaling.knative.dev/target-utilization-percentage: 100}";
    let cases: &[(String, &[&str])] = &[
        (model(""), &[]),
        (model("idleAfter: 1s"), &[]),
        (
            model(&format!(
                "minReplicas: 1\nmaxReplicas: 2\nscaleTarget: 5\ncontainerConcurrency: 5\n{util}"
            )),
            &[],
        ),
        (
            model("minReplicas: 1\nmaxReplicas: 2\nscaleTarget: 5"),
            &[
                "a target of 5 is 5 requests per replica here and 3.5 under Knative",
                "at most 5 requests are sent",
            ],
        ),
        (
            model(&format!(
                "minReplicas: 1\nmaxReplicas: 2\nscaleTarget: 5\ncontainerConcurrency: 2\n{util}"
            )),
            &["the target 5 is above `containerConcurrency` 2"],
        ),
        (model("maxReplicas: 2"), &["an omitted `minReplicas` is 0 here and 1 under KServe"]),
        (model("minReplicas: 1"), &["an omitted `maxReplicas` is one replica here"]),
        (model("timeout: 5"), &["`timeout` begins when a replica gets the request"]),
        (model("groups: [g]"), &["the group `g` has fewer than two models"]),
        (format!("{}memory: 1Gi\n", model("")), &["`m` counts nothing against the memory budget"]),
        (
            format!("{}memory: 1Gi\n", model("minReplicas: 2\nmaxReplicas: 2\nmemory: 700Mi")),
            &["the models' `minReplicas` need more memory"],
        ),
        (
            format!("{}admin: 0.0.0.0:1\nadminTokens: tokens\n", model("")),
            &["the admin listener can be reached from other machines"],
        ),
    ];
    for (text, expected) in cases {
        let notes = valid(text).notes;
        assert_eq!(notes.len(), expected.len(), "{text}\n{notes:?}");
        for words in *expected {
            assert!(notes.iter().any(|note| note.message.contains(words)), "{text}\n{notes:?}");
        }
    }
}

#[test]
fn absent_programs_are_noted_by_loading_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sluice.yaml");
    std::fs::write(dir.path().join("plain"), "").unwrap();
    let mut text = "models:\n".to_owned();
    let work = dir.path().display();
    for (name, command) in
        [("a", "sh"), ("b", "no-such-program"), ("c", "/bin/sh"), ("d", "./plain"), ("e", "./sluice.yaml/x")]
    {
        text += &format!("  - {{name: {name}, command: [{command}], workingDirectory: {work}}}\n");
    }
    std::fs::write(&path, &text).unwrap();
    let notes = load(&path).unwrap().notes;
    assert_eq!(places(&notes), [("SLU0102", 3, 25), ("SLU0102", 5, 25), ("SLU0102", 6, 25)]);
    assert_eq!(parse(&text, path.to_str().unwrap(), &env).unwrap().notes, []);
}

#[test]
fn excerpts_leave_comments_out_and_keep_the_mark_in_sight() {
    let report = errors(&model("preload: x # sk-1 'quoted' # more"));
    assert_eq!(report.problems[0].excerpt, "  4 |     preload: x\n    |              ^\n");
    let report = errors(&model("'a #b': x"));
    assert_eq!(report.problems[0].excerpt, "  4 |     'a #b': ·\n    |     ^^^^^^\n");
    let report = errors(&model(&format!("env: {{A: '{}', B: [x]}}", "y".repeat(200))));
    let lines: Vec<_> = report.problems[0].excerpt.lines().collect();
    let mark = lines[1].chars().position(|c| c == '^').unwrap();
    assert_eq!(lines[0].chars().nth(mark), Some('['), "{report}");
    assert!(lines[0].chars().count() < 110, "{report}");
}

#[test]
fn a_wrong_collector_is_an_error() {
    for (keys, code) in [
        ("{}", "SLU0012"),
        ("{endpoint: 'collector:4318'}", "SLU0014"),
        ("{endpoint: 'http://c:4318/v1/traces'}", "SLU0014"),
        ("{endpoint: 'http://c:4318', sample: 2}", "SLU0015"),
        ("{endpoint: 'http://c:4318', headers: {'a b': c}}", "SLU0014"),
    ] {
        let report = errors(&format!("tracing: {keys}\nmodels: []\n"));
        let found = places(&report.problems);
        assert_eq!((found.len(), found[0].0), (1, code), "{keys}: {report}");
    }
}

#[test]
fn of_two_spellings_of_an_annotation_that_with_hyphens_wins_and_the_other_is_noted() {
    for keys in ["minScale: '3', K/min-scale: '1'", "min-scale: '1', K/minScale: '3'"] {
        let keys = format!("K/{keys}").replace("K/", "autoscaling.knative.dev/");
        let text = model(&format!("maxReplicas: 5\nannotations: {{{keys}}}"));
        assert_eq!(spec(&text).scale.min_replicas, 1, "{keys}");
        let notes = valid(&text).notes;
        assert!(notes.iter().any(|note| note.message.contains("minScale` is passed over")), "{notes:?}");
    }
}

#[test]
fn fixed_addresses_are_not_told_about_omitted_numbers_of_replicas() {
    let notes = valid("models: [{name: m, url: http://a, containerConcurrency: 4}]\n").notes;
    assert!(!notes.iter().any(|note| note.message.contains("an omitted")), "{notes:?}");
    let notes = valid(&model("containerConcurrency: 4")).notes;
    assert_eq!(notes.iter().filter(|note| note.message.contains("an omitted")).count(), 2, "{notes:?}");
}
