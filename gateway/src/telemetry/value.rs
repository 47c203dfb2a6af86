// SPDX-License-Identifier: Apache-2.0
//! Numbers that many threads add to: counters, histograms with fixed bounds, and counters by a key that is not known
//! beforehand.
//!
//! Adding takes no lock and allocates nothing. Must not know what is counted.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Fractions that histograms count in.
const PARTS: u64 = 1_000_000;

/// Upper bounds of every time histogram, in microseconds: from a proxied echo to a long generation after a cold start.
pub(crate) const SECONDS: &[u64] = &[
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    120_000_000,
    300_000_000,
    600_000_000,
];

/// Upper bounds of ratios around one, in millionths.
pub(crate) const RATIOS: &[u64] = &[
    100_000, 250_000, 500_000, 750_000, 900_000, 1_000_000, 1_100_000, 1_250_000, 1_500_000, 2_000_000,
    3_000_000, 5_000_000, 10_000_000,
];

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) const fn new() -> Counter {
        Counter(AtomicU64::new(0))
    }

    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Counts of values by upper bound.
#[derive(Debug)]
pub(crate) struct Histogram {
    bounds: &'static [u64],
    /// One more than bounds: what is above the last.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// What a histogram holds at a moment.
pub(crate) struct Snapshot {
    /// Upper bound and how many values are not above it; the count of all comes after them.
    pub buckets: Vec<(f64, u64)>,
    pub count: u64,
    pub sum: f64,
}

impl Histogram {
    /// For times.
    pub(crate) fn seconds() -> Histogram {
        Histogram::new(SECONDS)
    }

    /// For ratios.
    pub(crate) fn ratios() -> Histogram {
        Histogram::new(RATIOS)
    }

    fn new(bounds: &'static [u64]) -> Histogram {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds, counts, sum: AtomicU64::new(0) }
    }

    pub(crate) fn time(&self, time: Duration) {
        self.record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// `part` over `whole`; nothing if there is no whole.
    pub(crate) fn ratio(&self, part: Duration, whole: Duration) {
        if !whole.is_zero() {
            // A cast of a float saturates.
            self.record((part.as_secs_f64() / whole.as_secs_f64() * PARTS as f64) as u64);
        }
    }

    fn record(&self, parts: u64) {
        let at = self.bounds.partition_point(|bound| *bound < parts);
        if let Some(count) = self.counts.get(at) {
            count.fetch_add(1, Relaxed);
            self.sum.fetch_add(parts, Relaxed);
        }
    }

    /// Counts and sum belong together as far as nothing is added meanwhile; buckets and count always do.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let whole = |parts: u64| parts as f64 / PARTS as f64;
        let sum = whole(self.sum.load(Relaxed));
        let mut count = 0;
        let mut buckets = Vec::with_capacity(self.bounds.len());
        for (at, cell) in self.counts.iter().enumerate() {
            count += cell.load(Relaxed);
            buckets.extend(self.bounds.get(at).map(|bound| (whole(*bound), count)));
        }
        Snapshot { buckets, count, sum }
    }
}

/// Counters by key: the first `N` keys that come have one each, the rest share one.
#[derive(Debug)]
pub(crate) struct Keyed<K, const N: usize> {
    cells: [OnceLock<(K, Counter)>; N],
    other: Counter,
}

impl<K, const N: usize> Default for Keyed<K, N> {
    fn default() -> Self {
        Keyed { cells: std::array::from_fn(|_| OnceLock::new()), other: Counter::new() }
    }
}

impl<K: Copy + Eq, const N: usize> Keyed<K, N> {
    pub(crate) fn of(&self, key: K) -> &Counter {
        for cell in &self.cells {
            let (owner, counter) = cell.get_or_init(|| (key, Counter::new()));
            if *owner == key {
                return counter;
            }
        }
        &self.other
    }

    /// Every key that came, with its count.
    pub(crate) fn each(&self) -> impl Iterator<Item = (K, u64)> {
        self.cells.iter().filter_map(OnceLock::get).map(|(key, counter)| (*key, counter.get()))
    }

    /// What the rest has in common.
    pub(crate) fn other(&self) -> u64 {
        self.other.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_falls_under_the_first_bound_that_it_does_not_exceed() {
        let times = Histogram::seconds();
        for micros in [0, 1_000, 1_001, 600_000_000, 600_000_001] {
            times.time(Duration::from_micros(micros));
        }
        let seen = times.snapshot();
        assert_eq!((seen.buckets[0], seen.buckets[1]), ((0.001, 2), (0.0025, 3)));
        assert_eq!((seen.buckets.last().copied(), seen.count), (Some((600.0, 4)), 5));
        assert!((seen.sum - 1200.002002).abs() < 1e-9);
    }

    #[test]
    fn a_ratio_without_a_whole_is_none() {
        let ratios = Histogram::ratios();
        ratios.ratio(Duration::from_secs(3), Duration::ZERO);
        assert_eq!(ratios.snapshot().count, 0);
        ratios.ratio(Duration::from_secs(3), Duration::from_secs(2));
        assert_eq!((ratios.snapshot().count, ratios.snapshot().sum), (1, 1.5));
    }

    #[test]
    fn later_keys_share_one_counter() {
        let keyed = Keyed::<u16, 2>::default();
        for key in [200, 404, 200, 500, 503] {
            keyed.of(key).add(1);
        }
        assert_eq!(keyed.each().collect::<Vec<_>>(), [(200, 2), (404, 1)]);
        assert_eq!(keyed.other(), 2);
    }
}
