// SPDX-License-Identifier: Apache-2.0
//! What would have been decided under other settings, from the recorded load.
//!
//! The load is the recorded one, so decisions are compared and not outcomes: more replicas would have ended requests
//! sooner. Replicas of the other settings are made up: they are ready after the model's median measured start (a
//! second where none was measured), never fail, and end as soon as they are told to.

use std::collections::{BTreeMap, BTreeSet};

use crate::action::Action;
use crate::core::Core;
use crate::decision::Decision;
use crate::event::{Event, ReplicaEvent};
use crate::ids::{ModelName, ReplicaId};
use crate::journal::Tape;
use crate::report::{Address, Drained};
use crate::spec::FleetSpec;
use crate::units::Micros;

/// A start where none was measured.
const START: Micros = Micros::from_secs(1);

/// Two courses that come to the same within this time do not differ: the live loop is late by a moment.
const MOMENT: Micros = Micros::from_millis(500);

/// What was decided over a time: desired counts of each model at the begin, then each change of one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Course {
    changes: BTreeMap<ModelName, Vec<Change>>,
}

/// A desired count from a moment on, and the decision behind it if that was inside of the time looked at.
#[derive(Clone, Debug, PartialEq)]
struct Change {
    at: Micros,
    count: u32,
    decision: Option<Decision>,
}

/// A time in which two courses want different numbers of replicas, each the same throughout.
#[derive(Clone, Debug, PartialEq)]
pub struct Parting {
    /// Its begin.
    pub from: Micros,
    /// Its end.
    pub until: Micros,
    /// Of which model.
    pub model: ModelName,
    /// Desired replicas by the record.
    pub recorded: u32,
    /// The recorded decision behind them, if it is inside of the record.
    pub recorded_by: Option<Decision>,
    /// Desired replicas under the other settings.
    pub supposed: u32,
    /// The decision behind them, if there was one.
    pub supposed_by: Option<Decision>,
}

/// Sums over one model's course.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Integral of the desired count, in replica-microseconds.
    pub replica_micros: u128,
    /// Largest desired count.
    pub peak: u32,
    /// Changes of the desired count.
    pub changes: u32,
}

/// What was decided.
pub fn recorded(tape: &Tape) -> Course {
    let mut course = Course::begin(&tape.start);
    for entry in &tape.entries {
        course.add(&entry.outcome.decisions);
    }
    course
}

/// What would have been decided with settings changed by `change`, at the begin and at each later configuration.
pub fn supposed(tape: &Tape, change: &dyn Fn(&mut FleetSpec)) -> Course {
    let mut world = Made::up(tape.start.clone());
    world.course = Course::begin(&world.core);
    // One that continues a former run has its settings still to come.
    if !world.core.restored {
        let begin = tape.entries.first().map_or(world.core.now, |entry| entry.now);
        let mut fleet = world.core.fleet();
        change(&mut fleet);
        world.step(begin, &Event::Configure(fleet));
    }
    for entry in &tape.entries {
        world.pass(entry.now);
        match &entry.event {
            Event::Configure(fleet) => {
                let mut fleet = fleet.clone();
                change(&mut fleet);
                world.step(entry.now, &Event::Configure(fleet));
            }
            Event::Demand(demand) => {
                let demand = crate::Demand { by_replica: BTreeMap::new(), ..demand.clone() };
                world.step(entry.now, &Event::Demand(demand));
            }
            Event::Replica(..) | Event::Drained(_) | Event::Drain(_) | Event::Tick => {}
            other => world.step(entry.now, other),
        }
    }
    world.course
}

/// Where the two differ, until `end`, in the order of time.
pub fn partings(recorded: &Course, supposed: &Course, end: Micros) -> Vec<Parting> {
    let names: BTreeSet<&ModelName> = recorded.changes.keys().chain(supposed.changes.keys()).collect();
    let mut all: Vec<Parting> = names
        .into_iter()
        .flat_map(|name| of_model(name, recorded.of(name), supposed.of(name), end))
        .collect();
    all.sort_by(|a, b| (a.from, &a.model).cmp(&(b.from, &b.model)));
    all
}

fn of_model(name: &ModelName, recorded: &[Change], supposed: &[Change], end: Micros) -> Vec<Parting> {
    let times: BTreeSet<Micros> = recorded.iter().chain(supposed).map(|change| change.at).collect();
    let ends = times.iter().copied().skip(1).chain([end]);
    let mut found: Vec<Parting> = Vec::new();
    for (from, until) in times.iter().copied().zip(ends) {
        let (was, would) = (at(recorded, from), at(supposed, from));
        let (count, other) = (was.map_or(0, |change| change.count), would.map_or(0, |change| change.count));
        if let Some(last) = found.last_mut().filter(|last| last.until == from)
            && (last.recorded, last.supposed) == (count, other)
        {
            last.until = until;
        } else if count != other {
            found.push(Parting {
                from,
                until,
                model: name.clone(),
                recorded: count,
                recorded_by: was.and_then(|change| change.decision.clone()),
                supposed: other,
                supposed_by: would.and_then(|change| change.decision.clone()),
            });
        }
    }
    found.retain(|parting| parting.until.since(parting.from) >= MOMENT);
    found
}

/// The last change up to then.
fn at(changes: &[Change], at: Micros) -> Option<&Change> {
    changes.get(..changes.partition_point(|change| change.at <= at))?.last()
}

impl Course {
    fn begin(core: &Core) -> Course {
        let begin = |count| vec![Change { at: core.now, count, decision: None }];
        let models = core.models.iter().map(|(name, model)| (name.clone(), begin(model.desired)));
        Course { changes: models.collect() }
    }

    fn add(&mut self, decisions: &[Decision]) {
        for decision in decisions.iter().filter(|decision| decision.before != decision.after) {
            let change = Change { at: decision.at, count: decision.after, decision: Some(decision.clone()) };
            self.changes.entry(decision.model.clone()).or_default().push(change);
        }
    }

    fn of(&self, name: &ModelName) -> &[Change] {
        self.changes.get(name).map_or(&[], Vec::as_slice)
    }

    /// Sums per model from the begin until `end`.
    pub fn totals(&self, end: Micros) -> BTreeMap<ModelName, Totals> {
        self.changes.iter().map(|(name, changes)| (name.clone(), totals(changes, end))).collect()
    }
}

fn totals(changes: &[Change], end: Micros) -> Totals {
    let ends = changes.iter().skip(1).map(|change| change.at).chain([end]);
    let mut sum = Totals::default();
    for (change, until) in changes.iter().zip(ends) {
        sum.replica_micros += u128::from(until.since(change.at).0) * u128::from(change.count);
        sum.peak = sum.peak.max(change.count);
        sum.changes += u32::from(change.decision.is_some());
    }
    sum
}

/// A core with made-up replicas.
struct Made {
    core: Core,
    course: Course,
    /// What happens to which replica, and when.
    coming: BTreeSet<(Micros, ReplicaId, bool)>,
}

impl Made {
    fn up(core: Core) -> Made {
        let mut coming = BTreeSet::new();
        for replica in core.status(core.now).replicas {
            match replica.phase {
                crate::Phase::Starting => drop(coming.insert((core.now, replica.id, true))),
                crate::Phase::Stopping => drop(coming.insert((core.now, replica.id, false))),
                _ => {}
            }
        }
        Made { core, course: Course::default(), coming }
    }

    /// Everything that happens by itself up to `until`.
    fn pass(&mut self, until: Micros) {
        loop {
            let next =
                self.coming.first().map(|&(at, ..)| at).into_iter().chain(self.core.next_deadline()).min();
            let Some(at) = next.filter(|&at| at <= until) else { return };
            match self.coming.first().copied().filter(|&(due, ..)| due <= at) {
                Some(coming) => {
                    self.coming.remove(&coming);
                    let (_, id, ready) = coming;
                    let event = match ready {
                        true => ReplicaEvent::Ready(address()),
                        false => ReplicaEvent::Gone { cause: String::new() },
                    };
                    self.step(at, &Event::Replica(id, event));
                }
                None => self.step(at, &Event::Tick),
            }
        }
    }

    fn step(&mut self, at: Micros, event: &Event) {
        let mut actions = Vec::new();
        self.core.step(at, event, &mut actions);
        self.course.add(self.core.decisions());
        for action in actions {
            match action {
                Action::Start { replica, model, .. } => {
                    let wake = self.core.models.get(&model).map(|model| model.wake.estimate());
                    let took = wake.filter(|wake| wake.samples > 0).map_or(START, |wake| wake.p50);
                    self.coming.insert((at.after(took), replica, true));
                }
                Action::Cut { .. } => {}
                Action::Stop { replica, .. } => {
                    self.coming.retain(|&(_, id, _)| id != replica);
                    self.coming.insert((at, replica, false));
                }
            }
        }
        self.end_drains(at);
    }

    fn end_drains(&mut self, at: Micros) {
        let routes = self.core.routes();
        let routed = routes.models.values().flat_map(|route| &route.replicas);
        let draining: Vec<Drained> =
            routed.filter(|r| r.draining).map(|r| Drained { replica: r.id, drain: r.drains }).collect();
        for told in draining {
            let mut actions = Vec::new();
            self.core.step(at, &Event::Drained(told), &mut actions);
            self.course.add(self.core.decisions());
            for action in actions {
                if let Action::Stop { replica, .. } = action {
                    self.coming.insert((at, replica, false));
                }
            }
        }
    }
}

fn address() -> Address {
    Address { socket: ([127, 0, 0, 1], 1).into(), host: None, tls: false }
}
