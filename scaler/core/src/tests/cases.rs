// SPDX-License-Identifier: Apache-2.0
//! Field cases and mission scenarios as far as they are decisions.

use std::collections::BTreeMap;

use crate::testkit::{Rig, life, scale, spec};
use crate::tests::world::{Fate, World};
use crate::{Drained, Event, FleetSpec, LifeSpec, Micros, ModelSpec, ModelState, ReplicaId, ScaleSpec};

fn model(min: u32, max: u32, target: u64) -> ModelSpec {
    let scale = ScaleSpec { min_replicas: min, max_replicas: max, target_milli: target * 1_000, ..scale() };
    ModelSpec { scale, ..spec() }
}

fn fleet(models: &[(&str, ModelSpec)]) -> FleetSpec {
    let models = models.iter().map(|(name, spec)| ((*name).into(), spec.clone())).collect();
    FleetSpec { models, memory: None }
}

fn world(model: ModelSpec, start_ms: u64, stop_ms: u64) -> World {
    let mut world = World::new(fleet(&[("m", model)]), 11);
    let nature = world.natures.get_mut("m").unwrap();
    (nature.start, nature.stop) = (Micros::from_millis(start_ms), Micros::from_millis(stop_ms));
    world
}

/// Values that desired took, in order.
fn desired(world: &World) -> Vec<u32> {
    world.desired["m"].iter().map(|&(_, desired)| desired).collect()
}

fn ms(n: u64) -> Micros {
    Micros::from_millis(n)
}

#[test]
fn ms_02_five_requests_per_replica_between_one_and_ten() {
    let mut rig = Rig::new(&[("bert-classifier", model(1, 10, 5))]);
    let mut existing = 0;
    for (in_flight, wanted, desired) in [(0, 0, 1), (10, 2, 2), (50, 10, 10), (60, 12, 10)] {
        rig.load("bert-classifier", in_flight, 0);
        let status = rig.status("bert-classifier");
        assert_eq!((status.wanted, status.desired), (Some(wanted), desired), "{in_flight} in flight");
        (existing..u64::from(desired)).for_each(|id| rig.ready(id));
        existing = u64::from(desired);
    }
    assert_eq!(rig.status("bert-classifier").reason, "maxReplicas");
    assert_eq!(rig.acts().len(), 10);
    rig.load("bert-classifier", 0, 0);
    rig.pass(6_000);
    assert_eq!(rig.status("bert-classifier").desired, 1);
    assert_eq!(rig.status("bert-classifier").reason, "minReplicas");
}

#[test]
fn ms_02_with_no_minimum_none_is_zero_and_the_next_request_starts_one() {
    let mut world = world(model(0, 10, 5), 500, 100);
    world.arrive("m", 100, None);
    world.pass(10_000);
    assert_eq!((world.alive("m"), desired(&world)), (0, vec![0, 1, 0]));
    world.arrive("m", 100, None);
    world.pass(1_000);
    assert_eq!(world.count(Fate::Served), 2);
}

#[test]
fn fc_20_a_herd_at_zero_makes_one_start_and_further_replicas_take_work_when_ready() {
    for (max, starts) in [(1, 1), (3, 3)] {
        let herd =
            ModelSpec { scale: ScaleSpec { container_concurrency: 4, ..model(0, max, 4).scale }, ..spec() };
        let mut world = world(herd, 500, 100);
        (0..300).for_each(|_| world.arrive("m", 50, None));
        world.pass(400);
        assert_eq!(world.starts.len(), starts);
        world.pass(30_000);
        assert_eq!((world.count(Fate::Served), world.starts.len()), (300, starts));
    }
}

#[test]
fn fc_26_replicas_on_their_way_count() {
    let mut world = world(model(0, 16, 2), 10_000, 100);
    (0..8).for_each(|_| world.arrive("m", 25_000, None));
    world.pass(24_000);
    assert_eq!((desired(&world), world.starts.len()), (vec![0, 4], 4));
    (0..92).for_each(|_| world.arrive("m", 60_000, None));
    world.pass(30_000);
    assert_eq!((desired(&world).into_iter().max(), world.starts.len()), (Some(16), 16));
}

#[test]
fn fc_27_capacity_is_kept_while_load_lasts_and_falls_without_rising() {
    let mut world = world(model(1, 20, 1), 5_000, 100);
    world.pass(10_000);
    let begin = world.now;
    (0..20).for_each(|_| world.arrive("m", 25_000, None));
    world.pass(60_000);
    let series = &world.desired["m"];
    let rising = series.iter().filter(|(at, _)| *at > begin && *at < begin.after(ms(25_000)));
    let rising: Vec<u32> = rising.map(|&(_, desired)| desired).collect();
    assert!(rising.is_sorted() && rising.last() == Some(&20), "{rising:?}");
    let falling: Vec<u32> =
        series.iter().filter(|(at, _)| *at >= begin.after(ms(25_000))).map(|&(_, desired)| desired).collect();
    assert!(falling.is_sorted_by(|a, b| a >= b) && falling.last() == Some(&1), "{falling:?}");
}

#[test]
fn fc_27_a_load_that_swings_between_none_and_two_changes_desired_at_most_twice() {
    let mut rig = Rig::new(&[("m", model(1, 4, 1))]);
    rig.load("m", 0, 0);
    rig.ready(0);
    let mut series = vec![rig.route("m").desired];
    for n in 0..100 {
        rig.load("m", [0, 1, 2, 1][n % 4], 0);
        rig.pass(300);
        series.push(rig.route("m").desired);
    }
    series.dedup();
    assert_eq!(series, [1, 2]);
}

#[test]
fn a_burst_that_is_gone_keeps_what_exists_and_starts_nothing() {
    let mut rig = Rig::new(&[("m", model(0, 9, 1))]);
    let demand = |peak, queued| crate::Demand { peak, queued, ..crate::testkit::nothing("m") };
    rig.step(Event::Demand(demand(5, 0)));
    assert!(rig.acts().is_empty(), "all five have left again");
    rig.step(Event::Demand(demand(3, 3)));
    assert_eq!(rig.acts().len(), 3);
    (0..3).for_each(|id| rig.ready(id));
    rig.step(Event::Demand(demand(3, 1)));
    rig.pass(5_000);
    rig.step(Event::Demand(demand(3, 1)));
    rig.pass(5_999);
    assert_eq!(rig.routed("m"), (vec![0, 1, 2], vec![]), "the second burst of three keeps three");
    assert_eq!(rig.status("m").reason, "largest want of the window");
    rig.pass(1);
    assert_eq!(rig.routed("m").0.len(), 1);
}

#[test]
fn fc_28_a_crash_loop_answers_its_waiters_within_seconds_and_recovers_by_itself() {
    let mut world = World::new(fleet(&[("m", model(0, 1, 1)), ("other", model(0, 1, 1))]), 5);
    let repaired = ms(20_000);
    world.natures.get_mut("m").unwrap().fails = Some((ms(200), repaired));
    (0..3).for_each(|_| world.arrive("m", 50, None));
    (0..40).for_each(|n| world.arrive_in(n * 700, "other", 50, None));
    world.pass(5_000);
    assert_eq!(world.count(Fate::Answered), 3);
    (0..30).for_each(|n| world.arrive_in(n * 1_000, "m", 50, None));
    world.pass(40_000);
    let launches = |w: &World| -> Vec<Micros> {
        w.starts.iter().filter(|(_, m)| m.as_str() == "m").map(|&(at, _)| at).collect()
    };
    let gaps: Vec<u64> = launches(&world).windows(2).map(|w| w[1].since(w[0]).as_millis()).collect();
    assert!(gaps.is_sorted(), "attempts are spaced by growing pauses: {gaps:?}");
    let served = world.records.iter().filter(|r| r.model.as_str() == "m" && r.fate == Fate::Served);
    let first = served.map(|r| r.ended).min().unwrap();
    assert!(first.since(repaired) <= life().backoff_max.after(ms(600)), "{first:?}");
    let other = world.records.iter().filter(|r| r.model.as_str() == "other");
    assert!(other.clone().all(|r| r.fate == Fate::Served) && other.count() == 40);
}

#[test]
fn fc_30_a_replica_that_dies_on_its_first_request_is_replaced_at_once() {
    let mut world = world(model(0, 1, 1), 300, 100);
    world.arrive("m", 10_000, None);
    world.pass(400);
    world.crash("m");
    world.arrive_in(50, "m", 50, None);
    world.pass(5_000);
    assert_eq!((world.count(Fate::Broken), world.count(Fate::Served)), (1, 1));
    let relaunch = world.starts[1].0;
    assert!(relaunch.since(ms(400)) <= ms(100), "{relaunch:?}");
}

#[test]
fn fc_30_a_request_that_kills_every_replica_does_not_keep_the_machine_starting() {
    let mut rig = Rig::new(&[("m", model(0, 1, 1))]);
    rig.load("m", 0, 1);
    let mut launched = Vec::new();
    for id in 0..5 {
        while rig.acts().is_empty() {
            rig.pass(1);
        }
        launched.push(rig.now.as_millis());
        rig.pass(100);
        rig.ready(id);
        rig.load_at("m", &[(id, 1)], 1);
        rig.pass(10);
        rig.gone(id);
    }
    assert_eq!(launched, [0, 110, 720, 1_830, 3_940], "at once, then after 500 ms, 1 s, 2 s");
    let cause = rig.route("m").fault.unwrap().cause;
    assert_eq!(cause, "ended 10 ms after it was ready: exit status 1");
}

#[test]
fn fc_30_a_model_that_served_is_relaunched_at_once_however_often_it_dies() {
    let mut rig = Rig::new(&[("m", model(1, 1, 1))]);
    rig.load("m", 0, 0);
    for id in 0..5 {
        assert_eq!(rig.acts(), [format!("start r{id} m#0")]);
        rig.ready(id);
        for _ in 0..3 {
            rig.load_at("m", &[(id, 1)], 0);
            rig.load("m", 0, 0);
            rig.pass(200);
        }
        rig.gone(id);
    }
}

#[test]
fn fc_34_idling_counts_from_the_last_byte() {
    let mut world = world(model(0, 1, 1), 200, 100);
    world.arrive("m", 6_000, None);
    world.pass(6_200 + 20 + 1_500);
    world.arrive("m", 500, None);
    world.pass(500 + 1_500);
    world.arrive("m", 500, None);
    world.pass(500);
    let last = world.records.iter().map(|r| r.ended).max().unwrap();
    world.pass(10_000);
    assert_eq!((world.starts.len(), world.stops.len()), (1, 1));
    let stopped = world.stops[0].0.since(last);
    assert!(stopped >= ms(2_000) && stopped <= ms(2_010), "{stopped:?}");
}

#[test]
fn fc_36_demand_that_returns_before_the_stop_takes_the_draining_replica_back() {
    let mut rig = Rig::new(&[("m", model(0, 1, 1))]);
    rig.load("m", 0, 1);
    rig.ready(0);
    rig.load("m", 0, 0);
    rig.pass(2_000);
    assert_eq!(rig.routed("m"), (vec![], vec![0]));
    rig.load("m", 0, 1);
    assert_eq!(rig.routed("m"), (vec![0], vec![]));
    rig.drained(0);
    assert_eq!(rig.acts(), ["start r0 m#0"], "the late word of the former drain stops nothing");
    rig.load("m", 0, 0);
    rig.pass(2_000);
    rig.drained(0);
    rig.load("m", 0, 1);
    assert_eq!(rig.acts(), ["stop r0", "start r1 m#1"], "a stopping one is not taken back");
}

#[test]
fn a_report_about_a_drain_that_was_called_off_does_not_end_the_next_one() {
    let mut rig = Rig::new(&[("m", model(0, 1, 1))]);
    rig.load("m", 1, 0);
    rig.ready(0);
    rig.load("m", 0, 0);
    rig.pass(5_000);
    let stale = Drained { replica: ReplicaId(0), drain: 1 };
    assert_eq!(rig.routed("m"), (vec![], vec![0]));
    rig.load("m", 0, 1);
    assert_eq!(rig.routed("m"), (vec![0], vec![]), "called off");
    rig.load("m", 1, 0);
    rig.step(Event::Sleep("m".into()));
    rig.acts();
    rig.step(Event::Drained(stale));
    assert!(rig.acts().is_empty(), "a request is in flight there");
    rig.drained(0);
    assert_eq!(rig.acts(), ["stop r0"]);
}

#[test]
fn fc_36_arrivals_around_the_moment_of_unloading_are_served_within_a_start() {
    let quick = ModelSpec { scale: ScaleSpec { idle_after: ms(1_000), ..model(0, 1, 1).scale }, ..spec() };
    let mut world = world(quick, 200, 300);
    for round in 0..1_000u64 {
        world.arrive("m", 20, None);
        world.pass(970 + round * 104_729 % 451);
    }
    assert_eq!(world.count(Fate::Served), 1_000);
    assert!(world.slowest("m") <= ms(20 + 200 + 20 + 10), "{:?}", world.slowest("m"));
}

#[test]
fn fc_38_each_model_idles_on_its_own() {
    let names: Vec<String> = (0..60).map(|n| format!("m{n}")).collect();
    let idle = ModelSpec { scale: ScaleSpec { idle_after: ms(3_000), ..model(0, 1, 1).scale }, ..spec() };
    let models: BTreeMap<_, _> = names.iter().map(|name| (name.as_str().into(), idle.clone())).collect();
    let mut world = World::new(FleetSpec { models, memory: None }, 3);
    for (n, name) in names.iter().enumerate() {
        world.arrive_in(n as u64 * 80, name, 50, None);
    }
    (0..25).for_each(|n| world.arrive_in(n * 1_000, "m1", 50, None));
    world.pass(24_500);
    assert_eq!(world.stops.len(), 59);
    assert_eq!((world.alive("m1"), world.starts.len()), (1, 60));
    for (n, (at, _)) in world.stops.iter().enumerate() {
        assert!(*at <= ms(80 * (n as u64 + 2) + 3_000 + 800), "stop {n} at {at:?}");
    }
}

#[test]
fn fc_39_a_stop_is_repeated_until_the_end_is_seen_and_blocks_no_new_start() {
    let mut rig = Rig::new(&[("m", model(0, 1, 1))]);
    rig.load("m", 0, 1);
    rig.ready(0);
    rig.load("m", 0, 0);
    rig.pass(2_000);
    rig.drained(0);
    assert_eq!(rig.acts(), ["start r0 m#0", "stop r0"]);
    rig.load("m", 0, 1);
    assert_eq!(rig.acts(), ["start r1 m#1"], "a request that arrives meanwhile gets a fresh replica");
    rig.ready(1);
    rig.pass(3_000);
    assert_eq!(rig.acts(), ["stop r0"], "stop deadline and a second");
    rig.pass(6_000);
    assert_eq!(rig.acts(), ["stop r0", "stop r0"]);
    rig.gone(0);
    rig.pass(60_000);
    assert!(rig.acts().is_empty());
}

#[test]
fn fc_40_a_leaving_replica_is_stopped_when_empty_and_cut_at_its_deadline() {
    for (drain, fate) in [(30_000, Fate::Served), (3_000, Fate::Cut)] {
        let one_each = |max| {
            let scale = ScaleSpec { container_concurrency: 1, ..model(0, max, 1).scale };
            let life = LifeSpec { drain_deadline: ms(drain), ..life() };
            ModelSpec { scale, life, ..spec() }
        };
        let mut world = world(one_each(2), 200, 0);
        (0..2).for_each(|_| world.arrive("m", 8_000, None));
        world.pass(1_000);
        let lowered = world.now;
        world.configure(fleet(&[("m", one_each(1))]));
        world.arrive("m", 100, None);
        world.pass(20_000);
        assert_eq!(
            (world.records.len(), world.count(Fate::Served)),
            (3, if fate == Fate::Cut { 2 } else { 3 })
        );
        assert_eq!(world.count(Fate::Cut), usize::from(fate == Fate::Cut));
        let stopped = world.stops[0].0.since(lowered);
        assert!(if fate == Fate::Cut { stopped == ms(3_000) } else { stopped > ms(7_000) }, "{stopped:?}");
    }
}

#[test]
fn fc_43_quick_edits_of_other_models_touch_nothing() {
    let mut rig = Rig::new(&[("m", model(1, 1, 1)), ("other", model(0, 1, 1))]);
    rig.ready(0);
    rig.load_at("m", &[(0, 1)], 0);
    assert_eq!(rig.acts(), ["start r0 m#0"]);
    let before = rig.route("m");
    for edit in 0..20u32 {
        let other = ModelSpec { generation: u64::from(edit), ..model(0, 1 + edit, 1) };
        rig.configure(&[("m", model(1, 1, 1)), ("other", other)], None);
    }
    assert!(rig.acts().is_empty());
    assert_eq!(rig.route("m"), before);
}

#[test]
fn fc_43_changed_bounds_apply_to_what_runs() {
    let mut rig = Rig::new(&[("m", model(0, 1, 1))]);
    rig.load("m", 0, 3);
    rig.ready(0);
    rig.configure(&[("m", model(0, 3, 1))], None);
    assert_eq!(rig.acts(), ["start r0 m#0", "start r1 m#1", "start r2 m#2"]);
    let limited = ScaleSpec { container_concurrency: 7, ..model(0, 3, 1).scale };
    rig.configure(&[("m", ModelSpec { scale: limited, ..spec() })], None);
    assert!(rig.acts().is_empty());
    assert_eq!(rig.route("m").replicas[0].capacity, 7);
}

#[test]
fn fc_44_models_that_come_and_go_leave_nothing_behind() {
    let mut world = World::new(fleet(&[("m", model(0, 1, 1))]), 1);
    for round in 0..10 {
        world.configure(fleet(&[("m", model(0, 1, 1)), ("n", model(1, 1, 1))]));
        world.arrive("n", 30, None);
        world.pass(300 + round * 60);
        world.configure(fleet(&[("m", model(0, 1, 1))]));
        world.pass(round * 30);
    }
    world.pass(5_000);
    assert_eq!(world.alive("n"), 0);
    assert_eq!(world.core.status(world.now).replicas, []);
    assert!(!world.core.routes().models.contains_key("n"));
    assert_eq!(world.core.next_deadline(), None);
    world.arrive("m", 30, None);
    world.pass(1_000);
    world.hang("m");
    world.arrive("m", 30, None);
    world.pass(10_000);
    assert_eq!((world.open(), world.alive("m")), (0, 0), "hangs and idling are noticed as before");
}

#[test]
fn a_removed_model_lets_its_requests_finish_and_is_forgotten() {
    let mut rig = Rig::new(&[("m", model(0, 2, 1))]);
    rig.load("m", 0, 2);
    (0..2).for_each(|id| rig.ready(id));
    rig.load_at("m", &[(0, 1)], 0);
    rig.configure(&[], None);
    assert_eq!(rig.routed("m"), (vec![], vec![0, 1]));
    assert_eq!((rig.route("m").state, rig.route("m").desired), (ModelState::Draining, 0));
    rig.drained(1);
    rig.drained(0);
    assert!(rig.core.routes().models.is_empty());
    assert_eq!(rig.core.status(rig.now).replicas.len(), 2);
    rig.gone(0);
    rig.gone(1);
    assert_eq!(rig.acts()[2..], ["stop r1", "stop r0"]);
    assert_eq!(rig.core.status(rig.now).replicas, []);
}

#[test]
fn a_new_generation_starts_before_the_old_one_goes_where_max_allows() {
    let mut rig = Rig::new(&[("m", model(1, 2, 1))]);
    rig.load("m", 1, 0);
    rig.ready(0);
    rig.acts();
    rig.configure(&[("m", ModelSpec { generation: 2, ..model(1, 2, 1) })], None);
    assert_eq!(rig.acts(), ["start r1 m#1"]);
    assert_eq!(rig.routed("m"), (vec![0], vec![]));
    rig.ready(1);
    assert_eq!(rig.routed("m"), (vec![1], vec![0]));
}

#[test]
fn a_new_generation_may_be_one_replica_more_than_max() {
    let mut rig = Rig::new(&[("m", model(2, 2, 1))]);
    rig.load("m", 1, 0);
    (0..2).for_each(|id| rig.ready(id));
    rig.acts();
    rig.configure(&[("m", ModelSpec { generation: 2, ..model(2, 2, 1) })], None);
    assert_eq!(rig.acts(), ["start r2 m#2"], "one more, and no two");
    assert_eq!(rig.routed("m"), (vec![0, 1], vec![]));
    rig.ready(2);
    assert_eq!(rig.routed("m"), (vec![0, 2], vec![1]), "one for one");
    assert_eq!(rig.acts(), ["start r3 m#3"]);
    rig.ready(3);
    assert_eq!(rig.routed("m"), (vec![2, 3], vec![0, 1]));
    assert!(rig.acts().is_empty());
}

#[test]
fn a_new_generation_that_fails_leaves_the_old_one_at_work() {
    let mut rig = Rig::new(&[("m", model(1, 1, 1))]);
    rig.load("m", 1, 0);
    rig.ready(0);
    rig.pass(1_000);
    rig.acts();
    rig.configure(&[("m", ModelSpec { generation: 2, ..model(1, 1, 1) })], None);
    for attempt in 1..=4 {
        rig.gone(attempt);
        assert_eq!(rig.routed("m"), (vec![0], vec![]));
        assert_eq!(rig.status("m").fault.unwrap().failures, attempt as u32, "people are told");
        rig.pass(10_000);
    }
    rig.acts();
    rig.configure(&[("m", model(1, 1, 1))], None);
    assert_eq!(rig.routed("m"), (vec![0], vec![]), "what still runs is what is wanted again");
    assert_eq!(rig.acts(), ["stop r5"]);
    assert_eq!(rig.status("m").fault, None);
}

#[test]
fn in_an_exclusive_group_the_old_generation_drains_while_the_new_one_starts() {
    let alone = |generation| ModelSpec { generation, groups: vec!["gpu".into()], ..model(1, 1, 1) };
    let mut rig = Rig::new(&[("m", alone(1))]);
    rig.load("m", 1, 0);
    rig.ready(0);
    rig.acts();
    rig.configure(&[("m", alone(2))], None);
    assert_eq!(rig.routed("m"), (vec![], vec![0]));
    assert_eq!(rig.acts(), ["start r1 m#1"]);
}

#[test]
fn a_new_generation_of_a_model_that_nobody_uses_waits_for_its_next_request() {
    let mut rig = Rig::new(&[("m", model(0, 2, 1))]);
    rig.load("m", 0, 1);
    rig.ready(0);
    rig.load("m", 0, 0);
    rig.acts();
    rig.configure(&[("m", ModelSpec { generation: 2, ..model(0, 2, 1) })], None);
    assert_eq!(rig.routed("m"), (vec![], vec![0]));
    assert!(rig.acts().is_empty());
}

#[test]
fn unknown_load_is_not_zero() {
    let preload = ScaleSpec { preload: true, ..model(0, 2, 1).scale };
    let mut rig = Rig::new(&[("m", ModelSpec { scale: preload, ..spec() })]);
    rig.ready(0);
    rig.pass(1_000_000);
    assert_eq!(rig.routed("m"), (vec![0], vec![]));
    assert_eq!((rig.status("m").wanted, rig.status("m").desired), (None, 1));
}

#[test]
fn a_hung_replica_does_not_block_its_replacement() {
    let mut rig = Rig::new(&[("m", model(0, 1, 4))]);
    rig.load("m", 0, 2);
    rig.ready(0);
    rig.load_at("m", &[(0, 2)], 1);
    rig.acts();
    rig.unready(0);
    assert_eq!(rig.routed("m"), (vec![], vec![0]));
    assert_eq!(rig.acts(), ["start r1 m#1"]);
    rig.ready(1);
    assert_eq!(rig.routed("m"), (vec![1], vec![0]));
    rig.pass(20_000);
    assert_eq!(rig.acts(), ["cut r0", "stop r0"], "what is in flight may finish until the drain deadline");
}

#[test]
fn a_sleep_order_ends_with_the_next_request() {
    let mut rig = Rig::new(&[("m", model(1, 2, 1))]);
    rig.load("m", 0, 0);
    rig.ready(0);
    rig.load_at("m", &[(0, 1)], 0);
    rig.step(Event::Sleep("m".into()));
    assert_eq!(rig.routed("m"), (vec![], vec![0]));
    rig.load("m", 0, 0);
    rig.drained(0);
    rig.gone(0);
    rig.pass(60_000);
    assert_eq!(rig.acts(), ["start r0 m#0", "stop r0"], "whatever the minimum says");
    assert_eq!((rig.route("m").state, rig.status("m").reason), (ModelState::Cold, "sleep order".to_owned()));
    rig.load("m", 0, 1);
    assert_eq!(rig.acts(), ["start r1 m#0"]);
}

#[test]
fn requests_that_waited_at_a_sleep_order_are_served_after_it() {
    let mut rig = Rig::new(&[("m", model(0, 1, 1))]);
    rig.load("m", 0, 2);
    rig.ready(0);
    rig.load_at("m", &[(0, 1)], 1);
    rig.step(Event::Sleep("m".into()));
    rig.load("m", 0, 1);
    rig.drained(0);
    assert_eq!(rig.acts(), ["start r0 m#0", "stop r0"]);
    rig.gone(0);
    assert_eq!(rig.acts(), ["start r1 m#0"]);
}

#[test]
fn the_expected_readiness_comes_from_measured_starts() {
    let mut rig = Rig::new(&[("m", model(0, 1, 1))]);
    rig.load("m", 0, 1);
    assert_eq!(rig.route("m").ready_at, None);
    rig.pass(700);
    rig.ready(0);
    rig.load("m", 0, 0);
    rig.pass(2_000);
    rig.drained(0);
    rig.gone(0);
    rig.load("m", 0, 1);
    assert_eq!(rig.route("m").ready_at, Some(rig.now.after(ms(700))));
    rig.gone(1);
    let fault = rig.route("m").fault.unwrap();
    assert_eq!(rig.route("m").ready_at, Some(fault.retry_at.after(ms(700))));
}

#[test]
fn fixed_addresses_that_share_a_limit_are_never_attached_twice() {
    let fixed = |generation, container_concurrency| ModelSpec {
        generation,
        source: crate::Source::Fixed(1),
        scale: ScaleSpec { container_concurrency, ..scale() },
        ..spec()
    };
    for (limit, at_once) in [(4, false), (0, true)] {
        let mut rig = Rig::new(&[("f", fixed(1, limit))]);
        rig.ready(0);
        rig.load_at("f", &[(0, 1)], 0);
        rig.acts();
        rig.configure(&[("f", fixed(2, limit))], None);
        assert_eq!(rig.routed("f"), (vec![], vec![0]));
        assert_eq!(rig.acts().len(), usize::from(at_once));
        rig.drained(0);
        rig.gone(0);
        assert!(rig.acts().contains(&"stop r0".to_owned()));
        assert_eq!(rig.core.status(rig.now).replicas.len(), 1);
    }
}

#[test]
fn time_does_not_go_back() {
    let mut rig = Rig::new(&[("m", model(0, 1, 1))]);
    rig.pass(10_000);
    rig.load("m", 0, 1);
    rig.now = Micros::ZERO;
    let mut actions = Vec::new();
    rig.core.step(Micros::ZERO, &Event::Tick, &mut actions);
    assert_eq!(rig.core.status(rig.now).replicas[0].since, ms(10_000));
}
