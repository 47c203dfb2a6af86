// SPDX-License-Identifier: Apache-2.0
//! The largest want of a sliding window, exact and in bounded memory.
//!
//! A want holds from one report until the next, so it leaves the window only `window` after it was *superseded*:
//! reports come when something changes, and a load that was steady for an hour has one. Kept is the want in force
//! and a queue of superseded ones, values falling and times rising: whatever a later and larger one covers is
//! dropped. Callers clamp what they push to `maxReplicas`, which bounds the queue.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::units::Micros;

/// Largest value of a step function over the last `window`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PeakHold {
    current: u32,
    /// Superseded values with the time at which they ceased to hold.
    past: VecDeque<(Micros, u32)>,
}

impl PeakHold {
    /// From `now` on the value is `current`; between the former push and `now` it was at times `peak`.
    pub fn push(&mut self, now: Micros, current: u32, peak: u32) {
        let ceased = self.current.max(peak);
        self.current = current;
        while self.past.back().is_some_and(|&(_, value)| value <= ceased) {
            self.past.pop_back();
        }
        self.past.push_back((now, ceased));
    }

    /// Largest value in `(now - window, now]`. Forgets what is older.
    pub fn largest(&mut self, now: Micros, window: Micros) -> u32 {
        while self.past.front().is_some_and(|&(ceased, _)| ceased.after(window) <= now) {
            self.past.pop_front();
        }
        self.past.front().map_or(self.current, |&(_, value)| value.max(self.current))
    }

    /// When `largest` will next be smaller if nothing is pushed.
    pub fn next_fall(&self, window: Micros) -> Option<Micros> {
        let &(ceased, value) = self.past.front()?;
        (value > self.current).then(|| ceased.after(window))
    }

    /// Nothing was ever wanted.
    pub fn clear(&mut self) {
        *self = PeakHold::default();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    const WINDOW: Micros = Micros(100);

    #[test]
    fn a_value_is_held_for_the_window_after_it_was_superseded_not_after_it_was_reported() {
        let mut hold = PeakHold::default();
        hold.push(Micros(0), 10, 10);
        hold.push(Micros(1_000), 2, 10);
        assert_eq!(hold.largest(Micros(1_099), WINDOW), 10);
        assert_eq!(hold.next_fall(WINDOW), Some(Micros(1_100)));
        assert_eq!(hold.largest(Micros(1_100), WINDOW), 2);
        assert_eq!(hold.next_fall(WINDOW), None);
    }

    #[test]
    fn a_peak_between_two_reports_is_held_too() {
        let mut hold = PeakHold::default();
        hold.push(Micros(0), 1, 0);
        hold.push(Micros(50), 1, 7);
        assert_eq!(hold.largest(Micros(149), WINDOW), 7);
        assert_eq!(hold.largest(Micros(150), WINDOW), 1);
    }

    #[test]
    fn memory_is_bounded_by_the_number_of_distinct_values() {
        let mut hold = PeakHold::default();
        for t in 0..10_000u64 {
            hold.push(Micros(t), (t % 7) as u32, 0);
        }
        assert!(hold.past.len() <= 7, "{}", hold.past.len());
    }

    proptest! {
        #[test]
        fn equals_the_maximum_over_the_whole_history(
            pushes in prop::collection::vec((0u64..60, 0u32..9, 0u32..9), 1..40), probe in 0u64..200,
        ) {
            let mut hold = PeakHold::default();
            let (mut now, mut history, mut in_force) = (0, Vec::new(), 0);
            for (gap, value, peak) in pushes {
                now += gap;
                hold.push(Micros(now), value, peak);
                history.push((now, in_force.max(peak)));
                in_force = value;
            }
            let at = now + probe;
            let expected = history.iter().filter(|(ceased, _)| ceased + WINDOW.0 > at).map(|&(_, v)| v).max();
            prop_assert_eq!(hold.largest(Micros(at), WINDOW), expected.unwrap_or(0).max(in_force));
        }
    }
}
