// SPDX-License-Identifier: Apache-2.0
//! The difference between desired and existing replicas of one model: who leaves, who is taken back, how many starts
//! are needed. Whether a start has room is `residency`'s affair.
//!
//! Who leaves first: what is not ready, newest first; then the idle; then the least loaded. Replicas of a former
//! generation stay until as many new ones are ready; the new ones may be one more than `maxReplicas` for that. Only
//! where exclusive groups or memory leave no room for both do the former ones go first.

use std::cmp::Reverse;

use crate::ids::ReplicaId;
use crate::lifecycle::{self, Step};
use crate::model::{Model, Replica};
use crate::status::Phase;
use crate::units::Micros;

const CONFIGURATION_CHANGED: &str = "configuration changed";

/// Brings one launched model's replicas towards `desired`; sets `need`.
pub(crate) fn launched(model: &mut Model, step: &mut Step<'_>) {
    release(model, step, "", |_, r| !r.stays());
    let outdated = select(model, |m, r| m.outdated(r) && r.phase != Phase::Ready);
    release(model, step, CONFIGURATION_CHANGED, |id, _| outdated.contains(&id));
    let fresh = select(model, |m, r| r.stays() && !m.outdated(r));
    let surplus = first_to_leave(model, fresh, model.desired as usize);
    release(model, step, model.rule.as_str(), |id, _| surplus.contains(&id));
    take_back(model, step.now);
    let surplus = outdated_to_leave(model, step.now);
    release(model, step, CONFIGURATION_CHANGED, |id, _| surplus.contains(&id));
    let room = model.most_staying().saturating_sub(model.staying());
    model.need = starts_wanted(model, step.now).min(room);
}

/// Attaches and detaches one model's fixed addresses: one replica per ordinal below `desired`. Returns the ordinals
/// to start.
pub(crate) fn fixed(model: &mut Model, step: &mut Step<'_>) -> Vec<u32> {
    model.need = 0;
    let desired = model.desired;
    let outdated = select(model, |m, r| m.outdated(r));
    release(model, step, CONFIGURATION_CHANGED, |id, _| outdated.contains(&id));
    release(model, step, model.rule.as_str(), |_, r| r.ordinal >= desired);
    take_back(model, step.now);
    if step.now < model.health.retry_at() {
        return Vec::new();
    }
    // A former replica may be the same address: with a limit, both at once would exceed it.
    let limited = model.spec.scale.container_concurrency > 0;
    let taken = |r: &Replica| limited || (r.stays() && !model.outdated(r));
    (0..desired).filter(|&n| !model.replicas.values().any(|r| r.ordinal == n && taken(r))).collect()
}

fn select(model: &Model, which: impl Fn(&Model, &Replica) -> bool) -> Vec<ReplicaId> {
    model.replicas.iter().filter(|(_, r)| which(model, r)).map(|(&id, _)| id).collect()
}

/// Lets go what `which` names and does not leave yet.
fn release(model: &mut Model, step: &mut Step<'_>, why: &str, which: impl Fn(ReplicaId, &Replica) -> bool) {
    let life = &model.spec.life;
    for (&id, replica) in &mut model.replicas {
        if replica.leaving() || !which(id, replica) {
            continue;
        }
        let own = match &replica.evicted_for {
            _ if replica.doomed => replica.note.clone(),
            Some(other) => format!("makes room for {other}"),
            None => why.to_owned(),
        };
        lifecycle::leave(id, replica, life, &own, step);
    }
}

/// Of `candidates`, those to let go so that `keep` are left.
fn first_to_leave(model: &Model, mut candidates: Vec<ReplicaId>, keep: usize) -> Vec<ReplicaId> {
    let go = candidates.len().saturating_sub(keep);
    candidates.sort_by_key(|&id| {
        let ready = model.replicas.get(&id).is_some_and(|r| r.phase != Phase::Starting);
        (ready, model.in_flight_at(id), Reverse(id))
    });
    candidates.truncate(go);
    candidates
}

/// Calls drains off where more is desired than stays: the busiest first, as it would take longest to go.
fn take_back(model: &mut Model, now: Micros) {
    let fresh = select(model, |m, r| r.stays() && !m.outdated(r)).len();
    let mut able = select(model, |m, r| r.phase == Phase::Draining && r.may_return() && !m.outdated(r));
    able.sort_by_key(|&id| (Reverse(model.in_flight_at(id)), id));
    able.truncate((model.desired as usize).saturating_sub(fresh));
    for id in able {
        if let Some(replica) = model.replicas.get_mut(&id) {
            lifecycle::resume(replica, now);
        }
    }
}

/// Ready replicas of a former generation that are no longer needed, or that stand in the way of new ones.
fn outdated_to_leave(model: &Model, now: Micros) -> Vec<ReplicaId> {
    let old = select(model, |m, r| r.stays() && m.outdated(r));
    if old.is_empty() {
        return old;
    }
    let ready = select(model, |m, r| r.phase == Phase::Ready && r.stays() && !m.outdated(r)).len();
    let starts = if model.surges() { 0 } else { starts_wanted(model, now) };
    let over = (model.staying() + starts).saturating_sub(model.most_staying()) as usize;
    let keep = (model.desired as usize).saturating_sub(ready).min(old.len().saturating_sub(over));
    first_to_leave(model, old, keep)
}

/// Starts that demand asks for and failures allow.
fn starts_wanted(model: &Model, now: Micros) -> u32 {
    let missing = model.missing();
    if missing == 0 || now < model.health.retry_at() {
        return 0;
    }
    match model.health.failing() {
        true => 1u32.saturating_sub(model.count(Phase::Starting)),
        false => missing,
    }
}
