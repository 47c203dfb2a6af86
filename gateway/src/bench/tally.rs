// SPDX-License-Identifier: Apache-2.0
//! What came back, added up (pure). Times are microseconds.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

/// What became of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// `None`: answered whole. Else the kind of failure.
    pub failure: Option<String>,
    /// From the scheduled moment to the first byte of the answer's body.
    pub first: Option<Duration>,
    /// From the scheduled moment to the end.
    pub total: Option<Duration>,
    /// Between events, or between pieces of a body that has none.
    pub gaps: Vec<Duration>,
    /// Events that came.
    pub events: u64,
    /// Bytes of the body.
    pub bytes: u64,
}

impl Seen {
    /// The request was not even sent.
    pub fn not_sent() -> Seen {
        Seen::failed("not sent: too many under way")
    }

    /// It failed so.
    pub fn failed(kind: impl Into<String>) -> Seen {
        Seen { failure: Some(kind.into()), ..Seen::default() }
    }

    /// Whether the answer came whole.
    pub fn is_answered(&self) -> bool {
        self.failure.is_none()
    }
}

/// All of them.
#[derive(Default)]
pub struct Tally {
    /// Requests whose answer came whole.
    pub answered: u64,
    /// Others, by kind.
    pub failures: BTreeMap<String, u64>,
    /// Events of all answers.
    pub events: u64,
    /// Bytes of all answers.
    pub bytes: u64,
    /// First byte, end, and gaps, of answers that came whole.
    pub first: Times,
    /// See `first`.
    pub total: Times,
    /// See `first`.
    pub gaps: Times,
}

impl Tally {
    /// Adds one request.
    pub fn add(&mut self, seen: &Seen) {
        self.events += seen.events;
        self.bytes += seen.bytes;
        if let Some(kind) = &seen.failure {
            *self.failures.entry(kind.clone()).or_default() += 1;
            return;
        }
        self.answered += 1;
        self.first.extend(seen.first);
        self.total.extend(seen.total);
        self.gaps.extend(seen.gaps.iter().copied());
    }

    /// Every request was answered whole, and there was one.
    pub fn is_clean(&self) -> bool {
        self.answered > 0 && self.failures.is_empty()
    }
}

/// Durations with percentiles, three digits exact.
pub struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        Times(Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits are allowed")))
    }
}

impl Times {
    fn extend(&mut self, times: impl IntoIterator<Item = Duration>) {
        for time in times {
            // It grows with what it gets; only the impossible, centuries, does not fit.
            let _ = self.0.record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1));
        }
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time that `percent` of them did not exceed, in milliseconds.
    pub fn percentile_ms(&self, percent: f64) -> f64 {
        self.0.value_at_percentile(percent) as f64 / 1e3
    }

    /// The longest, in milliseconds.
    pub fn max_ms(&self) -> f64 {
        self.0.max() as f64 / 1e3
    }
}
