// SPDX-License-Identifier: Apache-2.0
//! Reads the recorded files, and a recorded configuration the way Knative's reader takes it: what it cannot parse
//! counts as absent. (The product refuses such values; that is the configuration's part.)

use std::io::Read as _;
use std::path::Path;

use serde_json::Value;
use sluice_core::Micros;
use sluice_core::kpa::{Algorithm, Metric, Reachability, Settings};

/// Every line of these files.
pub fn lines(files: &[&str]) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kpa");
    let mut lines = Vec::new();
    for file in files {
        let packed = std::fs::File::open(folder.join(file)).unwrap();
        let mut text = String::new();
        flate2::read::GzDecoder::new(packed).read_to_string(&mut text).unwrap();
        lines.extend(text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
    }
    lines
}

/// Settings of a recorded configuration.
pub fn settings(config: &Value) -> Settings {
    let read = Reader { annotations: &config["annotations"], cluster: &config["cluster"] };
    let base = read.cluster(Settings::default());
    let metric = read.text("metric", "metric").unwrap_or("concurrency");
    let target = read.parsed("target", "target");
    // Under a metric that Knative does not know, which the product refuses, a target is not limited.
    let limited = metric == "concurrency" || target.is_none();
    let initial = read.parsed::<u32>("initial-scale", "initialScale");
    let zero_allowed = config["cluster"]["allow-zero-initial-scale"] == "true";
    Settings {
        metric: if metric == "rps" { Metric::Rps } else { Metric::Concurrency },
        algorithm: match read.text("metric-aggregation-algorithm", "metricAggregationAlgorithm") {
            Some("weighted-exponential" | "weightedExponential") => Algorithm::WeightedExponential,
            _ => Algorithm::Linear,
        },
        container_concurrency: config["cc"].as_u64().filter(|_| limited).unwrap_or(0) as u32,
        target,
        target_utilization_percentage: read
            .parsed("target-utilization-percentage", "targetUtilizationPercentage"),
        min_scale: read.parsed("min-scale", "minScale").unwrap_or(base.min_scale),
        max_scale: read.parsed("max-scale", "maxScale").unwrap_or(base.max_scale),
        initial_scale: initial.filter(|&n| n > 0 || zero_allowed).unwrap_or(base.initial_scale),
        activation_scale: read.parsed("activation-scale", "activationScale").unwrap_or(0),
        scale_down_delay: read.span("scale-down-delay", "scaleDownDelay").unwrap_or(base.scale_down_delay),
        window: read.span("window", "window").unwrap_or(base.window),
        panic_window_percentage: read
            .parsed("panic-window-percentage", "panicWindowPercentage")
            .unwrap_or(base.panic_window_percentage),
        panic_threshold_percentage: read
            .parsed("panic-threshold-percentage", "panicThresholdPercentage")
            .unwrap_or(base.panic_threshold_percentage),
        target_burst_capacity: read
            .parsed("target-burst-capacity", "targetBurstCapacity")
            .unwrap_or(base.target_burst_capacity),
        retention: read
            .span("scale-to-zero-pod-retention-period", "scaleToZeroPodRetentionPeriod")
            .unwrap_or(base.retention),
        progress_deadline: progress_deadline(config).unwrap_or(base.progress_deadline),
        reachability: match config["reachability"].as_str() {
            Some("Reachable") => Reachability::Reachable,
            Some("Unreachable") => Reachability::Unreachable,
            _ => Reachability::Unknown,
        },
        ..base
    }
}

struct Reader<'a> {
    annotations: &'a Value,
    cluster: &'a Value,
}

impl Reader<'_> {
    /// An annotation by its kebab-case name, which hides the camel-case one.
    fn text(&self, kebab: &str, camel: &str) -> Option<&str> {
        let get = |name: &str| self.annotations[format!("autoscaling.knative.dev/{name}")].as_str();
        get(kebab).or_else(|| get(camel))
    }

    fn parsed<T: std::str::FromStr>(&self, kebab: &str, camel: &str) -> Option<T> {
        self.text(kebab, camel)?.parse().ok()
    }

    fn span(&self, kebab: &str, camel: &str) -> Option<Micros> {
        span(self.text(kebab, camel)?)
    }

    /// Keys of `config-autoscaler`.
    fn cluster(&self, base: Settings) -> Settings {
        let number = |key: &str| self.cluster[key].as_str().map(|text| text.parse::<f64>().unwrap());
        let length = |key: &str| self.cluster[key].as_str().map(|text| span(text).unwrap());
        let fraction = number("container-concurrency-target-percentage");
        let fraction = fraction.map(|value| if value > 1.0 { value / 100.0 } else { value });
        Settings {
            concurrency_target_fraction: fraction.unwrap_or(base.concurrency_target_fraction),
            concurrency_target_default: number("container-concurrency-target-default")
                .unwrap_or(base.concurrency_target_default),
            rps_target_default: number("requests-per-second-target-default")
                .unwrap_or(base.rps_target_default),
            max_scale_up_rate: number("max-scale-up-rate").unwrap_or(base.max_scale_up_rate),
            max_scale_down_rate: number("max-scale-down-rate").unwrap_or(base.max_scale_down_rate),
            activator_capacity: number("activator-capacity").unwrap_or(base.activator_capacity),
            panic_threshold_percentage: number("panic-threshold-percentage")
                .unwrap_or(base.panic_threshold_percentage),
            min_scale: number("min-scale").map_or(base.min_scale, |n| n as u32),
            max_scale: number("max-scale").map_or(base.max_scale, |n| n as u32),
            scale_to_zero_grace_period: length("scale-to-zero-grace-period")
                .unwrap_or(base.scale_to_zero_grace_period),
            retention: length("scale-to-zero-pod-retention-period").unwrap_or(base.retention),
            enable_scale_to_zero: self.cluster["enable-scale-to-zero"] != "false",
            ..base
        }
    }
}

fn progress_deadline(config: &Value) -> Option<Micros> {
    if let Some(seconds) = config["progress_deadline_s"].as_u64() {
        return Some(Micros::from_secs(seconds));
    }
    span(config["annotations"]["serving.knative.dev/progress-deadline"].as_str()?)
}

/// A duration as Go writes it: `1m30s`, `2.5s`, `0`.
fn span(text: &str) -> Option<Micros> {
    let mut rest = text;
    let mut micros = 0.0;
    while !rest.is_empty() && rest != "0" {
        let end = rest.find(|c: char| c != '.' && !c.is_ascii_digit())?;
        let (number, tail) = rest.split_at(end);
        let unit = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let scale = match unit {
            "h" => 3.6e9,
            "m" => 6e7,
            "s" => 1e6,
            "ms" => 1e3,
            _ => return None,
        };
        micros += number.parse::<f64>().ok()? * scale;
        rest = tail;
    }
    Some(Micros(micros as u64))
}
