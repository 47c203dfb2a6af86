// SPDX-License-Identifier: Apache-2.0
//! Records of decisions: what was known, what it asked for, which limits were applied, the rule that decided, what was
//! done.
//!
//! A step writes at most one record per model, at its end, and only if something is new: the desired count, the rule,
//! a limit that became active or ceased to be, or a replica that starts, goes or comes back. Records are read off the
//! state like the decisions themselves. Nothing here decides anything, and nothing reads a record back.

use serde::{Deserialize, Serialize};

use crate::action::Action;
use crate::decide::Rule;
use crate::ids::{ModelName, ReplicaId};
use crate::kpa::{self, zero};
use crate::model::Model;
use crate::status::Phase;
use crate::units::Micros;

/// One decision about one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Counts the decisions of one core, from 1.
    pub number: u64,
    /// When.
    pub at: Micros,
    /// About which model.
    pub model: ModelName,
    /// What was known.
    pub inputs: Inputs,
    /// What it asked for.
    pub reasoning: Reasoning,
    /// Limits in force, in the order in which they were applied.
    pub limits: Vec<Limit>,
    /// The rule that decided `after`.
    pub rule: Rule,
    /// Desired replicas before.
    pub before: u32,
    /// Desired replicas from now on.
    pub after: u32,
    /// What was done about it in the same step.
    pub deeds: Vec<Deed>,
}

/// What was known of a model when it was decided about. The load is `None` while it is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inputs {
    /// Requests at replicas.
    pub in_flight: Option<u32>,
    /// Requests waiting for a replica.
    pub queued: Option<u32>,
    /// Requests that came in, ever.
    pub arrivals: Option<u64>,
    /// Since when there has been no request.
    pub idle_since: Option<Micros>,
    /// Replicas that take requests, those that this decision let go not included.
    pub ready: u32,
    /// Replicas on their way, those that this decision started included.
    pub starting: u32,
    /// Replicas that finish or stop, those that this decision let go included.
    pub leaving: u32,
}

/// How the load became a number of replicas, before bounds. One variant for each way of counting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reasoning {
    /// An order or a fact left the load no say.
    Ordered,
    /// Sluice's own profile: the load of this moment over the target, held by the largest want of the window.
    Sized {
        /// Requests that count; `None` while the load is unknown.
        requests: Option<u32>,
        /// `scaleTarget`, in thousandths.
        target_milli: u64,
        /// Replicas that these requests want.
        want: Option<u32>,
        /// The largest want of the window.
        window_largest: u32,
        /// What comes of both and of what exists.
        asked: u32,
    },
    /// `compat: kpa`: the decider's last decision, and the bounds in force.
    Kpa {
        /// `None` before the first valid one, and while there is no data.
        decision: Option<Box<kpa::Decision>>,
        /// Fewest and most replicas; 0 is no limit.
        bounds: (u32, u32),
    },
}

/// A limit in force: so many replicas went into it and so many came out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Which one.
    pub kind: LimitKind,
    /// Replicas that were asked for.
    pub before: u32,
    /// Replicas that it leaves.
    pub after: u32,
    /// The fact behind it, in one line; empty if the kind says it all.
    pub why: String,
}

/// Kinds of limits, in the order in which they are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LimitKind {
    /// Never fewer.
    MinReplicas,
    /// Never more.
    MaxReplicas,
    /// `compat: kpa`: never fewer until so many were ready once.
    InitialScale,
    /// Starts fail: a pause, then one at a time.
    BackOff,
    /// Memory or an exclusive group is taken.
    Room,
}

/// One thing done to a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Deed {
    /// It starts.
    Start(ReplicaId),
    /// It takes nothing new and finishes what it has.
    Drain(ReplicaId, String),
    /// Its drain is called off.
    Resume(ReplicaId),
    /// What is still in flight there is ended.
    Cut(ReplicaId),
    /// It is stopped.
    Stop(ReplicaId, String),
}

/// What was recorded last of a model: a record is due when this is no longer true.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Told {
    desired: u32,
    rule: Rule,
    limits: Vec<LimitKind>,
    /// Replicas on their way out.
    leaving: Vec<ReplicaId>,
}

impl Default for Told {
    /// That of a model that nobody has decided about.
    fn default() -> Self {
        Told { desired: 0, rule: Rule::Idle, limits: Vec::new(), leaving: Vec::new() }
    }
}

impl Told {
    /// Replicas have ended with the process, and limits are found anew.
    pub(crate) fn forget_replicas(&mut self) {
        self.leaving.clear();
        self.limits.clear();
    }
}

#[cfg(test)]
impl Model {
    /// The last record says what is desired and why.
    pub(crate) fn is_recorded(&self) -> bool {
        (self.told.desired, self.told.rule) == (self.desired, self.rule)
    }
}

impl Reasoning {
    /// Replicas asked for before bounds, if the load had a say.
    pub fn asked(&self) -> Option<u32> {
        match self {
            Reasoning::Ordered => None,
            Reasoning::Sized { asked, .. } => Some(*asked),
            Reasoning::Kpa { decision, .. } => decision.as_ref().map(|decision| decision.desired),
        }
    }
}

impl LimitKind {
    /// Its name in words.
    pub fn as_str(self) -> &'static str {
        match self {
            LimitKind::MinReplicas => "minReplicas",
            LimitKind::MaxReplicas => "maxReplicas",
            LimitKind::InitialScale => "initial-scale",
            LimitKind::BackOff => "back-off after failures",
            LimitKind::Room => "room",
        }
    }
}

/// The record of what this step decided about the model, if that is new. `actions` are those of the step that concern
/// the model; `room` says what stands in the way of starts. The record's number is the caller's to set.
pub(crate) fn record(
    (name, model): (&ModelName, &mut Model),
    actions: &[&Action],
    room: impl Fn(&Model) -> String,
    now: Micros,
) -> Option<Decision> {
    let deeds = deeds(model, actions);
    let mut limits = limits(model);
    let told = &model.told;
    let new = told.desired != model.desired
        || told.rule != model.rule
        || !limits.iter().map(|limit| limit.kind).eq(told.limits.iter().copied())
        || deeds.iter().any(|deed| is_news(deed, &told.leaving));
    let leaving = leaving(model);
    if !new {
        if model.told.leaving != leaving {
            model.told.leaving = leaving;
        }
        return None;
    }
    for limit in &mut limits {
        limit.why = match limit.kind {
            LimitKind::MinReplicas | LimitKind::MaxReplicas | LimitKind::InitialScale => String::new(),
            LimitKind::BackOff => model.health.cause().to_owned(),
            LimitKind::Room => room(model),
        };
    }
    let kinds = limits.iter().map(|limit| limit.kind).collect();
    let now_told = Told { desired: model.desired, rule: model.rule, limits: kinds, leaving };
    let told = std::mem::replace(&mut model.told, now_told);
    Some(Decision {
        number: 0,
        at: now,
        model: name.clone(),
        inputs: inputs(model),
        reasoning: model.reasoning.clone(),
        limits,
        rule: model.rule,
        before: told.desired,
        after: model.desired,
        deeds,
    })
}

fn inputs(model: &Model) -> Inputs {
    let load = model.load.as_ref();
    Inputs {
        in_flight: load.map(|load| load.in_flight),
        queued: load.map(|load| load.queued),
        arrivals: load.map(|load| load.arrivals),
        idle_since: model.quiet(),
        ready: model.count(Phase::Ready),
        starting: model.count(Phase::Starting),
        leaving: model.count(Phase::Draining) + model.count(Phase::Stopping),
    }
}

/// Bounds change what is asked for; pauses and room change what of it is there.
fn limits(model: &Model) -> Vec<Limit> {
    let mut limits = Vec::new();
    let mut apply = |kind, before, after| {
        limits.push(Limit { kind, before, after, why: String::new() });
    };
    let asked = model.reasoning.asked().unwrap_or(model.desired);
    let (min, max) = match &model.reasoning {
        Reasoning::Kpa { bounds, .. } => *bounds,
        _ => (model.spec.scale.min_replicas, model.max_replicas()),
    };
    match model.rule {
        Rule::Kpa(zero::Rule::MinScale) => apply(LimitKind::MinReplicas, asked, min),
        Rule::Kpa(zero::Rule::MaxScale) => apply(LimitKind::MaxReplicas, asked, max),
        Rule::Kpa(zero::Rule::InitialScale) => apply(LimitKind::InitialScale, asked, min),
        Rule::MinReplicas => apply(LimitKind::MinReplicas, asked, min),
        Rule::MaxReplicas => apply(LimitKind::MaxReplicas, asked, max),
        _ => {}
    }
    if model.fixed().is_some() {
        return limits;
    }
    let missing = model.missing();
    let there = model.desired.saturating_sub(missing);
    let allowed = there.saturating_add(model.need).min(model.desired);
    if model.health.failing() && allowed < model.desired {
        apply(LimitKind::BackOff, model.desired, allowed);
    }
    if model.need > 0 && there < allowed {
        apply(LimitKind::Room, allowed, there);
    }
    limits
}

fn deeds(model: &Model, actions: &[&Action]) -> Vec<Deed> {
    let mut deeds = Vec::new();
    for (&id, replica) in &model.replicas {
        let left = model.told.leaving.contains(&id);
        match replica.phase {
            Phase::Draining if !left => deeds.push(Deed::Drain(id, replica.note.clone())),
            Phase::Ready | Phase::Unready if left => deeds.push(Deed::Resume(id)),
            _ => {}
        }
    }
    deeds.extend(actions.iter().map(|action| match action {
        Action::Start { replica, .. } => Deed::Start(*replica),
        Action::Cut { replica } => Deed::Cut(*replica),
        Action::Stop { replica, why } => Deed::Stop(*replica, why.clone()),
    }));
    deeds
}

/// The stop of a replica that was leaving already is the end of an earlier decision.
fn is_news(deed: &Deed, leaving: &[ReplicaId]) -> bool {
    match deed {
        Deed::Stop(id, _) => !leaving.contains(id),
        Deed::Start(_) | Deed::Drain(..) | Deed::Resume(_) | Deed::Cut(_) => true,
    }
}

fn leaving(model: &Model) -> Vec<ReplicaId> {
    model.replicas.iter().filter(|(_, replica)| replica.leaving()).map(|(&id, _)| id).collect()
}
