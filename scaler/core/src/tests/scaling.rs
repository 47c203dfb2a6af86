// SPDX-License-Identifier: Apache-2.0
//! Out, in, to zero, drains and failures.

use crate::testkit::{Rig, scale, spec};
use crate::{Coming, Event, Micros, ModelSpec, ModelState, ScaleSpec, Source};

fn with(min: u32, max: u32, target: u64) -> ModelSpec {
    let scale = ScaleSpec { min_replicas: min, max_replicas: max, target_milli: target * 1_000, ..scale() };
    ModelSpec { scale, ..spec() }
}

/// A rig whose model `m` has this many ready replicas.
fn ready(count: u64, model: ModelSpec) -> Rig {
    let mut rig = Rig::new(&[("m", model)]);
    rig.load("m", 0, count as u32);
    (0..count).for_each(|id| rig.ready(id));
    rig.acts();
    rig
}

#[test]
fn a_first_request_starts_one_replica_and_repeated_reports_start_no_second() {
    let mut rig = Rig::new(&[("m", with(0, 5, 1))]);
    assert!(rig.acts().is_empty());
    for _ in 0..5 {
        rig.load("m", 0, 1);
    }
    assert_eq!(rig.acts(), ["start r0 m#0"]);
    assert_eq!(rig.route("m").state, ModelState::Starting);
    rig.ready(0);
    assert_eq!(rig.routed("m"), (vec![0], vec![]));
}

#[test]
fn a_drained_replica_is_stopped_and_forgotten_when_gone() {
    let mut rig = ready(1, with(0, 1, 1));
    rig.load("m", 0, 0);
    rig.pass(1_999);
    assert!(rig.acts().is_empty());
    rig.pass(1);
    assert_eq!(rig.routed("m"), (vec![], vec![0]));
    assert!(rig.acts().is_empty(), "a drain is not a stop");
    rig.drained(0);
    assert_eq!(rig.acts(), ["stop r0"]);
    assert_eq!(rig.route("m").state, ModelState::Draining);
    rig.gone(0);
    assert_eq!(rig.route("m").state, ModelState::Cold);
}

#[test]
fn shutdown_drains_and_stops_all_and_starts_nothing() {
    let mut rig = ready(2, with(1, 3, 1));
    rig.step(Event::Shutdown);
    assert_eq!(rig.routed("m"), (vec![], vec![0, 1]));
    rig.load("m", 2, 5);
    rig.step(Event::Wake("m".into()));
    rig.drained(0);
    rig.gone(0);
    assert!(!rig.core.is_empty());
    rig.pass(20_000);
    assert_eq!(rig.acts(), ["stop r0", "cut r1", "stop r1"]);
    rig.gone(1);
    assert!(rig.core.is_empty());
}

#[test]
fn fixed_addresses_are_attached_at_once_and_kept_whatever_the_load() {
    let mut rig = Rig::new(&[("f", ModelSpec { source: Source::Fixed(2), ..spec() })]);
    assert_eq!(rig.acts(), ["start r0 f#0", "start r1 f#1"]);
    rig.ready(0);
    rig.load("f", 50, 50);
    rig.load("f", 0, 0);
    rig.pass(100_000);
    assert!(rig.acts().is_empty());
    rig.unready(0);
    assert_eq!(rig.routed("f"), (vec![], vec![0]));
    rig.drained(0);
    assert!(rig.acts().is_empty());
    rig.ready(0);
    assert_eq!(rig.routed("f"), (vec![0], vec![]));
    rig.configure(&[], None);
    rig.drained(0);
    assert_eq!(rig.acts(), ["stop r1", "stop r0"]);
}

#[test]
fn a_fixed_address_that_is_not_ready_is_a_fault_that_is_told_again_and_again() {
    let mut rig = Rig::new(&[("f", ModelSpec { source: Source::Fixed(2), ..spec() })]);
    rig.load("f", 0, 1);
    (0..2).for_each(|id| rig.unready(id));
    rig.pass(9_999);
    assert_eq!(rig.route("f").fault, None, "it may just be slow to come up");
    rig.pass(1);
    let fault = rig.route("f").fault.unwrap();
    assert_eq!((fault.failures, fault.answer_waiters), (1, true));
    assert_eq!(fault.cause, "its address is not ready: 503");
    rig.pass(10_000);
    assert_eq!(rig.route("f").fault.unwrap().failures, 2, "both addresses are missing, once each time");
    rig.ready(1);
    assert_eq!(rig.route("f").fault, None);
    rig.unready(1);
    rig.pass(10_000);
    assert!(
        rig.route("f").fault.is_some_and(|fault| fault.answer_waiters),
        "one that was ready is told of too"
    );
    assert_eq!(rig.acts().len(), 2, "nothing but the two was ever started or stopped");
}

#[test]
fn a_start_that_takes_too_long_is_stopped_and_counts_as_failed() {
    let mut rig = Rig::new(&[("m", with(0, 1, 1))]);
    rig.load("m", 0, 1);
    rig.acts();
    rig.pass(30_000);
    assert_eq!(rig.acts(), ["stop r0"]);
    let fault = rig.route("m").fault.unwrap();
    assert_eq!((fault.failures, fault.answer_waiters), (1, false));
    assert_eq!(fault.cause, "not ready within 30 s");
    rig.gone(0);
    assert_eq!(rig.route("m").fault.unwrap().failures, 1, "its end is no second failure");
}

#[test]
fn fc_28_a_crash_loop_tells_the_waiters_and_recovers_at_the_next_step() {
    let mut rig = Rig::new(&[("m", with(0, 1, 1))]);
    rig.load("m", 0, 3);
    let mut launched = Vec::new();
    for id in 0..4 {
        while rig.acts().is_empty() {
            rig.pass(1);
        }
        launched.push(rig.now.as_millis());
        rig.pass(200);
        rig.gone(id);
        let fault = rig.route("m").fault.unwrap();
        assert_eq!(fault.failures, id as u32 + 1);
        assert_eq!(fault.answer_waiters, id >= 2);
        assert_eq!(fault.cause, "exit status 1");
    }
    assert_eq!(launched, [0, 700, 1_900, 4_100], "500 ms, 1 s, 2 s after each failure");
    assert!(rig.now < Micros::from_secs(5));
    rig.pass(4_000);
    assert_eq!(rig.acts(), ["start r4 m#0"]);
    rig.ready(4);
    assert_eq!(rig.route("m").fault, None);
}

#[test]
fn a_failed_start_is_not_retried_for_nobody() {
    let mut rig = Rig::new(&[("m", with(0, 1, 1))]);
    rig.load("m", 0, 1);
    rig.gone(0);
    rig.load("m", 0, 0);
    assert_eq!(rig.acts(), ["start r0 m#0"]);
    rig.pass(60_000);
    assert!(rig.acts().is_empty());
    rig.load("m", 0, 1);
    assert_eq!(rig.acts(), ["start r1 m#0"]);
}

#[test]
fn a_wake_order_and_a_preload_are_retried_until_they_are_fulfilled() {
    let preload = ModelSpec { scale: ScaleSpec { preload: true, ..scale() }, ..spec() };
    for (model, order) in [(with(0, 1, 1), true), (preload, false)] {
        let mut rig = Rig::new(&[("m", model)]);
        rig.load("m", 0, 0);
        if order {
            rig.step(Event::Wake("m".into()));
        }
        assert_eq!(rig.acts(), ["start r0 m#0"]);
        rig.gone(0);
        rig.pass(1_000);
        assert_eq!(rig.acts(), ["start r1 m#0"]);
        assert_eq!(rig.status("m").reason, if order { "wake order" } else { "preload" });
        rig.pass(10_000);
        rig.ready(1);
        rig.pass(1_999);
        assert_eq!(rig.routed("m"), (vec![1], vec![]), "idling counts from readiness");
        rig.pass(1);
        assert_eq!(rig.routed("m"), (vec![], vec![1]));
    }
}

#[test]
fn fc_41_the_idle_replica_goes_and_else_the_least_loaded() {
    for (loads, victim) in [([2, 0, 1], 1), ([2, 3, 1], 2), ([1, 1, 2], 1), ([0, 0, 0], 2)] {
        let mut rig = ready(3, with(0, 3, 1));
        let at: Vec<(u64, u32)> = (0..3).zip(loads).collect();
        rig.load_at("m", &at, 0);
        rig.configure(&[("m", with(2, 2, 1))], None);
        assert_eq!(rig.routed("m").1, [victim], "{loads:?}");
    }
}

#[test]
fn what_time_alone_brings_is_told_ahead_and_then_comes() {
    let secs = Micros::from_secs;
    let next = |rig: &Rig| rig.status("m").next.map(|next| (next.what, next.at.since(rig.now)));
    let mut rig = Rig::new(&[("m", with(0, 3, 1))]);
    assert_eq!(next(&rig), None);
    rig.load("m", 0, 1);
    assert_eq!(next(&rig), None, "no start was measured");
    rig.pass(3_000);
    rig.ready(0);
    // Two more, which take as long.
    rig.load("m", 1, 2);
    rig.pass(1_000);
    assert_eq!(next(&rig), Some((Coming::Ready, secs(2))));
    rig.pass(1_000);
    rig.ready(1);
    rig.ready(2);
    rig.load("m", 3, 0);
    assert_eq!(next(&rig), None, "in use");
    // The window is 6 s.
    rig.load("m", 1, 0);
    rig.pass(1_000);
    assert_eq!(next(&rig), Some((Coming::Fewer, secs(5))));
    rig.pass(4_999);
    assert_eq!(rig.status("m").desired, 3);
    rig.pass(1);
    assert_eq!((rig.status("m").desired, next(&rig)), (1, None));
    // Idle for 2 s.
    rig.load("m", 0, 0);
    assert_eq!(next(&rig), Some((Coming::Asleep, secs(2))));
    rig.pass(2_000);
    assert_eq!((rig.status("m").desired, next(&rig)), (0, None));

    let mut kept = ready(2, with(1, 3, 1));
    kept.load("m", 0, 0);
    assert_eq!(next(&kept), Some((Coming::Fewer, secs(2))));
    kept.pass(2_000);
    assert_eq!((kept.status("m").desired, next(&kept)), (1, None));
}
