// SPDX-License-Identifier: Apache-2.0
//! Prints how long steps take with a thousand models: `cargo run --release -p sluice-core --example thousand_models`.

use std::time::{Duration, Instant};

use sluice_core::{
    Address, Bytes, Core, Demand, Event, FleetSpec, LifeSpec, Micros, ModelSpec, Profile, ReplicaEvent,
    ScaleSpec, Source,
};

const MODELS: usize = 1_000;

fn main() {
    for (name, memory, groups) in
        [("free", None, 0), ("budget for 100", Some(100), 0), ("in groups of 10", None, 100)]
    {
        println!("{MODELS} models, {name}:");
        run(memory, groups);
    }
}

fn run(memory: Option<u64>, groups: usize) {
    let mut core = Core::new();
    let mut actions = Vec::new();
    let fleet = FleetSpec {
        models: (0..MODELS).map(|n| (name(n).as_str().into(), spec(n, groups))).collect(),
        memory: memory.map(Bytes),
    };
    let mut now = Micros::from_secs(1);
    let mut step = |core: &mut Core, at: Micros, event: Event| {
        let begin = Instant::now();
        core.step(at, &event, &mut actions);
        let took = begin.elapsed();
        // The driver holds the former routes while the next are made, so that these are copied.
        (took, core.routes(), std::mem::take(&mut actions))
    };
    show("configure", &[step(&mut core, now, Event::Configure(fleet)).0]);
    let mut spent = Vec::new();
    let mut held = core.routes();
    for n in 0..MODELS {
        now = now.after(Micros(100));
        let (took, routes, started) = step(&mut core, now, Event::Demand(demand(n, 1)));
        (held, _) = (routes, held);
        spent.push(took);
        for action in started {
            if let sluice_core::Action::Start { replica, .. } = action {
                let (took, ..) =
                    step(&mut core, now, Event::Replica(replica, ReplicaEvent::Ready(address())));
                spent.push(took);
            }
        }
    }
    show("a first request, a start, a readiness", &spent);
    let busy: Vec<Duration> =
        (0..MODELS).map(|n| step(&mut core, now, Event::Demand(demand(n, 2))).0).collect();
    show("a changed load", &busy);
    let quiet: Vec<Duration> = (0..100).map(|_| step(&mut core, now, Event::Tick).0).collect();
    show("a tick with nothing due", &quiet);
    for n in 0..MODELS {
        step(&mut core, now, Event::Demand(demand(n, 0)));
    }
    now = now.after(Micros::from_secs(600));
    show("a tick at which all idle", &[step(&mut core, now, Event::Tick).0]);
    let begin = Instant::now();
    let status = core.status(now);
    println!("  {:<44} {:>9.1?}, {} replicas", "status", begin.elapsed(), status.replicas.len());
    drop(held);
}

fn show(what: &str, spent: &[Duration]) {
    let mut sorted = spent.to_vec();
    sorted.sort();
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
    let worst = sorted.last().copied().unwrap_or_default();
    println!("  {what:<44} {median:>9.1?} median, {worst:>9.1?} worst of {}", sorted.len());
}

fn name(n: usize) -> String {
    format!("model-{n:04}")
}

fn address() -> Address {
    Address { socket: ([127, 0, 0, 1], 8_000).into(), host: None, tls: false }
}

fn spec(n: usize, groups: usize) -> ModelSpec {
    ModelSpec {
        generation: 1,
        source: Source::Launched,
        scale: ScaleSpec {
            min_replicas: 0,
            max_replicas: 3,
            target_milli: 1_000,
            container_concurrency: 4,
            idle_after: Micros::from_secs(300),
            window: Micros::from_secs(60),
            preload: false,
            profile: Profile::Sized,
        },
        life: LifeSpec {
            start_deadline: Micros::from_secs(60),
            drain_deadline: Micros::from_secs(30),
            stop_deadline: Micros::from_secs(10),
            start_attempts: 3,
            backoff_first: Micros::from_secs(1),
            backoff_max: Micros::from_secs(60),
        },
        memory: Bytes(1),
        groups: n.checked_rem(groups).map(|group| format!("group-{group}")).into_iter().collect(),
    }
}

fn demand(n: usize, load: u32) -> Demand {
    Demand {
        model: name(n).as_str().into(),
        in_flight: 0,
        queued: load,
        peak: load,
        arrivals: u64::from(load),
        completions: 0,
        abandons: 0,
        in_flight_micros: 0,
        queued_micros: 0,
        idle_since: None,
        by_replica: Default::default(),
    }
}
