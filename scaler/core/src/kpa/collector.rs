// SPDX-License-Identifier: Apache-2.0
//! Reports of one model's load, second by second, and the two averages that a decision reads.
//!
//! Both metrics are kept all the time, so a change of the metric has its history at once. Must not know who reports.

use serde::{Deserialize, Serialize};

use super::buckets::Buckets;
use super::settings::{Metric, Settings};
use crate::units::Micros;

/// Load of one model during one second, as one source has seen it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Requests in flight or waiting, averaged over the second.
    pub concurrency: f64,
    /// Of these, such as another source reports too.
    pub proxied_concurrency: f64,
    /// Requests that arrived.
    pub count: f64,
    /// Of these, such as another source reports too.
    pub proxied_count: f64,
}

/// Averages over the two windows, of the whole model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Averages {
    /// Over the stable window.
    pub stable: f64,
    /// Over the panic window.
    pub panic: f64,
}

/// Both metrics over both windows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Collector {
    concurrency: Pair,
    rps: Pair,
    /// Replaces what the windows say from then on.
    given: Option<Averages>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Pair {
    stable: Buckets,
    panic: Buckets,
}

impl Collector {
    /// Nothing recorded. The algorithm is that of `settings` for good.
    pub fn new(settings: &Settings) -> Collector {
        let pair = || Pair {
            stable: Buckets::new(settings.algorithm, settings.window),
            panic: Buckets::new(settings.algorithm, settings.panic_window()),
        };
        Collector { concurrency: pair(), rps: pair(), given: None }
    }

    /// Takes over changed windows.
    pub fn resize(&mut self, settings: &Settings, now: Micros) {
        let now = second_of(now);
        for pair in [&mut self.concurrency, &mut self.rps] {
            pair.stable.resize(settings.window, now);
            pair.panic.resize(settings.panic_window(), now);
        }
    }

    /// Adds a report to a second (of the same origin as the times of `averages`).
    pub fn record(&mut self, second: i64, report: &Report) {
        self.concurrency.record(second, report.concurrency - report.proxied_concurrency);
        self.rps.record(second, report.count - report.proxied_count);
    }

    /// From now on these, whatever is recorded.
    pub fn give(&mut self, averages: Averages) {
        self.given = Some(averages);
    }

    /// What a decision reads, and whether it may: not if replicas should have reported and nothing came for longer
    /// than the stable window.
    pub fn averages(&self, settings: &Settings, now: Micros) -> (Averages, bool) {
        if let Some(given) = self.given {
            return (given, true);
        }
        let pair = match settings.metric {
            Metric::Concurrency => &self.concurrency,
            Metric::Rps => &self.rps,
        };
        let second = second_of(now);
        let averages = Averages { stable: pair.stable.average(second), panic: pair.panic.average(second) };
        (averages, !(settings.scraped() && pair.stable.is_empty(second)))
    }
}

impl Pair {
    fn record(&mut self, second: i64, value: f64) {
        self.stable.record(second, value);
        self.panic.record(second, value);
    }
}

/// The second that a moment lies in.
pub fn second_of(at: Micros) -> i64 {
    (at.0 / 1_000_000) as i64
}
