// SPDX-License-Identifier: Apache-2.0
//! Who makes room for a model that waits for its first replica, and when at the earliest.
//!
//! An idle replica goes as soon as it has been ready for a moment. A busy one keeps its place for a turn: until the
//! waiting model has waited `TURN_STARTS` of its own starts, at least `TURN_LEAST`, and until it has itself been ready
//! for one of its own starts, at most that turn. So under load on both sides swapping takes the smaller part of the
//! time, and no side starves. A replica that is not ready yet and is waited for is left alone: it has served
//! nobody so far.

use crate::ids::{ModelName, ReplicaId};
use crate::model::{Held, Model, Replica};
use crate::status::Phase;
use crate::units::Micros;

/// A waiting model's turn comes after so many of its own measured starts.
const TURN_STARTS: u64 = 4;
/// And not before it has waited this long.
const TURN_LEAST: Micros = Micros::from_secs(2);
/// An idle replica is left alone for one measured start after it became ready, at most this.
const SETTLE_MOST: Micros = Micros::from_millis(500);

/// How much it costs to let a replica go, cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cost {
    /// It drains already, and would only have to go on.
    Going,
    Idle,
    /// Idle, but `minReplicas` or `preload` wants it there.
    IdleKept,
    Busy,
    BusyKept,
}

/// A replica that could go.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub model: ModelName,
    pub id: ReplicaId,
    pub memory: u64,
    pub cost: Cost,
    /// When its model last had load.
    pub used: Micros,
    /// When it may be let go; `None` is not before something happens.
    pub from: Option<Micros>,
}

/// How long the waiting model lets a busy one keep its place.
pub(crate) fn turn(waiting: &Model) -> Micros {
    Micros(waiting.wake.estimate().p50.0.saturating_mul(TURN_STARTS)).max(TURN_LEAST)
}

/// The replica as a candidate for a model that has waited since `since` with this `turn`; `None` if it goes anyway.
pub(crate) fn candidate(
    (name, model): (&ModelName, &Model),
    (id, replica): (ReplicaId, &Replica),
    (since, turn): (Micros, Micros),
    now: Micros,
) -> Option<Candidate> {
    let (cost, from) = if replica.stays() {
        let kept = model.spec.scale.preload || model.staying() <= model.spec.scale.min_replicas;
        match (idle(model, id, replica), kept) {
            (true, false) => (Cost::Idle, Some(settled(model, replica, now))),
            (true, true) => (Cost::IdleKept, Some(settled(model, replica, now))),
            (false, false) => (Cost::Busy, turned(model, since, turn)),
            (false, true) => (Cost::BusyKept, turned(model, since, turn)),
        }
    } else if replica.phase == Phase::Draining && replica.may_return() {
        (Cost::Going, Some(now))
    } else {
        return None;
    };
    Some(Candidate { model: name.clone(), id, memory: replica.memory.0, cost, used: model.used, from })
}

/// Of candidates that may go now, the cheapest and least recently used that free `needed` bytes, without any that
/// the others make superfluous; `None` if all together do not suffice.
pub(crate) fn cheapest(mut candidates: Vec<Candidate>, needed: u64) -> Option<Vec<Candidate>> {
    candidates.sort_by_key(|c| (c.cost, c.used, c.id));
    let mut freed = 0u64;
    let enough = candidates.iter().position(|c| {
        freed = freed.saturating_add(c.memory);
        freed >= needed
    })?;
    candidates.truncate(enough + 1);
    for i in (0..candidates.len()).rev() {
        let without = freed.saturating_sub(candidates.get(i).map_or(0, |c| c.memory));
        if without >= needed {
            freed = without;
            candidates.remove(i);
        }
    }
    Some(candidates)
}

/// Nobody uses the replica or waits for it. Unknown load is use.
fn idle(model: &Model, id: ReplicaId, replica: &Replica) -> bool {
    let Some(load) = &model.load else { return false };
    if replica.phase == Phase::Starting {
        let ordered = matches!(model.held, Some(Held { ordered: true, ready: None }));
        return load.quiet.is_some() && !ordered;
    }
    load.queued == 0 && model.in_flight_at(id) == 0 && (load.quiet.is_some() || !load.by_replica.is_empty())
}

fn settled(model: &Model, replica: &Replica, now: Micros) -> Micros {
    match replica.phase {
        Phase::Starting => now,
        _ => replica.since.after(model.wake.estimate().p50.min(SETTLE_MOST)),
    }
}

/// When a busy model's time is over; `None` while it has not even begun.
fn turned(model: &Model, since: Micros, turn: Micros) -> Option<Micros> {
    let ready = model.replicas.values().filter(|r| r.stays() && r.phase == Phase::Ready);
    let begun = ready.filter_map(|r| r.ready).min()?;
    let own = model.wake.estimate().p50.min(turn);
    Some(since.after(turn).max(begun.after(own)))
}
