// SPDX-License-Identifier: Apache-2.0
//! A restart changes desired by nothing.

use crate::testkit::{Rig, scale, spec};
use crate::{Core, Event, Micros, ModelSpec, ScaleSpec};

/// The rig with a core that has forgotten everything that dies with a process, `downtime` later.
fn restarted(rig: Rig, downtime: Micros) -> Rig {
    let text = serde_json::to_string(&rig.core).unwrap();
    let now = rig.now.after(downtime);
    let former: Core = serde_json::from_str(&text).unwrap();
    let mut fresh = Rig::new(&[]);
    (fresh.core, fresh.now) = (Core::restored(former, now), now);
    fresh
}

fn long() -> ModelSpec {
    ModelSpec { scale: ScaleSpec { idle_after: Micros::from_secs(300), ..scale() }, ..spec() }
}

#[test]
fn replicas_start_again_at_once_and_stay_for_the_window_without_demand() {
    let mut rig = Rig::new(&[("m", long())]);
    rig.load("m", 3, 0);
    (0..3).for_each(|id| rig.ready(id));
    rig.pass(60_000);
    let mut rig = restarted(rig, Micros::from_secs(2));
    rig.load("m", 0, 0);
    assert_eq!(rig.acts(), [""; 0], "nothing is decided before the configuration is there");
    rig.configure(&[("m", long())], None);
    assert_eq!(rig.acts(), ["start r3 m#0", "start r4 m#1", "start r5 m#2"]);
    assert_eq!(rig.status("m").desired, 3);
    rig.load("m", 0, 0);
    rig.pass(5_900);
    assert_eq!(rig.status("m").desired, 3, "the window goes on");
    rig.pass(200);
    assert_eq!(rig.status("m").desired, 1, "in use until idle");
    rig.pass(300_000);
    assert_eq!(rig.status("m").desired, 0);
}

#[test]
fn idling_goes_on_where_it_was_and_ends_while_nobody_runs() {
    let idling = || {
        let mut rig = Rig::new(&[("m", long())]);
        rig.pass(1_000);
        rig.load("m", 1, 0);
        rig.ready(0);
        rig.load("m", 0, 0);
        rig.pass(200_000);
        rig
    };
    let mut rig = restarted(idling(), Micros::from_secs(50));
    rig.configure(&[("m", long())], None);
    assert_eq!(rig.acts(), ["start r1 m#0"]);
    rig.ready(1);
    rig.load("m", 0, 0);
    rig.pass(49_000);
    assert_eq!(rig.status("m").desired, 1);
    rig.pass(2_000);
    assert_eq!(rig.status("m").desired, 0);

    let mut rig = restarted(idling(), Micros::from_secs(101));
    rig.configure(&[("m", long())], None);
    assert_eq!(rig.acts(), [""; 0]);
    assert_eq!(rig.status("m").desired, 0);
}

#[test]
fn orders_and_measured_starts_survive() {
    let mut rig = Rig::new(&[("woken", long()), ("asleep", long()), ("scaled", long())]);
    rig.step(Event::Wake("woken".into()));
    rig.pass(700);
    rig.ready(0);
    rig.load("asleep", 1, 0);
    rig.load("asleep", 0, 0);
    rig.step(Event::Sleep("asleep".into()));
    rig.step(Event::Scale("scaled".into(), Some(2)));
    let mut rig = restarted(rig, Micros::from_secs(1));
    rig.configure(&[("woken", long()), ("asleep", long()), ("scaled", long())], None);
    let desired = ["woken", "asleep", "scaled"].map(|name| rig.status(name).desired);
    assert_eq!(desired, [1, 0, 2]);
    assert_eq!(rig.status("woken").wake.p50, Micros::from_millis(700));
    rig.load("asleep", 0, 1);
    assert_eq!(rig.status("asleep").desired, 1, "a request ends the sleep as before");
}

#[test]
fn a_configuration_that_changed_meanwhile_is_taken_over() {
    let mut rig = Rig::new(&[("gone", long()), ("new command", long()), ("fewer", long())]);
    for name in ["gone", "new command", "fewer"] {
        rig.load(name, 2, 0);
    }
    let mut rig = restarted(rig, Micros::from_secs(1));
    let fewer = ModelSpec { scale: ScaleSpec { max_replicas: 1, ..long().scale }, ..long() };
    rig.configure(&[("new command", ModelSpec { generation: 2, ..long() }), ("fewer", fewer)], None);
    assert_eq!(rig.status("new command").desired, 2);
    assert_eq!(rig.status("fewer").desired, 1);
    assert_eq!(rig.acts().len(), 3);
    assert!(!rig.core.routes().models.contains_key("gone"));
}

#[test]
fn whoever_had_the_room_has_it_again() {
    let alone = ModelSpec { groups: vec!["one".into()], ..long() };
    let models = [("a", alone.clone()), ("b", alone)];
    let mut rig = Rig::new(&models);
    rig.load("b", 1, 0);
    rig.ready(0);
    rig.load("a", 0, 1);
    assert_eq!((rig.status("a").desired, rig.acts()), (1, vec!["start r0 b#0".to_owned()]));
    let mut rig = restarted(rig, Micros::from_secs(1));
    rig.configure(&models, None);
    assert_eq!(rig.acts(), ["start r1 b#0"]);
}
