// SPDX-License-Identifier: Apache-2.0
//! From wanted to desired replicas: bounds, peak hold, idling, orders.
//!
//! Out at once, in with patience. The load of this moment is what desired never falls below; the largest want of the
//! window, peaks between reports included, is what it never rises above by patience alone. So a burst that came and
//! went between two reports keeps what exists but starts nothing: nobody waits for it any more. One replica stays
//! until the model has idled, and then everything above `minReplicas` goes at once. Patience never replaces a replica
//! that died: only load, bounds and orders start something.

use serde::{Deserialize, Serialize};

use crate::decision::Reasoning;
use crate::kpa::{self, zero};
use crate::model::{Held, Model};
use crate::units::Micros;
use crate::want::wanted;

/// What decided `desired` last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Rule {
    /// The load of this moment.
    Demand,
    /// The largest want of the window.
    PeakHold,
    /// One replica stays until the model has idled.
    InUse,
    /// Nothing asks for a replica.
    Idle,
    /// The lower bound.
    MinReplicas,
    /// The upper bound.
    MaxReplicas,
    /// No report of the load yet: nothing changes.
    LoadUnknown,
    /// A person asked for a replica.
    WakeOrder,
    /// A person asked for this many.
    ScaleOrder,
    /// The configuration asked for one before the first request.
    Preload,
    /// A person asked for none.
    SleepOrder,
    /// One replica for each address.
    FixedAddresses,
    /// No longer configured.
    Removed,
    /// Sluice ends.
    Shutdown,
    /// `compat: kpa`: bounds, or the way to zero.
    Kpa(zero::Rule),
    /// `compat: kpa`: the decider's answer.
    KpaDecider(kpa::Rule),
}

impl Rule {
    /// Its name in words, as status and tests show it.
    pub fn as_str(self) -> &'static str {
        match self {
            Rule::Demand => "demand",
            Rule::PeakHold => "largest want of the window",
            Rule::InUse => "in use until idle",
            Rule::Idle => "idle",
            Rule::MinReplicas => "minReplicas",
            Rule::MaxReplicas => "maxReplicas",
            Rule::LoadUnknown => "load unknown",
            Rule::WakeOrder => "wake order",
            Rule::ScaleOrder => "scale order",
            Rule::Preload => "preload",
            Rule::SleepOrder => "sleep order",
            Rule::FixedAddresses => "fixed addresses",
            Rule::Removed => "removed",
            Rule::Shutdown => "shutdown",
            Rule::Kpa(rule) => rule.as_str(),
            Rule::KpaDecider(rule) => rule.as_str(),
        }
    }
}

/// Sets `desired` and the rule that decided it.
pub(crate) fn decide(model: &mut Model, now: Micros, shutting_down: bool) {
    model.reasoning = Reasoning::Ordered;
    (model.desired, model.rule) = ordered(model, now, shutting_down).unwrap_or_else(|| by_load(model, now));
}

/// When the model has idled long enough; `None` while it is in use or nothing would change.
pub(crate) fn idle_end(model: &Model) -> Option<Micros> {
    let quiet = model.quiet().filter(|_| model.awake)?;
    let since = match model.held {
        None => quiet,
        Some(Held { ready, .. }) => quiet.max(ready?),
    };
    Some(since.after(model.spec.scale.idle_after.max(Micros(1))))
}

/// Orders and facts that leave load no say.
fn ordered(model: &mut Model, now: Micros, shutting_down: bool) -> Option<(u32, Rule)> {
    if shutting_down {
        return Some((0, Rule::Shutdown));
    }
    if model.removed {
        return Some((0, Rule::Removed));
    }
    if let Some(n) = model.fixed() {
        return Some((n, Rule::FixedAddresses));
    }
    let arrivals = model.asleep?;
    if ends_sleep(model, arrivals) {
        model.asleep = None;
        let ready = model.ready_count();
        model.kpa.iter_mut().for_each(|kpa| kpa.recall(now, ready));
        return None;
    }
    Some((0, Rule::SleepOrder))
}

/// A request that came after the order ends it; one that waited already does once the order has been carried out.
fn ends_sleep(model: &Model, arrivals_then: u64) -> bool {
    let newly = model.load.as_ref().is_some_and(|load| load.arrivals != arrivals_then);
    model.queued() > 0 && (newly || model.replicas.is_empty())
}

fn by_load(model: &mut Model, now: Micros) -> (u32, Rule) {
    if idle_end(model).is_some_and(|end| end <= now) {
        model.forget_use();
        model.desired = 0;
    }
    let ready = model.ready_count();
    let by_kpa = model.kpa.as_mut().map(|kpa| kpa.settle(now, ready));
    let held = model.hold.largest(now, model.spec.scale.window);
    if let Some(count) = model.pinned {
        return (count.min(model.max_replicas()), Rule::ScaleOrder);
    }
    if let (Some(asked), Some(kpa)) = (by_kpa, &model.kpa) {
        let decision = kpa.decision().cloned();
        let rule = match (kpa.rule(), &decision) {
            (zero::Rule::Decider, Some(decision)) => Rule::KpaDecider(decision.rule),
            (rule, _) => Rule::Kpa(rule),
        };
        model.reasoning = Reasoning::Kpa { decision: decision.map(Box::new), bounds: kpa.bounds() };
        return (asked, rule);
    }
    let requests = model.requests();
    let want = requests.map(|requests| wanted(requests, &model.spec.scale));
    let (asked, rule) = match want {
        None => (model.desired, Rule::LoadUnknown),
        Some(want) => patient(model, want, held.max(want)),
    };
    let target_milli = model.spec.scale.target_milli;
    model.reasoning = Reasoning::Sized { requests, target_milli, want, window_largest: held, asked };
    bounded(model, asked, rule)
}

/// What stays of what is there, between the want of this moment and the largest of the window.
fn patient(model: &mut Model, want: u32, held: u32) -> (u32, Rule) {
    model.awake |= want > 0;
    let count = model.desired.min(model.staying()).clamp(want, held);
    let rule = match count {
        0 => Rule::Idle,
        _ if count == want => Rule::Demand,
        _ => Rule::PeakHold,
    };
    (count, rule)
}

/// Applies the bounds and the one replica of a model in use.
fn bounded(model: &Model, count: u32, rule: Rule) -> (u32, Rule) {
    let scale = &model.spec.scale;
    let (min, max) = (scale.min_replicas, model.max_replicas());
    if count > max {
        return (max, Rule::MaxReplicas);
    }
    if count < min {
        return (min, Rule::MinReplicas);
    }
    if count > 0 || !model.awake {
        return (count, rule);
    }
    match model.held {
        Some(Held { ordered: true, .. }) => (1, Rule::WakeOrder),
        Some(Held { ordered: false, .. }) => (1, Rule::Preload),
        None if model.staying() > 0 => (1, Rule::InUse),
        None => (count, rule),
    }
}
