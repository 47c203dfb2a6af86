// SPDX-License-Identifier: Apache-2.0
//! Random histories in the simulated world: the checks that the world makes at every step, and liveness at the end.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::kpa::Settings;
use crate::testkit::{life, spec};
use crate::tests::world::{Fate, Record, World};
use crate::{
    Bytes, Core, Drained, Event, FleetSpec, LifeSpec, Micros, ModelName, ModelSpec, Profile, ReplicaEvent,
    ReplicaId, ScaleSpec, Source, replay,
};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "f"];

#[derive(Clone, Debug)]
enum Op {
    Pass(u64),
    Arrive {
        model: usize,
        requests: usize,
        service: u64,
        patience: Option<u64>,
    },
    Crash(usize),
    Hang(usize),
    FailStarts {
        model: usize,
        for_ms: u64,
    },
    HangStarts {
        model: usize,
        for_ms: u64,
    },
    LoseStop(usize),
    Wake(usize),
    Sleep(usize),
    Scale {
        model: usize,
        count: Option<u32>,
    },
    Drain(usize),
    DrainModel(usize),
    Generation(usize),
    /// `compat: kpa` is taken away.
    Sized(usize),
    Bounds {
        model: usize,
        min: u32,
        max: u32,
    },
    Remove(usize),
    Restore,
    Junk(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let model = 0..NAMES.len();
    prop_oneof![
        6 => (1u64..6_000).prop_map(Op::Pass),
        3 => (1u64..200).prop_map(Op::Pass),
        8 => (model.clone(), 1usize..8, 1u64..3_000, prop::option::weighted(0.2, 1u64..2_000))
            .prop_map(|(model, requests, service, patience)| Op::Arrive { model, requests, service, patience }),
        1 => model.clone().prop_map(Op::Crash),
        1 => model.clone().prop_map(Op::Hang),
        1 => (model.clone(), 1u64..10_000).prop_map(|(model, for_ms)| Op::FailStarts { model, for_ms }),
        1 => (model.clone(), 1u64..10_000).prop_map(|(model, for_ms)| Op::HangStarts { model, for_ms }),
        1 => model.clone().prop_map(Op::LoseStop),
        1 => model.clone().prop_map(Op::Wake),
        1 => model.clone().prop_map(Op::Sleep),
        1 => (model.clone(), prop::option::of(0u32..6)).prop_map(|(model, count)| Op::Scale { model, count }),
        1 => model.clone().prop_map(Op::Drain),
        1 => model.clone().prop_map(Op::DrainModel),
        1 => model.clone().prop_map(Op::Generation),
        1 => model.clone().prop_map(Op::Sized),
        1 => (model.clone(), 0u32..3, 0u32..4).prop_map(|(model, min, more)| Op::Bounds { model, min, max: min + more }),
        1 => model.prop_map(Op::Remove),
        1 => Just(Op::Restore),
        1 => (0u64..200).prop_map(Op::Junk),
    ]
}

#[derive(Clone, Debug)]
struct Variant {
    groups: [u8; 4],
    memory: [u64; 4],
    budget: Option<u64>,
    target: u64,
    concurrency: u32,
    idle: u64,
    window: u64,
    min: [u32; 4],
    preload: bool,
    drain: u64,
    /// `compat: kpa`, with one of a few targets, and whether replicas count as scraped.
    kpa: [Option<(usize, bool)>; 4],
}

fn variant() -> impl Strategy<Value = Variant> {
    let shape = (prop::array::uniform4(0u8..8), prop::array::uniform4(0u64..10), prop::option::of(9u64..24));
    let scale = (1u64..4_000, 0u32..3, 0u64..4_000, 0u64..8_000, prop::array::uniform4(0u32..2));
    let kpa = prop::array::uniform4(prop::option::weighted(0.3, (0usize..4, any::<bool>())));
    (shape, scale, any::<bool>(), 0u64..9_000, kpa).prop_map(|(shape, scale, preload, drain, kpa)| Variant {
        groups: shape.0,
        memory: shape.1,
        budget: shape.2,
        target: scale.0,
        concurrency: scale.1,
        idle: scale.2,
        window: scale.3,
        min: scale.4,
        preload,
        drain,
        kpa,
    })
}

/// How one model scales.
fn profile(variant: &Variant, i: usize) -> Profile {
    let Some((target, scraped)) = variant.kpa[i] else { return Profile::Sized };
    Profile::Kpa(Box::new(Settings {
        container_concurrency: variant.concurrency,
        target: [None, Some(0.3), Some(1.0), Some(2.5)][target],
        target_burst_capacity: if scraped { 211.0 } else { -1.0 },
        min_scale: variant.min[i],
        max_scale: 1 + i as u32,
        initial_scale: 0,
        window: Micros::from_secs(6 + variant.window / 1_000),
        progress_deadline: Micros::from_secs(5),
        ..Settings::default()
    }))
}

fn fleet(variant: &Variant) -> FleetSpec {
    let mut models = BTreeMap::new();
    for (i, name) in NAMES.iter().enumerate().take(4) {
        let scale = ScaleSpec {
            min_replicas: variant.min[i],
            max_replicas: 1 + i as u32,
            target_milli: variant.target,
            container_concurrency: variant.concurrency,
            idle_after: Micros::from_millis(variant.idle),
            window: Micros::from_millis(variant.window),
            preload: variant.preload && i == 0,
            profile: profile(variant, i),
        };
        let life = LifeSpec {
            start_deadline: Micros::from_secs(4),
            drain_deadline: Micros::from_millis(variant.drain),
            ..life()
        };
        let groups =
            (0..3).filter(|bit| variant.groups[i] & (1 << bit) != 0).map(|bit| format!("g{bit}")).collect();
        models.insert(
            (*name).into(),
            ModelSpec { scale, life, memory: Bytes(variant.memory[i]), groups, ..spec() },
        );
    }
    models.insert("f".into(), ModelSpec { source: Source::Fixed(2), ..spec() });
    FleetSpec { models, memory: variant.budget.map(Bytes) }
}

fn apply(world: &mut World, full: &FleetSpec, op: Op) {
    let edit = |world: &mut World, i: usize, change: &dyn Fn(&mut ModelSpec)| {
        let mut fleet = world.fleet.clone();
        if let Some(model) = fleet.models.get_mut(NAMES[i]) {
            change(model);
            world.configure(fleet);
        }
    };
    match op {
        Op::Pass(ms) => world.pass(ms),
        Op::Arrive { model, requests, service, patience } => {
            (0..requests as u64).for_each(|n| world.arrive_in(n * 7 % 40, NAMES[model], service, patience));
        }
        Op::Crash(i) => world.crash(NAMES[i]),
        Op::Hang(i) => world.hang(NAMES[i]),
        Op::FailStarts { model, for_ms } => {
            let until = world.now.after(Micros::from_millis(for_ms));
            let nature = world.natures.get_mut(NAMES[model]).unwrap();
            nature.fails = Some((Micros::from_millis(200), until));
        }
        Op::HangStarts { model, for_ms } => {
            let until = world.now.after(Micros::from_millis(for_ms));
            world.natures.get_mut(NAMES[model]).unwrap().hangs_until = until;
        }
        Op::LoseStop(i) => world.natures.get_mut(NAMES[i]).unwrap().deaf_stops += 1,
        Op::Wake(i) => world.tell(Event::Wake(NAMES[i].into())),
        Op::Sleep(i) => world.tell(Event::Sleep(NAMES[i].into())),
        Op::Scale { model, count } => world.tell(Event::Scale(NAMES[model].into(), count)),
        Op::Drain(i) => world.drain(NAMES[i]),
        Op::DrainModel(i) => world.tell(Event::DrainModel(NAMES[i].into())),
        Op::Sized(i) => edit(world, i, &|model| model.scale.profile = Profile::Sized),
        Op::Generation(i) => edit(world, i, &|model| model.generation += 1),
        Op::Bounds { model, min, max } => edit(world, model, &|spec| {
            (spec.scale.min_replicas, spec.scale.max_replicas) = (min, max.max(1));
            if let Profile::Kpa(settings) = &mut spec.scale.profile {
                (settings.min_scale, settings.max_scale) = (min, max.max(1));
            }
        }),
        Op::Remove(i) => {
            let mut fleet = world.fleet.clone();
            fleet.models.remove(NAMES[i]);
            world.configure(fleet);
        }
        Op::Restore => world.configure(full.clone()),
        Op::Junk(n) => {
            world.tell(Event::Drained(Drained { replica: ReplicaId(n + 10_000), drain: 1 }));
            world.tell(Event::Replica(ReplicaId(n + 10_000), ReplicaEvent::NotReady { why: "?".into() }));
            world.tell(Event::Wake("nobody".into()));
            world.tell(Event::Tick);
        }
    }
}

/// After faults have ended every request is served, and after demand has ended everything goes to its minimum.
fn settle(world: &mut World, full: &FleetSpec) {
    world.configure(full.clone());
    for nature in world.natures.values_mut() {
        (nature.fails, nature.hangs_until, nature.deaf_stops) = (None, Micros::ZERO, 0);
    }
    world.recover();
    world.pass(60_000);
    let fits = |m: &ModelSpec| full.memory.is_none_or(|budget| m.memory <= budget);
    let before = world.records.len();
    let askable: Vec<&ModelName> =
        full.models.iter().filter(|(_, m)| fits(m)).map(|(name, _)| name).collect();
    askable.iter().for_each(|name| world.arrive(name.as_str(), 50, None));
    world.pass(120_000);
    assert_eq!(world.open(), 0, "requests are stuck: {:?}", world.core.status(world.now));
    let last = world.records.get(before..).unwrap();
    // Whoever drains without patience cuts what has just been sent.
    let hasty = |r: &&Record| full.models[&r.model].life.drain_deadline < Micros::from_millis(60);
    let served = last.iter().filter(|r| r.fate == Fate::Served || r.fate == Fate::Cut && hasty(r)).count();
    assert!(served >= askable.len(), "{served} served of {}: {last:?}", askable.len());
    let lonely = |m: &ModelSpec| m.groups.is_empty() && (full.memory.is_none() || m.memory == Bytes(0));
    for (name, model) in &full.models {
        let alive = world.alive(name.as_str()) as u32;
        let least = match model.source {
            Source::Fixed(n) => n,
            Source::Launched | Source::Elsewhere => model.scale.min_replicas,
        };
        assert!(alive <= least, "{name}: {alive} alive and idle: {:?}", world.core.status(world.now));
        assert!(alive == least || !lonely(model), "{name}: {alive} alive where {least} are the minimum");
    }
}

/// The core as it is survives the way to the disk, and one that continues it wants the same number of replicas.
fn restart(world: &World) {
    let text = serde_json::to_string(&world.core).unwrap();
    let former: Core = serde_json::from_str(&text).unwrap();
    assert!(former.continues(&world.core), "another one comes back: {text}");
    let before = world.core.status(world.now);
    let mut core = Core::restored(former, world.now);
    core.step(world.now, &Event::Configure(world.core.fleet()), &mut Vec::new());
    let after = core.status(world.now);
    for (model, after) in before.models.iter().zip(&after.models) {
        let undecided = model.reason == "no decision yet" || world.core.short.contains(&model.name);
        assert!(after.desired == model.desired || undecided, "{after:?} comes of {model:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_nothing_is_broken_and_in_the_end_all_is_served(
        variant in variant(), ops in prop::collection::vec(op(), 1..60), seed in any::<u64>(),
    ) {
        let full = fleet(&variant);
        let mut world = World::new(full.clone(), seed);
        ops.into_iter().for_each(|op| {
            apply(&mut world, &full, op);
            restart(&world);
        });
        settle(&mut world, &full);
        let report = replay(&world.journal.dump()).unwrap();
        prop_assert_eq!(report.difference, None);
        prop_assert!(report.inputs > 400, "{} inputs", report.inputs);
    }
}
