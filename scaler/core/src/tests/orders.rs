// SPDX-License-Identifier: Apache-2.0
//! A person's orders of a number of replicas, and of replicas to go.

use crate::testkit::{Rig, scale, spec};
use crate::{Event, ModelSpec, Phase, ReplicaId, ScaleSpec, Source};

/// Up to three replicas of one request each; idle after 2 s, a window of 6 s.
fn rig(min: u32) -> Rig {
    Rig::new(&[("m", ModelSpec { scale: ScaleSpec { min_replicas: min, ..scale() }, ..spec() })])
}

fn told(rig: &Rig) -> (u32, String, Option<u32>) {
    let status = rig.status("m");
    (status.desired, status.reason, status.pinned)
}

#[test]
fn a_scale_order_holds_whatever_the_load_until_the_model_has_idled() {
    let mut rig = rig(0);
    rig.load("m", 0, 0);
    rig.step(Event::Scale("m".into(), Some(2)));
    assert_eq!(rig.acts(), ["start r0 m#0", "start r1 m#1"]);
    assert_eq!(told(&rig), (2, "scale order".to_owned(), Some(2)));
    rig.pass(10_000);
    assert_eq!(rig.status("m").desired, 2, "idling counts from the first readiness");
    rig.ready(0);
    rig.ready(1);
    rig.load("m", 5, 0);
    rig.pass(10_000);
    assert_eq!(rig.status("m").desired, 2, "demand has no say");
    rig.load("m", 0, 0);
    rig.pass(1_999);
    assert_eq!(rig.status("m").desired, 2);
    rig.pass(1);
    assert_eq!(told(&rig), (0, "idle".to_owned(), None));
}

#[test]
fn a_scale_order_may_go_below_the_minimum_and_never_above_the_maximum() {
    let mut rig = rig(2);
    rig.ready(0);
    rig.ready(1);
    rig.load_at("m", &[(0, 1), (1, 1)], 0);
    rig.step(Event::Scale("m".into(), Some(1)));
    assert_eq!(rig.routed("m"), (vec![0], vec![1]));
    rig.step(Event::Scale("m".into(), Some(9)));
    assert_eq!(told(&rig).0, 3);
    rig.load("m", 0, 0);
    rig.pass(2_000);
    assert_eq!(told(&rig), (2, "minReplicas".to_owned(), None));
}

#[test]
fn a_cancelled_scale_order_gives_the_say_back_to_demand() {
    let mut rig = rig(0);
    rig.load("m", 0, 0);
    rig.step(Event::Scale("m".into(), Some(3)));
    (0..3).for_each(|id| rig.ready(id));
    rig.load("m", 2, 0);
    rig.step(Event::Scale("m".into(), None));
    assert_eq!(told(&rig), (2, "demand".to_owned(), None));
}

#[test]
fn a_scale_order_of_none_is_a_sleep_order_and_sleep_ends_a_scale_order() {
    let mut rig = rig(1);
    rig.load("m", 0, 0);
    rig.step(Event::Scale("m".into(), Some(0)));
    assert_eq!(told(&rig), (0, "sleep order".to_owned(), None));
    rig.step(Event::Scale("m".into(), Some(2)));
    rig.step(Event::Sleep("m".into()));
    assert_eq!(told(&rig), (0, "sleep order".to_owned(), None));
}

#[test]
fn a_replica_ordered_to_go_finishes_and_is_replaced_while_demand_wants_it() {
    let mut rig = rig(0);
    rig.load("m", 0, 2);
    assert_eq!(rig.acts(), ["start r0 m#0", "start r1 m#1"]);
    rig.ready(0);
    rig.ready(1);
    rig.load_at("m", &[(0, 1), (1, 1)], 0);
    rig.step(Event::Drain(ReplicaId(0)));
    assert_eq!(rig.routed("m"), (vec![1], vec![0]));
    assert_eq!(rig.acts(), ["start r2 m#2"], "what it still does is demand");
    rig.load_at("m", &[(1, 1)], 0);
    rig.load_at("m", &[(1, 1)], 5);
    assert_eq!(rig.routed("m"), (vec![1], vec![0]), "it is not taken back");
    rig.drained(0);
    rig.gone(0);
    assert_eq!(rig.status("m").fault, None);
}

#[test]
fn the_idle_last_replica_ordered_to_go_is_not_replaced() {
    let mut rig = rig(0);
    rig.load("m", 0, 1);
    rig.ready(0);
    rig.load("m", 0, 0);
    rig.step(Event::Drain(ReplicaId(0)));
    rig.drained(0);
    rig.gone(0);
    assert_eq!(rig.acts(), ["start r0 m#0", "stop r0"]);
    assert_eq!(rig.status("m").desired, 0);
}

#[test]
fn a_drained_model_gets_fresh_replicas_for_what_demand_wants() {
    let mut rig = rig(1);
    rig.load("m", 0, 2);
    rig.ready(0);
    rig.acts();
    rig.load_at("m", &[(0, 2)], 0);
    rig.step(Event::DrainModel("m".into()));
    assert_eq!(rig.acts(), ["stop r1", "start r2 m#2", "start r3 m#3"], "one on its way is stopped at once");
    assert_eq!(rig.routed("m"), (vec![], vec![0]));
    let notes: Vec<_> = rig.core.status(rig.now).replicas.into_iter().map(|r| (r.phase, r.note)).collect();
    assert_eq!(notes[0], (Phase::Draining, "drain order".to_owned()));
}

#[test]
fn fixed_addresses_take_no_orders() {
    let mut rig = Rig::new(&[("f", ModelSpec { source: Source::Fixed(1), ..spec() })]);
    rig.ready(0);
    rig.step(Event::Scale("f".into(), Some(3)));
    rig.step(Event::Drain(ReplicaId(0)));
    rig.step(Event::DrainModel("f".into()));
    assert_eq!(rig.routed("f"), (vec![0], vec![]));
    assert_eq!(rig.acts(), ["start r0 f#0"]);
}
