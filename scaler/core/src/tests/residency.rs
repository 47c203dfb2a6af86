// SPDX-License-Identifier: Apache-2.0
//! Exclusive groups and the memory budget.

use std::collections::BTreeMap;

use crate::testkit::{Rig, life, scale, spec};
use crate::tests::world::{Fate, Nature, World};
use crate::{Bytes, Event, FleetSpec, LifeSpec, Micros, ModelSpec, ModelState, ScaleSpec};

fn exclusive() -> ModelSpec {
    ModelSpec { groups: vec!["gpu".into()], ..spec() }
}

/// Exclusive, and one replica does all.
fn single() -> ModelSpec {
    let scale = ScaleSpec { max_replicas: 1, target_milli: 100_000, ..scale() };
    ModelSpec { scale, ..exclusive() }
}

fn heavy(bytes: u64) -> ModelSpec {
    ModelSpec { memory: Bytes(bytes), ..spec() }
}

fn least(min: u32, model: ModelSpec) -> ModelSpec {
    ModelSpec { scale: ScaleSpec { min_replicas: min, ..model.scale }, ..model }
}

fn world(models: &[(&str, ModelSpec)], memory: Option<u64>, nature: Nature) -> World {
    let fleet = FleetSpec {
        models: models.iter().map(|(name, spec)| ((*name).into(), spec.clone())).collect(),
        memory: memory.map(Bytes),
    };
    let mut world = World::new(fleet, 7);
    world.natures =
        models.iter().map(|(name, _)| ((*name).into(), nature.clone())).collect::<BTreeMap<_, _>>();
    world
}

fn nature(start_ms: u64, stop_ms: u64) -> Nature {
    let (start, stop) = (Micros::from_millis(start_ms), Micros::from_millis(stop_ms));
    Nature { start, stop, fails: None, hangs_until: Micros::ZERO, deaf_stops: 0 }
}

#[test]
fn an_idle_incumbent_goes_at_once_and_the_other_starts_only_when_it_is_gone() {
    let mut rig = Rig::new(&[("a", exclusive()), ("b", exclusive())]);
    rig.load("a", 0, 1);
    rig.pass(100);
    rig.ready(0);
    rig.load("a", 1, 0);
    rig.load("a", 0, 0);
    rig.pass(1_000);
    rig.acts();
    rig.load("b", 0, 1);
    assert_eq!(rig.routed("a"), (vec![], vec![0]));
    assert_eq!(rig.route("b").state, ModelState::Starting);
    assert!(rig.acts().is_empty());
    rig.drained(0);
    assert_eq!(rig.acts(), ["stop r0"]);
    rig.pass(1_000);
    assert!(rig.acts().is_empty(), "told to stop is not stopped");
    rig.gone(0);
    assert_eq!(rig.acts(), ["start r1 b#0"]);
}

#[test]
fn a_busy_incumbent_keeps_its_place_until_the_turn_of_the_waiting_one() {
    let mut rig = Rig::new(&[("a", exclusive()), ("b", exclusive())]);
    rig.load("a", 0, 1);
    rig.ready(0);
    rig.load_at("a", &[(0, 1)], 0);
    rig.pass(1_000);
    rig.acts();
    assert!(!rig.route("a").contended);
    rig.load("b", 0, 1);
    assert!(rig.route("a").contended, "the gateway is to tell at once when it falls idle");
    rig.pass(1_999);
    assert_eq!(rig.routed("a"), (vec![0], vec![]));
    rig.pass(1);
    assert_eq!(rig.routed("a"), (vec![], vec![0]), "two seconds are the shortest turn");
    rig.pass(5_000);
    assert!(rig.acts().is_empty(), "its request finishes");
    rig.load("a", 0, 0);
    rig.drained(0);
    rig.gone(0);
    assert_eq!(rig.acts(), ["stop r0", "start r1 b#0"]);
    assert!(!rig.route("a").contended);
}

#[test]
fn a_contended_incumbent_that_falls_idle_goes_at_once() {
    let mut rig = Rig::new(&[("a", exclusive()), ("b", exclusive())]);
    rig.load("a", 0, 1);
    rig.ready(0);
    rig.load_at("a", &[(0, 1)], 0);
    rig.pass(1_000);
    rig.load("b", 0, 1);
    rig.pass(300);
    rig.load("a", 0, 0);
    assert_eq!(rig.routed("a"), (vec![], vec![0]));
}

#[test]
fn an_eviction_is_called_off_when_nobody_waits_any_more() {
    let mut rig = Rig::new(&[("a", exclusive()), ("b", exclusive())]);
    rig.load("a", 0, 1);
    rig.ready(0);
    rig.load_at("a", &[(0, 1)], 0);
    rig.load("b", 0, 1);
    rig.pass(2_000);
    assert_eq!(rig.routed("a"), (vec![], vec![0]));
    rig.load_at("a", &[(0, 1)], 1);
    assert_eq!(
        rig.routed("a"),
        (vec![], vec![0]),
        "its own queue does not bring it back: the other waits longer"
    );
    rig.load("b", 0, 0);
    assert_eq!(rig.routed("a"), (vec![0], vec![]));
}

#[test]
fn an_incumbent_that_still_starts_for_somebody_is_left_alone() {
    let mut rig = Rig::new(&[("a", exclusive()), ("b", exclusive())]);
    rig.load("a", 0, 1);
    rig.load("b", 0, 1);
    rig.pass(10_000);
    assert_eq!(rig.acts(), ["start r0 a#0"]);
    rig.load("a", 0, 0);
    assert_eq!(rig.acts(), ["stop r0"], "nobody waits for it any more");
}

#[test]
fn those_who_wait_are_served_in_the_order_of_their_waiting() {
    let mut rig = Rig::new(&[("a", exclusive()), ("b", exclusive()), ("c", exclusive())]);
    rig.load("b", 0, 1);
    rig.pass(10);
    rig.load("c", 0, 1);
    rig.pass(10);
    rig.load("a", 0, 1);
    rig.gone(0);
    assert_eq!(
        rig.acts(),
        ["start r0 b#0", "start r1 c#0"],
        "b pauses after its failure, c waited longer than a"
    );
}

#[test]
fn what_only_bounds_want_waits_for_room_and_makes_nobody_go() {
    let mut rig = Rig::new(&[("a", exclusive()), ("b", least(1, exclusive()))]);
    assert_eq!(rig.acts(), ["start r0 b#0"]);
    rig.load("b", 0, 0);
    rig.ready(0);
    rig.pass(1_000);
    rig.load("a", 0, 1);
    rig.drained(0);
    rig.gone(0);
    assert_eq!(rig.acts(), ["stop r0", "start r1 a#0"], "a request is served before minReplicas");
    rig.ready(1);
    rig.load("a", 0, 0);
    rig.pass(1_999);
    assert!(rig.acts().is_empty());
    rig.pass(1);
    rig.drained(1);
    rig.gone(1);
    assert_eq!(rig.acts(), ["stop r1", "start r2 b#0"]);
}

#[test]
fn the_least_recently_used_make_room_and_no_more_than_needed() {
    let models = [("a", heavy(4)), ("b", heavy(4)), ("c", heavy(2)), ("d", heavy(6))];
    let mut rig = Rig::new(&[]);
    rig.configure(&models, Some(10));
    for (id, name) in ["c", "a", "b"].into_iter().enumerate() {
        rig.load(name, 0, 1);
        rig.ready(id as u64);
        rig.pass(10);
        rig.load(name, 0, 0);
    }
    rig.pass(500);
    rig.acts();
    rig.load("d", 0, 1);
    assert_eq!(rig.routed("c"), (vec![], vec![0]));
    assert_eq!(rig.routed("a"), (vec![], vec![1]));
    assert_eq!(rig.routed("b"), (vec![2], vec![]));
    rig.drained(0);
    rig.drained(1);
    rig.gone(0);
    assert_eq!(rig.acts(), ["stop r0", "stop r1"]);
    rig.gone(1);
    assert_eq!(rig.acts(), ["start r3 d#0"]);
}

#[test]
fn a_small_victim_that_a_larger_one_makes_superfluous_is_spared() {
    let mut rig = Rig::new(&[]);
    rig.configure(&[("a", heavy(2)), ("b", heavy(8)), ("d", heavy(8))], Some(10));
    for (id, name) in ["a", "b"].into_iter().enumerate() {
        rig.load(name, 0, 1);
        rig.ready(id as u64);
        rig.load(name, 0, 0);
    }
    rig.pass(100);
    rig.load("d", 0, 1);
    assert_eq!(rig.routed("a"), (vec![0], vec![]));
    assert_eq!(rig.routed("b"), (vec![], vec![1]));
}

#[test]
fn a_further_replica_makes_nobody_go() {
    let mut rig = Rig::new(&[]);
    rig.configure(&[("a", heavy(5)), ("b", heavy(5))], Some(10));
    rig.load("b", 0, 1);
    rig.ready(0);
    rig.load("b", 0, 0);
    rig.load("a", 0, 3);
    rig.ready(1);
    rig.load("a", 1, 2);
    rig.pass(1_900);
    assert_eq!(rig.acts(), ["start r0 b#0", "start r1 a#0"]);
    assert_eq!(rig.status("a").reason, "demand; no room for 2 more");
    rig.pass(100);
    rig.drained(0);
    rig.gone(0);
    assert_eq!(rig.acts(), ["stop r0", "start r2 a#1"], "room that became free is taken");
}

#[test]
fn further_replicas_take_no_room_that_a_first_one_waits_for() {
    let mut rig = Rig::new(&[]);
    rig.configure(&[("a", heavy(4)), ("b", heavy(4)), ("c", heavy(7))], Some(12));
    for (id, name) in ["a", "b"].into_iter().enumerate() {
        rig.load(name, 0, 1);
        rig.ready(id as u64);
        rig.load_at(name, &[(id as u64, 1)], 0);
    }
    rig.load("c", 0, 1);
    rig.acts();
    rig.load_at("a", &[(0, 1)], 2);
    assert!(rig.acts().is_empty(), "four bytes are free, and c waits for them");
}

#[test]
fn a_model_larger_than_the_budget_is_refused_with_the_reason() {
    let mut rig = Rig::new(&[]);
    rig.configure(&[("a", heavy(4)), ("b", heavy(11))], Some(10));
    rig.load("a", 0, 1);
    rig.ready(0);
    rig.load("a", 0, 0);
    rig.load("b", 0, 1);
    let fault = rig.route("b").fault.unwrap();
    assert_eq!(
        fault.cause,
        "a replica needs 11 bytes of memory, more than the 10 that all replicas together may use"
    );
    assert_eq!(rig.routed("a"), (vec![0], vec![]), "nobody goes for it");
    rig.pass(1_900);
    assert!(rig.route("b").fault.unwrap().answer_waiters);
    assert_eq!(rig.acts(), ["start r0 a#0"]);
}

#[test]
fn a_successor_without_room_makes_its_predecessor_go_first() {
    let mut rig = Rig::new(&[]);
    rig.configure(&[("a", heavy(6))], Some(10));
    rig.load("a", 0, 1);
    rig.ready(0);
    rig.load_at("a", &[(0, 1)], 0);
    rig.acts();
    rig.configure(&[("a", ModelSpec { generation: 2, ..heavy(6) })], Some(10));
    assert_eq!(rig.routed("a"), (vec![], vec![0]));
    rig.drained(0);
    rig.gone(0);
    assert_eq!(rig.acts(), ["stop r0", "start r1 a#0"]);
}

#[test]
fn a_configuration_that_forbids_what_runs_lets_the_least_recently_used_go() {
    let mut rig = Rig::new(&[("a", spec()), ("b", spec())]);
    for (id, name) in ["a", "b"].into_iter().enumerate() {
        rig.load(name, 0, 1);
        rig.ready(id as u64);
        rig.pass(10);
        rig.load_at(name, &[(id as u64, 1)], 0);
    }
    rig.configure(&[("a", exclusive()), ("b", exclusive())], None);
    assert_eq!((rig.routed("a"), rig.routed("b")), ((vec![], vec![0]), (vec![1], vec![])));
    rig.configure(&[("a", heavy(5)), ("b", heavy(5))], Some(4));
    assert_eq!((rig.routed("a"), rig.routed("b")), ((vec![], vec![0]), (vec![], vec![1])));
}

#[test]
fn a_woken_model_makes_an_idle_one_go() {
    let mut rig = Rig::new(&[("a", exclusive()), ("b", exclusive())]);
    rig.load("a", 0, 1);
    rig.ready(0);
    rig.load("a", 0, 0);
    rig.pass(600);
    rig.step(Event::Wake("b".into()));
    assert_eq!(rig.routed("a"), (vec![], vec![0]));
}

#[test]
fn a_wake_order_for_a_model_that_only_its_minimum_wanted_makes_an_idle_one_go() {
    let mut rig = Rig::new(&[("a", exclusive())]);
    rig.load("a", 0, 1);
    rig.ready(0);
    rig.load("a", 0, 0);
    rig.configure(&[("a", exclusive()), ("b", least(1, exclusive()))], None);
    rig.pass(1_000);
    assert_eq!(rig.routed("a"), (vec![0], vec![]), "a minimum waits for room");
    rig.step(Event::Wake("b".into()));
    assert_eq!(rig.routed("a"), (vec![], vec![0]));
}

#[test]
fn fc_21_a_stream_is_finished_before_the_other_model_starts() {
    let mut world = world(&[("a", exclusive()), ("b", exclusive())], None, nature(500, 100));
    world.arrive("a", 5_000, None);
    world.arrive_in(1_000, "b", 100, None);
    world.pass(20_000);
    assert_eq!((world.count(Fate::Served), world.records.len()), (2, 2));
    assert_eq!(world.starts.len(), 2);
    assert!(world.slowest("b") < Micros::from_millis(5_500));
}

#[test]
fn fc_21_swaps_are_bounded_by_residency_and_not_by_requests() {
    let mut world = world(&[("a", single()), ("b", single())], None, nature(500, 100));
    for n in 0..150 {
        world.arrive_in(n * 200, "a", 100, None);
        world.arrive_in(n * 200 + 3, "b", 100, None);
    }
    world.pass(40_000);
    assert_eq!((world.count(Fate::Served), world.records.len()), (300, 300));
    assert!(
        world.starts.len() <= 32,
        "{} starts: each start and its settling take a second",
        world.starts.len()
    );
    let longest = world.slowest("a").max(world.slowest("b"));
    assert!(longest < Micros::from_secs(4), "{longest:?}");
}

#[test]
fn fc_21_under_constant_load_on_both_sides_each_gets_its_turn() {
    let mut world = world(&[("a", single()), ("b", single())], None, nature(500, 100));
    for n in 0..600 {
        world.arrive_in(n * 50, "a", 150, None);
        world.arrive_in(n * 50 + 3, "b", 150, None);
    }
    world.pass(60_000);
    assert_eq!(world.count(Fate::Served), 1_200);
    assert!(world.starts.len() <= 16, "{} starts", world.starts.len());
    let longest = world.slowest("a").max(world.slowest("b"));
    assert!(longest < Micros::from_secs(5), "{longest:?}");
}

#[test]
fn fc_25_two_exclusive_models_are_never_alive_together() {
    let mut world = world(&[("a", exclusive()), ("b", exclusive())], None, nature(200, 300));
    for round in 0..100 {
        for _ in 0..8 {
            world.arrive("a", 20 + round % 7, None);
            world.arrive("b", 20 + round % 5, None);
        }
        world.pass(400 + round * 13 % 900);
    }
    world.pass(30_000);
    assert_eq!((world.count(Fate::Served), world.records.len()), (1_600, 1_600));
}

#[test]
fn fc_36_arrivals_around_the_moment_of_unloading_are_all_served_in_time() {
    let scale = ScaleSpec { idle_after: Micros::from_secs(1), max_replicas: 1, ..scale() };
    let model = ModelSpec { scale, ..exclusive() };
    let mut world = world(&[("a", model.clone()), ("b", model)], None, nature(200, 300));
    for round in 0..1_000u64 {
        world.arrive(if round * 7_919 % 3 == 0 { "a" } else { "b" }, 20, None);
        world.pass(970 + round * 104_729 % 451);
    }
    world.pass(5_000);
    assert_eq!((world.count(Fate::Served), world.records.len()), (1_000, 1_000));
    for name in ["a", "b"] {
        assert!(
            world.slowest(name) <= Micros::from_millis(200 + 20 + 1_000 + 300),
            "{:?}",
            world.slowest(name)
        );
    }
    world.arrive("a", 20, None);
    world.pass(1_000);
    assert_eq!(world.count(Fate::Served), 1_001, "models of the group still start");
}

#[test]
fn fc_28_an_exclusive_model_in_a_crash_loop_gives_the_place_back_between_attempts() {
    let mut world = world(&[("a", exclusive()), ("b", exclusive())], None, nature(300, 100));
    let fails = Some((Micros::from_millis(200), Micros::from_secs(1_000)));
    world.natures.get_mut("a").unwrap().fails = fails;
    world.arrive("a", 100, None);
    for n in 0..40 {
        world.arrive_in(n * 500, "b", 100, None);
    }
    world.pass(60_000);
    let served = world.records.iter().filter(|r| r.model.as_str() == "b" && r.fate == Fate::Served);
    assert_eq!(served.count(), 40);
    assert_eq!(world.count(Fate::Answered), 1);
}

#[test]
fn fc_50_memory_is_free_again_whatever_way_a_replica_ended() {
    let life = LifeSpec { start_deadline: Micros::from_secs(2), ..life() };
    let model = ModelSpec { life, ..heavy(8) };
    let mut world = world(&[("a", model)], Some(8), nature(300, 100));
    world.arrive("a", 100, None);
    world.pass(1_000);
    world.crash("a");
    world.arrive("a", 100, None);
    world.pass(1_000);
    world.hang("a");
    world.arrive("a", 100, None);
    world.pass(1_000);
    world.natures.get_mut("a").unwrap().hangs_until = world.now.after(Micros::from_millis(1));
    world.tell(Event::Sleep("a".into()));
    world.arrive("a", 100, None);
    world.pass(30_000);
    assert_eq!((world.count(Fate::Served), world.open()), (4, 0));
    assert_eq!(world.alive("a"), 0);
}
