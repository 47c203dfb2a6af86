// SPDX-License-Identifier: Apache-2.0
//! Slow cold starts under steady load, with the core in the loop: replicas asked for follow from requests, and waiting
//! from replicas.
//!
//! The figures come from a model of the KPA made apart from this one: arrivals at even distances, first come first
//! served, each replica ready a fixed time after it was asked for.

use std::collections::{BTreeMap, VecDeque};

use sluice_core::kpa::Settings;
use sluice_core::{Action, Address, Core, Demand, Drained, Event, Micros, ReplicaEvent, ReplicaId, Source};

use crate::live::{MODEL, fleet};

/// One scenario and what comes of it in 600 s.
struct Row {
    id: &'static str,
    /// Requests per second, seconds of service, seconds of a start, requests per replica.
    load: (u64, u64, u64, u32),
    utilization: f64,
    /// Most replicas desired, and the second when that is first so.
    peak: (u32, u64),
    replica_seconds: u64,
    /// Seconds of the longest wait, in tenths.
    longest_wait: u64,
    /// An even second, the ready replicas that its decision saw, desired replicas from then on.
    course: &'static [(u64, u32, u32)],
}

const ROWS: [Row; 5] = [
    Row {
        id: "X1",
        load: (2, 1, 120, 1),
        utilization: 100.0,
        peak: (243, 126),
        replica_seconds: 34_557,
        longest_wait: 1_210,
        course: &[
            (0, 0, 1),
            (2, 0, 2),
            (4, 0, 4),
            (10, 0, 15),
            (30, 0, 55),
            (60, 0, 115),
            (120, 1, 235),
            (122, 2, 239),
            (130, 15, 243),
            (200, 155, 243),
            (300, 2, 2),
            (600, 2, 2),
        ],
    },
    Row {
        id: "X2",
        load: (2, 1, 120, 1),
        utilization: 70.0,
        peak: (344, 124),
        replica_seconds: 48_463,
        longest_wait: 1_200,
        course: &[
            (0, 0, 2),
            (2, 0, 3),
            (4, 0, 6),
            (10, 0, 21),
            (30, 0, 78),
            (60, 0, 164),
            (120, 2, 335),
            (122, 3, 341),
            (130, 21, 344),
            (200, 221, 110),
            (300, 3, 3),
            (600, 3, 3),
        ],
    },
    Row {
        id: "X3",
        load: (1, 2, 60, 1),
        utilization: 100.0,
        peak: (64, 68),
        replica_seconds: 7_747,
        longest_wait: 620,
        course: &[
            (0, 0, 1),
            (2, 0, 1),
            (4, 0, 2),
            (10, 0, 8),
            (30, 0, 28),
            (60, 1, 58),
            (62, 1, 60),
            (70, 8, 64),
            (200, 2, 2),
            (300, 2, 2),
            (600, 2, 2),
        ],
    },
    Row {
        id: "X4",
        load: (5, 1, 30, 1),
        utilization: 100.0,
        peak: (160, 36),
        replica_seconds: 16_228,
        longest_wait: 320,
        course: &[
            (0, 0, 1),
            (2, 0, 4),
            (4, 0, 9),
            (10, 0, 36),
            (30, 1, 136),
            (32, 4, 146),
            (40, 36, 160),
            (60, 136, 160),
            (200, 5, 5),
            (300, 5, 5),
            (600, 5, 5),
        ],
    },
    Row {
        id: "X5",
        load: (2, 10, 180, 8),
        utilization: 70.0,
        peak: (69, 200),
        replica_seconds: 14_739,
        longest_wait: 1_820,
        course: &[
            (0, 0, 1),
            (2, 0, 1),
            (4, 0, 1),
            (10, 0, 3),
            (30, 0, 10),
            (60, 0, 21),
            (180, 1, 64),
            (182, 1, 65),
            (190, 3, 67),
            (200, 7, 69),
            (300, 5, 4),
            (600, 4, 4),
        ],
    },
];

/// The first request comes then: an even second, long after the model has come to rest.
const BEGIN: Micros = Micros::from_secs(1_000);

enum Happening {
    Ready(ReplicaId),
    Finish(ReplicaId),
    Arrive,
}

/// Requests, replicas and the core between them.
struct Loop<'a> {
    row: &'a Row,
    core: Core,
    now: Micros,
    agenda: BTreeMap<(Micros, u64), Happening>,
    number: u64,
    waiting: VecDeque<Micros>,
    /// In flight, of each replica that is ready.
    busy: BTreeMap<ReplicaId, u32>,
    arrivals: u64,
    areas: (u64, u64),
    longest_wait: Micros,
}

impl<'a> Loop<'a> {
    fn new(row: &'a Row) -> Loop<'a> {
        let (_, _, _, slots) = row.load;
        let settings = Settings {
            container_concurrency: slots,
            target_utilization_percentage: Some(row.utilization),
            target_burst_capacity: -1.0,
            initial_scale: 0,
            ..Settings::default()
        };
        let mut all = Loop {
            row,
            core: Core::new(),
            now: Micros::ZERO,
            agenda: BTreeMap::new(),
            number: 0,
            waiting: VecDeque::new(),
            busy: BTreeMap::new(),
            arrivals: 0,
            areas: (0, 0),
            longest_wait: Micros::ZERO,
        };
        all.step(&Event::Configure(fleet(settings, Source::Launched)));
        all
    }

    fn at(&mut self, at: Micros, happening: Happening) {
        self.number += 1;
        self.agenda.insert((at, self.number), happening);
    }

    fn load(&self) -> (u32, u32) {
        (self.busy.values().sum(), self.waiting.len() as u32)
    }

    fn advance(&mut self, to: Micros) {
        let (in_flight, queued) = self.load();
        let passed = to.since(self.now).0;
        self.areas.0 += u64::from(in_flight) * passed;
        self.areas.1 += u64::from(queued) * passed;
        self.now = to;
    }

    /// Everything until `end`: at one moment what happens to requests and replicas first, then the core looks.
    fn run(&mut self, end: Micros) {
        loop {
            let happens = self.agenda.first_key_value().map(|(&(at, _), _)| at);
            let tick = self.core.next_deadline();
            let Some(at) = happens.into_iter().chain(tick).min().filter(|&at| at <= end) else { break };
            self.advance(at.max(self.now));
            while let Some(entry) = self.agenda.first_entry().filter(|entry| entry.key().0 <= at) {
                let happening = entry.remove();
                self.happen(happening);
            }
            self.look();
            if tick.is_some_and(|tick| tick <= at) {
                self.step(&Event::Tick);
            }
        }
        self.advance(end);
    }

    fn happen(&mut self, happening: Happening) {
        let (per_second, ..) = self.row.load;
        match happening {
            Happening::Arrive => {
                self.waiting.push_back(self.now);
                self.arrivals += 1;
                let next = BEGIN.after(Micros(1_000_000 * self.arrivals / per_second));
                self.at(next, Happening::Arrive);
            }
            Happening::Ready(id) => {
                let listed = self.core.status(self.now).replicas.iter().any(|replica| replica.id == id);
                if listed {
                    let socket = std::net::SocketAddr::from(([127, 0, 0, 1], 9_000));
                    let address = Address { socket, host: None, tls: false };
                    self.busy.insert(id, 0);
                    self.step(&Event::Replica(id, ReplicaEvent::Ready(address)));
                }
            }
            Happening::Finish(id) => {
                if let Some(busy) = self.busy.get_mut(&id) {
                    *busy -= 1;
                }
            }
        }
        self.dispatch();
    }

    fn dispatch(&mut self) {
        let (_, service, _, slots) = self.row.load;
        let routes = self.core.routes();
        let open = routes.models.get(MODEL).into_iter().flat_map(|route| &route.replicas);
        for id in open.filter(|replica| !replica.draining).map(|replica| replica.id) {
            while self.busy.get(&id).is_some_and(|&busy| busy < slots) {
                let Some(arrived) = self.waiting.pop_front() else { return };
                self.longest_wait = self.longest_wait.max(Micros(self.now.since(arrived).0));
                *self.busy.entry(id).or_default() += 1;
                self.at(self.now.after(Micros::from_secs(service)), Happening::Finish(id));
            }
        }
    }

    fn look(&mut self) {
        let (in_flight, queued) = self.load();
        let demand = Demand {
            model: MODEL.into(),
            in_flight,
            queued,
            peak: in_flight + queued,
            arrivals: self.arrivals,
            completions: self.arrivals - u64::from(in_flight + queued),
            abandons: 0,
            in_flight_micros: self.areas.0,
            queued_micros: self.areas.1,
            idle_since: None,
            by_replica: self.busy.clone(),
        };
        self.step(&Event::Demand(demand));
    }

    fn step(&mut self, event: &Event) {
        let mut actions = Vec::new();
        self.core.step(self.now, event, &mut actions);
        let (_, _, start, _) = self.row.load;
        for action in actions {
            match action {
                Action::Start { replica, .. } => {
                    self.at(self.now.after(Micros::from_secs(start)), Happening::Ready(replica));
                }
                Action::Stop { replica, .. } => {
                    self.busy.remove(&replica);
                    self.step(&Event::Replica(replica, ReplicaEvent::Gone { cause: "stopped".into() }));
                }
                Action::Cut { .. } => panic!("nothing is cut"),
            }
        }
        self.tell_drained();
    }

    fn tell_drained(&mut self) {
        let routes = self.core.routes();
        let mut all = routes.models.get(MODEL).into_iter().flat_map(|route| &route.replicas);
        let empty = |id| self.busy.get(&id) == Some(&0);
        let done = all.find(|replica| replica.draining && empty(replica.id)).cloned();
        if let Some(replica) = done {
            self.busy.remove(&replica.id);
            self.step(&Event::Drained(Drained { replica: replica.id, drain: replica.drains }));
        }
    }

    /// Ready replicas as the last decision saw them, and desired ones.
    fn counts(&self) -> (u32, u32) {
        let decided = self.core.kpa(&MODEL.into()).and_then(|kpa| kpa.decision());
        (decided.map_or(0, |decision| decision.ready), self.core.status(self.now).models[0].desired)
    }
}

#[test]
fn slow_starts_cost_what_they_cost_under_the_kpa() {
    for row in &ROWS {
        let mut all = Loop::new(row);
        all.run(Micros(BEGIN.0 - 1));
        assert_eq!(all.counts(), (0, 0), "{}: it begins at rest", row.id);
        all.at(BEGIN, Happening::Arrive);
        let (mut replica_seconds, mut peak, mut course) = (0, (0, 0), BTreeMap::new());
        for second in 0..=600 {
            all.run(BEGIN.after(Micros::from_secs(second)));
            let (ready, desired) = all.counts();
            replica_seconds += if second > 0 { u64::from(desired) } else { 0 };
            if desired > peak.0 {
                peak = (desired, second);
            }
            course.insert(second, (ready, desired));
        }
        for (second, ready, desired) in row.course {
            assert_eq!(course[second], (*ready, *desired), "{}: ready and desired at {second} s", row.id);
        }
        assert_eq!((peak, replica_seconds), (row.peak, row.replica_seconds), "{}", row.id);
        assert_eq!(all.longest_wait.as_millis() / 100, row.longest_wait, "{}: longest wait", row.id);
    }
}
