// SPDX-License-Identifier: Apache-2.0
//! Documents in, settings or problems out.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use proptest::prelude::*;
use sluice_core::{Bytes, LifeSpec, Micros, ModelSpec, ScaleSpec, Source};
use sluice_scaler::launch::{FixedLaunch, Launch, Origin, Probe, ProcessLaunch, Secret};

use super::*;

fn env(name: &str) -> Option<String> {
    match name {
        "SET" => Some("from-env".to_owned()),
        "NUMBER" => Some("3".to_owned()),
        "KEY" => Some("sk-env-secret".to_owned()),
        _ => None,
    }
}

fn load_text(text: &str) -> Result<Loaded, Report> {
    parse(text, "sluice.yaml", &env)
}

#[track_caller]
fn valid(text: &str) -> Loaded {
    load_text(text).unwrap_or_else(|report| panic!("{report}"))
}

/// One model `m` with these lines; its own keys begin on line 4, column 5.
fn model(lines: &str) -> String {
    let lines: String = lines.lines().map(|line| format!("    {line}\n")).collect();
    format!("models:\n  - name: m\n    command: [sh]\n{lines}")
}

fn spec(text: &str) -> ModelSpec {
    valid(text).settings.plan.fleet.models["m"].clone()
}

fn data(text: &str) -> ModelSettings {
    (*valid(text).settings.models["m"]).clone()
}

fn process(text: &str) -> ProcessLaunch {
    match &*valid(text).settings.plan.launches["m"] {
        Launch::Process(process) => process.clone(),
        Launch::Fixed(_) => panic!("not a process"),
    }
}

type At = (&'static str, usize, usize);

fn places(problems: &[Problem]) -> Vec<At> {
    problems.iter().map(|p| (p.code.id(), p.line, p.column)).collect()
}

#[track_caller]
fn errors(text: &str) -> Report {
    match load_text(text) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(report) => report,
    }
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

// --- what is right ---------------------------------------------------------------------------------------------

#[test]
fn every_default_of_a_process_model() {
    let loaded = valid("models:\n  - name: m\n    command: [sh, '${PORT}']\n");
    let Settings { listen, tls, admin, threads, limits, shutdown, models, plan } = loaded.settings;
    assert_eq!((listen, admin), (vec!["127.0.0.1:8080".parse().unwrap()], "127.0.0.1:8081".parse().unwrap()));
    assert_eq!((tls, threads), (None, std::thread::available_parallelism().unwrap().get()));
    let expected = Limits {
        connections: 20_000,
        connections_per_source: 0,
        head_timeout: secs(10),
        idle_timeout: secs(75),
        body_timeout: secs(30),
        write_timeout: secs(30),
        body_memory: 1 << 30,
        body_limit: 32 << 20,
        h2_streams: 100,
    };
    assert_eq!(limits, expected);
    assert_eq!(shutdown, Shutdown { drain_delay: Duration::ZERO, deadline: secs(30) });
    assert!(models["m"].created > 1_700_000_000);
    let expected = ModelSettings {
        name: "m".into(),
        body_limit: 32 << 20,
        body_memory: 512 << 20,
        queue_length: 1000,
        queue_bytes: 256 << 20,
        timeouts: Timeouts {
            cold_start: secs(600),
            queue: secs(300),
            connect: secs(1),
            first_byte: Some(secs(600)),
            between_bytes: Some(secs(300)),
            total: None,
        },
        protocol: Protocol::Http1,
        backend_key: None,
        pass_credentials: false,
        retry_stale: true,
        created: models["m"].created,
    };
    assert_eq!(*models["m"], expected);
    assert_eq!(plan.fleet.memory, None);
    let launch = &plan.launches["m"];
    let expected = ModelSpec {
        generation: launch::generation(launch),
        source: Source::Launched,
        scale: ScaleSpec {
            min_replicas: 0,
            max_replicas: 1,
            target_milli: 100_000,
            container_concurrency: 0,
            idle_after: Micros::from_secs(300),
            window: Micros::from_secs(60),
            preload: false,
        },
        life: LifeSpec {
            start_deadline: Micros::from_secs(300),
            drain_deadline: Micros::from_secs(300),
            stop_deadline: Micros::from_secs(10),
            start_attempts: 3,
            backoff_first: Micros::from_millis(500),
            backoff_max: Micros::from_secs(30),
        },
        memory: Bytes(0),
        groups: Vec::new(),
    };
    assert_eq!(plan.fleet.models["m"], expected);
    let expected = Launch::Process(ProcessLaunch {
        command: vec!["sh".to_owned(), "${PORT}".to_owned()],
        stop_command: None,
        env: Default::default(),
        working_directory: None,
        stop_deadline: secs(10),
        probe: Probe {
            path: "/health".to_owned(),
            period: Duration::from_millis(100),
            ready_period: secs(5),
            timeout: secs(2),
            successes: 1,
            failures: 3,
            headers: Vec::new(),
        },
    });
    assert_eq!(**launch, expected);
    assert_eq!(loaded.notes, []);
}

#[test]
fn every_key_reaches_its_setting() {
    let text = r#"
listen: ["127.0.0.1:1", "[::1]:2"]
admin: 127.0.0.1:3
tls: {listen: 127.0.0.1:4, certificate: tls/cert.pem, key: /abs/key.pem}
threads: 7
limits:
  connections: 1
  connectionsPerSource: 2
  headTimeout: 1s
  idleTimeout: 2s
  bodyTimeout: 3s
  writeTimeout: 4s
  bodyMemory: 3Mi
  streamsPerConnection: 5
shutdown: {drainDelay: 5s, deadline: 1m30s}
memory: 10Gi
groups: [{name: g, exclusive: [m, n]}]
models:
  - name: m
    command: [prog, a]
    stopCommand: [stop, "${PID}"]
    env: {A: "1", B: true}
    workingDirectory: sub
    readiness: {path: /ready?x=1, period: 1s, readyPeriod: 2s, timeout: 3s, successes: 4, failures: 5, headers: {x-a: b}}
    backendKey: k2
    protocol: http2
    minReplicas: 2
    maxReplicas: 9
    scaleTarget: 2.5
    scaleMetric: concurrency
    containerConcurrency: 6
    timeout: 90
    timeouts: {coldStart: 1s, queue: 2s, connect: 3s, firstByte: 4s, betweenBytes: none}
    idleAfter: 1h
    window: 500ms
    startDeadline: 6s
    stopDeadline: 7s
    drainDeadline: 8s
    startAttempts: 9
    backoff: {first: 10ms, max: 20ms}
    bodyLimit: 1Mi
    bodyMemory: 2Mi
    queue: {length: 3, bytes: 1048576}
    memory: 1.5Gi
    groups: [h]
    preload: true
    retryStale: false
  - {name: n, command: [prog], groups: [h], passCredentials: true, memory: 1Gi, bodyLimit: 1Mi}
"#;
    let loaded = parse(text, "/etc/sluice/sluice.yaml", &env).unwrap_or_else(|report| panic!("{report}"));
    let settings = loaded.settings;
    assert_eq!(settings.listen, ["127.0.0.1:1".parse().unwrap(), "[::1]:2".parse().unwrap()]);
    let tls = Tls {
        listen: vec!["127.0.0.1:4".parse().unwrap()],
        certificate: "/etc/sluice/tls/cert.pem".into(),
        key: "/abs/key.pem".into(),
    };
    assert_eq!((settings.tls, settings.threads), (Some(tls), 7));
    let limits = Limits {
        connections: 1,
        connections_per_source: 2,
        head_timeout: secs(1),
        idle_timeout: secs(2),
        body_timeout: secs(3),
        write_timeout: secs(4),
        body_memory: 3 << 20,
        body_limit: 1 << 20,
        h2_streams: 5,
    };
    assert_eq!(settings.limits, limits);
    assert_eq!(settings.shutdown, Shutdown { drain_delay: secs(5), deadline: secs(90) });
    let created = settings.models["m"].created;
    let expected = ModelSettings {
        name: "m".into(),
        body_limit: 1 << 20,
        body_memory: 2 << 20,
        queue_length: 3,
        queue_bytes: 1 << 20,
        timeouts: Timeouts {
            cold_start: secs(1),
            queue: secs(2),
            connect: secs(3),
            first_byte: Some(secs(4)),
            between_bytes: None,
            total: Some(secs(90)),
        },
        protocol: Protocol::Http2,
        backend_key: Some(Secret("k2".to_owned())),
        pass_credentials: false,
        retry_stale: false,
        created,
    };
    assert_eq!(*settings.models["m"], expected);
    assert!(settings.models["n"].pass_credentials);
    assert_eq!(settings.models["n"].body_memory, 3 << 20, "an omitted bodyMemory fits into the file's");
    let plan = settings.plan;
    assert_eq!(plan.fleet.memory, Some(Bytes(10 << 30)));
    let expected = ModelSpec {
        generation: plan.fleet.models["m"].generation,
        source: Source::Launched,
        scale: ScaleSpec {
            min_replicas: 2,
            max_replicas: 9,
            target_milli: 2_500,
            container_concurrency: 6,
            idle_after: Micros::from_secs(3600),
            window: Micros::from_millis(500),
            preload: true,
        },
        life: LifeSpec {
            start_deadline: Micros::from_secs(6),
            drain_deadline: Micros::from_secs(8),
            stop_deadline: Micros::from_secs(7),
            start_attempts: 9,
            backoff_first: Micros::from_millis(10),
            backoff_max: Micros::from_millis(20),
        },
        memory: Bytes(3 << 29),
        groups: vec!["g".to_owned(), "h".to_owned()],
    };
    assert_eq!(plan.fleet.models["m"], expected);
    assert_eq!(plan.fleet.models["n"].groups, ["g", "h"]);
    let expected = ProcessLaunch {
        command: vec!["prog".to_owned(), "a".to_owned()],
        stop_command: Some(vec!["stop".to_owned(), "${PID}".to_owned()]),
        env: [("A", "1"), ("B", "true")].map(|(k, v)| (k.to_owned(), Secret(v.to_owned()))).into(),
        working_directory: Some("/etc/sluice/sub".into()),
        stop_deadline: secs(7),
        probe: Probe {
            path: "/ready?x=1".to_owned(),
            period: secs(1),
            ready_period: secs(2),
            timeout: secs(3),
            successes: 4,
            failures: 5,
            headers: vec![
                ("x-a".to_owned(), Secret("b".to_owned())),
                ("authorization".to_owned(), Secret("Bearer k2".to_owned())),
            ],
        },
    };
    assert_eq!(*plan.launches["m"], Launch::Process(expected));
}

#[test]
fn the_classifier_in_ten_lines() {
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
    let scale = valid(text).settings.plan.fleet.models["bert-classifier"].scale.clone();
    assert_eq!((scale.min_replicas, scale.max_replicas), (1, 10));
    assert_eq!((scale.target_milli, scale.container_concurrency), (5_000, 5));
}

#[test]
fn fixed_addresses() {
    let origin = |tls, host: &str, port| Origin { tls, host: host.to_owned(), port };
    let urls = "models:\n  - name: m\n    urls: [http://a, 'https://B.example/', 'http://[::1]:9']\n";
    let loaded = valid(urls);
    let Launch::Fixed(FixedLaunch { urls, .. }) = &*loaded.settings.plan.launches["m"] else { panic!() };
    assert_eq!(*urls, [origin(false, "a", 80), origin(true, "B.example", 443), origin(false, "::1", 9)]);
    let model = &loaded.settings.plan.fleet.models["m"];
    assert_eq!((model.source, model.scale.min_replicas, model.scale.max_replicas), (Source::Fixed(3), 3, 3));
    let one = valid("models: [{name: m, url: 'http://10.0.0.1:8000', containerConcurrency: 4}]");
    assert_eq!(one.settings.plan.fleet.models["m"].scale.container_concurrency, 4);
}

#[test]
fn target_and_hard_limit_follow_from_each_other() {
    let cases = [
        ("", (100_000, 0)),
        ("containerConcurrency: 4", (4_000, 4)),
        ("containerConcurrency: 0", (100_000, 0)),
        ("scaleTarget: 5", (5_000, 5)),
        ("scaleTarget: 2.5", (2_500, 3)),
        ("scaleTarget: 0.01", (10, 1)),
        ("scaleTarget: 5\ncontainerConcurrency: 0", (5_000, 0)),
        ("scaleTarget: 5\ncontainerConcurrency: 8", (5_000, 8)),
        ("annotations: {autoscaling.knative.dev/target: '7'}", (7_000, 7)),
        (
            "scaleTarget: 10\nannotations: {autoscaling.knative.dev/target-utilization-percentage: '70'}",
            (7_000, 10),
        ),
        ("annotations: {autoscaling.knative.dev/targetUtilizationPercentage: '50'}", (50_000, 0)),
        (
            "scaleTarget: 0.01\nannotations: {autoscaling.knative.dev/targetUtilizationPercentage: '1'}",
            (10, 1),
        ),
    ];
    for (lines, expected) in cases {
        let scale = spec(&model(lines)).scale;
        assert_eq!((scale.target_milli, scale.container_concurrency), expected, "{lines}");
    }
}

#[test]
fn an_omitted_maximum_follows_the_minimum() {
    for (lines, expected) in [("", 1), ("minReplicas: 0", 1), ("minReplicas: 3", 3)] {
        assert_eq!(spec(&model(lines)).scale.max_replicas, expected, "{lines}");
    }
}

#[test]
fn annotations_mean_what_the_keys_mean() {
    let text = model(
        "annotations:\n  autoscaling.knative.dev/min-scale: '1'\n  autoscaling.knative.dev/maxScale: 4\n  \
         autoscaling.knative.dev/target: 1.5\n  autoscaling.knative.dev/metric: concurrency\n  \
         autoscaling.knative.dev/window: 1m30s\n  autoscaling.knative.dev/class: kpa.autoscaling.knative.dev\n  \
         autoscaling.knative.dev/scale-to-zero-pod-retention-period: 90s",
    );
    let scale = spec(&text).scale;
    assert_eq!((scale.min_replicas, scale.max_replicas, scale.target_milli), (1, 4, 1_500));
    assert_eq!((scale.window, scale.idle_after), (Micros::from_secs(90), Micros::from_secs(90)));
    let agreeing =
        model("minReplicas: 1\nmaxReplicas: 1\nannotations: {autoscaling.knative.dev/min-scale: '1'}");
    assert_eq!(spec(&agreeing).scale.min_replicas, 1);
}

#[test]
fn spellings_of_durations_and_sizes() {
    let idle = |text: &str| Duration::from(spec(&model(&format!("idleAfter: {text}"))).scale.idle_after);
    let cases =
        [("0", 0), ("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("1h30m", 5_400_000), ("1.5s", 1_500)];
    for (text, millis) in cases {
        assert_eq!(idle(text), Duration::from_millis(millis), "{text}");
    }
    let memory = |text: &str| spec(&model(&format!("memory: {text}"))).memory.0;
    let cases = [("0", 0), ("1048576", 1 << 20), ("512k", 512_000), ("32Mi", 32 << 20), ("1.5Gi", 3 << 29)];
    for (text, bytes) in cases {
        assert_eq!(memory(text), bytes, "{text}");
    }
    let total = |text: &str| data(&model(&format!("timeout: {text}"))).timeouts.total;
    for (text, expected) in [("300", Some(300)), ("5m", Some(300)), ("none", None), ("'7'", Some(7))] {
        assert_eq!(total(text), expected.map(secs), "{text}");
    }
}

#[test]
fn the_environment_is_filled_in() {
    let text =
        model("minReplicas: ${env.NUMBER}\nenv: {A: 'x-${env.SET}-${env.NO:-y}', B: '$${env.SET} ${HOME}'}");
    assert_eq!(spec(&text).scale.min_replicas, 3);
    let env = process(&text).env;
    assert_eq!((env["A"].0.as_str(), env["B"].0.as_str()), ("x-from-env-y", "${env.SET} ${HOME}"));
    let text = "models: [{name: m, command: ['${env.NO:-}sh', '${PORT}', '${env.SET}']}]";
    assert_eq!(process(text).command, ["sh", "${PORT}", "from-env"]);
}

#[test]
fn aliases_stand_for_what_they_name() {
    let text =
        "models:\n  - {name: m, command: &c [sh, x], env: &e {A: b}}\n  - {name: n, command: *c, env: *e}\n";
    let launches = valid(text).settings.plan.launches;
    assert_eq!(launches["m"], launches["n"]);
}

#[test]
fn texts_stay_as_they_are_written() {
    let text = "models: [{name: 1.0, command: [sh, 0x10, no, 1e3], env: {A: 007, B: ''}}]";
    let Launch::Process(process) = &*valid(text).settings.plan.launches["1.0"] else { panic!() };
    assert_eq!(process.command, ["sh", "0x10", "no", "1e3"]);
    assert_eq!((process.env["A"].0.as_str(), process.env["B"].0.as_str()), ("007", ""));
}

#[test]
fn a_key_of_the_backend_comes_from_a_file_too() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("key"), "sk-file\n").unwrap();
    let origin = dir.path().join("sluice.yaml");
    let text = model("backendKeyFile: key\nreadiness: {headers: {Authorization: Basic x}}");
    let loaded = parse(&text, origin.to_str().unwrap(), &env).unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(loaded.settings.models["m"].backend_key, Some(Secret("sk-file".to_owned())));
    let Launch::Process(process) = &*loaded.settings.plan.launches["m"] else { panic!() };
    assert_eq!(process.probe.headers, [("Authorization".to_owned(), Secret("Basic x".to_owned()))]);
}

#[test]
fn the_generation_follows_the_command_and_nothing_about_scale() {
    let base = "env: {A: b}\nworkingDirectory: /x";
    let generation = |text: &str| spec(text).generation;
    let same = [
        "maxReplicas: 7\nscaleTarget: 3",
        "idleAfter: 1s",
        "readiness: {path: /x}",
        "stopDeadline: 1s",
        "backendKey: k",
        "stopCommand: [x]",
    ];
    for more in same {
        assert_eq!(generation(&model(base)), generation(&model(&format!("{base}\n{more}"))), "{more}");
    }
    let other = [
        "env: {A: c}\nworkingDirectory: /x",
        "env: {A: b}\nworkingDirectory: /y",
        "env: {B: b}\nworkingDirectory: /x",
        "env: {A: b}",
    ];
    for lines in other {
        assert_ne!(generation(&model(base)), generation(&model(lines)), "{lines}");
    }
    let command = |words: &str| generation(&format!("models: [{{name: m, command: {words}}}]"));
    assert_ne!(command("[a, b c]"), command("[a b, c]"));
    assert_ne!(command("[a, b]"), command("[a, b, '']"));
    let url = |url: &str| generation(&format!("models: [{{name: m, url: '{url}'}}]"));
    assert_eq!(url("http://a"), url("http://a:80/"));
    assert_ne!(url("http://a"), url("https://a:80"));
}

#[test]
fn the_digest_is_that_of_the_text() {
    let (one, other) = (model(""), model("preload: true"));
    assert_eq!(valid(&one).digest, valid(&one).digest);
    assert_ne!(valid(&one).digest, valid(&other).digest);
}

// --- what is wrong ---------------------------------------------------------------------------------------------

/// A line among a model's keys, and the one error that it is.
const WRONG_LINES: &[(&str, &str, usize)] = &[
    ("minReplica: 1", "SLU0010", 5),
    ("gpu: {memory: 2Gi}", "SLU0011", 5),
    ("compat: kpa", "SLU0011", 5),
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
    ("annotations: {autoscaling.knative.dev/initial-scale: '1'}", "SLU0011", 19),
    ("annotations: {autoscaling.knative.dev/min-scal: '1'}", "SLU0010", 19),
    ("annotations: {serving.kserve.io/autoscalerClass: hpa}", "SLU0011", 19),
    ("annotations: {example.org/team: a}", "SLU0010", 19),
    (
        "annotations: {autoscaling.knative.dev/min-scale: '1', autoscaling.knative.dev/minScale: '1'}",
        "SLU0020",
        59,
    ),
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
        ("models: []\nadmin: 0.0.0.0:8080\n", &[("SLU0021", 2, 8)]),
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
        (model("timeoutSeconds: 1"), "KServe's name for it is `timeout`"),
        (
            model("annotations: {autoscaling.knative.dev/minscale: 1}"),
            "did you mean `autoscaling.knative.dev/min-scale`?",
        ),
        (
            model("maxReplicas: 0"),
            "Never more replicas. One, because a machine is easily full; 0 does not mean unlimited here.",
        ),
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
    let text = "listen: 127.0.0.1:1\nmodels:\n  - name: m\n    command: [\"sh\", \"-c\", \"x\"]\n    env: {A: \"b\"}\n";
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

// --- notes -----------------------------------------------------------------------------------------------------

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
            format!("{}admin: 0.0.0.0:1\n", model("")),
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

// --- secrets ---------------------------------------------------------------------------------------------------

#[test]
fn secrets_are_in_no_report_and_no_debug_text() {
    let secret_bits = ["sk-", "tok", "hunter2", "from-env", "Bearer"];
    let clean = "models:\n  - name: m\n    command: [sh, --api-key, sk-1]\n    backendKey: sk-2\n    env: {T: hunter2}\n    readiness: {headers: {x-k: tok}}\n";
    let debug = format!("{:?}", valid(clean).settings);
    for bit in ["sk-2", "hunter2", "tok", "Bearer"] {
        assert!(!debug.contains(bit), "{debug}");
    }
    let wrong = [
        clean.replace("backendKey", "bakendKey"),
        clean.replace("sk-2", "{sk-2: sk-3}"),
        clean.replace("sk-2", "'sk-2 sk-3'"),
        clean.replace("sk-2", "[sk-2]"),
        clean.replace("backendKey: sk-2", "backendKeyFile: sk-2"),
        clean.replace("{T: hunter2}", "T=hunter2"),
        clean.replace("{T: hunter2}", "{T: hunter2, T: hunter2}"),
        clean.replace("{T: hunter2}", "{T: 'hunter2"),
        clean.replace("[sh, --api-key, sk-1]", "sh --api-key sk-1"),
        clean.replace("[sh, --api-key, sk-1]", "[sh, --api-key, {sk-1: x}]"),
        clean.replace("[sh, --api-key, sk-1]", "[sh, --api-key, \"a\\0sk-1\"]"),
        clean.replace("{x-k: tok}", "{x-k: \"tok\\n\"}"),
        clean.replace("sk-2", "sk-2: sk-3"),
        clean.replace("sk-2", "|\n      sk-2\n     sk-3: x"),
        format!("{clean}    # backendKey sk-9\n    bodyLimit: ${{env.SET}}\n"),
        format!("{clean}    url: http://user:hunter2@host\n"),
        format!("listen: ${{env.KEY}}\nadmin: ['${{env.KEY}}']\n{clean}"),
        format!("tls: {{listen: 127.0.0.1:1, certificate: c, key: \"-----BEGIN sk-4\\n\"}}\n{clean}"),
        clean.replace("name: m", "name: '${env.KEY} x'"),
        clean.replace("command: [sh, ", "protocol: ${env.KEY}\n    command: ["),
    ];
    for text in wrong {
        let report = errors(&text);
        let (words, json) = (report.to_string(), report.to_json().to_string());
        for bit in secret_bits {
            assert!(!words.contains(bit) && !json.contains(bit), "{bit} in\n{words}\n{json}\nof\n{text}");
        }
    }
}

#[test]
fn reports_cannot_carry_control_characters() {
    let report = errors("models: [{name: m, command: [a], preload: \"\\e[31m\\u202e\"}]\n\"\\e[2J\": x\n");
    assert!(!report.to_string().chars().any(|c| c.is_control() && c != '\n'), "{report:?}");
}

// --- whatever comes --------------------------------------------------------------------------------------------

const WHOLE: &str = include_str!("../../../deploy/local/demo.yaml");

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn mutated_files_never_panic(cuts in prop::collection::vec((any::<prop::sample::Index>(), 0usize..12, "[ -~\n\té€]{0,6}"), 1..6)) {
        let mut text: Vec<char> = WHOLE.chars().collect();
        for (at, length, replacement) in cuts {
            let from = at.index(text.len().max(1)).min(text.len());
            let to = (from + length).min(text.len());
            text.splice(from..to, replacement.chars());
        }
        let text: String = text.into_iter().collect();
        if let Err(report) = load_text(&text) {
            prop_assert!(!report.problems.is_empty());
            prop_assert!(!report.to_string().is_empty());
        }
    }

    #[test]
    fn any_text_never_panics(text in "[ -~\n\t\r:{}\\[\\]&*!|>'\"%@`,#é€]{0,80}") {
        let _ = load_text(&text).map_err(|report| report.to_string());
    }
}

#[test]
fn the_examples_in_the_tree_are_right() {
    for text in [WHOLE, include_str!("../../../deploy/local/llama.yaml")] {
        valid(text);
    }
}

// --- the documentation -----------------------------------------------------------------------------------------

#[test]
fn the_documentation_holds_every_key() {
    let text = include_str!("../../../docs/configuration.md");
    let (_, tables) = text.split_once("A test compares it. -->\n\n").expect("the mark before the tables");
    assert!(tables == reference(), "replace what follows the mark by the output of `sluice check --keys`");
}

#[test]
fn the_yaml_of_the_documentation_is_right() {
    let text = include_str!("../../../docs/configuration.md");
    for block in text.split("```yaml\n").skip(1) {
        valid(block.split("```").next().unwrap());
    }
}
