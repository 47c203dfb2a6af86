// SPDX-License-Identifier: Apache-2.0
//! Values per second over a sliding window, and their average by either algorithm.
//!
//! Follows knative/serving `pkg/autoscaler/aggregation` to the last bit: the linear average keeps a running total that
//! is added to and subtracted from, with the residue that leaves. Must not know what the values mean.

use serde::{Deserialize, Serialize};

use super::settings::Algorithm;
use crate::units::Micros;

/// Smallest weight of the newest second under the weighted algorithm.
const MIN_COEFFICIENT: f64 = 0.2;
/// What the weights of a whole window leave over, where that gives a larger coefficient.
const LEFT_OVER: f64 = 0.0001;
/// Linear averages are rounded to so many parts of one.
const PRECISION: f64 = 1e6;

/// One window. Seconds count from any origin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Buckets {
    algorithm: Algorithm,
    window: Micros,
    /// One second each; second `s` is at `s` modulo their number.
    values: Vec<f64>,
    /// Running total of `values`.
    total: f64,
    written: Option<Written>,
}

/// The seconds that were written.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Written {
    /// Before second 0 after some resizes; `None`: nothing of what was written is left.
    first: Option<i64>,
    last: i64,
}

impl Buckets {
    pub fn new(algorithm: Algorithm, window: Micros) -> Buckets {
        Buckets { algorithm, window, values: vec![0.0; count(window)], total: 0.0, written: None }
    }

    /// Adds to what was recorded for a second; a second older than the window is dropped.
    pub fn record(&mut self, second: i64, value: f64) {
        if self.written.is_none_or(|w| w.last != second) && !self.open(second) {
            return;
        }
        let at = self.at(second);
        if let Some(bucket) = self.values.get_mut(at) {
            *bucket += value;
            self.total += value;
        }
    }

    /// Makes the bucket of a second other than the last one writable; false if it is older than the window.
    fn open(&mut self, second: i64) -> bool {
        let Some(Written { first, last }) = self.written else {
            self.restart(second);
            return true;
        };
        if second + self.seconds() <= last {
            return false;
        }
        let first = Some(first.map_or(second, |first| first.min(second)));
        if second < last {
            self.written = Some(Written { first, last });
        } else if second - last >= self.seconds() {
            self.restart(second);
        } else {
            for passed in last + 1..=second {
                self.clear(passed);
            }
            self.written = Some(Written { first, last: second });
        }
        true
    }

    /// The average as of a second; zero once a whole window has passed without a record.
    pub fn average(&self, now: i64) -> f64 {
        let Some(written) = self.written else { return 0.0 };
        match (self.algorithm, now - written.last) {
            (_, silent) if silent >= self.seconds() => 0.0,
            (Algorithm::Linear, silent) => self.linear(written, silent),
            (Algorithm::WeightedExponential, silent) => self.weighted(written, silent.max(0)),
        }
    }

    /// More than a window has passed since the last record, or there is none.
    pub fn is_empty(&self, now: i64) -> bool {
        self.written.is_none_or(|w| now - w.last > self.seconds())
    }

    /// Changes the window; keeps the newest seconds that fit and takes the former window for full. One that has run
    /// empty loses everything but the time of its last record.
    pub fn resize(&mut self, window: Micros, now: i64) {
        if window == self.window {
            return;
        }
        let former = self.values.len() as i64;
        let mut resized = Buckets::new(self.algorithm, window);
        if let Some(Written { last, .. }) = self.written {
            if self.is_empty(now) {
                resized.written = Some(Written { first: None, last });
                *self = resized;
                return;
            }
            for second in (last - former.min(resized.seconds()) + 1..=last).rev() {
                let value = self.values.get(self.at(second)).copied().unwrap_or_default();
                let at = resized.at(second);
                if let Some(bucket) = resized.values.get_mut(at) {
                    *bucket = value;
                }
                resized.total += value;
            }
            resized.written = Some(Written { first: Some(last - (former - 1)), last });
        }
        *self = resized;
    }

    fn linear(&self, Written { first, last }: Written, silent: i64) -> f64 {
        let mut total = self.total;
        for passed in last + 1..=last + silent {
            total -= self.values.get(self.at(passed)).copied().unwrap_or_default();
        }
        let left = self.values.len() as i64 - silent.max(0);
        round(total / first.map_or(left, |first| left.min(last - first + 1)) as f64)
    }

    fn weighted(&self, Written { last, .. }: Written, silent: i64) -> f64 {
        let buckets = self.values.len() as i64;
        let coefficient = (1.0 - LEFT_OVER.powf(1.0 / buckets as f64)).max(MIN_COEFFICIENT);
        let rest = 1.0 - coefficient;
        let mut weight = coefficient * rest.powf(silent as f64);
        let mut average = 0.0;
        for age in 0..buckets - silent {
            average += self.values.get(self.at(last - age)).copied().unwrap_or_default() * weight;
            weight *= rest;
        }
        average
    }

    fn restart(&mut self, second: i64) {
        self.values.fill(0.0);
        self.total = 0.0;
        self.written = Some(Written { first: Some(second), last: second });
    }

    fn clear(&mut self, second: i64) {
        let at = self.at(second);
        if let Some(bucket) = self.values.get_mut(at) {
            self.total -= *bucket;
            *bucket = 0.0;
        }
    }

    fn seconds(&self) -> i64 {
        self.values.len() as i64
    }

    fn at(&self, second: i64) -> usize {
        second.rem_euclid(self.seconds().max(1)) as usize
    }
}

/// Buckets of a window.
fn count(window: Micros) -> usize {
    usize::try_from(window.0.div_ceil(1_000_000)).unwrap_or(usize::MAX).max(1)
}

/// To six decimals, half away from zero.
fn round(value: f64) -> f64 {
    (value * PRECISION).round() / PRECISION
}
