// SPDX-License-Identifier: Apache-2.0
//! How long a model's starts took, measured from the start order to the first readiness.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::report::WakeEstimate;
use crate::units::Micros;

/// Starts remembered per model.
const SAMPLES: usize = 32;

/// The last measured starts of one model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct WakeSamples {
    last: VecDeque<Micros>,
    estimate: WakeEstimate,
}

impl WakeSamples {
    /// Adds one start; the oldest is forgotten.
    pub fn add(&mut self, took: Micros) {
        if self.last.len() == SAMPLES {
            self.last.pop_front();
        }
        self.last.push_back(took);
        let mut sorted: Vec<Micros> = self.last.iter().copied().collect();
        sorted.sort_unstable();
        self.estimate = WakeEstimate {
            samples: sorted.len() as u32,
            p50: nearest_rank(&sorted, 50),
            p90: nearest_rank(&sorted, 90),
        };
    }

    /// Percentiles of what is remembered.
    pub fn estimate(&self) -> WakeEstimate {
        self.estimate
    }

    /// A start beginning at `start` is expected to be ready then; `None` before the first measured one.
    pub fn expected(&self, start: Micros) -> Option<Micros> {
        (self.estimate.samples > 0).then(|| start.after(self.estimate.p90))
    }
}

/// Smallest value that at least `percent` of the sorted values do not exceed; zero if there are none.
fn nearest_rank(sorted: &[Micros], percent: usize) -> Micros {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_nearest_ranks_of_the_last_thirty_two_starts() {
        let mut wake = WakeSamples::default();
        assert_eq!(wake.expected(Micros(5)), None);
        wake.add(Micros(1_000_000));
        assert_eq!(
            wake.estimate(),
            WakeEstimate { samples: 1, p50: Micros(1_000_000), p90: Micros(1_000_000) }
        );
        for took in 1..=32 {
            wake.add(Micros(took));
        }
        assert_eq!(wake.estimate(), WakeEstimate { samples: 32, p50: Micros(16), p90: Micros(29) });
        assert_eq!(wake.expected(Micros(100)), Some(Micros(129)));
    }
}
