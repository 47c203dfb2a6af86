// SPDX-License-Identifier: Apache-2.0
//! One model's load, counted where it changes: exact integrals over time, cumulative counters, the peak.
//!
//! Pure. A change is booked at its own time; a time before the last booked one counts as the last one, so clocks read
//! by different threads before they took the lock cost no exactness.

use std::collections::BTreeMap;

use sluice_core::{Demand, Micros, ModelName};

/// Counts of one model since it was first configured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Load {
    booked: Micros,
    in_flight: u32,
    queued: u32,
    peak: u32,
    arrivals: u64,
    completions: u64,
    abandons: u64,
    in_flight_micros: u64,
    queued_micros: u64,
    idle_since: Option<Micros>,
    service: Option<Micros>,
}

impl Load {
    /// A request came and has a replica at once.
    pub(crate) fn arrive_in_flight(&mut self, now: Micros) {
        self.arrivals += 1;
        self.change(now, 1, 0);
    }

    /// A request came and waits.
    pub(crate) fn arrive_queued(&mut self, now: Micros) {
        self.arrivals += 1;
        self.change(now, 0, 1);
    }

    /// A waiting request got a replica.
    pub(crate) fn dispatch(&mut self, now: Micros) {
        self.change(now, 1, -1);
    }

    /// A request in flight waits again.
    pub(crate) fn requeue(&mut self, now: Micros) {
        self.change(now, -1, 1);
    }

    /// A request in flight has ended; it was at its replica for `held`, if that says something of the service time.
    pub(crate) fn complete(&mut self, now: Micros, held: Option<Micros>) {
        self.completions += 1;
        self.change(now, -1, 0);
        if let Some(held) = held {
            let mean = self.service.map_or(held.0, |mean| mean.0 - mean.0 / 8 + held.0 / 8);
            self.service = Some(Micros(mean));
        }
    }

    /// A waiting request is gone; `left`: of its own will, `served`: after having had a replica before.
    pub(crate) fn unqueue(&mut self, now: Micros, left: bool, served: bool) {
        if served {
            self.completions += 1;
        } else if left {
            self.abandons += 1;
        }
        self.change(now, 0, -1);
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.queued == 0
    }

    /// Mean time at a replica, of the last requests most; `None` before the first.
    pub(crate) fn service(&self) -> Option<Micros> {
        self.service
    }

    /// The counts up to `now`, without replicas. A new peak begins.
    pub(crate) fn report(&mut self, now: Micros, model: ModelName) -> Demand {
        self.book(now);
        Demand {
            model,
            in_flight: self.in_flight,
            queued: self.queued,
            peak: std::mem::replace(&mut self.peak, self.in_flight.saturating_add(self.queued)),
            arrivals: self.arrivals,
            completions: self.completions,
            abandons: self.abandons,
            in_flight_micros: self.in_flight_micros,
            queued_micros: self.queued_micros,
            idle_since: self.idle_since,
            by_replica: BTreeMap::new(),
        }
    }

    fn change(&mut self, now: Micros, in_flight: i32, queued: i32) {
        self.book(now);
        self.in_flight = step(self.in_flight, in_flight);
        self.queued = step(self.queued, queued);
        self.peak = self.peak.max(self.in_flight.saturating_add(self.queued));
        self.idle_since = self.is_idle().then_some(self.booked);
    }

    fn book(&mut self, now: Micros) {
        let span = now.since(self.booked).0;
        let area = |count: u32| u64::from(count).wrapping_mul(span);
        self.in_flight_micros = self.in_flight_micros.wrapping_add(area(self.in_flight));
        self.queued_micros = self.queued_micros.wrapping_add(area(self.queued));
        self.booked = self.booked.max(now);
    }
}

fn step(count: u32, by: i32) -> u32 {
    let next = count.checked_add_signed(by);
    debug_assert!(next.is_some(), "a request was counted out that was not counted in");
    next.unwrap_or(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(load: &mut Load, now: u64) -> Demand {
        load.report(Micros(now), "m".into())
    }

    #[test]
    fn integrals_are_exact_and_the_peak_is_not_missed_between_reports() {
        let mut load = Load::default();
        load.arrive_in_flight(Micros(100));
        load.arrive_queued(Micros(150));
        load.dispatch(Micros(170));
        load.complete(Micros(180), Some(Micros(80)));
        load.complete(Micros(200), Some(Micros(30)));
        let demand = report(&mut load, 1_000);
        assert_eq!((demand.in_flight_micros, demand.queued_micros), (70 + 2 * 10 + 20, 20));
        assert_eq!((demand.peak, demand.arrivals, demand.completions), (2, 2, 2));
        assert_eq!(demand.idle_since, Some(Micros(200)));
        assert_eq!(report(&mut load, 2_000).peak, 0, "each report begins a new peak");
    }

    #[test]
    fn time_read_before_another_threads_booking_does_not_run_backwards() {
        let mut load = Load::default();
        load.arrive_in_flight(Micros(100));
        load.arrive_in_flight(Micros(90));
        load.complete(Micros(80), None);
        assert_eq!(report(&mut load, 200).in_flight_micros, 100);
    }

    #[test]
    fn idle_since_is_unknown_before_the_first_request_and_while_some_are_there() {
        let mut load = Load::default();
        assert_eq!(report(&mut load, 5).idle_since, None);
        load.arrive_queued(Micros(10));
        assert_eq!(report(&mut load, 15).idle_since, None);
        load.unqueue(Micros(20), true, false);
        let demand = report(&mut load, 25);
        assert_eq!((demand.idle_since, demand.abandons, demand.completions), (Some(Micros(20)), 1, 0));
    }

    #[test]
    fn a_client_that_leaves_while_its_request_waits_for_a_retry_is_a_completion() {
        let mut load = Load::default();
        load.arrive_in_flight(Micros(0));
        load.requeue(Micros(1));
        load.unqueue(Micros(2), true, true);
        let demand = report(&mut load, 3);
        assert_eq!((demand.completions, demand.abandons), (1, 0));
    }
}
