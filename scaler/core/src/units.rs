// SPDX-License-Identifier: Apache-2.0
//! Quantities with their unit in the type: time in microseconds, memory in bytes.
//!
//! Owns arithmetic that can neither overflow nor go below zero. Must not know any clock: time is a number.

use serde::{Deserialize, Serialize};

/// Microseconds: a point on the driver's monotonic time line (0 = its start), or a duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Micros(pub u64);

impl Micros {
    /// The start of the time line, or no duration at all.
    pub const ZERO: Micros = Micros(0);

    /// `n` milliseconds.
    pub const fn from_millis(n: u64) -> Self {
        Micros(n.saturating_mul(1_000))
    }

    /// `n` seconds.
    pub const fn from_secs(n: u64) -> Self {
        Micros(n.saturating_mul(1_000_000))
    }

    /// Whole milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000
    }

    /// This point or duration, later by `d`; stays at the greatest value instead of overflowing.
    pub const fn after(self, d: Micros) -> Micros {
        Micros(self.0.saturating_add(d.0))
    }

    /// How long after `earlier` this point is; zero if it is not after it.
    pub const fn since(self, earlier: Micros) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }
}

impl From<std::time::Duration> for Micros {
    fn from(d: std::time::Duration) -> Self {
        Micros(u64::try_from(d.as_micros()).unwrap_or(u64::MAX))
    }
}

impl From<Micros> for std::time::Duration {
    fn from(m: Micros) -> Self {
        std::time::Duration::from_micros(m.0)
    }
}

/// An amount of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);
