// SPDX-License-Identifier: Apache-2.0
//! One replica in the gateway's table: its slots and whether connections to it come to be.
//!
//! Owns the reservation word and the back-off after failed connections. Must not know models, queues or clocks.
//!
//! Concurrency: capacity, in-flight and the closed bit share one word, so a reservation is one compare-and-swap that
//! holds against a capacity change or a drain at the same moment. Reservations and changes are also made under the
//! model's lock (`admission::line`); reading and health reports need no lock.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use sluice_core::{Address, Micros, ReplicaId, ReplicaRoute};

/// Pause before the first trial after a failed connection; doubles with each further trial.
const BACKOFF_FIRST: Micros = Micros::from_millis(250);
/// Pause after it broke off an exchange: longer than it takes to notice that its process has ended.
const BREAK_PAUSE: Micros = Micros::from_millis(100);
/// Longest pause between trials.
const BACKOFF_MAX: Micros = Micros::from_secs(10);
/// How long a fresh replica is loaded with less than its share.
const SLOW_START: Micros = Micros::from_secs(5);

const CLOSED: u64 = 1 << 63;
const CAPACITY_MAX: u32 = u32::MAX >> 1;

/// A cache line of its own (two, because adjacent lines are fetched in pairs).
#[repr(align(128))]
struct Padded(AtomicU64);

/// One replica. Lives as long as something is in flight at it, across route tables.
pub struct Endpoint {
    /// Its identity; connection pools are keyed by it.
    pub id: ReplicaId,
    /// Where it listens.
    pub address: Address,
    /// Bit 63: closed; bits 32 to 62: capacity; bits 0 to 31: in flight.
    word: Padded,
    ready_since: AtomicU64,
    /// Not before this is a request sent there again; 0 while in rotation.
    retry_at: AtomicU64,
    /// Trials since it last answered.
    trials: AtomicU32,
    /// Not before this is anything new sent there, because it has just broken off an exchange.
    paused_until: AtomicU64,
}

/// How full an endpoint is: `in_flight` against `weight` thousandths of a request. Ordered, exactly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fullness {
    in_flight: u32,
    weight: u64,
}

impl Fullness {
    /// Whether this is less full than `other`.
    pub(crate) fn is_below(self, other: Fullness) -> bool {
        u128::from(self.in_flight) * u128::from(other.weight)
            < u128::from(other.in_flight) * u128::from(self.weight)
    }
}

impl Endpoint {
    /// An endpoint with nothing in flight.
    pub fn new(route: &ReplicaRoute) -> Endpoint {
        Endpoint {
            id: route.id,
            address: route.address.clone(),
            word: Padded(AtomicU64::new(pack(route.capacity, route.draining))),
            ready_since: AtomicU64::new(route.ready_since.0),
            retry_at: AtomicU64::new(0),
            trials: AtomicU32::new(0),
            paused_until: AtomicU64::new(0),
        }
    }

    /// Requests that hold a slot now.
    pub fn in_flight(&self) -> u32 {
        in_flight(self.load())
    }

    /// Most requests at once; a large number if unlimited.
    pub fn capacity(&self) -> u32 {
        capacity(self.load())
    }

    /// Whether it takes nothing new: it drains or is no longer routed to.
    pub fn is_draining(&self) -> bool {
        self.load() & CLOSED != 0
    }

    /// Reports that no connection came to be: it is set aside and tried again sparingly.
    pub fn connect_failed(&self, now: Micros) {
        let retry_at = now.after(backoff(self.trials.load(Ordering::Acquire))).0.max(1);
        // Already set aside: the trial under way has its next step behind it, and older requests say nothing new.
        let _ = self.retry_at.compare_exchange(0, retry_at, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Reports that a connection came to be: what it was set aside for is over. Former trials are forgotten only by an
    /// answer, so one that accepts and refuses in turn is tried ever more rarely.
    pub fn connected(&self) {
        if self.retry_at.load(Ordering::Acquire) != 0 {
            self.retry_at.store(0, Ordering::Release);
        }
    }

    /// Reports that it broke off an exchange. Its process may have ended, and what were sent there now would be lost
    /// with it; nothing new is, for a moment in which that would be noticed.
    pub fn broke_off(&self, now: Micros) {
        self.paused_until.fetch_max(now.after(BREAK_PAUSE).0, Ordering::AcqRel);
    }

    /// Reports that it answered, with whatever status: it is in rotation.
    pub fn answered(&self) {
        if self.trials.load(Ordering::Acquire) != 0 {
            self.trials.store(0, Ordering::Release);
        }
        self.connected();
    }

    /// Whether a request may be sent there now: in rotation, or due for a trial, and not in a pause.
    pub(crate) fn is_in_turn(&self, now: Micros) -> bool {
        self.retry_at.load(Ordering::Acquire) <= now.0 && self.paused_until.load(Ordering::Acquire) <= now.0
    }

    /// Whether it takes requests by what the scaler says, whatever its health.
    pub(crate) fn is_open(&self) -> bool {
        let word = self.load();
        word & CLOSED == 0 && capacity(word) > 0
    }

    /// How full it is; `None` if no slot is free.
    pub(crate) fn fullness(&self, now: Micros) -> Option<Fullness> {
        let word = self.load();
        let age = now.since(Micros(self.ready_since.load(Ordering::Relaxed)));
        has_room(word).then(|| Fullness { in_flight: in_flight(word), weight: weight(capacity(word), age) })
    }

    /// Takes a slot if one is free, and the trial if one is due.
    pub(crate) fn try_reserve(&self, now: Micros) -> bool {
        let taken = self
            .word
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| has_room(word).then(|| word + 1))
            .is_ok();
        let due = self.retry_at.load(Ordering::Acquire);
        if taken && due != 0 {
            let trials = self.trials.fetch_add(1, Ordering::AcqRel).saturating_add(1);
            let next = now.after(backoff(trials)).0.max(1);
            // Lost only against an answer, which puts it back in rotation.
            let _ = self.retry_at.compare_exchange(due, next, Ordering::AcqRel, Ordering::Acquire);
        }
        taken
    }

    /// Gives a slot back; returns how many are still taken.
    pub(crate) fn release(&self) -> u32 {
        let before = self.word.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
            (in_flight(word) > 0).then(|| word - 1)
        });
        debug_assert!(before.is_ok(), "a slot of {} was given back twice", self.id);
        before.map_or(0, |word| in_flight(word) - 1)
    }

    /// Takes over capacity and freshness, and opens or closes it.
    pub(crate) fn set(&self, capacity: u32, closed: bool, ready_since: Micros) {
        self.ready_since.store(ready_since.0, Ordering::Relaxed);
        let head = pack(capacity, closed);
        let _ = self.word.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
            Some(head | u64::from(in_flight(word)))
        });
    }

    /// Takes nothing new from now on.
    pub(crate) fn close(&self) {
        self.word.0.fetch_or(CLOSED, Ordering::AcqRel);
    }

    fn load(&self) -> u64 {
        self.word.0.load(Ordering::Acquire)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("id", &self.id)
            .field("in_flight", &self.in_flight())
            .field("capacity", &self.capacity())
            .field("draining", &self.is_draining())
            .finish_non_exhaustive()
    }
}

fn pack(capacity: u32, closed: bool) -> u64 {
    u64::from(capacity.min(CAPACITY_MAX)) << 32 | if closed { CLOSED } else { 0 }
}

fn in_flight(word: u64) -> u32 {
    word as u32
}

fn capacity(word: u64) -> u32 {
    (word >> 32) as u32 & CAPACITY_MAX
}

fn has_room(word: u64) -> bool {
    word & CLOSED == 0 && in_flight(word) < capacity(word)
}

/// Pause after `trials` trials.
fn backoff(trials: u32) -> Micros {
    Micros(BACKOFF_FIRST.0.saturating_mul(1 << trials.min(16))).min(BACKOFF_MAX)
}

/// The share of load for a replica that is `age` old, in thousandths of a request: its capacity, growing from one
/// request over the slow start. Shares only matter against each other: a lone replica is never held back.
fn weight(capacity: u32, age: Micros) -> u64 {
    let full = u64::from(capacity) * 1_000;
    if age >= SLOW_START {
        return full;
    }
    let grown = u128::from(full) * u128::from(age.0) / u128::from(SLOW_START.0);
    u64::try_from(grown).unwrap_or(full).clamp(1_000.min(full), full)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]

    use std::sync::Arc;

    use super::*;

    fn endpoint(capacity: u32) -> Endpoint {
        Endpoint::new(&ReplicaRoute {
            id: ReplicaId(1),
            address: Address { socket: ([127, 0, 0, 1], 1).into(), host: None, tls: false },
            capacity,
            draining: false,
            drains: 0,
            ready_since: Micros::ZERO,
        })
    }

    #[test]
    fn slots_are_counted_up_to_the_capacity_and_back() {
        let one = endpoint(2);
        assert!(one.try_reserve(Micros::ZERO) && one.try_reserve(Micros::ZERO));
        assert!(!one.try_reserve(Micros::ZERO));
        assert_eq!(one.release(), 1);
        assert!(one.try_reserve(Micros::ZERO));
        assert_eq!((one.release(), one.release()), (1, 0));
        assert_eq!(one.in_flight(), 0);
    }

    #[test]
    fn an_unlimited_capacity_does_not_spill_into_the_closed_bit() {
        let one = endpoint(u32::MAX);
        assert!(!one.is_draining());
        assert!(one.try_reserve(Micros::ZERO));
        one.close();
        assert!(one.is_draining() && !one.try_reserve(Micros::ZERO));
        assert_eq!(one.in_flight(), 1);
    }

    #[test]
    fn a_smaller_capacity_lets_what_runs_finish_first() {
        let one = endpoint(3);
        for _ in 0..3 {
            assert!(one.try_reserve(Micros::ZERO));
        }
        one.set(1, false, Micros::ZERO);
        assert_eq!((one.in_flight(), one.capacity()), (3, 1));
        one.release();
        one.release();
        assert!(!one.try_reserve(Micros::ZERO), "one is still in flight and one is allowed");
        one.release();
        assert!(one.try_reserve(Micros::ZERO));
    }

    #[test]
    fn a_failed_connection_sets_aside_and_trials_grow_apart() {
        let one = endpoint(9);
        let at = |ms| Micros::from_millis(ms);
        one.connect_failed(at(1_000));
        one.connect_failed(at(1_001));
        assert!(!one.is_in_turn(at(1_249)));
        assert!(one.is_in_turn(at(1_250)));
        assert!(one.try_reserve(at(1_250)));
        assert!(!one.is_in_turn(at(1_749)), "the one trial is under way");
        assert!(one.is_in_turn(at(1_750)));
        assert!(one.try_reserve(at(1_750)));
        assert!(!one.is_in_turn(at(2_749)));
        for _ in 0..20 {
            one.try_reserve(at(2_750));
        }
        assert!(one.is_in_turn(at(2_750).after(BACKOFF_MAX)), "the pause has an upper bound");
        one.answered();
        assert!(one.is_in_turn(at(0)));
        one.connect_failed(at(5_000));
        assert!(one.is_in_turn(at(5_250)), "an answer forgets former failures");
    }

    #[test]
    fn a_connection_puts_it_back_and_only_an_answer_forgets_the_trials() {
        let one = endpoint(9);
        let at = |ms| Micros::from_millis(ms);
        one.connect_failed(at(1_000));
        assert!(one.try_reserve(at(1_250)));
        one.connected();
        assert!(one.is_in_turn(at(1_251)), "many requests may follow the one that got a connection");
        one.connect_failed(at(2_000));
        assert!(!one.is_in_turn(at(2_499)), "it failed again without having answered");
        assert!(one.is_in_turn(at(2_500)));
        one.answered();
        one.connect_failed(at(3_000));
        assert!(one.is_in_turn(at(3_250)));
    }

    #[test]
    fn a_fresh_replica_weighs_one_request_and_grows_to_its_capacity() {
        assert_eq!(weight(8, Micros::ZERO), 1_000);
        assert_eq!(weight(8, Micros(SLOW_START.0 / 2)), 4_000);
        assert_eq!(weight(8, SLOW_START), 8_000);
        assert_eq!(weight(1, Micros::ZERO), 1_000);
        assert_eq!(weight(0, Micros::ZERO), 0);
    }

    #[test]
    fn reservations_of_many_threads_never_exceed_the_capacity() {
        let one = Arc::new(endpoint(3));
        let most = Arc::new(AtomicU32::new(0));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (one, most) = (Arc::clone(&one), Arc::clone(&most));
                std::thread::spawn(move || {
                    for _ in 0..20_000 {
                        if one.try_reserve(Micros::ZERO) {
                            most.fetch_max(one.in_flight(), Ordering::Relaxed);
                            one.release();
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no thread panics");
        }
        assert_eq!(one.in_flight(), 0);
        assert!(most.load(Ordering::Relaxed) <= 3);
    }
}
