// SPDX-License-Identifier: Apache-2.0
//! The largest of the counts decided within the scale-down delay.
//!
//! Counts share a slot of two seconds, the larger one wins in it. Must not know why a count was decided.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::units::Micros;

const SLOT: u64 = 2_000_000;

/// Largest count of the last slots.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DelayWindow {
    slots: u64,
    /// Slot and count: slots rise, counts fall.
    largest: VecDeque<(u64, u32)>,
}

impl DelayWindow {
    /// `None` without a delay: even a single slot would make two decisions within it differ.
    pub fn new(delay: Micros) -> Option<DelayWindow> {
        (delay > Micros::ZERO)
            .then(|| DelayWindow { slots: delay.0.div_ceil(SLOT), largest: VecDeque::new() })
    }

    /// Adds what was decided now and returns the largest within the delay.
    pub fn hold(&mut self, now: Micros, count: u32) -> u32 {
        let slot = now.0 / SLOT;
        while self.largest.front().is_some_and(|&(from, _)| from + self.slots <= slot) {
            self.largest.pop_front();
        }
        while self.largest.back().is_some_and(|&(_, smaller)| smaller <= count) {
            self.largest.pop_back();
        }
        if self.largest.back().is_none_or(|&(last, _)| last != slot) {
            self.largest.push_back((slot, count));
        }
        self.largest.front().map_or(count, |&(_, largest)| largest)
    }
}
