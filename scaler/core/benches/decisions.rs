// SPDX-License-Identifier: Apache-2.0
//! What decisions cost, by the number of models: `cargo bench -p sluice-core`. Prints a Markdown table; asserts nothing.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sluice_core::{
    Address, Bytes, Core, Demand, Event, FleetSpec, LifeSpec, Micros, ModelName, ModelSpec, Profile,
    ReplicaEvent, ReplicaId, ScaleSpec, Source,
};

const ROUNDS: u64 = 50;

fn spec() -> ModelSpec {
    let scale = ScaleSpec {
        min_replicas: 0,
        max_replicas: 10,
        target_milli: 4_000,
        container_concurrency: 4,
        idle_after: Micros::from_secs(300),
        window: Micros::from_secs(60),
        preload: false,
        profile: Profile::Sized,
    };
    let life = LifeSpec {
        start_deadline: Micros::from_secs(300),
        drain_deadline: Micros::from_secs(300),
        stop_deadline: Micros::from_secs(10),
        start_attempts: 3,
        backoff_first: Micros::from_secs(1),
        backoff_max: Micros::from_secs(60),
    };
    ModelSpec { generation: 1, source: Source::Launched, scale, life, memory: Bytes(0), groups: Vec::new() }
}

struct Bench {
    core: Core,
    now: Micros,
    names: Vec<ModelName>,
    arrivals: u64,
}

impl Bench {
    /// So many models, each with a ready replica.
    fn new(count: usize) -> Bench {
        let names: Vec<ModelName> = (0..count).map(|n| format!("model-{n}").as_str().into()).collect();
        let models = names.iter().map(|name| (name.clone(), spec())).collect();
        let mut bench = Bench { core: Core::new(), now: Micros::ZERO, names, arrivals: 0 };
        bench.step(&Event::Configure(FleetSpec { models, memory: None }));
        bench.report_all(1);
        for id in 0..count as u64 {
            let socket = ([127, 0, 0, 1], 9_000).into();
            let ready = ReplicaEvent::Ready(Address { socket, host: None, tls: false });
            bench.step(&Event::Replica(ReplicaId(id), ready));
        }
        bench
    }

    fn step(&mut self, event: &Event) {
        self.core.step(self.now, event, &mut Vec::new());
    }

    fn report(&mut self, at: usize, in_flight: u32) {
        self.arrivals += 1;
        let demand = Demand {
            model: self.names[at].clone(),
            in_flight,
            queued: 0,
            peak: in_flight,
            arrivals: self.arrivals,
            completions: self.arrivals,
            abandons: 0,
            in_flight_micros: 0,
            queued_micros: 0,
            idle_since: None,
            by_replica: BTreeMap::new(),
        };
        self.step(&Event::Demand(demand));
    }

    fn report_all(&mut self, in_flight: u32) {
        (0..self.names.len()).for_each(|at| self.report(at, in_flight));
    }

    /// Median time of `work`, which is given the round's number; a quarter of a second passes between rounds.
    fn median(&mut self, mut work: impl FnMut(&mut Bench, u64)) -> Duration {
        let mut times: Vec<Duration> = (0..ROUNDS)
            .map(|round| {
                self.now = self.now.after(Micros::from_millis(250));
                let begun = Instant::now();
                work(self, round);
                begun.elapsed()
            })
            .collect();
        times.sort();
        times[times.len() / 2]
    }
}

fn main() {
    println!("| models | all report and a tick, ms | one reports, µs | a tick with nothing new, µs |");
    println!("|---|---|---|---|");
    for count in [10, 100, 1_000, 10_000] {
        let mut bench = Bench::new(count);
        let all = bench.median(|bench, round| {
            bench.report_all(1 + (round % 3) as u32);
            bench.step(&Event::Tick);
        });
        let one = bench.median(|bench, round| bench.report(count / 2, 1 + (round % 3) as u32));
        let tick = bench.median(|bench, _| bench.step(&Event::Tick));
        println!(
            "| {count} | {:.3} | {:.1} | {:.2} |",
            all.as_secs_f64() * 1e3,
            one.as_secs_f64() * 1e6,
            tick.as_secs_f64() * 1e6
        );
    }
}
