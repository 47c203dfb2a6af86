// SPDX-License-Identifier: Apache-2.0
//! What the owner of a model under `compat: kpa` and the installation asked for, resolved: annotation if given, else
//! the cluster-wide value, else Knative's default. Owns the resolution of the target.
//!
//! Must not know annotation texts: parsing and refusing them is the configuration's part. Numbers are finite and in
//! the documented ranges.

use serde::{Deserialize, Serialize};

use crate::units::Micros;

/// Smallest target per replica.
const MIN_TARGET: f64 = 0.01;
/// Utilization for requests per second where the model sets none: compiled into Knative, no key changes it.
const RPS_UTILIZATION: f64 = 0.7;

/// Every key of one model's autoscaler, with Knative's defaults as `Default`.
///
/// The annotation of each field is `autoscaling.knative.dev/` and the field's name in kebab case, unless told
/// otherwise; keys of `config-autoscaler` are given as such.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Settings {
    /// `metric`: what is averaged.
    pub metric: Metric,
    /// `metric-aggregation-algorithm`.
    pub algorithm: Algorithm,
    /// `containerConcurrency` of the model; 0 is unlimited. The default total of concurrency, and its upper limit.
    pub container_concurrency: u32,
    /// `target`, at least 0.01, before utilization; `None`: `containerConcurrency` or the cluster's default.
    pub target: Option<f64>,
    /// `target-utilization-percentage`, 1 to 100; `None`: the cluster's for concurrency, 70 for requests per second.
    pub target_utilization_percentage: Option<f64>,
    /// Key `container-concurrency-target-default`.
    pub concurrency_target_default: f64,
    /// Key `container-concurrency-target-percentage` as a fraction, above 0 to 1.
    pub concurrency_target_fraction: f64,
    /// Key `requests-per-second-target-default`.
    pub rps_target_default: f64,
    /// `min-scale`.
    pub min_scale: u32,
    /// `max-scale`; 0 is unlimited.
    pub max_scale: u32,
    /// `initial-scale`; 0 only where the installation allows it.
    pub initial_scale: u32,
    /// `activation-scale`, 2 or more; 0 and 1 are off.
    pub activation_scale: u32,
    /// `scale-down-delay`, whole seconds, at most 1 h.
    pub scale_down_delay: Micros,
    /// `window`: the stable window, 6 s to 1 h, whole seconds.
    pub window: Micros,
    /// `panic-window-percentage`, 1 to 100.
    pub panic_window_percentage: f64,
    /// `panic-threshold-percentage`, 110 to 1000.
    pub panic_threshold_percentage: f64,
    /// `target-burst-capacity`: 0 or more, or -1 (unlimited: replicas are not scraped).
    pub target_burst_capacity: f64,
    /// `scale-to-zero-pod-retention-period`, at most 1 h.
    pub retention: Micros,
    /// `serving.knative.dev/progress-deadline`.
    pub progress_deadline: Micros,
    /// Whether a route leads to the model. On one machine a configured model is always reachable.
    pub reachability: Reachability,
    /// Key `enable-scale-to-zero`.
    pub enable_scale_to_zero: bool,
    /// Key `scale-to-zero-grace-period`, above 0.
    pub scale_to_zero_grace_period: Micros,
    /// Key `max-scale-up-rate`, above 1.
    pub max_scale_up_rate: f64,
    /// Key `max-scale-down-rate`, above 1.
    pub max_scale_down_rate: f64,
    /// Key `activator-capacity`, at least 1.
    pub activator_capacity: f64,
}

/// What is averaged over the windows and divided by the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Requests in flight or waiting, averaged over time.
    #[default]
    Concurrency,
    /// Requests that arrive per second.
    Rps,
}

/// How the seconds of a window become one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// Every second counts the same.
    #[default]
    Linear,
    /// The newest second counts most, each older one by a fixed factor less.
    WeightedExponential,
}

/// Whether a route leads to the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reachability {
    /// One does.
    #[default]
    Reachable,
    /// None does: floors and patience do not apply.
    Unreachable,
    /// Not known; counts as reachable.
    Unknown,
}

/// What one replica is to carry.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// After utilization: wants are divided by this.
    pub target: f64,
    /// Before utilization: used for excess burst capacity and the number of activators.
    pub total: f64,
}

// Numbers are finite, so equality is reflexive.
impl Eq for Settings {}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            metric: Metric::default(),
            algorithm: Algorithm::default(),
            container_concurrency: 0,
            target: None,
            target_utilization_percentage: None,
            concurrency_target_default: 100.0,
            concurrency_target_fraction: 0.7,
            rps_target_default: 200.0,
            min_scale: 0,
            max_scale: 0,
            initial_scale: 1,
            activation_scale: 0,
            scale_down_delay: Micros::ZERO,
            window: Micros::from_secs(60),
            panic_window_percentage: 10.0,
            panic_threshold_percentage: 200.0,
            target_burst_capacity: 211.0,
            retention: Micros::ZERO,
            progress_deadline: Micros::from_secs(600),
            reachability: Reachability::default(),
            enable_scale_to_zero: true,
            scale_to_zero_grace_period: Micros::from_secs(30),
            max_scale_up_rate: 1_000.0,
            max_scale_down_rate: 2.0,
            activator_capacity: 100.0,
        }
    }
}

impl Settings {
    /// Target and total per replica (knative/serving `pkg/reconciler/autoscaling/resources`, `ResolveMetricTarget`).
    pub fn resolve(&self) -> Target {
        let limit = f64::from(self.container_concurrency);
        let limited = self.metric == Metric::Concurrency && self.container_concurrency > 0;
        let (mut total, mut utilization) = match self.metric {
            Metric::Concurrency if limited => (limit, self.concurrency_target_fraction),
            Metric::Concurrency => (self.concurrency_target_default, self.concurrency_target_fraction),
            Metric::Rps => (self.rps_target_default, RPS_UTILIZATION),
        };
        if let Some(target) = self.target {
            total = if limited { target.min(limit) } else { target };
        }
        if let Some(percentage) = self.target_utilization_percentage {
            utilization = percentage / 100.0;
        }
        Target { target: MIN_TARGET.max(total * utilization), total }
    }

    /// The panic window: its share of the stable window in whole seconds, half up, at least one.
    pub fn panic_window(&self) -> Micros {
        let seconds = self.window.0 as f64 / 1e6 * self.panic_window_percentage / 100.0;
        Micros::from_secs((seconds.round() as u64).max(1))
    }

    /// Panic begins when want over ready replicas reaches this.
    pub fn panic_threshold(&self) -> f64 {
        self.panic_threshold_percentage / 100.0
    }

    /// Whether replicas report themselves, so that no report means that nothing is known.
    pub fn scraped(&self) -> bool {
        self.target_burst_capacity != -1.0
    }

    /// Whether floors and patience apply.
    pub fn reachable(&self) -> bool {
        self.reachability != Reachability::Unreachable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows T01 to T14 of the golden vectors: metric, containerConcurrency, target, utilization; target, total.
    type Row = (&'static str, Metric, u32, Option<f64>, Option<f64>, f64, f64);

    #[test]
    fn targets_resolve_as_in_the_golden_rows() {
        use Metric::{Concurrency, Rps};
        let rows: [Row; 14] = [
            ("T01", Concurrency, 0, None, None, 70.0, 100.0),
            ("T02", Concurrency, 10, None, None, 7.0, 10.0),
            ("T03", Concurrency, 10, Some(5.0), None, 3.5, 5.0),
            ("T04", Concurrency, 10, Some(20.0), None, 7.0, 10.0),
            ("T05", Concurrency, 0, Some(1.0), None, 0.7, 1.0),
            ("T06", Concurrency, 1, None, None, 0.7, 1.0),
            ("T07", Concurrency, 1, None, Some(100.0), 1.0, 1.0),
            ("T08", Concurrency, 3, None, None, 2.0999999999999996, 3.0),
            ("T09", Concurrency, 0, Some(0.01), None, 0.01, 0.01),
            ("T10", Rps, 0, None, None, 140.0, 200.0),
            ("T11", Rps, 0, Some(70.0), None, 49.0, 70.0),
            ("T12", Rps, 10, Some(70.0), None, 49.0, 70.0),
            ("T13", Rps, 0, Some(70.0), Some(90.0), 63.0, 70.0),
            ("T14", Concurrency, 0, None, Some(80.0), 80.0, 100.0),
        ];
        for (id, metric, container_concurrency, target, target_utilization_percentage, want, total) in rows {
            let settings = Settings {
                metric,
                container_concurrency,
                target,
                target_utilization_percentage,
                ..Settings::default()
            };
            assert_eq!(settings.resolve(), Target { target: want, total }, "{id}");
        }
    }

    #[test]
    fn the_panic_window_is_rounded_half_up_and_lasts_a_second_at_least() {
        for (window, panic) in [(6, 1), (10, 1), (15, 2), (30, 3), (60, 6), (120, 12), (600, 60), (3600, 360)]
        {
            let settings = Settings { window: Micros::from_secs(window), ..Settings::default() };
            assert_eq!(settings.panic_window(), Micros::from_secs(panic), "{window} s");
        }
    }
}
