// SPDX-License-Identifier: Apache-2.0
//! What is right: defaults, every key, and what follows from what.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use sluice_core::{Bytes, LifeSpec, Micros, ModelSpec, Profile, ScaleSpec, Source};
use sluice_scaler::launch::{FixedLaunch, Launch, Origin, Probe, ProcessLaunch, Secret};

use super::*;

#[test]
fn every_default_of_a_process_model() {
    let loaded = valid("models:\n  - name: m\n    command: [sh, '${PORT}']\n");
    let Settings {
        listen,
        tls,
        admin,
        admin_tokens,
        state_directory,
        tracing,
        threads,
        limits,
        shutdown,
        models,
        plan,
    } = loaded.settings;
    assert_eq!((listen, admin), (vec!["127.0.0.1:8080".parse().unwrap()], "127.0.0.1:8081".parse().unwrap()));
    assert_eq!((admin_tokens, state_directory, tracing), (None, None, None));
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
            profile: Profile::Sized,
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
    readiness:
      {path: /ready?x=1, period: 1s, readyPeriod: 2s, timeout: 3s, successes: 4, failures: 5,
       headers: {x-a: b}}
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
            profile: Profile::Sized,
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
         autoscaling.knative.dev/window: 1m30s\n  \
         autoscaling.knative.dev/class: kpa.autoscaling.knative.dev\n  \
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

#[test]
fn the_documentation_holds_every_key() {
    let text = include_str!("../../../../docs/configuration.md");
    let (_, tables) = text.split_once("A test compares it. -->\n\n").expect("the mark before the tables");
    assert!(tables == reference(), "replace what follows the mark by the output of `sluice check --keys`");
}

#[test]
fn the_committed_schema_is_that_of_the_keys() {
    let text = include_str!("../../../../deploy/sluice.schema.json");
    let committed: serde_json::Value = serde_json::from_str(text).unwrap();
    assert!(
        committed == schema(),
        "write the output of `sluice check --schema` to deploy/sluice.schema.json"
    );
}

#[test]
fn the_yaml_of_the_documentation_is_right() {
    let pages =
        [include_str!("../../../../docs/configuration.md"), include_str!("../../../../docs/model-owners.md")];
    for block in pages.iter().flat_map(|text| text.split("```yaml\n").skip(1)) {
        valid(block.split("```").next().unwrap());
    }
}

#[test]
fn traces_go_where_the_file_says() {
    let tracing = |keys: &str| valid(&format!("tracing: {keys}\nmodels: []\n")).settings.tracing.unwrap();
    let whole = tracing("{endpoint: 'http://[::1]:4318', sample: 0.25, headers: {x-key: k}}");
    assert_eq!((whole.endpoint.host.as_str(), whole.endpoint.port), ("::1", 4318));
    assert_eq!((whole.sample_milli, whole.headers[0].1.0.as_str()), (250, "k"));
    let least = tracing("{endpoint: 'https://collector.example'}");
    assert_eq!((least.endpoint.tls, least.endpoint.port, least.sample_milli), (true, 443, 1000));
}
