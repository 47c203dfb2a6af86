// SPDX-License-Identifier: Apache-2.0
//! The live loop's time line: monotonic microseconds since the first call in this process.
//!
//! The only place where control-plane code reads a clock; gateway and scaler in one process share it.

use std::sync::LazyLock;
use std::time::Instant;

use sluice_core::Micros;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Now, on the time line that `Demand` and `Routes` use.
pub fn now() -> Micros {
    Micros::from(START.elapsed())
}
