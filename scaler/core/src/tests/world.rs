// SPDX-License-Identifier: Apache-2.0
//! A small world around the core in virtual time: a gateway that holds, dispatches, drains and reports; a backend
//! whose replicas take time to start and stop, fail, hang and crash; a driver between them with channel delays.
//!
//! It keeps its own books of what is alive and in flight, and checks the core's actions against these: what the core
//! believes is not evidence.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::testkit::address;
use crate::{
    Action, Core, Demand, Drained, Event, FleetSpec, Journal, Micros, ModelName, ReplicaEvent, ReplicaId,
    Routes, Source, invariant,
};

/// Period of the driver's full report.
const REPORT_EVERY: Micros = Micros::from_millis(100);

/// Inputs per segment of the world's journal.
const JOURNAL: usize = 400;

/// Something that happens at its time.
#[derive(Clone, Debug)]
enum Happening {
    Arrive { model: ModelName, service: Micros, patience: Option<Micros> },
    GiveUp { model: ModelName, request: u64 },
    Finish { replica: ReplicaId, request: u64 },
    Report(Option<ModelName>),
    Tell(Event),
    BecomeReady(ReplicaId),
    Die { replica: ReplicaId, cause: &'static str },
}

/// How one model's replicas behave.
#[derive(Clone, Debug)]
pub struct Nature {
    pub start: Micros,
    pub stop: Micros,
    /// Starts fail after this long, until the given time.
    pub fails: Option<(Micros, Micros)>,
    /// Starts hang until the given time: never ready, and no word of it.
    pub hangs_until: Micros,
    /// This many stop orders are lost.
    pub deaf_stops: u32,
}

/// A process that exists.
#[derive(Clone, Debug)]
struct Process {
    model: ModelName,
    ready: bool,
    told_to_stop: bool,
    /// Answers nothing any more.
    hung: bool,
}

#[derive(Clone, Debug)]
struct Request {
    id: u64,
    arrived: Micros,
    service: Micros,
}

/// The gateway's side of one model.
#[derive(Clone, Debug, Default)]
struct Line {
    waiting: VecDeque<Request>,
    arrivals: u64,
    completions: u64,
    abandons: u64,
    in_flight_micros: u64,
    queued_micros: u64,
    peak: u32,
    idle_since: Option<Micros>,
    failures_seen: u32,
}

/// What became of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Served,
    Broken,
    Cut,
    GaveUp,
    Answered,
}

/// One request's record.
#[derive(Clone, Debug)]
pub struct Record {
    pub model: ModelName,
    pub arrived: Micros,
    pub ended: Micros,
    pub fate: Fate,
}

pub struct World {
    pub core: Core,
    pub journal: Journal,
    pub now: Micros,
    pub fleet: FleetSpec,
    pub natures: BTreeMap<ModelName, Nature>,
    pub records: Vec<Record>,
    pub starts: Vec<(Micros, ModelName)>,
    pub stops: Vec<(Micros, ReplicaId)>,
    /// Desired over time, as published: each change.
    pub desired: BTreeMap<ModelName, Vec<(Micros, u32)>>,
    agenda: BTreeMap<(Micros, u64), Happening>,
    sequence: u64,
    seed: u64,
    routes: Arc<Routes>,
    lines: BTreeMap<ModelName, Line>,
    processes: BTreeMap<ReplicaId, Process>,
    in_flight: BTreeMap<ReplicaId, Vec<Request>>,
    drains_told: BTreeMap<ReplicaId, u32>,
    drains_published: BTreeMap<ReplicaId, Micros>,
    cut: BTreeSet<ReplicaId>,
}

impl World {
    pub fn new(fleet: FleetSpec, seed: u64) -> World {
        let mut world = World {
            core: Core::new(),
            journal: Journal::new(JOURNAL),
            now: Micros::ZERO,
            fleet: FleetSpec::default(),
            natures: BTreeMap::new(),
            records: Vec::new(),
            starts: Vec::new(),
            stops: Vec::new(),
            desired: BTreeMap::new(),
            agenda: BTreeMap::new(),
            sequence: 0,
            seed: seed.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15),
            routes: Arc::default(),
            lines: BTreeMap::new(),
            processes: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            drains_told: BTreeMap::new(),
            drains_published: BTreeMap::new(),
            cut: BTreeSet::new(),
        };
        world.configure(fleet);
        world.at(Micros::ZERO, Happening::Report(None));
        world
    }

    pub fn configure(&mut self, fleet: FleetSpec) {
        for name in fleet.models.keys() {
            self.natures.entry(name.clone()).or_insert_with(|| Nature {
                start: Micros::from_millis(500),
                stop: Micros::from_millis(100),
                fails: None,
                hangs_until: Micros::ZERO,
                deaf_stops: 0,
            });
            self.lines.entry(name.clone()).or_default();
        }
        for (name, line) in &mut self.lines {
            if !fleet.models.contains_key(name) {
                for request in line.waiting.drain(..) {
                    let (arrived, ended) = (request.arrived, self.now);
                    self.records.push(Record { model: name.clone(), arrived, ended, fate: Fate::Answered });
                }
            }
        }
        self.fleet = fleet.clone();
        self.step(Event::Configure(fleet));
    }

    /// A request now, served in that time; its client leaves after `patience` without an answer.
    pub fn arrive(&mut self, model: &str, service_ms: u64, patience_ms: Option<u64>) {
        self.arrive_in(0, model, service_ms, patience_ms);
    }

    /// A request in that many milliseconds.
    pub fn arrive_in(&mut self, ms: u64, model: &str, service_ms: u64, patience_ms: Option<u64>) {
        let at = self.now.after(Micros::from_millis(ms));
        let service = Micros::from_millis(service_ms);
        self.at(
            at,
            Happening::Arrive {
                model: model.into(),
                service,
                patience: patience_ms.map(Micros::from_millis),
            },
        );
    }

    /// Tells the core something now.
    pub fn tell(&mut self, event: Event) {
        self.step(event);
    }

    /// Kills a ready replica of the model, if there is one.
    pub fn crash(&mut self, model: &str) {
        if let Some(replica) = self.ready_of(model) {
            self.at(self.now, Happening::Die { replica, cause: "crashed" });
        }
    }

    /// Orders a ready replica of the model to go, if there is one.
    pub fn drain(&mut self, model: &str) {
        if let Some(replica) = self.ready_of(model) {
            self.step(Event::Drain(replica));
        }
    }

    /// A ready replica of the model stops answering and fails its probe.
    pub fn hang(&mut self, model: &str) {
        let Some(replica) = self.ready_of(model) else { return };
        if let Some(process) = self.processes.get_mut(&replica) {
            process.hung = true;
            let seen = ReplicaEvent::NotReady { why: "no answer".into() };
            self.at(self.now, Happening::Tell(Event::Replica(replica, seen)));
        }
    }

    /// What hung answers again.
    pub fn recover(&mut self) {
        let hung: Vec<ReplicaId> = self.processes.iter().filter(|(_, p)| p.hung).map(|(&id, _)| id).collect();
        for replica in hung {
            if let Some(process) = self.processes.get_mut(&replica) {
                process.hung = false;
            }
            self.at(self.now, Happening::BecomeReady(replica));
            for request in self.in_flight.get(&replica).cloned().unwrap_or_default() {
                self.at(self.now.after(request.service), Happening::Finish { replica, request: request.id });
            }
        }
    }

    /// Lets time pass; everything due happens in order, ticks come when the core asked for them.
    pub fn pass(&mut self, ms: u64) {
        let end = self.now.after(Micros::from_millis(ms));
        loop {
            let next = self.agenda.first_key_value().map(|(&(at, _), _)| at);
            let tick = self.core.next_deadline();
            let Some(at) = next.into_iter().chain(tick).min().filter(|&at| at <= end) else { break };
            self.advance(at);
            if next != Some(at) {
                self.step(Event::Tick);
                continue;
            }
            if let Some((_, happening)) = self.agenda.pop_first() {
                self.happen(happening);
            }
        }
        self.advance(end);
    }

    /// Moves the time on and keeps the books of what was in flight and waiting meanwhile.
    fn advance(&mut self, to: Micros) {
        let passed = to.since(self.now).0;
        let names: Vec<ModelName> = self.lines.keys().cloned().collect();
        for name in names.iter().filter(|_| passed > 0) {
            let (in_flight, queued) = self.load(name);
            if let Some(line) = self.lines.get_mut(name) {
                line.in_flight_micros += u64::from(in_flight) * passed;
                line.queued_micros += u64::from(queued) * passed;
            }
        }
        self.now = self.now.max(to);
    }

    pub fn alive(&self, model: &str) -> usize {
        self.processes.values().filter(|p| p.model.as_str() == model).count()
    }

    /// Requests that have not ended.
    pub fn open(&self) -> usize {
        let waiting: usize = self.lines.values().map(|line| line.waiting.len()).sum();
        waiting + self.in_flight.values().map(Vec::len).sum::<usize>()
    }

    pub fn count(&self, fate: Fate) -> usize {
        self.records.iter().filter(|record| record.fate == fate).count()
    }

    /// Longest time a served request of the model took, less its service.
    pub fn slowest(&self, model: &str) -> Micros {
        let of = self.records.iter().filter(|r| r.model.as_str() == model && r.fate == Fate::Served);
        of.map(|r| r.ended.since(r.arrived)).max().unwrap_or_default()
    }

    fn ready_of(&self, model: &str) -> Option<ReplicaId> {
        let found = self.processes.iter().find(|(_, p)| p.model.as_str() == model && p.ready && !p.hung);
        found.map(|(&id, _)| id)
    }

    fn at(&mut self, at: Micros, happening: Happening) {
        self.sequence += 1;
        self.agenda.insert((at, self.sequence), happening);
    }

    /// A delay of up to `most` microseconds.
    fn jitter(&mut self, most: u64) -> Micros {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        Micros(self.seed % (most + 1))
    }

    fn soon(&mut self, most: u64, happening: Happening) {
        let at = self.now.after(self.jitter(most));
        self.at(at, happening);
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Arrive { model, service, patience } => self.take_request(model, service, patience),
            Happening::GiveUp { model, request } => {
                let Some(line) = self.lines.get_mut(&model) else { return };
                let Some(i) = line.waiting.iter().position(|r| r.id == request) else { return };
                if let Some(request) = line.waiting.remove(i) {
                    line.abandons += 1;
                    self.end(&model, &request, Fate::GaveUp);
                }
            }
            Happening::Finish { replica, request } => self.finish(replica, request, Fate::Served),
            Happening::Report(one) => {
                let names: Vec<ModelName> = match &one {
                    Some(name) => vec![name.clone()],
                    None => self.lines.keys().cloned().collect(),
                };
                for name in names {
                    let demand = self.demand(&name);
                    self.step(Event::Demand(demand));
                }
                if one.is_none() {
                    self.at(self.now.after(REPORT_EVERY), Happening::Report(None));
                }
            }
            Happening::Tell(event) => self.step(event),
            Happening::BecomeReady(id) => {
                let Some(process) = self.processes.get_mut(&id).filter(|p| !p.told_to_stop) else { return };
                process.ready = true;
                let seen = ReplicaEvent::Ready(address(1_000 + (id.0 % 60_000) as u16));
                self.soon(1_000, Happening::Tell(Event::Replica(id, seen)));
            }
            Happening::Die { replica, cause } => self.die(replica, cause),
        }
    }

    fn take_request(&mut self, model: ModelName, service: Micros, patience: Option<Micros>) {
        if !self.fleet.models.contains_key(&model) {
            return;
        }
        self.sequence += 1;
        let request = Request { id: self.sequence, arrived: self.now, service };
        if let Some(patience) = patience {
            let give_up = Happening::GiveUp { model: model.clone(), request: request.id };
            self.at(self.now.after(patience), give_up);
        }
        let line = self.lines.entry(model.clone()).or_default();
        line.arrivals += 1;
        line.idle_since = None;
        line.waiting.push_back(request);
        self.dispatch(&model);
        self.note_peak(&model);
        let line = self.lines.entry(model.clone()).or_default();
        if !line.waiting.is_empty() {
            self.soon(2_000, Happening::Report(Some(model)));
        }
    }

    fn load(&self, model: &ModelName) -> (u32, u32) {
        let of = |id: &ReplicaId| self.processes.get(id).is_some_and(|p| p.model == *model);
        let in_flight: usize = self.in_flight.iter().filter(|(id, _)| of(id)).map(|(_, r)| r.len()).sum();
        (in_flight as u32, self.lines.get(model).map_or(0, |line| line.waiting.len() as u32))
    }

    fn note_peak(&mut self, model: &ModelName) {
        let (in_flight, queued) = self.load(model);
        let line = self.lines.entry(model.clone()).or_default();
        line.peak = line.peak.max(in_flight + queued);
    }

    fn demand(&mut self, model: &ModelName) -> Demand {
        let (in_flight, queued) = self.load(model);
        let of = |id: &ReplicaId| self.processes.get(id).is_some_and(|p| p.model == *model);
        let by_replica = self.in_flight.iter().filter(|(id, r)| of(id) && !r.is_empty());
        let by_replica = by_replica.map(|(&id, r)| (id, r.len() as u32)).collect();
        let line = self.lines.entry(model.clone()).or_default();
        let peak = std::mem::replace(&mut line.peak, in_flight + queued).max(in_flight + queued);
        Demand {
            model: model.clone(),
            in_flight,
            queued,
            peak,
            arrivals: line.arrivals,
            completions: line.completions,
            abandons: line.abandons,
            in_flight_micros: line.in_flight_micros,
            queued_micros: line.queued_micros,
            idle_since: line.idle_since,
            by_replica,
        }
    }

    /// Sends waiting requests to replicas as the published routes allow.
    fn dispatch(&mut self, model: &ModelName) {
        let Some(route) = self.routes.models.get(model).cloned() else { return };
        loop {
            let open = route.replicas.iter().filter(|r| !r.draining);
            let load = |id| self.in_flight.get(&id).map_or(0, Vec::len);
            let free = open.filter(|r| load(r.id) < r.capacity as usize).min_by_key(|r| (load(r.id), r.id));
            let Some(replica) = free.map(|r| r.id) else { return };
            let Some(request) = self.lines.get_mut(model).and_then(|line| line.waiting.pop_front()) else {
                return;
            };
            let Some(process) = self.processes.get(&replica) else {
                // Its end is on the way to the core: the connection is refused, the request goes back.
                self.lines.entry(model.clone()).or_default().waiting.push_front(request);
                return;
            };
            assert!(process.ready, "{model}: a request is sent to {replica}, which was never ready");
            assert!(!process.told_to_stop, "{model}: a request is sent to {replica}, which was told to stop");
            if !process.hung {
                let finish = Happening::Finish { replica, request: request.id };
                self.at(self.now.after(request.service), finish);
            }
            self.in_flight.entry(replica).or_default().push(request);
        }
    }

    fn finish(&mut self, replica: ReplicaId, request: u64, fate: Fate) {
        let Some(model) = self.processes.get(&replica).map(|p| p.model.clone()) else { return };
        if self.processes.get(&replica).is_some_and(|p| p.hung) && fate == Fate::Served {
            return;
        }
        let Some(at) = self.in_flight.get_mut(&replica) else { return };
        let Some(i) = at.iter().position(|r| r.id == request) else { return };
        let request = at.remove(i);
        self.lines.entry(model.clone()).or_default().completions += 1;
        self.end(&model, &request, fate);
        self.dispatch(&model);
        self.tell_drained();
    }

    fn end(&mut self, model: &ModelName, request: &Request, fate: Fate) {
        let (arrived, ended) = (request.arrived, self.now);
        self.records.push(Record { model: model.clone(), arrived, ended, fate });
        if self.load(model) == (0, 0) {
            self.lines.entry(model.clone()).or_default().idle_since = Some(self.now);
            if self.routes.models.get(model).is_some_and(|route| route.contended) {
                self.soon(1_000, Happening::Report(Some(model.clone())));
            }
        }
    }

    /// Reports each draining replica once when nothing is in flight there.
    fn tell_drained(&mut self) {
        let routes = Arc::clone(&self.routes);
        let draining = routes.models.values().flat_map(|route| &route.replicas).filter(|r| r.draining);
        let draining: BTreeMap<ReplicaId, u32> = draining.map(|r| (r.id, r.drains)).collect();
        self.drains_told.retain(|id, drain| draining.get(id) == Some(drain));
        self.drains_published.retain(|id, _| draining.contains_key(id));
        for (id, drain) in draining {
            self.drains_published.entry(id).or_insert(self.now);
            let empty = self.in_flight.get(&id).is_none_or(Vec::is_empty);
            if empty && self.drains_told.insert(id, drain).is_none() {
                self.soon(3_000, Happening::Tell(Event::Drained(Drained { replica: id, drain })));
            }
        }
    }

    fn die(&mut self, replica: ReplicaId, cause: &'static str) {
        let Some(process) = self.processes.get(&replica).cloned() else { return };
        let broken = self.in_flight.remove(&replica).unwrap_or_default();
        let fate = if self.cut.remove(&replica) { Fate::Cut } else { Fate::Broken };
        self.lines.entry(process.model.clone()).or_default().completions += broken.len() as u64;
        self.processes.remove(&replica);
        for request in broken {
            self.end(&process.model, &request, fate);
        }
        let gone = ReplicaEvent::Gone { cause: cause.into() };
        self.step(Event::Replica(replica, gone));
    }

    /// One step of the core with everything that the driver does around it.
    fn step(&mut self, event: Event) {
        let mut actions = Vec::new();
        let tick = event == Event::Tick;
        self.journal.step(&mut self.core, self.now, event, &mut actions);
        invariant::check(&self.core);
        if tick {
            let next = self.core.next_deadline();
            assert!(next.is_none_or(|due| due > self.now), "a tick at {:?} leaves {next:?}", self.now);
        }
        self.publish();
        for action in actions {
            self.carry_out(action);
        }
        self.tell_drained();
    }

    fn publish(&mut self) {
        let routes = self.core.routes();
        assert_eq!(
            routes.version != self.routes.version,
            routes != self.routes,
            "the version tells of changes"
        );
        assert!(routes.version >= self.routes.version);
        self.routes = routes;
        let names: Vec<ModelName> = self.routes.models.keys().cloned().collect();
        for name in names {
            let Some(route) = self.routes.models.get(&name).cloned() else { continue };
            let series = self.desired.entry(name.clone()).or_default();
            if series.last().is_none_or(|&(_, desired)| desired != route.desired) {
                series.push((self.now, route.desired));
            }
            self.answer_waiters(&name, route.fault.as_ref().map(|f| (f.failures, f.answer_waiters)));
            self.dispatch(&name);
        }
    }

    fn answer_waiters(&mut self, name: &ModelName, fault: Option<(u32, bool)>) {
        let line = self.lines.entry(name.clone()).or_default();
        let grew = fault.is_some_and(|(failures, answer)| answer && failures > line.failures_seen);
        line.failures_seen = fault.map_or(0, |(failures, _)| failures);
        if grew {
            for request in std::mem::take(&mut line.waiting) {
                self.end(name, &request, Fate::Answered);
            }
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Start { replica, model, .. } => self.launch(replica, model),
            Action::Cut { replica } => {
                if let Some(process) = self.processes.get(&replica).cloned() {
                    let life = &self.fleet.models.get(&process.model).map(|m| m.life.drain_deadline);
                    let since = self.drains_published.get(&replica).copied().unwrap_or(self.now);
                    if let Some(deadline) = life {
                        assert!(
                            self.now.since(since) >= *deadline,
                            "{replica} is cut before its drain deadline"
                        );
                    }
                    for request in self.in_flight.remove(&replica).unwrap_or_default() {
                        self.lines.entry(process.model.clone()).or_default().completions += 1;
                        self.end(&process.model, &request, Fate::Cut);
                    }
                }
            }
            Action::Stop { replica, .. } => self.stop(replica),
        }
    }

    fn launch(&mut self, replica: ReplicaId, model: ModelName) {
        self.check_room(&model);
        self.starts.push((self.now, model.clone()));
        let fixed = self.fleet.models.get(&model).is_some_and(|m| m.source != Source::Launched);
        let process = Process { model: model.clone(), ready: false, told_to_stop: false, hung: false };
        assert!(self.processes.insert(replica, process).is_none(), "{replica} is started twice");
        let nature = self.natures[&model].clone();
        let (start, jitter) = (nature.start, self.jitter(nature.start.0 / 10));
        match nature.fails.filter(|&(_, until)| self.now < until && !fixed) {
            Some((after, _)) => {
                self.at(self.now.after(after), Happening::Die { replica, cause: "exit status 1" })
            }
            None if self.now < nature.hangs_until && !fixed => {}
            None => {
                let ready = self.now.after(start).after(jitter).max(nature.hangs_until);
                self.at(ready, Happening::BecomeReady(replica));
            }
        }
    }

    /// The books of what is alive, against what the configuration allows.
    fn check_room(&self, model: &ModelName) {
        let Some(spec) = self.fleet.models.get(model).filter(|spec| spec.source == Source::Launched) else {
            return;
        };
        for process in self.processes.values().filter(|p| p.model != *model) {
            let groups = self.fleet.models.get(&process.model).map(|m| m.groups.clone()).unwrap_or_default();
            let shared = groups.iter().any(|group| spec.groups.contains(group));
            assert!(!shared, "{model} is started while {} is alive", process.model);
        }
        let Some(budget) = self.fleet.memory else { return };
        let of = |p: &Process| self.fleet.models.get(&p.model).map_or(0, |m| m.memory.0);
        let used: u64 = self.processes.values().map(of).sum();
        assert!(used + spec.memory.0 <= budget.0, "{model} is started into {used} of {} used", budget.0);
    }

    fn stop(&mut self, replica: ReplicaId) {
        let waiting = self.in_flight.get(&replica).map_or(0, Vec::len);
        assert_eq!(waiting, 0, "{replica} is stopped with requests in flight");
        let Some(process) = self.processes.get_mut(&replica) else { return };
        let nature = self.natures.get_mut(&process.model).expect("every model has a nature");
        self.stops.push((self.now, replica));
        process.told_to_stop = true;
        if nature.deaf_stops > 0 {
            nature.deaf_stops -= 1;
            return;
        }
        let gone = self.now.after(nature.stop);
        self.at(gone, Happening::Die { replica, cause: "stopped" });
    }
}
