// SPDX-License-Identifier: Apache-2.0
//! Wall-clock time for people: RFC 3339 in UTC, and where the scaler's time line lies on it.

use std::time::{SystemTime, UNIX_EPOCH};

use sluice_core::Micros;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Now, in milliseconds since the Unix epoch; 0 on a machine whose clock is before it.
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// `unix_ms` as RFC 3339 in UTC, such as `2031-05-06T07:08:09.123Z`. A time beyond year 9999 is given as the epoch.
pub fn rfc3339(unix_ms: u64) -> String {
    let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(unix_ms) * 1_000_000);
    at.ok().and_then(|at| at.format(&Rfc3339).ok()).unwrap_or_else(|| "1970-01-01T00:00:00Z".to_owned())
}

/// One moment on both time lines, so that a [`Micros`] can be shown as a date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The scaler's time.
    pub micros: Micros,
    /// The same moment in milliseconds since the Unix epoch.
    pub unix_ms: u64,
}

impl Moment {
    /// The present.
    pub fn now() -> Self {
        Moment { micros: sluice_scaler::clock::now(), unix_ms: unix_ms() }
    }

    /// The date of `at`, in milliseconds since the Unix epoch.
    pub fn unix_ms_of(self, at: Micros) -> u64 {
        let past = self.micros.since(at).as_millis();
        let future = at.since(self.micros).as_millis();
        self.unix_ms.saturating_add(future).saturating_sub(past)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_utc_with_the_fraction_kept() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(1_936_148_889_120), "2031-05-10T03:08:09.12Z");
        assert_eq!(rfc3339(u64::MAX), "1970-01-01T00:00:00Z");
    }

    #[test]
    fn a_point_of_the_time_line_is_before_or_after_the_present() {
        let now = Moment { micros: Micros::from_secs(100), unix_ms: 1_000_000 };
        assert_eq!(now.unix_ms_of(Micros::from_secs(90)), 990_000);
        assert_eq!(now.unix_ms_of(Micros::from_secs(101)), 1_001_000);
        assert_eq!(now.unix_ms_of(Micros::from_secs(100)), 1_000_000);
    }
}
