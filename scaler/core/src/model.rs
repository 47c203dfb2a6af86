// SPDX-License-Identifier: Apache-2.0
//! State of one model and of its replicas. Owns the data and questions about it; rules live in the other modules.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::decide::Rule;
use crate::decision::{Reasoning, Told};
use crate::health::Health;
use crate::ids::{ModelName, ReplicaId};
use crate::kpa;
use crate::report::{Address, Demand};
use crate::residency::Standing;
use crate::spec::{ModelSpec, Profile, Source};
use crate::status::Phase;
use crate::units::{Bytes, Micros};
use crate::wake::WakeSamples;
use crate::window::PeakHold;

/// A replica that was ready for this long has proved that its model works.
const PROVED_AFTER: Micros = Micros::from_secs(10);
/// So has one that served: a request had ended this long ago. The lag keeps requests that a dying replica breaks from
/// counting, as their end is reported moments before its own.
const SERVED_LAG: Micros = Micros::from_millis(250);

/// One model, configured or (`removed`) with replicas that still end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Model {
    pub spec: ModelSpec,
    pub removed: bool,
    pub replicas: BTreeMap<ReplicaId, Replica>,
    /// Latest report; `None` is unknown load.
    pub load: Option<Load>,
    pub hold: PeakHold,
    /// Under `compat: kpa`, once it is known how many replicas there are.
    pub kpa: Option<Box<kpa::Live>>,
    /// Ready replicas, as told of a model whose replicas run elsewhere.
    pub ready_elsewhere: Option<u32>,
    pub desired: u32,
    pub rule: Rule,
    /// How the load became a number, at the last look.
    pub reasoning: Reasoning,
    /// What was last recorded.
    pub told: Told,
    /// In use: something asked for it and it has not idled since. Keeps one replica.
    pub awake: bool,
    /// Asked for by a person or by `preload`; gone once it has idled.
    pub held: Option<Held>,
    /// Ordered to so many replicas, until it has idled.
    pub pinned: Option<u32>,
    /// Ordered to zero: number of arrivals known then.
    pub asleep: Option<u64>,
    pub health: Health,
    pub wake: WakeSamples,
    /// Starts that the rules ask for now; `residency` says which of them fit.
    pub need: u32,
    /// Since when its first replica has had no room.
    pub waiting: Option<Micros>,
    /// Another model waits for what this one occupies.
    pub contended: bool,
    /// Last time it had load.
    pub used: Micros,
    /// What of it mattered to room at the last look.
    pub standing: Standing,
    /// When `residency` can next do something for it.
    pub room_due: Option<Micros>,
    /// When it is next in the core's timers.
    pub due: Option<Micros>,
}

/// A wish for one replica without a request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Held {
    /// A person's order, as opposed to `preload`.
    pub ordered: bool,
    /// When the wish was fulfilled: idling counts from here. `None`: not yet.
    pub ready: Option<Micros>,
}

/// What of the latest report the rules need.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Load {
    pub in_flight: u32,
    pub queued: u32,
    pub arrivals: u64,
    pub completions: u64,
    /// When the load became zero, by the gateway's word or else by the first report of it.
    pub quiet: Option<Micros>,
    pub by_replica: BTreeMap<ReplicaId, u32>,
}

/// One replica, from its start order until it is gone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Replica {
    pub ordinal: u32,
    pub generation: u64,
    pub fixed: bool,
    pub phase: Phase,
    /// Since when it has been in `phase`.
    pub since: Micros,
    pub started: Micros,
    pub ready: Option<Micros>,
    pub address: Option<Address>,
    pub note: String,
    /// Must go whatever is wanted: it hung, it no longer may exist, or a person ordered it.
    pub doomed: bool,
    /// Passed its last probe.
    pub healthy: bool,
    /// Must go so that this model can start.
    pub evicted_for: Option<ModelName>,
    /// How many drains of it have begun.
    pub drains: u32,
    /// When its stop was last ordered; of a fixed address that is not ready, when it was last seen to be missing.
    pub asked: Micros,
    /// The model's completions when it became ready, and when more were first seen.
    pub completions: u64,
    pub served: Option<Micros>,
    /// What it occupies.
    pub memory: Bytes,
    pub groups: Vec<String>,
}

impl Model {
    /// A configured model without replicas.
    pub fn new(spec: ModelSpec, now: Micros) -> Self {
        let held = spec.scale.preload.then_some(Held { ordered: false, ready: None });
        let mut model = Model {
            spec,
            removed: false,
            replicas: BTreeMap::new(),
            load: None,
            hold: PeakHold::default(),
            kpa: None,
            ready_elsewhere: None,
            desired: 0,
            rule: Rule::Idle,
            reasoning: Reasoning::Ordered,
            told: Told::default(),
            awake: held.is_some(),
            held,
            pinned: None,
            asleep: None,
            health: Health::default(),
            wake: WakeSamples::default(),
            need: 0,
            waiting: None,
            contended: false,
            used: Micros::ZERO,
            standing: Standing::default(),
            room_due: None,
            due: None,
        };
        if let (Profile::Kpa(settings), Source::Launched) = (&model.spec.scale.profile, model.spec.source) {
            let initial = settings.initial_scale;
            model.kpa = Some(Box::new(kpa::Live::new(*settings.clone(), now, 0, initial)));
        }
        model
    }

    /// Brings what `compat: kpa` keeps in line with the specification. It begins with what is there.
    pub fn align_kpa(&mut self, now: Micros) {
        let ready = self.ready_count().unwrap_or(0);
        let asked = if self.spec.source == Source::Elsewhere { ready } else { self.desired };
        self.kpa = match (&self.spec.scale.profile, self.kpa.take()) {
            _ if self.fixed().is_some() => None,
            (Profile::Sized, _) => None,
            (Profile::Kpa(settings), Some(mut kpa)) => {
                kpa.configure(settings, now);
                Some(kpa)
            }
            (Profile::Kpa(settings), None) => {
                Some(Box::new(kpa::Live::new(*settings.clone(), now, ready, asked)))
            }
        };
    }

    /// Replicas that take requests; `None` if that is not known.
    pub fn ready_count(&self) -> Option<u32> {
        match self.spec.source {
            Source::Elsewhere => self.ready_elsewhere,
            Source::Launched | Source::Fixed(_) => Some(self.count(Phase::Ready)),
        }
    }

    /// Number of fixed addresses, if it has such.
    pub fn fixed(&self) -> Option<u32> {
        match self.spec.source {
            Source::Launched | Source::Elsewhere => None,
            Source::Fixed(n) => Some(n),
        }
    }

    /// From this many failures in a row on, waiting requests are told. Nothing that Sluice does repairs a fixed address,
    /// so there they are told at once.
    pub fn start_attempts(&self) -> u32 {
        if self.fixed().is_some() { 1 } else { self.spec.life.start_attempts }
    }

    /// Most replicas at once, as far as they count.
    pub fn max_replicas(&self) -> u32 {
        let scale = &self.spec.scale;
        let initial = match &scale.profile {
            Profile::Sized => 0,
            Profile::Kpa(settings) => settings.initial_scale,
        };
        scale.max_replicas.max(scale.min_replicas).max(initial).max(1)
    }

    /// Most replicas that may stay at once: while a ready one of a former generation serves, its successor may start
    /// beside it. Not in exclusive groups, whose members are alone on what they share.
    pub fn most_staying(&self) -> u32 {
        self.max_replicas().saturating_add(self.surges().into())
    }

    /// A successor of a former generation may start beyond `maxReplicas` now.
    pub fn surges(&self) -> bool {
        let serves = |r: &Replica| r.stays() && r.phase == Phase::Ready && self.outdated(r);
        let shares = |r: &Replica| !r.groups.is_empty();
        let mut replicas = self.replicas.values();
        self.fixed().is_none()
            && self.spec.groups.is_empty()
            && replicas.clone().any(serves)
            && !replicas.any(shares)
    }

    /// The replica was started by a former configuration.
    pub fn outdated(&self, replica: &Replica) -> bool {
        replica.generation != self.spec.generation || replica.fixed != self.fixed().is_some()
    }

    /// Takes over a report.
    pub fn report(&mut self, demand: &Demand, now: Micros) {
        let total = demand.in_flight.saturating_add(demand.queued);
        let quiet_before = self.load.as_ref().and_then(|load| load.quiet);
        // A model taken over from a former run is as idle as it was then.
        let used = Some(self.used).filter(|&used| self.load.is_none() && used > Micros::ZERO);
        let quiet = (total == 0).then(|| demand.idle_since.or(quiet_before).or(used).unwrap_or(now).min(now));
        self.used = self.used.max(quiet.unwrap_or(now));
        self.load = Some(Load {
            in_flight: demand.in_flight,
            queued: demand.queued,
            arrivals: demand.arrivals,
            completions: demand.completions,
            quiet,
            by_replica: demand.by_replica.clone(),
        });
        for replica in self.replicas.values_mut() {
            if replica.phase == Phase::Ready && demand.completions > replica.completions {
                replica.served.get_or_insert(now);
            }
        }
    }

    /// Requests that want a replica: those at evicted replicas finish there and ask for nothing more.
    pub fn requests(&self) -> Option<u32> {
        let load = self.load.as_ref()?;
        let evicted = self.replicas.iter().filter(|(_, replica)| replica.evicted_for.is_some());
        let finishing = evicted.fold(0u32, |sum, (id, _)| sum.saturating_add(self.in_flight_at(*id)));
        Some(load.queued.saturating_add(load.in_flight.saturating_sub(finishing)))
    }

    /// Requests waiting in the gateway, as far as known.
    pub fn queued(&self) -> u32 {
        self.load.as_ref().map_or(0, |load| load.queued)
    }

    /// Requests in flight at one replica, as far as known.
    pub fn in_flight_at(&self, id: ReplicaId) -> u32 {
        self.load.as_ref().and_then(|load| load.by_replica.get(&id)).copied().unwrap_or(0)
    }

    /// Since when nothing has been in flight or queued; `None` if something is or nothing is known.
    pub fn quiet(&self) -> Option<Micros> {
        self.load.as_ref().and_then(|load| load.quiet)
    }

    /// Notes when a wish for one replica came true.
    pub fn fulfil(&mut self, now: Micros) {
        let there = self.replicas.values().any(|r| r.phase == Phase::Ready && r.stays());
        if let Some(Held { ready, .. }) = self.held.as_mut().filter(|_| there) {
            ready.get_or_insert(now);
        }
    }

    /// Stops counting as in use: the next replica needs a new reason.
    pub fn forget_use(&mut self) {
        self.awake = false;
        self.held = None;
        self.pinned = None;
        self.hold.clear();
    }

    /// Strikes that a replica's good work has made obsolete are forgotten.
    pub fn settle_proof(&mut self, now: Micros) {
        let proved = self.replicas.values().filter(|r| r.phase == Phase::Ready && r.proved(now));
        if let Some(started) = proved.map(|r| r.started).max() {
            self.health.proved(started);
        }
    }

    /// Replicas that are neither leaving nor bound to. What hangs, drains or stops must not count towards
    /// `maxReplicas`, or it would block its own replacement.
    pub fn staying(&self) -> u32 {
        self.replicas.values().filter(|r| r.stays()).count() as u32
    }

    /// Replicas that are desired and neither ready nor on their way.
    pub fn missing(&self) -> u32 {
        let there = self.replicas.values().filter(|r| r.stays() && !self.outdated(r)).count();
        self.desired.saturating_sub(there as u32)
    }

    /// How many of its replicas are in a phase.
    pub fn count(&self, phase: Phase) -> u32 {
        self.replicas.values().filter(|r| r.phase == phase).count() as u32
    }

    /// Smallest number that no live replica has.
    pub fn free_ordinal(&self) -> u32 {
        let used: BTreeSet<u32> = self.replicas.values().map(|r| r.ordinal).collect();
        let gap = used.iter().zip(0..).find(|(used, i)| *used != i);
        gap.map_or(used.len() as u32, |(_, i)| i)
    }
}

impl Replica {
    /// One that is being started now.
    pub fn new(spec: &ModelSpec, ordinal: u32, now: Micros) -> Self {
        let fixed = spec.source != Source::Launched;
        Replica {
            ordinal,
            generation: spec.generation,
            fixed,
            phase: Phase::Starting,
            since: now,
            started: now,
            ready: None,
            address: None,
            note: String::new(),
            doomed: false,
            healthy: false,
            evicted_for: None,
            drains: 0,
            asked: now,
            completions: 0,
            served: None,
            memory: if fixed { Bytes(0) } else { spec.memory },
            groups: if fixed { Vec::new() } else { spec.groups.clone() },
        }
    }

    /// It is to stay, as far as its own state says.
    pub fn stays(&self) -> bool {
        !self.doomed && self.evicted_for.is_none() && !self.leaving()
    }

    /// If it drains, the drain may be called off.
    pub fn may_return(&self) -> bool {
        !self.doomed && self.evicted_for.is_none() && (self.healthy || self.fixed)
    }

    /// Finishes or ends.
    pub fn leaving(&self) -> bool {
        matches!(self.phase, Phase::Draining | Phase::Stopping)
    }

    /// Was ready long enough, or served, so that its death says nothing about the next one.
    pub fn proved(&self, now: Micros) -> bool {
        self.ready.is_some_and(|ready| now.since(ready) >= PROVED_AFTER)
            || self.served.is_some_and(|served| now.since(served) >= SERVED_LAG)
    }

    /// Changes its phase.
    pub fn enter(&mut self, phase: Phase, now: Micros, note: &str) {
        self.phase = phase;
        self.since = now;
        self.note.clear();
        self.note.push_str(note);
    }
}
