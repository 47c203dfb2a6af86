// SPDX-License-Identifier: Apache-2.0
//! The line against a plain reference, over random sequences of everything that can happen to it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use sluice_core::{Fault, ReplicaId, ReplicaRoute};

use super::*;
use crate::admission::ask::Class;
use crate::admission::testkit::{draining, ms, replica};

#[derive(Clone, Debug)]
enum Op {
    Admit { class: Class, bytes: usize, deadline: Option<u64>, hold: bool },
    Finish(usize),
    Retry { which: usize, connect_failed: bool, hold: bool },
    Leave(usize),
    Pass(u64),
    Sweep,
    Publish(Vec<Replica>, Option<u32>),
    Withdraw,
    Remove,
    Configure { queue_length: usize, cold: u64, warm: u64 },
    Answered(usize),
    Report,
}

#[derive(Clone, Copy, Debug)]
struct Replica {
    id: u64,
    capacity: u32,
    draining: bool,
}

fn op() -> impl Strategy<Value = Op> {
    let class = prop_oneof![1 => Just(Class::Batch), 3 => Just(Class::Standard)];
    let replicas = vec((1u64..5, 0u32..4, prop::bool::weighted(0.25)), 0..4);
    let replicas = replicas.prop_map(|list| {
        let by_id: BTreeMap<u64, Replica> = list
            .into_iter()
            .map(|(id, capacity, draining)| (id, Replica { id, capacity, draining }))
            .collect();
        by_id.into_values().collect::<Vec<_>>()
    });
    let admit = (class, 0usize..50, prop::option::weighted(0.2, 0u64..400), prop::bool::weighted(0.9));
    prop_oneof![
        14 => admit.prop_map(|(class, bytes, deadline, hold)| Op::Admit { class, bytes, deadline, hold }),
        8 => any::<usize>().prop_map(Op::Finish),
        3 => (any::<usize>(), any::<bool>(), prop::bool::weighted(0.9))
            .prop_map(|(which, connect_failed, hold)| Op::Retry { which, connect_failed, hold }),
        3 => any::<usize>().prop_map(Op::Leave),
        8 => (0u64..300).prop_map(Op::Pass),
        3 => Just(Op::Sweep),
        5 => (replicas, prop::option::weighted(0.2, 0u32..4)).prop_map(|(r, failures)| Op::Publish(r, failures)),
        1 => Just(Op::Withdraw),
        1 => Just(Op::Remove),
        2 => (0usize..8, 0u64..900, 0u64..900)
            .prop_map(|(queue_length, cold, warm)| Op::Configure { queue_length, cold, warm }),
        2 => any::<usize>().prop_map(Op::Answered),
        2 => Just(Op::Report),
    ]
}

/// A waiting request as the reference knows it.
struct Waits {
    place: Place,
    avoid: Option<ReplicaId>,
    bytes: usize,
    deadline: Option<Micros>,
    spent: Spent,
}

#[derive(Default)]
struct Expected {
    arrivals: u64,
    completions: u64,
    abandons: u64,
    in_flight_micros: u64,
    queued_micros: u64,
    peak: u32,
}

struct World {
    line: Line<u32>,
    now: Micros,
    next: u32,
    limits: Limits,
    waiting: BTreeMap<u32, Waits>,
    running: Vec<(u32, Grant)>,
    endpoints: Vec<Arc<Endpoint>>,
    routed: BTreeMap<ReplicaId, ReplicaRoute>,
    removed: bool,
    gone: bool,
    /// Replicas whose drain has begun, and whether its end was told.
    drains: BTreeMap<ReplicaId, bool>,
    poked: bool,
    expected: Expected,
}

impl World {
    fn new() -> World {
        let budgets = Budgets { cold: ms(500), warm: ms(300) };
        let limits = Limits { queue_length: 6, queue_bytes: 120, budgets, replica_slots: 2 };
        World {
            line: Line::new("m".into(), limits),
            now: ms(1_000),
            next: 0,
            limits,
            waiting: BTreeMap::new(),
            running: Vec::new(),
            endpoints: Vec::new(),
            routed: BTreeMap::new(),
            removed: false,
            gone: false,
            drains: BTreeMap::new(),
            poked: false,
            expected: Expected::default(),
        }
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Admit { class, bytes, deadline, hold } => {
                let deadline = deadline.map(|d| self.now.after(ms(d)));
                self.admit(&Ask { class: *class, body_bytes: *bytes, deadline, hold: *hold });
            }
            Op::Finish(which) => self.finish(*which),
            Op::Retry { which, connect_failed, hold } => self.retry(*which, *connect_failed, *hold),
            Op::Leave(which) => self.leave(*which),
            Op::Pass(time) => self.pass(ms(*time)),
            Op::Sweep => self.sweep(),
            Op::Publish(replicas, failures) => self.publish(replicas, *failures),
            Op::Withdraw => self.withdraw(),
            Op::Remove => {
                self.line.remove(self.now);
                (self.removed, self.gone) = (true, true);
                self.settle();
            }
            Op::Configure { queue_length, cold, warm } => {
                let budgets = Budgets { cold: ms(*cold), warm: ms(*warm) };
                self.limits = Limits { queue_length: *queue_length, budgets, ..self.limits };
                self.line.configure(self.limits);
                if std::mem::replace(&mut self.removed, false) {
                    self.gone = false;
                }
                self.settle();
            }
            Op::Answered(which) => {
                if let Some(endpoint) = choose(&self.endpoints, *which) {
                    endpoint.answered();
                }
            }
            Op::Report => self.report(),
        }
        let (in_flight, queued) = self.line.counts();
        assert_eq!((in_flight, queued), (self.running.len(), self.waiting.len()));
        self.check_slots();
        self.check_drains();
    }

    fn admit(&mut self, ask: &Ask) {
        self.next += 1;
        let id = self.next;
        let before = self.waiting.len();
        let step = self.line.admit(self.now, ask);
        self.settle();
        match step {
            Ok(Step::Go(grant)) => {
                self.expected.arrivals += 1;
                self.granted(id, grant, Place::new(Class::Batch, u64::MAX));
                self.peak();
            }
            Ok(Step::Wait(ticket)) => {
                assert!(ask.hold && !self.gone);
                let first = if self.is_ready() { 0 } else { self.limits.replica_slots };
                assert!(before.min(self.waiting.len()) < self.limits.queue_length + first);
                let bytes: usize = self.waiting.values().map(|waits| waits.bytes).sum();
                assert!(self.waiting.is_empty() || bytes + ask.body_bytes <= self.limits.queue_bytes);
                self.expected.arrivals += 1;
                self.wait(id, ticket);
            }
            Err(refusal) => self.check_refusal(&refusal, ask),
        }
        if ask.deadline.is_none_or(|deadline| deadline > self.now) && !self.gone {
            self.check_nobody_waits_beside_a_free_slot();
        }
    }

    fn check_refusal(&self, refusal: &Refusal, ask: &Ask) {
        match refusal.reason {
            Reason::ModelRemoved => assert!(self.gone),
            Reason::WaitedTooLong { by_client } => {
                assert!(by_client && ask.deadline.is_some_and(|deadline| deadline <= self.now));
            }
            Reason::NotHeld => assert!(!ask.hold),
            Reason::QueueFull { waiting } => assert_eq!(waiting, self.waiting.len()),
            Reason::NotInTime => assert!(ask.hold),
            Reason::Draining | Reason::StartFailed { .. } => panic!("{refusal} at the door"),
        }
        // Refused at the door means that there was no slot to take, whoever asks.
        if !matches!(refusal.reason, Reason::ModelRemoved | Reason::WaitedTooLong { .. }) {
            assert!(!self.usable().any(has_room));
        }
    }

    fn wait(&mut self, id: u32, ticket: Ticket) {
        let Ticket { place, avoid, body_bytes: bytes, deadline, spent } = ticket;
        self.waiting.insert(id, Waits { place, avoid, bytes, deadline, spent });
        self.line.wait(self.now, ticket, id);
        self.peak();
        self.settle();
        assert!(self.poked, "the scaler must know that somebody waits");
    }

    fn finish(&mut self, which: usize) {
        if self.running.is_empty() {
            return;
        }
        let (_, grant) = self.running.swap_remove(which % self.running.len());
        self.line.release(self.now, &grant.endpoint, grant.since);
        self.expected.completions += 1;
        self.settle();
        self.check_nobody_waits_beside_a_free_slot();
    }

    fn retry(&mut self, which: usize, connect_failed: bool, hold: bool) {
        if self.running.is_empty() {
            return;
        }
        let (id, grant) = self.running.swap_remove(which % self.running.len());
        if connect_failed {
            grant.endpoint.connect_failed(self.now);
        }
        let Ticket { deadline, body_bytes, place, .. } = grant.ticket;
        let ask = Ask { class: place.class(), body_bytes, deadline, hold };
        let step = self.line.readmit(self.now, &grant.endpoint, grant.ticket, &ask);
        match step {
            Ok(Step::Go(again)) => {
                assert_eq!(again.ticket.place, place);
                self.settle();
                self.granted(id, again, place);
            }
            Ok(Step::Wait(ticket)) => {
                assert_eq!((ticket.place, ticket.avoid), (place, Some(grant.endpoint.id)));
                self.wait(id, ticket);
            }
            Err(refusal) => {
                self.expected.completions += 1;
                self.settle();
                assert!(!matches!(refusal.reason, Reason::QueueFull { .. }));
            }
        }
        self.check_nobody_waits_beside_a_free_slot();
    }

    fn leave(&mut self, which: usize) {
        let Some(&id) = choose(&self.waiting.keys().copied().collect::<Vec<_>>(), which) else { return };
        let waits = self.waiting.remove(&id).unwrap();
        assert_eq!(self.line.leave(self.now, waits.place), Some(id));
        assert_eq!(self.line.leave(self.now, waits.place), None, "whoever left is gone");
        match waits.avoid {
            Some(_) => self.expected.completions += 1,
            None => self.expected.abandons += 1,
        }
        self.settle();
    }

    fn pass(&mut self, time: Micros) {
        self.expected.in_flight_micros += self.running.len() as u64 * time.0;
        self.expected.queued_micros += self.waiting.len() as u64 * time.0;
        let is_ready = self.is_ready();
        for waits in self.waiting.values_mut() {
            let spent = if is_ready { &mut waits.spent.warm } else { &mut waits.spent.cold };
            *spent = spent.after(time);
        }
        self.now = self.now.after(time);
    }

    fn sweep(&mut self) {
        self.line.sweep(self.now);
        self.settle();
        let late = self.waiting.values().filter(|waits| self.is_late(waits)).count();
        assert_eq!(late, 0, "nobody waits beyond a budget");
        self.check_nobody_waits_beside_a_free_slot();
    }

    fn publish(&mut self, replicas: &[Replica], failures: Option<u32>) {
        let list: Vec<_> = replicas
            .iter()
            .map(|r| if r.draining { draining(r.id, r.capacity) } else { replica(r.id, r.capacity) })
            .collect();
        let fault = failures.map(|failures| Fault {
            failures,
            answer_waiters: failures > 1,
            cause: "exit status 1".into(),
            retry_at: self.now.after(ms(200)),
        });
        self.gone = self.removed;
        self.list(&list);
        let route = ModelRoute { replicas: list, fault, ..unrouted() };
        let is_news = route != **self.line.route();
        self.line.publish(self.now, Some(&route));
        self.settle();
        if is_news && !self.removed {
            self.check_nobody_waits_beside_a_free_slot();
        }
    }

    fn withdraw(&mut self) {
        self.line.publish(self.now, None);
        // A model that was never named is awaited.
        self.gone = self.line.is_gone();
        self.list(&[]);
        self.settle();
        assert!(!self.gone || self.waiting.is_empty());
    }

    /// What the scaler lists from now on, and which drains begin or end by that.
    fn list(&mut self, replicas: &[ReplicaRoute]) {
        let next: BTreeMap<_, _> = replicas.iter().map(|replica| (replica.id, replica.clone())).collect();
        for (id, former) in &self.routed {
            if !next.contains_key(id) && !former.draining {
                self.drains.insert(*id, false);
            }
        }
        for (id, replica) in &next {
            if !self.running.iter().any(|(_, grant)| grant.endpoint.id == *id)
                && !self.routed.contains_key(id)
            {
                // It was forgotten meanwhile; ids are not given out twice, so this only has to do no harm.
                self.drains.remove(id);
            }
            match replica.draining {
                true => _ = self.drains.entry(*id).or_insert(false),
                false => _ = self.drains.remove(id),
            }
        }
        self.routed = next;
    }

    fn report(&mut self) {
        let demand = self.line.demand(self.now);
        self.poked = false;
        let expected = std::mem::take(&mut self.expected);
        let counted = (demand.arrivals, demand.completions, demand.abandons);
        assert_eq!(counted, (expected.arrivals, expected.completions, expected.abandons));
        let integrals = (demand.in_flight_micros, demand.queued_micros);
        assert_eq!(integrals, (expected.in_flight_micros, expected.queued_micros));
        assert_eq!(demand.idle_since.is_some(), demand.in_flight + demand.queued == 0 && demand.arrivals > 0);
        assert!(demand.peak >= expected.peak, "no burst is missed");
        let running = self.running.len() as u32;
        assert_eq!(demand.by_replica.values().sum::<u32>(), running);
        self.expected = Expected { peak: running + self.waiting.len() as u32, ..expected };
    }

    fn settle(&mut self) {
        for effect in self.line.take_effects() {
            match effect {
                Effect::Granted(id, grant) => {
                    let waits = self.waiting.remove(&id).expect("only who waits is granted, and once");
                    assert!(!self.is_late(&waits), "not after its budget");
                    assert_eq!(grant.ticket.spent, waits.spent, "both stopwatches are right");
                    self.granted(id, grant, waits.place);
                }
                Effect::Refused(id, refusal) => {
                    let waits = self.waiting.remove(&id).expect("only who waits is refused, and once");
                    match refusal.reason {
                        Reason::WaitedTooLong { .. } => {
                            assert!(self.is_late(&waits), "not before its budget")
                        }
                        Reason::ModelRemoved => assert!(self.removed || refusal.status() == 404),
                        Reason::StartFailed { .. } => assert!(!self.is_ready()),
                        _ => panic!("{refusal} while waiting"),
                    }
                    self.expected.completions += u64::from(waits.avoid.is_some());
                }
                Effect::Drained(drained) => {
                    let told = self.drains.get_mut(&drained.replica).expect("only what drains is drained");
                    assert!(!std::mem::replace(told, true), "a drain ends once");
                }
                Effect::Poke => assert!(!std::mem::replace(&mut self.poked, true), "one poke per report"),
            }
        }
    }

    /// A slot was given: within the capacity, by an open endpoint, and to nobody before their turn.
    fn granted(&mut self, id: u32, grant: Grant, place: Place) {
        let endpoint = &grant.endpoint;
        assert!(endpoint.in_flight() <= endpoint.capacity() && endpoint.is_open());
        for waits in self.waiting.values().filter(|waits| waits.place < place) {
            assert_eq!(waits.avoid, Some(endpoint.id), "an earlier request could have used it");
        }
        if !self.endpoints.iter().any(|known| Arc::ptr_eq(known, endpoint)) {
            self.endpoints.push(Arc::clone(endpoint));
        }
        self.running.push((id, grant));
    }

    fn check_slots(&self) {
        for endpoint in &self.endpoints {
            let held =
                self.running.iter().filter(|(_, grant)| Arc::ptr_eq(&grant.endpoint, endpoint)).count();
            assert_eq!(endpoint.in_flight() as usize, held);
        }
    }

    fn check_drains(&self) {
        for (&id, &told) in &self.drains {
            let held = self.running.iter().filter(|(_, grant)| grant.endpoint.id == id).count();
            assert_eq!(told, held == 0, "{id} is drained when it is empty, not before, not later");
        }
    }

    fn check_nobody_waits_beside_a_free_slot(&self) {
        for endpoint in self.usable().filter(|endpoint| has_room(endpoint)) {
            let others = self.usable().any(|other| other.id != endpoint.id);
            let could = |waits: &&Waits| waits.avoid != Some(endpoint.id) || !others;
            assert_eq!(self.waiting.values().filter(could).count(), 0, "a slot at {endpoint:?} is free");
        }
    }

    /// Endpoints of the line that are open and in rotation.
    fn usable(&self) -> impl Iterator<Item = &Arc<Endpoint>> {
        self.line.pool.endpoints().filter(|endpoint| endpoint.is_open() && endpoint.is_in_turn(self.now))
    }

    fn is_ready(&self) -> bool {
        !self.removed && self.line.pool.endpoints().any(|endpoint| endpoint.is_open())
    }

    fn is_late(&self, waits: &Waits) -> bool {
        let budgets = self.limits.budgets;
        let used_up = match self.is_ready() {
            true => waits.spent.warm >= budgets.warm,
            false => waits.spent.cold >= budgets.cold,
        };
        used_up || waits.deadline.is_some_and(|deadline| deadline <= self.now)
    }

    fn peak(&mut self) {
        self.expected.peak = self.expected.peak.max((self.running.len() + self.waiting.len()) as u32);
    }

    fn wind_down(&mut self) {
        while let Some(&id) = self.waiting.keys().next() {
            self.leave(id as usize);
        }
        while !self.running.is_empty() {
            self.finish(0);
        }
        self.report();
        assert_eq!(self.line.counts(), (0, 0));
        assert!(self.endpoints.iter().all(|endpoint| endpoint.in_flight() == 0));
        assert_eq!((self.line.queue.bytes(), self.line.queue.depth()), (0, [0, 0]));
        let demand = self.line.demand(self.now);
        assert!(demand.by_replica.values().all(|&n| n == 0));
    }
}

fn choose<T>(list: &[T], which: usize) -> Option<&T> {
    which.checked_rem(list.len()).and_then(|at| list.get(at))
}

fn has_room(endpoint: &Arc<Endpoint>) -> bool {
    endpoint.in_flight() < endpoint.capacity()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_line_keeps_its_rules_whatever_happens(ops in vec(op(), 1..120)) {
        let mut world = World::new();
        for op in &ops {
            world.apply(op);
        }
        world.wind_down();
    }
}
