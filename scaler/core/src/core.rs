// SPDX-License-Identifier: Apache-2.0
//! The core's state and the way of one step through the rules.
//!
//! A step takes the event in, then looks again at the models that it or the time touched: deadlines (`lifecycle`),
//! desired (`decide`), who leaves and what is missing (`fill`), what of that has room (`residency`). Decisions are read
//! off the state, never remembered from events, so a missed or repeated event heals at the next look.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::action::Action;
use crate::decide;
use crate::decision::{self, Decision};
use crate::due;
use crate::event::{Elsewhere, Event};
use crate::fill;
use crate::ids::{ModelName, ReplicaId};
use crate::kpa;
use crate::ledger::Ledger;
use crate::lifecycle::{self, Step};
use crate::model::{Held, Model, Replica};
use crate::report::{Demand, Routes};
use crate::residency;
use crate::routes;
use crate::spec::{FleetSpec, Source};
use crate::status::FleetStatus;
use crate::units::{Bytes, Micros};
use crate::want::wanted;

/// Why a replica goes that a person has ordered to.
const DRAIN_ORDER: &str = "drain order";

/// All decisions about a fleet, as a value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Core {
    pub(crate) now: Micros,
    pub(crate) shutting_down: bool,
    pub(crate) memory: Option<Bytes>,
    pub(crate) models: BTreeMap<ModelName, Model>,
    owners: BTreeMap<ReplicaId, ModelName>,
    pub(crate) next_replica: u64,
    /// Each model at most once, at its `due`.
    timers: BTreeSet<(Micros, ModelName)>,
    pub(crate) ledger: Ledger,
    /// Models that need starts for which there was no room at the last look.
    pub(crate) short: BTreeSet<ModelName>,
    /// Who goes for whom: (the waiting model, a model with evicted replicas).
    pub(crate) evictions: BTreeSet<(ModelName, ModelName)>,
    /// Models that stand in a waiting one's way.
    pub(crate) contended: BTreeSet<ModelName>,
    /// Something was freed, or the limits changed, since the last look at those short of room.
    pub(crate) freed: bool,
    routes: Arc<Routes>,
    /// Continues a former core and is not configured yet.
    pub(crate) restored: bool,
    /// Decisions so far, ever.
    pub(crate) decided: u64,
    /// Those of the last step.
    #[serde(skip)]
    decisions: Vec<Decision>,
}

impl Core {
    /// Nothing configured, nothing running.
    pub fn new() -> Core {
        Core::default()
    }

    /// Takes in one event and appends what is to be done. Total: every event in every state has a defined result;
    /// what names unknown models or replicas is ignored. A `now` before the last one counts as the last one.
    ///
    /// The caller publishes `routes` before it carries the actions out: a replica must be known to be leaving before
    /// it is stopped.
    pub fn step(&mut self, now: Micros, event: &Event, actions: &mut Vec<Action>) {
        self.now = self.now.max(now);
        let mut touched = BTreeSet::new();
        let begin = actions.len();
        self.take_in(event, &mut touched, actions);
        self.look_again(&mut touched, actions);
        self.record(&touched, actions.get(begin..).unwrap_or_default());
        for name in &touched {
            self.finish(name);
        }
    }

    /// What the last step decided: one record for each model about which there is something new, by name.
    pub fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    /// The latest routes. The version grows when something in them changed, and only then.
    pub fn routes(&self) -> Arc<Routes> {
        Arc::clone(&self.routes)
    }

    /// The state as people see it.
    pub fn status(&self, now: Micros) -> FleetStatus {
        let configured = self.models.iter().filter(|(_, model)| !model.removed);
        let mut replicas: Vec<_> = self
            .models
            .iter()
            .flat_map(|(name, model)| {
                model.replicas.iter().map(move |(&id, r)| routes::replica_status(name, id, r))
            })
            .collect();
        replicas.sort_by_key(|replica| replica.id);
        FleetStatus {
            at: now,
            models: configured.map(|(name, model)| routes::model_status(name, model)).collect(),
            replicas,
        }
    }

    /// When a `Tick` has something to do if nothing else happens; later than the last tick's time, or `None`. Only a
    /// tick looks at deadlines, so a caller that has new reports hands them in before it.
    pub fn next_deadline(&self) -> Option<Micros> {
        self.timers.first().map(|&(due, _)| due)
    }

    /// Shutdown was asked for and no replica is left.
    pub fn is_empty(&self) -> bool {
        self.shutting_down && self.owners.is_empty()
    }

    /// The settings in force.
    pub fn fleet(&self) -> FleetSpec {
        let configured = self.models.iter().filter(|(_, model)| !model.removed);
        let models = configured.map(|(name, model)| (name.clone(), model.spec.clone())).collect();
        FleetSpec { models, memory: self.memory }
    }

    /// The time of its last step.
    pub fn now(&self) -> Micros {
        self.now
    }

    /// A `Tick` at that time would do nothing.
    pub fn idles_at(&self, now: Micros) -> bool {
        !self.freed && self.next_deadline().is_none_or(|due| due > now)
    }

    /// Nothing was decided by it yet: it is empty, or continues a former run and is not configured.
    pub fn begins(&self) -> bool {
        self.restored || (self.models.is_empty() && self.decided == 0)
    }

    /// It is `former` again, perhaps later, with nothing in between.
    pub fn continues(&self, former: &Core) -> bool {
        let (mut this, mut former) = (self.clone(), former.clone());
        former.now = former.now.max(this.now);
        former.decisions.clear();
        this.decisions.clear();
        this == former
    }

    /// The model of a replica that is not gone.
    pub fn owner(&self, replica: ReplicaId) -> Option<&ModelName> {
        self.owners.get(&replica)
    }

    /// What `compat: kpa` knows of a model; `None` under another profile.
    pub fn kpa(&self, model: &ModelName) -> Option<&kpa::Live> {
        self.models.get(model)?.kpa.as_deref()
    }

    fn take_due(&mut self) -> BTreeSet<ModelName> {
        let mut due = BTreeSet::new();
        while self.timers.first().is_some_and(|&(at, _)| at <= self.now) {
            let Some((_, name)) = self.timers.pop_first() else { break };
            if let Some(model) = self.models.get_mut(&name) {
                model.due = None;
            }
            due.insert(name);
        }
        due
    }

    fn take_in(&mut self, event: &Event, touched: &mut BTreeSet<ModelName>, actions: &mut Vec<Action>) {
        match event {
            Event::Configure(fleet) => self.configure(fleet, touched),
            Event::Demand(_) if self.restored => {}
            Event::Demand(demand) => {
                self.report(demand);
                touched.insert(demand.model.clone());
            }
            Event::Replica(id, seen) => {
                let Some(name) = self.owners.get(id).cloned() else { return };
                let Some(model) = self.models.get_mut(&name) else { return };
                if let Some(replica) = lifecycle::observe(model, *id, seen, self.now) {
                    self.owners.remove(id);
                    self.ledger.strike(&name, &replica);
                    self.freed = true;
                }
                touched.insert(name);
            }
            Event::Drained(told) => {
                let Some(name) = self.owners.get(&told.replica).cloned() else { return };
                let Some(model) = self.models.get_mut(&name) else { return };
                let mut step = Step { now: self.now, actions };
                lifecycle::drained(model, *told, &mut step);
                touched.insert(name);
            }
            Event::Wake(name) => self.order(name, touched, |model| {
                wake(model);
                model.kpa.iter_mut().for_each(|kpa| kpa.summon());
            }),
            Event::Sleep(name) | Event::Scale(name, Some(0)) => {
                let now = self.now;
                self.order(name, touched, |model| sleep(model, now));
            }
            Event::Scale(name, count) => self.order(name, touched, |model| scale(model, *count)),
            Event::Drain(id) => {
                let Some(name) = self.owners.get(id).cloned() else { return };
                self.order(&name, touched, |model| drain(model, |replica| replica == *id));
            }
            Event::Elsewhere(name, told) => {
                let now = self.now;
                let elsewhere = |model: &&mut Model| model.spec.source == Source::Elsewhere;
                if let Some(model) = self.models.get_mut(name).filter(elsewhere) {
                    told_elsewhere(model, told, now);
                    touched.insert(name.clone());
                }
            }
            Event::DrainModel(name) => self.order(name, touched, |model| drain(model, |_| true)),
            Event::Shutdown => {
                self.shutting_down = true;
                touched.extend(self.models.keys().cloned());
            }
            Event::Tick => {
                let mut due = self.take_due();
                let models = due.iter();
                models.for_each(|name| self.models.get_mut(name).into_iter().for_each(|m| pace(m, self.now)));
                touched.append(&mut due);
            }
        }
    }

    /// Orders are for launched models that are configured.
    fn order(&mut self, name: &ModelName, touched: &mut BTreeSet<ModelName>, carry_out: impl Fn(&mut Model)) {
        let Some(model) = self.models.get_mut(name).filter(|m| !m.removed && m.fixed().is_none()) else {
            return;
        };
        carry_out(model);
        touched.insert(name.clone());
    }

    fn report(&mut self, demand: &Demand) {
        let Some(model) = self.models.get_mut(&demand.model) else { return };
        model.report(demand, self.now);
        let ready = model.ready_count();
        if let Some(kpa) = &mut model.kpa {
            return kpa.demand(self.now, demand, ready);
        }
        let most = model.max_replicas();
        let want = wanted(model.requests().unwrap_or(0), &model.spec.scale).min(most);
        let peak = wanted(demand.peak, &model.spec.scale).min(most);
        model.hold.push(self.now, want, peak);
    }

    fn configure(&mut self, fleet: &FleetSpec, touched: &mut BTreeSet<ModelName>) {
        self.memory = fleet.memory;
        if std::mem::take(&mut self.restored) {
            touched.extend(self.models.keys().cloned());
        }
        for (name, model) in &mut self.models {
            if !model.removed && !fleet.models.contains_key(name) {
                model.removed = true;
                model.load = None;
                model.forget_use();
                touched.insert(name.clone());
            }
        }
        for (name, spec) in &fleet.models {
            match self.models.get_mut(name) {
                Some(model) if !model.removed && model.spec == *spec => continue,
                Some(model) => reconfigure(model, spec, self.now),
                None => {
                    self.models.insert(name.clone(), Model::new(spec.clone(), self.now));
                }
            }
            touched.insert(name.clone());
        }
        self.let_excess_go(touched);
    }

    fn look_again(&mut self, touched: &mut BTreeSet<ModelName>, actions: &mut Vec<Action>) {
        for name in touched.iter() {
            self.reconcile(name, actions);
        }
        self.share_room(touched, actions);
        self.publish(touched);
    }

    fn record(&mut self, touched: &BTreeSet<ModelName>, actions: &[Action]) {
        self.decisions.clear();
        let mut done: BTreeMap<&ModelName, Vec<&Action>> = BTreeMap::new();
        for action in actions {
            let owner = match action {
                Action::Start { model, .. } => Some(model),
                Action::Cut { replica } | Action::Stop { replica, .. } => self.owners.get(replica),
            };
            owner.into_iter().for_each(|owner| done.entry(owner).or_default().push(action));
        }
        for name in touched {
            let Some(model) = self.models.get_mut(name) else { continue };
            let actions = done.get(name).map_or(&[][..], Vec::as_slice);
            let room = |model: &Model| residency::obstacle(name, model, &self.ledger, self.memory);
            if let Some(decision) = decision::record((name, model), actions, room, self.now) {
                self.decided += 1;
                self.decisions.push(Decision { number: self.decided, ..decision });
            }
        }
    }

    /// One model's rules. Starts that need no room happen here, others are left in `short`.
    pub(crate) fn reconcile(&mut self, name: &ModelName, actions: &mut Vec<Action>) {
        let Some(model) = self.models.get_mut(name) else { return };
        let mut step = Step { now: self.now, actions };
        lifecycle::expire(model, &mut step);
        model.fulfil(self.now);
        decide::decide(model, self.now, self.shutting_down);
        if model.spec.source == Source::Elsewhere {
            return;
        }
        if model.fixed().is_some() {
            for ordinal in fill::fixed(model, &mut step) {
                self.start(name, ordinal, actions);
            }
            return self.enlist(name);
        }
        fill::launched(model, &mut step);
        model.fulfil(self.now);
        if !residency::needs_room(model, self.memory) {
            let need = model.need;
            for _ in 0..need {
                self.start_launched(name, actions);
            }
        }
        self.enlist(name);
    }

    pub(crate) fn start_launched(&mut self, name: &ModelName, actions: &mut Vec<Action>) {
        let Some(model) = self.models.get_mut(name) else { return };
        model.need = model.need.saturating_sub(1);
        let ordinal = model.free_ordinal();
        self.start(name, ordinal, actions);
    }

    fn start(&mut self, name: &ModelName, ordinal: u32, actions: &mut Vec<Action>) {
        let Some(model) = self.models.get_mut(name) else { return };
        let id = ReplicaId(self.next_replica);
        self.next_replica += 1;
        let replica = Replica::new(&model.spec, ordinal, self.now);
        self.ledger.enter(name, &replica);
        model.replicas.insert(id, replica);
        self.owners.insert(id, name.clone());
        actions.push(Action::Start { replica: id, model: name.clone(), ordinal });
    }

    /// Brings the routes of the touched models up to date; copies the map only if one of them changed.
    fn publish(&mut self, touched: &BTreeSet<ModelName>) {
        let mut changed = Vec::new();
        for name in touched {
            let route = self.models.get(name).and_then(routes::route);
            if route.as_ref() != self.routes.models.get(name) {
                changed.push((name, route));
            }
        }
        if changed.is_empty() {
            return;
        }
        let routes = Arc::make_mut(&mut self.routes);
        routes.version += 1;
        for (name, route) in changed {
            match route {
                Some(route) => drop(routes.models.insert(name.clone(), route)),
                None => drop(routes.models.remove(name)),
            }
        }
    }

    /// Sets the model's timer, or forgets the model if it was removed and nothing of it is left.
    fn finish(&mut self, name: &ModelName) {
        let Some(model) = self.models.get_mut(name) else { return };
        if let Some(due) = model.due.take() {
            self.timers.remove(&(due, name.clone()));
        }
        if model.removed && model.replicas.is_empty() {
            self.models.remove(name);
            self.short.remove(name);
            return;
        }
        model.due = due::next_due(model, self.now);
        if let Some(due) = model.due {
            self.timers.insert((due, name.clone()));
        }
    }
}

/// The reports and decisions of `compat: kpa` that are due.
fn pace(model: &mut Model, now: Micros) {
    let (ready, counted) = (model.ready_count(), model.spec.source == Source::Launched);
    if let Some(kpa) = model.kpa.as_mut().filter(|_| model.asleep.is_none()) {
        kpa.pace(now, ready, counted);
    }
}

fn wake(model: &mut Model) {
    model.held = Some(Held { ordered: true, ready: None });
    model.awake = true;
    model.asleep = None;
}

fn sleep(model: &mut Model, now: Micros) {
    model.kpa.iter_mut().for_each(|kpa| kpa.rest(now));
    model.asleep = Some(model.load.as_ref().map_or(0, |load| load.arrivals));
    model.forget_use();
}

/// A person waits for the first of so many replicas, as with `wake`.
fn scale(model: &mut Model, count: Option<u32>) {
    if count.is_some() {
        wake(model);
    }
    model.pinned = count;
}

/// Replicas that are to go never come back; one on its way out already only learns that.
fn drain(model: &mut Model, which: impl Fn(ReplicaId) -> bool) {
    for (_, replica) in model.replicas.iter_mut().filter(|(id, _)| which(**id)) {
        if !replica.leaving() && !replica.doomed {
            replica.note = DRAIN_ORDER.to_owned();
        }
        replica.doomed = true;
    }
}

/// Takes in what is told of replicas that run elsewhere. The first count begins the model's autoscaler.
fn told_elsewhere(model: &mut Model, told: &Elsewhere, now: Micros) {
    if let Elsewhere::Ready(ready) = told {
        model.ready_elsewhere = *ready;
        if model.kpa.is_none() {
            model.align_kpa(now);
        }
    }
    let ready = model.ready_elsewhere;
    let Some(kpa) = &mut model.kpa else { return };
    match told {
        Elsewhere::Ready(_) => {}
        Elsewhere::Report { second, report } => kpa.record(*second, report),
        Elsewhere::Averages(averages) => kpa.give(*averages),
        Elsewhere::Decide => kpa.decide(now, ready),
    }
}

/// Takes over a changed specification; a model that comes back while its replicas end is configured anew.
fn reconfigure(model: &mut Model, spec: &crate::spec::ModelSpec, now: Micros) {
    let preload = spec.scale.preload && (model.removed || !model.spec.scale.preload);
    if model.removed || model.spec.generation != spec.generation {
        model.health.reset();
        // Nobody uses it: the next request starts the new generation.
        if model.quiet().is_some() && model.held.is_none() {
            model.forget_use();
            model.desired = 0;
        }
    }
    model.removed = false;
    model.spec = spec.clone();
    if spec.source != Source::Elsewhere || model.kpa.is_some() {
        model.align_kpa(now);
    }
    let current: Vec<ReplicaId> =
        model.replicas.iter().filter(|(_, r)| !r.fixed && !model.outdated(r)).map(|(&id, _)| id).collect();
    for id in current {
        if let Some(replica) = model.replicas.get_mut(&id) {
            replica.memory = spec.memory;
            replica.groups = spec.groups.clone();
        }
    }
    if preload {
        model.held = Some(Held { ordered: false, ready: None });
        model.awake = true;
    }
}
