// SPDX-License-Identifier: Apache-2.0
//! Small things that this crate's tests share.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use crate::{
    Action, Address, Bytes, Core, Demand, Drained, Event, FleetSpec, LifeSpec, Micros, ModelName, ModelRoute,
    ModelSpec, ModelStatus, ReplicaEvent, ReplicaId, ScaleSpec, Source, invariant,
};

/// One request per replica, none to three replicas, short times.
pub(crate) fn scale() -> ScaleSpec {
    ScaleSpec {
        min_replicas: 0,
        max_replicas: 3,
        target_milli: 1_000,
        container_concurrency: 0,
        idle_after: Micros::from_secs(2),
        window: Micros::from_secs(6),
        preload: false,
        profile: crate::Profile::Sized,
    }
}

/// Deadlines and back-off of some seconds.
pub(crate) fn life() -> LifeSpec {
    LifeSpec {
        start_deadline: Micros::from_secs(30),
        drain_deadline: Micros::from_secs(20),
        stop_deadline: Micros::from_secs(2),
        start_attempts: 3,
        backoff_first: Micros::from_millis(500),
        backoff_max: Micros::from_secs(8),
    }
}

/// A launched model of these.
pub(crate) fn spec() -> ModelSpec {
    ModelSpec {
        generation: 1,
        source: Source::Launched,
        scale: scale(),
        life: life(),
        memory: Bytes(0),
        groups: Vec::new(),
    }
}

/// An address on loopback.
pub(crate) fn address(port: u16) -> Address {
    Address { socket: std::net::SocketAddr::from(([127, 0, 0, 1], port)), host: None, tls: false }
}

/// A core with its own time line; everything is told to it in one line and asked of it in another.
pub(crate) struct Rig {
    pub core: Core,
    pub now: Micros,
    pub actions: Vec<Action>,
    /// The last report of each model, and when.
    loads: BTreeMap<ModelName, (Micros, Demand)>,
}

impl Rig {
    /// A core with these models at time zero.
    pub fn new(models: &[(&str, ModelSpec)]) -> Rig {
        let mut rig =
            Rig { core: Core::new(), now: Micros::ZERO, actions: Vec::new(), loads: BTreeMap::new() };
        rig.configure(models, None);
        rig
    }

    /// Replaces the configuration.
    pub fn configure(&mut self, models: &[(&str, ModelSpec)], memory: Option<u64>) {
        let models = models.iter().map(|(name, spec)| (ModelName::from(*name), spec.clone())).collect();
        self.step(Event::Configure(FleetSpec { models, memory: memory.map(Bytes) }));
    }

    /// One step now.
    pub fn step(&mut self, event: Event) {
        self.core.step(self.now, &event, &mut self.actions);
        invariant::check(&self.core);
        if event == Event::Tick {
            let next = self.core.next_deadline();
            assert!(next.is_none_or(|due| due > self.now), "a tick at {:?} leaves {next:?}", self.now);
        }
    }

    /// Lets time pass, with a tick at each of the core's deadlines.
    pub fn pass(&mut self, ms: u64) {
        let end = self.now.after(Micros::from_millis(ms));
        while let Some(due) = self.core.next_deadline().filter(|&due| due <= end) {
            self.now = self.now.max(due);
            self.step(Event::Tick);
        }
        self.now = end;
    }

    /// Reports load; requests in flight are at no particular replica.
    pub fn load(&mut self, name: &str, in_flight: u32, queued: u32) {
        self.report(name, in_flight, queued, &[]);
    }

    /// Reports load; requests in flight are at the named replicas.
    pub fn load_at(&mut self, name: &str, at: &[(u64, u32)], queued: u32) {
        self.report(name, at.iter().map(|&(_, n)| n).sum(), queued, at);
    }

    fn report(&mut self, name: &str, in_flight: u32, queued: u32, at: &[(u64, u32)]) {
        let (then, last) = self.loads.entry(name.into()).or_insert_with(|| (self.now, nothing(name)));
        let passed = self.now.since(std::mem::replace(then, self.now)).0;
        let (before, total) = (last.in_flight + last.queued, in_flight + queued);
        let new = total.saturating_sub(before);
        *last = Demand {
            in_flight,
            queued,
            peak: before.max(total),
            arrivals: last.arrivals + u64::from(new),
            completions: last.completions + u64::from((before + new).saturating_sub(total)),
            in_flight_micros: last.in_flight_micros + u64::from(last.in_flight) * passed,
            queued_micros: last.queued_micros + u64::from(last.queued) * passed,
            idle_since: (total == 0 && last.arrivals > 0).then(|| last.idle_since.unwrap_or(self.now)),
            by_replica: at.iter().map(|&(id, n)| (ReplicaId(id), n)).collect(),
            ..nothing(name)
        };
        let demand = last.clone();
        self.step(Event::Demand(demand));
    }

    /// The backend reports readiness.
    pub fn ready(&mut self, id: u64) {
        self.step(Event::Replica(ReplicaId(id), ReplicaEvent::Ready(address(9_000 + id as u16))));
    }

    /// The backend reports a failed probe.
    pub fn unready(&mut self, id: u64) {
        self.step(Event::Replica(ReplicaId(id), ReplicaEvent::NotReady { why: "503".into() }));
    }

    /// The backend reports the end.
    pub fn gone(&mut self, id: u64) {
        self.step(Event::Replica(ReplicaId(id), ReplicaEvent::Gone { cause: "exit status 1".into() }));
    }

    /// The gateway reports an empty draining replica.
    pub fn drained(&mut self, id: u64) {
        let replica = ReplicaId(id);
        let routes = self.core.routes();
        let listed = routes.models.values().flat_map(|route| &route.replicas).find(|r| r.id == replica);
        let drain = listed.map_or(0, |route| route.drains);
        self.step(Event::Drained(Drained { replica, drain }));
    }

    /// Actions since the last call, in short: `start r0 m#0`, `cut r0`, `stop r0`.
    pub fn acts(&mut self) -> Vec<String> {
        let short = |action| match action {
            Action::Start { replica, model, ordinal } => format!("start {replica} {model}#{ordinal}"),
            Action::Cut { replica } => format!("cut {replica}"),
            Action::Stop { replica, .. } => format!("stop {replica}"),
        };
        self.actions.drain(..).map(short).collect()
    }

    /// One model's route.
    pub fn route(&self, name: &str) -> ModelRoute {
        self.core.routes().models[name].clone()
    }

    /// One model's status.
    pub fn status(&self, name: &str) -> ModelStatus {
        let all = self.core.status(self.now).models;
        all.into_iter().find(|model| model.name.as_str() == name).unwrap()
    }

    /// Routed replicas: those that take requests, and those that drain.
    pub fn routed(&self, name: &str) -> (Vec<u64>, Vec<u64>) {
        let (open, draining): (Vec<_>, Vec<_>) = match self.core.routes().models.get(name) {
            Some(route) => route.replicas.iter().cloned().partition(|r| !r.draining),
            None => Default::default(),
        };
        (open.iter().map(|r| r.id.0).collect(), draining.iter().map(|r| r.id.0).collect())
    }
}

pub(crate) fn nothing(name: &str) -> Demand {
    Demand {
        model: name.into(),
        in_flight: 0,
        queued: 0,
        peak: 0,
        arrivals: 0,
        completions: 0,
        abandons: 0,
        in_flight_micros: 0,
        queued_micros: 0,
        idle_since: None,
        by_replica: BTreeMap::new(),
    }
}
