// SPDX-License-Identifier: Apache-2.0
//! `compat: kpa`: Knative's keys, defaults, refusals and notes.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use sluice_core::Profile;
use sluice_core::kpa::{Algorithm, Metric, Settings};
use sluice_core::{Micros, ScaleSpec};

use super::*;

const K: &str = "autoscaling.knative.dev/";

fn kpa(lines: &str) -> String {
    model(&format!("compat: kpa\n{lines}"))
}

/// With annotations, written without their prefix.
fn annotated(annotations: &str) -> String {
    let full: Vec<String> = annotations.split(", ").map(|entry| format!("{K}{entry}")).collect();
    kpa(&format!("annotations: {{{}}}", full.join(", ")))
}

#[track_caller]
fn scale(text: &str) -> (ScaleSpec, Settings) {
    let scale = spec(text).scale;
    match scale.profile.clone() {
        Profile::Kpa(settings) => (scale, *settings),
        Profile::Sized => panic!("not under kpa"),
    }
}

#[track_caller]
fn settings(text: &str) -> Settings {
    scale(text).1
}

#[test]
fn what_is_left_out_is_as_under_knative_but_for_the_maximum() {
    let (scale, told) = scale(&kpa(""));
    assert_eq!(told, Settings { max_scale: 1, ..Settings::default() });
    assert_eq!((scale.min_replicas, scale.max_replicas, scale.container_concurrency), (0, 1, 0));
    assert_eq!((scale.target_milli, scale.window), (100_000, Micros::from_secs(60)));
    assert!(!scale.preload);
}

#[test]
fn the_file_says_it_for_all_models_and_a_model_for_itself() {
    let text =
        "compat: kpa\nmodels:\n  - {name: m, command: [sh]}\n  - {name: n, command: [sh], compat: none}\n";
    let fleet = valid(text).settings.plan.fleet;
    assert!(matches!(fleet.models["m"].scale.profile, Profile::Kpa(_)));
    assert_eq!(fleet.models["n"].scale.profile, Profile::Sized);
    assert_eq!(spec("compat: none\nmodels: [{name: m, command: [sh]}]").scale.profile, Profile::Sized);
}

#[test]
fn every_annotation_says_what_it_says_under_knative() {
    let text = kpa("\
containerConcurrency: 8
annotations:
  autoscaling.knative.dev/class: kpa.autoscaling.knative.dev
  autoscaling.knative.dev/metric: rps
  autoscaling.knative.dev/target: '1e2'
  autoscaling.knative.dev/target-utilization-percentage: '62.5'
  autoscaling.knative.dev/min-scale: '2'
  autoscaling.knative.dev/max-scale: '9'
  autoscaling.knative.dev/initial-scale: '3'
  autoscaling.knative.dev/activation-scale: '4'
  autoscaling.knative.dev/scale-down-delay: 1m30s
  autoscaling.knative.dev/window: 120s
  autoscaling.knative.dev/panic-window-percentage: '12.5'
  autoscaling.knative.dev/panic-threshold-percentage: '150'
  autoscaling.knative.dev/target-burst-capacity: '-1'
  autoscaling.knative.dev/scale-to-zero-pod-retention-period: 1m500ms
  autoscaling.knative.dev/metric-aggregation-algorithm: weightedExponential
  serving.knative.dev/progress-deadline: 20m");
    let expected = Settings {
        metric: Metric::Rps,
        algorithm: Algorithm::WeightedExponential,
        container_concurrency: 8,
        target: Some(100.0),
        target_utilization_percentage: Some(62.5),
        min_scale: 2,
        max_scale: 9,
        initial_scale: 3,
        activation_scale: 4,
        scale_down_delay: Micros::from_secs(90),
        window: Micros::from_secs(120),
        panic_window_percentage: 12.5,
        panic_threshold_percentage: 150.0,
        target_burst_capacity: -1.0,
        retention: Micros::from_millis(60_500),
        progress_deadline: Micros::from_secs(1_200),
        ..Settings::default()
    };
    assert_eq!(settings(&text), expected);
}

#[test]
fn camel_case_spellings_are_read_as_well() {
    let told = settings(&annotated(
        "minScale: '1', maxScale: '5', initialScale: '2', scaleDownDelay: 2s, targetUtilizationPercentage: '80', \
         panicWindowPercentage: '20', panicThresholdPercentage: '400', targetBurstCapacity: '0', \
         scaleToZeroPodRetentionPeriod: 3s, metricAggregationAlgorithm: weighted-exponential",
    ));
    let expected = Settings {
        algorithm: Algorithm::WeightedExponential,
        target_utilization_percentage: Some(80.0),
        min_scale: 1,
        max_scale: 5,
        initial_scale: 2,
        scale_down_delay: Micros::from_secs(2),
        panic_window_percentage: 20.0,
        panic_threshold_percentage: 400.0,
        target_burst_capacity: 0.0,
        retention: Micros::from_secs(3),
        ..Settings::default()
    };
    assert_eq!(told, expected);
}

#[test]
fn kserves_keys_say_the_same_as_the_annotations() {
    let keys = "minReplicas: 1\nmaxReplicas: 4\nscaleTarget: 5\nscaleMetric: rps\nwindow: 30s\nscaleMetricType: Value";
    let told = settings(&kpa(keys));
    let expected = Settings {
        metric: Metric::Rps,
        target: Some(5.0),
        min_scale: 1,
        max_scale: 4,
        window: Micros::from_secs(30),
        ..Settings::default()
    };
    assert_eq!(told, expected);
    let limited = settings(&kpa("scaleTarget: 5\ncontainerConcurrency: 3"));
    assert_eq!((limited.resolve().total, limited.container_concurrency), (3.0, 3));
    assert_eq!(spec(&kpa("scaleTarget: 5")).scale.container_concurrency, 0, "unlimited, as under KServe");
}

#[test]
fn a_maximum_of_zero_is_no_limit() {
    assert_eq!(settings(&kpa("maxReplicas: 0")).max_scale, 10_000);
    assert_eq!(settings(&kpa("minReplicas: 3\nmaxReplicas: 0")).min_scale, 3);
    assert_eq!(settings(&annotated("max-scale: '2147483647'")).max_scale, 10_000);
    assert_eq!(settings(&kpa("minReplicas: 3")).max_scale, 3, "what is left out follows the minimum");
}

#[test]
fn the_clusters_settings_hold_where_a_model_says_nothing() {
    let cluster = "\
compat: kpa
configAutoscaler:
  container-concurrency-target-default: '50'
  container-concurrency-target-percentage: '0.5'
  requests-per-second-target-default: '150'
  target-burst-capacity: '100'
  stable-window: 90s
  panic-window-percentage: '5'
  panic-threshold-percentage: '300'
  max-scale-up-rate: '10'
  max-scale-down-rate: '1.5'
  enable-scale-to-zero: 'false'
  scale-to-zero-grace-period: 20s
  scale-to-zero-pod-retention-period: 5s
  scale-down-delay: 10s
  initial-scale: '0'
  allow-zero-initial-scale: 'true'
  min-scale: '1'
  max-scale: '6'
  max-scale-limit: '8'
  activator-capacity: '10'
  pod-autoscaler-class: kpa.autoscaling.knative.dev
models:
  - {name: m, command: [sh]}
";
    let expected = Settings {
        concurrency_target_default: 50.0,
        concurrency_target_fraction: 0.5,
        rps_target_default: 150.0,
        min_scale: 1,
        max_scale: 6,
        initial_scale: 0,
        scale_down_delay: Micros::from_secs(10),
        window: Micros::from_secs(90),
        panic_window_percentage: 5.0,
        panic_threshold_percentage: 300.0,
        target_burst_capacity: 100.0,
        retention: Micros::from_secs(5),
        enable_scale_to_zero: false,
        scale_to_zero_grace_period: Micros::from_secs(20),
        max_scale_up_rate: 10.0,
        max_scale_down_rate: 1.5,
        activator_capacity: 10.0,
        ..Settings::default()
    };
    assert_eq!(settings(cluster), expected);
    let own = cluster.replace(
        "command: [sh]}",
        "command: [sh], window: 60s, minReplicas: 0, maxReplicas: 2, annotations: {autoscaling.knative.dev/initial-scale: 2}}",
    );
    let told = settings(&own);
    assert_eq!((told.window, told.min_scale, told.max_scale), (Micros::from_secs(60), 0, 2));
    assert_eq!(told.initial_scale, 2);
    let percent = "compat: kpa\nconfigAutoscaler: {container-concurrency-target-percentage: 1.5}\n\
                   models: [{name: m, command: [sh]}]";
    assert_eq!(settings(percent).concurrency_target_fraction, 0.015);
}

/// Annotations without their prefix, and the one error that they are.
const REFUSED: &[(&str, &str)] = &[
    ("class: hpa.autoscaling.knative.dev", "SLU0011"),
    ("class: other.autoscaling.knative.dev", "SLU0014"),
    ("class: keda", "SLU0014"),
    ("metric: cpu", "SLU0011"),
    ("metric: memory", "SLU0011"),
    ("metric: qps", "SLU0014"),
    ("metric: ''", "SLU0014"),
    ("target: '0'", "SLU0015"),
    ("target: '0.009'", "SLU0015"),
    ("target: '-1'", "SLU0015"),
    ("target: ten", "SLU0014"),
    ("target: NaN", "SLU0014"),
    ("target: Inf", "SLU0014"),
    ("target-utilization-percentage: '0.99'", "SLU0015"),
    ("target-utilization-percentage: '100.1'", "SLU0015"),
    ("target-utilization-percentage: 70%", "SLU0014"),
    ("min-scale: '-1'", "SLU0014"),
    ("min-scale: '1.5'", "SLU0014"),
    ("min-scale: '2147483648'", "SLU0015"),
    ("max-scale: '-1'", "SLU0014"),
    ("max-scale: '2147483648'", "SLU0015"),
    ("min-scale: '3', max-scale: '2'", "SLU0023"),
    ("initial-scale: '0'", "SLU0015"),
    ("initial-scale: '-1'", "SLU0014"),
    ("initial-scale: many", "SLU0014"),
    ("activation-scale: '1'", "SLU0015"),
    ("activation-scale: '0'", "SLU0015"),
    ("max-scale: '9', min-scale: '5', activation-scale: '4'", "SLU0023"),
    ("max-scale: '3', activation-scale: '4'", "SLU0023"),
    ("scale-down-delay: 61m", "SLU0015"),
    ("scale-down-delay: 1500ms", "SLU0014"),
    ("scale-down-delay: '-1s'", "SLU0014"),
    ("scale-down-delay: '30'", "SLU0014"),
    ("window: 5s", "SLU0015"),
    ("window: 61m", "SLU0015"),
    ("window: 6s500ms", "SLU0014"),
    ("window: a minute", "SLU0014"),
    ("panic-window-percentage: '0.5'", "SLU0015"),
    ("panic-window-percentage: '101'", "SLU0015"),
    ("panic-threshold-percentage: '109'", "SLU0015"),
    ("panic-threshold-percentage: '1001'", "SLU0015"),
    ("target-burst-capacity: '-0.5'", "SLU0014"),
    ("target-burst-capacity: '-2'", "SLU0015"),
    ("target-burst-capacity: many", "SLU0014"),
    ("scale-to-zero-pod-retention-period: 61m", "SLU0015"),
    ("scale-to-zero-pod-retention-period: '-1s'", "SLU0014"),
    ("class: kpa.autoscaling.knative.dev, metric-aggregation-algorithm: median", "SLU0014"),
];

#[test]
fn what_knative_refuses_is_refused() {
    for (annotations, code) in REFUSED {
        let report = errors(&annotated(annotations));
        let codes: Vec<_> = report.problems.iter().map(|problem| problem.code.id()).collect();
        assert_eq!(codes, [*code], "{annotations}: {report}");
    }
    let other = [
        ("annotations: {serving.knative.dev/progress-deadline: 1500ms}", "SLU0014"),
        ("annotations: {serving.knative.dev/progress-deadline: '-1s'}", "SLU0014"),
        ("window: 5s", "SLU0015"),
        ("window: 6500ms", "SLU0014"),
        ("scaleMetric: cpu", "SLU0011"),
        ("scaleMetric: rps\nannotations: {autoscaling.knative.dev/metric: concurrency}", "SLU0020"),
    ];
    for (lines, code) in other {
        let report = errors(&kpa(lines));
        assert_eq!(report.problems[0].code.id(), code, "{lines}: {report}");
        assert_eq!(report.problems.len(), 1, "{lines}: {report}");
    }
}

#[test]
fn what_knative_takes_is_taken() {
    let taken = [
        "target: '0.01'",
        "target: .5",
        "target: '1E1'",
        "target-utilization-percentage: '1'",
        "activation-scale: '2', max-scale: '0'",
        "initial-scale: '10', max-scale: '5'",
        "window: 1h0m0s",
        "window: 60000ms",
        "window: 6s",
        "scale-down-delay: '0'",
        "scale-to-zero-pod-retention-period: 1ns",
        "panic-threshold-percentage: '1000.0'",
        "target-burst-capacity: '0.5'",
        "metric-aggregation-algorithm: median",
        "metric-aggregation-algorithm: linear",
    ];
    for annotations in taken {
        settings(&annotated(annotations));
    }
}

/// A value of the cluster, and the one error that it is.
const CLUSTER_REFUSED: &[(&str, &str)] = &[
    ("stable-window: 5s", "SLU0015"),
    ("stable-window: 6500ms", "SLU0014"),
    ("container-concurrency-target-percentage: 0", "SLU0015"),
    ("container-concurrency-target-percentage: 101", "SLU0015"),
    ("container-concurrency-target-default: 0", "SLU0015"),
    ("max-scale-up-rate: 1", "SLU0015"),
    ("max-scale-down-rate: 1", "SLU0015"),
    ("max-scale-down-rate: 0.5", "SLU0015"),
    ("scale-to-zero-grace-period: 0", "SLU0015"),
    ("initial-scale: 0", "SLU0015"),
    ("activator-capacity: 0.5", "SLU0015"),
    ("max-scale: 9, max-scale-limit: 8", "SLU0023"),
    ("max-scale: 0, max-scale-limit: 8", "SLU0023"),
    ("target-burst-capacity: -0.1", "SLU0014"),
    ("pod-autoscaler-class: hpa.autoscaling.knative.dev", "SLU0011"),
    ("stableWindow: 60s", "SLU0010"),
    ("enable-scale-to-zero: maybe", "SLU0014"),
];

#[test]
fn what_knative_refuses_of_the_clusters_settings_is_refused() {
    for (values, code) in CLUSTER_REFUSED {
        let report = errors(&format!("configAutoscaler: {{{values}}}\nmodels: []\n"));
        let codes: Vec<_> = report.problems.iter().map(|problem| problem.code.id()).collect();
        assert_eq!(codes, [*code], "{values}: {report}");
    }
    for max in [0, 9] {
        let text = format!(
            "compat: kpa\nconfigAutoscaler: {{max-scale-limit: 8}}\n\
             models: [{{name: m, command: [sh], maxReplicas: {max}}}]\n"
        );
        assert_eq!(errors(&text).problems[0].code, Code::Bounds);
    }
}

#[test]
fn what_means_something_else_or_nothing_is_noted() {
    let notes = |text: &str| valid(text).notes.into_iter().map(|note| note.message).collect::<Vec<_>>();
    assert_eq!(notes(&kpa("")), [""; 0]);
    assert_eq!(notes(&kpa("minReplicas: 0\nmaxReplicas: 2\nscaleTarget: 5")), [""; 0], "the 70 % apply");
    let omitted = notes(&kpa("scaleTarget: 5"));
    assert!(omitted[0].contains("1 under KServe") && omitted[1].contains("unlimited"), "{omitted:?}");
    let nothing = [
        "idleAfter: 5m",
        "preload: true",
        "scaleMetricType: Value",
        "annotations: {serving.kserve.io/deploymentMode: RawDeployment}\nminReplicas: 1\nmaxReplicas: 1",
        "annotations: {autoscaling.knative.dev/metric-aggregation-algorithm: x}\nminReplicas: 1\nmaxReplicas: 1",
        "maxReplicas: 0\nminReplicas: 1\nannotations: {autoscaling.knative.dev/maxScale: '0'}",
    ];
    for (at, lines) in nothing.iter().enumerate() {
        let told = valid(&kpa(lines)).notes;
        let wanted = usize::from(at < 5);
        assert_eq!(
            told.iter().filter(|note| note.code == Code::NoEffect).count(),
            wanted,
            "{lines}: {told:?}"
        );
    }
    let fixed = valid("models: [{name: m, url: 'http://a', compat: kpa}]").notes;
    assert_eq!(fixed[0].code, Code::NoEffect);
    let class = "maxReplicas: 1\nminReplicas: 1\nannotations: {autoscaling.knative.dev/class: kpa.autoscaling.knative.dev}";
    assert_eq!(notes(&kpa(class)), [""; 0], "without compat the class is noted");
    assert_eq!(notes(&model(class)).len(), 1);
}

#[test]
fn knatives_timeouts_are_names_of_ours() {
    let text = model("timeoutSeconds: 600\nresponseStartTimeoutSeconds: 300\nidleTimeoutSeconds: 20");
    let told = data(&text).timeouts;
    assert_eq!(
        (told.total, told.first_byte, told.between_bytes),
        (Some(secs(600)), Some(secs(300)), Some(secs(20)))
    );
    let zero = data(&model("timeoutSeconds: 0\nidleTimeoutSeconds: 0")).timeouts;
    assert_eq!((zero.total, zero.between_bytes), (None, Some(secs(300))), "0 is the default");
    let both = data(&model("timeoutSeconds: 60\ntimeout: 1m\ntimeouts: {total: 60s}")).timeouts;
    assert_eq!(both.total, Some(secs(60)));
}
