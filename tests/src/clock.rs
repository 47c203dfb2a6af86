// SPDX-License-Identifier: Apache-2.0
//! One time line for every process of a test: CLOCK_MONOTONIC in microseconds.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Microseconds since an arbitrary point that all processes of this machine share.
pub fn now() -> u64 {
    let t = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("linux has a monotonic clock");
    Duration::from(t).as_micros() as u64
}

/// Sleeps until that moment; returns at once if it has passed.
pub async fn until(at: u64) {
    tokio::time::sleep(Duration::from_micros(at.saturating_sub(now()))).await;
}

/// `n` milliseconds.
pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}
