// SPDX-License-Identifier: Apache-2.0
//! The live loop's time line: monotonic microseconds from the first call in this process on, counted from the Unix
//! epoch as the wall clock knew it at that call, so that what one process wrote down means something to the next.
//!
//! The only place where control-plane code reads a clock; gateway and scaler in one process share it.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use sluice_core::Micros;

static START: LazyLock<(Micros, Instant)> = LazyLock::new(|| {
    let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (Micros::from(epoch), Instant::now())
});

/// Now, on the time line that `Demand` and `Routes` use.
pub fn now() -> Micros {
    let (start, instant) = &*START;
    start.after(Micros::from(instant.elapsed()))
}
