// SPDX-License-Identifier: Apache-2.0
//! Which of the starts that are needed have room, and who makes room.
//!
//! The problem: models share exclusive groups (at most one of a group alive) and a memory budget. A replica occupies
//! both from its start order until it is gone. Several models want to start at once, others have to go for that, and
//! nobody may starve or be thrown out for nothing.
//!
//! The rules: models that requests or a person wait for come first, longest wait first; then those that only
//! `minReplicas` or `preload` wants; then second and further replicas. Only the first class makes others go
//! (`victims`), and only when all who stand in the way may go. What it waits for is then promised to it: nobody behind
//! takes it, and replicas that go for it do not come back unless it gives up. Of those short of memory only the first
//! makes others go; the rest take what is free and not promised. A replica that another of the same model stands in
//! the way of waits for that, or for its outdated one to drain.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::{ModelName, ReplicaId};
use crate::ledger::Ledger;
use crate::model::{Held, Model, Replica};
use crate::status::Phase;
use crate::units::{Bytes, Micros};
use crate::victims::{self, Candidate};

/// What residency looks at.
pub(crate) struct View<'a> {
    pub models: &'a BTreeMap<ModelName, Model>,
    pub ledger: &'a Ledger,
    pub budget: Option<Bytes>,
    pub now: Micros,
}

/// What one look at those short of room decided.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Models to start one replica of, once for each.
    pub starts: Vec<ModelName>,
    /// Replicas that go, and for whom.
    pub evictions: Vec<(ModelName, ReplicaId, ModelName)>,
    /// Outdated replicas in the way of their own successors.
    pub outdated: Vec<(ModelName, ReplicaId)>,
    /// When to look again for a model.
    pub dues: BTreeMap<ModelName, Micros>,
    /// Models that stand in somebody's way.
    pub contended: BTreeSet<ModelName>,
    /// Models that would not fit if they were alone.
    pub impossible: Vec<ModelName>,
}

/// In which class a model short of room is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Waiting(Micros),
    Wanted,
    Further,
}

/// Whether starts of the model need room at all.
pub(crate) fn needs_room(model: &Model, budget: Option<Bytes>) -> bool {
    let memory = budget.is_some() && model.spec.memory > Bytes(0);
    model.fixed().is_none() && (memory || !model.spec.groups.is_empty())
}

/// Requests or a person wait for the model's first replica, and it could be started if there were room.
pub(crate) fn is_waiting(model: &Model) -> bool {
    let ordered = matches!(model.held, Some(Held { ordered: true, ready: None }));
    model.need > 0 && model.staying() == 0 && (model.queued() > 0 || ordered)
}

/// What of a model can matter to anybody's room besides the passing of time: while it is the same, nobody needs to
/// look again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Standing {
    need: u32,
    waiting: bool,
    queued: bool,
    quiet: bool,
    staying: u32,
    ready: u32,
    idle: u32,
}

/// The model's standing now.
pub(crate) fn standing(model: &Model) -> Standing {
    let idle = model.replicas.keys().filter(|&&id| model.in_flight_at(id) == 0).count();
    Standing {
        need: model.need,
        waiting: model.waiting.is_some(),
        queued: model.queued() > 0,
        quiet: model.quiet().is_some(),
        staying: model.staying(),
        ready: model.count(Phase::Ready),
        idle: idle as u32,
    }
}

/// What stands in the way of a model's next start, in words.
pub(crate) fn obstacle(name: &ModelName, model: &Model, ledger: &Ledger, budget: Option<Bytes>) -> String {
    for group in &model.spec.groups {
        if let Some(other) = ledger.members(group).find(|other| *other != name) {
            return format!("{other} occupies the exclusive group {group}");
        }
    }
    let free = budget.map_or(0, |budget| budget.0.saturating_sub(ledger.used()));
    match model.spec.memory.0 {
        needed if budget.is_some() && needed > free => {
            format!("it needs {needed} bytes of memory and {free} are free")
        }
        _ => "other models that wait come first".to_owned(),
    }
}

/// Looks at all models short of room.
pub(crate) fn look(view: &View<'_>, short: &BTreeSet<ModelName>) -> Outcome {
    let mut order: Vec<(Class, &ModelName)> = Vec::with_capacity(short.len());
    for name in short {
        let Some(model) = view.models.get(name).filter(|m| m.need > 0) else { continue };
        let class = match model.waiting {
            Some(since) => Class::Waiting(since),
            None if model.staying() == 0 => Class::Wanted,
            None => Class::Further,
        };
        order.push((class, name));
    }
    order.sort_unstable();
    let mut pass = Pass::new(view);
    for (class, name) in order {
        let Some(model) = view.models.get(name) else { continue };
        pass.consider(class, name, model);
    }
    pass.start_more();
    pass.outcome
}

/// Replicas to let go so that a changed configuration is kept: of models that exclude each other now the most recently
/// used stays, and memory beyond the budget goes, least recently used first.
pub(crate) fn excess(view: &View<'_>) -> Vec<(ModelName, ReplicaId)> {
    let mut go = BTreeSet::new();
    for group in view.ledger.crowded() {
        let live = view.ledger.members(group).filter_map(|name| Some((name, view.models.get(name)?)));
        let mut live: Vec<_> = live.filter(|(_, model)| model.staying() > 0).collect();
        live.sort_by_key(|(name, model)| (model.used, *name));
        live.pop();
        for (name, model) in live {
            go.extend(model.replicas.keys().map(|&id| (name.clone(), id)));
        }
    }
    let Some(Bytes(budget)) = view.budget else { return go.into_iter().collect() };
    let over = view.ledger.used().saturating_sub(releasing(view)).saturating_sub(budget);
    let all = view.models.iter().flat_map(|(name, model)| candidates_of(name, model, Micros::ZERO, view));
    if let Some(victims) = victims::cheapest(all.collect(), over).filter(|_| over > 0) {
        go.extend(victims.into_iter().map(|c| (c.model, c.id)));
    }
    go.into_iter().collect()
}

/// One look in progress.
struct Pass<'a> {
    view: &'a View<'a>,
    /// Memory occupied, with the starts of this pass.
    used: u64,
    /// Memory that is sure to become free.
    releasing: u64,
    /// Memory that earlier models wait for with victims on their way out.
    promised: u64,
    /// An earlier model waits for memory and has not got its turn.
    memory_awaited: bool,
    /// Groups that earlier models wait for or took in this pass, and who.
    claimed: BTreeMap<&'a str, &'a ModelName>,
    /// Started, and more of them are needed.
    more: Vec<(&'a ModelName, &'a Model)>,
    outcome: Outcome,
}

impl<'a> Pass<'a> {
    fn new(view: &'a View<'a>) -> Self {
        Pass {
            view,
            used: view.ledger.used(),
            releasing: releasing(view),
            promised: 0,
            memory_awaited: false,
            claimed: BTreeMap::new(),
            more: Vec::new(),
            outcome: Outcome::default(),
        }
    }

    fn consider(&mut self, class: Class, name: &'a ModelName, model: &'a Model) {
        let memory = model.spec.memory.0;
        if self.view.budget.is_some_and(|Bytes(budget)| memory > budget) {
            self.outcome.impossible.push(name.clone());
            return;
        }
        let behind =
            model.spec.groups.iter().any(|g| self.claimed.get(g.as_str()).is_some_and(|who| *who != name));
        let free_groups = !behind && self.in_the_way(name, model).next().is_none();
        if free_groups && self.fits(class, memory) {
            return self.start(class, name, model);
        }
        match class {
            Class::Waiting(since) => self.make_room((name, model), since, behind),
            Class::Wanted | Class::Further => self.yield_outdated(name, model, memory),
        }
    }

    /// Other models with live replicas in one of the model's groups.
    fn in_the_way<'m>(
        &self,
        name: &'m ModelName,
        model: &'m Model,
    ) -> impl Iterator<Item = &'a ModelName> + use<'a, 'm> {
        let ledger: &'a Ledger = self.view.ledger;
        model.spec.groups.iter().flat_map(|group| ledger.members(group)).filter(move |other| *other != name)
    }

    fn fits(&self, class: Class, memory: u64) -> bool {
        let Some(Bytes(budget)) = self.view.budget.filter(|_| memory > 0) else { return true };
        let patient = !matches!(class, Class::Waiting(_)) && self.memory_awaited;
        let free = budget.saturating_sub(self.used);
        !patient
            && memory <= free
            && memory.saturating_add(self.promised) <= free.saturating_add(self.releasing)
    }

    fn start(&mut self, class: Class, name: &'a ModelName, model: &'a Model) {
        self.used = self.used.saturating_add(model.spec.memory.0);
        self.outcome.starts.push(name.clone());
        if class != Class::Further {
            self.claimed.extend(model.spec.groups.iter().map(|g| (g.as_str(), name)));
        }
        if model.need > 1 {
            self.more.push((name, model));
        }
    }

    /// Further replicas of models of which one was started, once everybody has had a first one.
    fn start_more(&mut self) {
        for (name, model) in std::mem::take(&mut self.more) {
            for _ in 1..model.need {
                if !self.fits(Class::Further, model.spec.memory.0) {
                    break;
                }
                self.used = self.used.saturating_add(model.spec.memory.0);
                self.outcome.starts.push(name.clone());
            }
        }
    }

    /// Lets others go for a waiting model if its time has come.
    fn make_room(&mut self, (name, model): (&'a ModelName, &'a Model), since: Micros, behind: bool) {
        self.claimed.extend(model.spec.groups.iter().map(|g| (g.as_str(), name)));
        let outwaited = self.memory_awaited && self.shortage(model.spec.memory.0) > 0;
        if behind || outwaited {
            return;
        }
        let turn = victims::turn(model);
        let blockers: BTreeSet<&ModelName> = self.in_the_way(name, model).collect();
        let of = |other: &ModelName| -> Vec<Candidate> {
            let Some(held) = self.view.models.get(other) else { return Vec::new() };
            candidates_of_turn((other, held), (since, turn), self.view.now)
        };
        let must: Vec<Candidate> = blockers.iter().flat_map(|other| of(other)).collect();
        let freed = must.iter().fold(0u64, |sum, c| sum.saturating_add(c.memory));
        let needed = self.shortage(model.spec.memory.0).saturating_sub(freed);
        let others = self.view.models.keys().filter(|other| *other != name && !blockers.contains(other));
        let may: Vec<Candidate> = match needed {
            0 => Vec::new(),
            _ => others.flat_map(of).filter(|c| c.memory > 0).collect(),
        };
        self.outcome.contended.extend(must.iter().chain(&may).map(|c| c.model.clone()));
        self.evict_or_wait(name, must, may, needed);
        self.promise_or_await(name, model.spec.memory.0);
    }

    fn evict_or_wait(&mut self, name: &ModelName, must: Vec<Candidate>, may: Vec<Candidate>, needed: u64) {
        let now = self.view.now;
        let ripe = |c: &Candidate| c.from.is_some_and(|from| from <= now);
        let chosen = match needed {
            0 => Some(Vec::new()),
            _ => victims::cheapest(may.iter().filter(|c| ripe(c)).cloned().collect(), needed),
        };
        if let Some(chosen) = chosen.filter(|_| must.iter().all(ripe)) {
            for c in must.into_iter().chain(chosen) {
                self.releasing = self.releasing.saturating_add(c.memory);
                self.outcome.evictions.push((c.model, c.id, name.clone()));
            }
            return;
        }
        let next = must.iter().chain(&may).filter_map(|c| c.from).filter(|&from| from > now).min();
        if let Some(next) = next {
            self.outcome.dues.insert(name.clone(), next);
        }
    }

    /// Once everything that the model needs is on its way out, it is promised; before, it is awaited.
    fn promise_or_await(&mut self, name: &ModelName, memory: u64) {
        if memory == 0 || self.view.budget.is_none() {
            return;
        }
        let waits = self.outcome.dues.contains_key(name) || self.shortage(memory) > 0;
        self.memory_awaited |= waits;
        if !waits {
            self.promised = self.promised.saturating_add(memory);
        }
    }

    /// Bytes that are neither free nor on their way to be.
    fn shortage(&self, memory: u64) -> u64 {
        let Some(Bytes(budget)) = self.view.budget.filter(|_| memory > 0) else { return 0 };
        let wanted = self.used.saturating_add(self.promised).saturating_add(memory);
        wanted.saturating_sub(budget.saturating_add(self.releasing))
    }

    /// A successor without room: one of its predecessors goes, if none does already.
    fn yield_outdated(&mut self, name: &ModelName, model: &Model, memory: u64) {
        let leaving = model.replicas.values().any(|r| r.leaving() || r.doomed);
        let old = model.replicas.iter().filter(|(_, r)| r.stays() && model.outdated(r));
        let first = old.min_by_key(|&(&id, _)| (model.in_flight_at(id), id));
        if let Some((&id, _)) = first.filter(|_| !leaving && self.shortage(memory) > 0) {
            self.outcome.outdated.push((name.clone(), id));
        }
    }
}

/// Memory of replicas that leave for good.
fn releasing(view: &View<'_>) -> u64 {
    let replicas = view.models.values().flat_map(|model| model.replicas.values());
    let returning = |r: &Replica| r.phase == Phase::Draining && r.may_return();
    let going = replicas.filter(|r| !r.stays() && !returning(r));
    going.fold(0u64, |sum, r| sum.saturating_add(r.memory.0))
}

fn candidates_of_turn(
    (name, model): (&ModelName, &Model),
    turn: (Micros, Micros),
    now: Micros,
) -> Vec<Candidate> {
    let replicas = model.replicas.iter();
    replicas.filter_map(|(&id, r)| victims::candidate((name, model), (id, r), turn, now)).collect()
}

fn candidates_of(name: &ModelName, model: &Model, turn: Micros, view: &View<'_>) -> Vec<Candidate> {
    candidates_of_turn((name, model), (Micros::ZERO, turn), view.now)
}
