// SPDX-License-Identifier: Apache-2.0
//! What a model's failures cost: strikes, back-off, and the fault that waiting requests are told.
//!
//! Two things fail: a start (the replica never became ready) and a replica that was ready (it died or hung). A failed
//! start is followed by a pause from the first on. A replica that was ready has shown that starting works, so the
//! first death in a row is repaired at once; further quick ones pause too, or a request that kills every replica would
//! keep the machine busy with starts. Strikes are forgotten once a replica started after them has proved itself.

use serde::{Deserialize, Serialize};

use crate::report::Fault;
use crate::spec::LifeSpec;
use crate::units::Micros;

/// One model's run of failures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Health {
    /// Failures in a row, of both kinds.
    strikes: u32,
    /// Nothing became ready since the last failure that counts towards `Fault`.
    failing: bool,
    cause: String,
    retry_at: Micros,
    last_failure: Option<Micros>,
}

impl Health {
    /// A start failed. Replicas started together fail together: of those only the first counts.
    pub fn start_failed(&mut self, started: Micros, now: Micros, life: &LifeSpec, cause: String) {
        self.cause = cause;
        if self.failing && self.last_failure.is_some_and(|last| started < last) {
            return;
        }
        self.strike(now);
        self.failing = true;
        self.retry_at = now.after(backoff(self.strikes, life));
    }

    /// A replica that was ready died or hung; `proved` if it had done its work before.
    pub fn died(&mut self, proved: bool, now: Micros, life: &LifeSpec, cause: String) {
        if proved {
            self.strikes = 0;
        }
        self.strike(now);
        if self.strikes > 1 {
            self.cause = cause;
            self.failing = true;
            self.retry_at = now.after(backoff(self.strikes - 1, life));
        }
    }

    /// A replica became ready: starts work again.
    pub fn ready(&mut self) {
        self.failing = false;
        self.retry_at = Micros::ZERO;
    }

    /// A replica started at `started` has proved itself: older strikes are forgotten.
    pub fn proved(&mut self, started: Micros) {
        if self.last_failure.is_none_or(|last| started >= last) {
            self.strikes = 0;
        }
    }

    /// The configuration changed in a way that may have repaired it: try at once.
    pub fn reset(&mut self) {
        *self = Health::default();
    }

    /// Starts fail: try one at a time.
    pub fn failing(&self) -> bool {
        self.failing
    }

    /// No start before this.
    pub fn retry_at(&self) -> Micros {
        self.retry_at
    }

    /// The last failure that counts, in one line; empty if there was none.
    pub fn cause(&self) -> &str {
        &self.cause
    }

    /// What to tell, while starts fail; the waiting are answered from the `attempts`th failure in a row on.
    pub fn fault(&self, attempts: u32) -> Option<Fault> {
        self.failing.then(|| Fault {
            failures: self.strikes,
            answer_waiters: self.strikes >= attempts,
            cause: self.cause.clone(),
            retry_at: self.retry_at,
        })
    }

    fn strike(&mut self, now: Micros) {
        self.strikes = self.strikes.saturating_add(1);
        self.last_failure = Some(now);
    }
}

/// Pause after the `strikes`th failure in a row, counted from 1.
fn backoff(strikes: u32, life: &LifeSpec) -> Micros {
    let doublings = strikes.saturating_sub(1).min(32);
    Micros(life.backoff_first.0.saturating_mul(1 << doublings).min(life.backoff_max.0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::testkit::life;

    fn at(ms: u64) -> Micros {
        Micros::from_millis(ms)
    }

    #[test]
    fn the_pause_doubles_from_the_first_to_the_longest() {
        let life = LifeSpec { backoff_first: at(100), backoff_max: at(1_000), ..life() };
        let pauses: Vec<u64> =
            [1, 2, 3, 4, 5, 6, 400].iter().map(|&n| backoff(n, &life).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1_000, 1_000, 1_000]);
    }

    #[test]
    fn replicas_started_together_fail_as_one() {
        let mut health = Health::default();
        for failed in [200, 210, 250] {
            health.start_failed(at(0), at(failed), &life(), "exit 1".into());
        }
        assert_eq!(health.fault(3).unwrap().failures, 1);
        health.start_failed(at(300), at(500), &life(), "exit 1".into());
        assert_eq!(health.fault(3).unwrap().failures, 2);
    }

    #[test]
    fn the_first_quick_death_is_free_and_the_next_ones_pause() {
        let mut health = Health::default();
        health.died(false, at(1_000), &life(), "exit 1".into());
        assert_eq!((health.fault(3), health.retry_at()), (None, Micros::ZERO));
        health.ready();
        health.died(false, at(2_000), &life(), "exit 1".into());
        assert_eq!(health.retry_at(), at(2_000).after(life().backoff_first));
        assert_eq!(health.fault(3).unwrap().failures, 2);
    }

    #[test]
    fn only_a_replica_started_after_the_failure_proves_that_it_is_over() {
        let mut health = Health::default();
        health.start_failed(at(100), at(200), &life(), "exit 1".into());
        health.proved(at(50));
        assert_eq!(health.strikes, 1);
        health.proved(at(200));
        assert_eq!(health.strikes, 0);
    }
}
