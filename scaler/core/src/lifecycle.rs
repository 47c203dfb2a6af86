// SPDX-License-Identifier: Apache-2.0
//! One replica's way from start to gone: what its events and its deadlines do.
//!
//! ```text
//! Starting ──Ready──▶ Ready ──drain──▶ Draining ──Drained / deadline──▶ Stopping ──Gone──▶ (forgotten)
//!     │                ▲ │ ▲               │                                ▲
//!     │   (fixed only) │ ▼ └───resumed─────┘                                │
//!     │              Unready                                                │
//!     └──deadline, not needed──────────────────────────────────────────────▶┘
//! ```
//! `Gone` is taken in every phase. A stop is ordered again until it comes.

use crate::action::Action;
use crate::event::ReplicaEvent;
use crate::ids::ReplicaId;
use crate::model::{Model, Replica};
use crate::report::{Address, Drained};
use crate::spec::LifeSpec;
use crate::status::Phase;
use crate::units::Micros;

/// On top of the stop deadline before a stop is ordered again: the backend is given time to report.
const STOP_GRACE: Micros = Micros::from_secs(1);

/// A fixed address that is not ready for so long is a failure that waiting requests are told, again and again.
const FIXED_PATIENCE: Micros = Micros::from_secs(10);

/// What a step works with.
pub(crate) struct Step<'a> {
    pub now: Micros,
    pub actions: &'a mut Vec<Action>,
}

/// Takes in what the backend saw. Returns the replica if it is gone and was forgotten.
pub(crate) fn observe(
    model: &mut Model,
    id: ReplicaId,
    event: &ReplicaEvent,
    now: Micros,
) -> Option<Replica> {
    match event {
        ReplicaEvent::Ready(address) => became_ready(model, id, address, now),
        ReplicaEvent::NotReady { why } => became_unready(model, id, why, now),
        ReplicaEvent::Gone { cause } => return gone(model, id, cause, now),
    }
    None
}

/// Takes in that nothing is in flight at a draining replica any more.
pub(crate) fn drained(model: &mut Model, told: Drained, step: &mut Step<'_>) {
    let Drained { replica: id, drain } = told;
    let of_this_drain = |r: &&mut Replica| r.phase == Phase::Draining && r.drains == drain;
    if let Some(replica) = model.replicas.get_mut(&id).filter(of_this_drain) {
        let why = replica.note.clone();
        stop(id, replica, &why, step);
    }
}

/// Carries out the deadlines that have passed.
pub(crate) fn expire(model: &mut Model, step: &mut Step<'_>) {
    let now = step.now;
    let life = model.spec.life.clone();
    model.settle_proof(now);
    for (&id, replica) in &mut model.replicas {
        if deadline(replica, &life).is_none_or(|due| due > now) {
            continue;
        }
        match replica.phase {
            Phase::Starting | Phase::Unready if replica.fixed => {
                let why = if replica.note.is_empty() { "no answer to its probe" } else { &replica.note };
                let cause = format!("its address is not ready: {why}");
                model.health.start_failed(replica.asked, now, &life, cause);
                replica.asked = now;
            }
            Phase::Starting => {
                let cause = match replica.note.as_str() {
                    "" => format!("not ready within {}", seconds(life.start_deadline)),
                    note => format!("not ready within {}: {note}", seconds(life.start_deadline)),
                };
                model.health.start_failed(replica.started, now, &life, cause.clone());
                stop(id, replica, &cause, step);
            }
            Phase::Draining => cut(id, replica, step),
            Phase::Stopping => order_stop(id, replica, step),
            Phase::Ready | Phase::Unready => {}
        }
    }
}

/// When the replica's present phase must be over.
pub(crate) fn deadline(replica: &Replica, life: &LifeSpec) -> Option<Micros> {
    match replica.phase {
        Phase::Starting | Phase::Unready if replica.fixed => {
            Some(replica.asked.after(life.start_deadline.min(FIXED_PATIENCE)))
        }
        Phase::Starting => Some(replica.started.after(life.start_deadline)),
        Phase::Draining => Some(replica.since.after(life.drain_deadline)),
        Phase::Stopping => Some(replica.asked.after(life.stop_deadline).after(STOP_GRACE)),
        Phase::Ready | Phase::Unready => None,
    }
}

/// Lets a replica go: one that had requests finishes them first, one that had none is stopped.
pub(crate) fn leave(id: ReplicaId, replica: &mut Replica, life: &LifeSpec, why: &str, step: &mut Step<'_>) {
    match replica.phase {
        Phase::Starting => stop(id, replica, why, step),
        Phase::Ready | Phase::Unready => {
            replica.drains = replica.drains.wrapping_add(1);
            replica.enter(Phase::Draining, step.now, why);
            if life.drain_deadline == Micros::ZERO {
                cut(id, replica, step);
            }
        }
        Phase::Draining | Phase::Stopping => {}
    }
}

/// Calls a drain off.
pub(crate) fn resume(replica: &mut Replica, now: Micros) {
    let phase = if replica.healthy { Phase::Ready } else { Phase::Unready };
    replica.enter(phase, now, "");
}

fn became_ready(model: &mut Model, id: ReplicaId, address: &Address, now: Micros) {
    let completions = model.load.as_ref().map_or(0, |load| load.completions);
    let Some(replica) = model.replicas.get_mut(&id) else { return };
    replica.healthy = true;
    match replica.phase {
        Phase::Starting | Phase::Unready => {}
        Phase::Ready => {
            replica.address = Some(address.clone());
            return;
        }
        Phase::Draining | Phase::Stopping => return,
    }
    if replica.ready.is_none() {
        model.wake.add(now.since(replica.started));
    }
    replica.address = Some(address.clone());
    replica.ready = Some(now);
    replica.completions = completions;
    replica.enter(Phase::Ready, now, "");
    model.health.ready();
}

fn became_unready(model: &mut Model, id: ReplicaId, why: &str, now: Micros) {
    model.settle_proof(now);
    let Some(replica) = model.replicas.get_mut(&id) else { return };
    replica.healthy = false;
    match replica.phase {
        Phase::Starting => replica.note = why.to_owned(),
        Phase::Ready if replica.fixed => {
            replica.asked = now;
            replica.enter(Phase::Unready, now, why);
        }
        Phase::Ready => {
            replica.doomed = true;
            replica.note = format!("not ready any more: {why}");
            model.health.died(replica.proved(now), now, &model.spec.life, replica.note.clone());
        }
        Phase::Unready | Phase::Draining | Phase::Stopping => {}
    }
}

fn gone(model: &mut Model, id: ReplicaId, cause: &str, now: Micros) -> Option<Replica> {
    model.settle_proof(now);
    let replica = model.replicas.remove(&id)?;
    let life = &model.spec.life;
    match replica.phase {
        Phase::Starting => model.health.start_failed(replica.started, now, life, cause.to_owned()),
        // A doomed replica's failure was counted when it was seen to hang.
        Phase::Ready | Phase::Unready if !replica.doomed => {
            let lived = seconds(now.since(replica.ready.unwrap_or(replica.since)));
            let told = format!("ended {lived} after it was ready: {cause}");
            model.health.died(replica.proved(now), now, life, told);
        }
        _ => {}
    }
    Some(replica)
}

fn cut(id: ReplicaId, replica: &mut Replica, step: &mut Step<'_>) {
    step.actions.push(Action::Cut { replica: id });
    let why = format!("{}; drain deadline passed", replica.note);
    stop(id, replica, &why, step);
}

fn stop(id: ReplicaId, replica: &mut Replica, why: &str, step: &mut Step<'_>) {
    replica.enter(Phase::Stopping, step.now, why);
    order_stop(id, replica, step);
}

fn order_stop(id: ReplicaId, replica: &mut Replica, step: &mut Step<'_>) {
    replica.asked = step.now;
    step.actions.push(Action::Stop { replica: id, why: replica.note.clone() });
}

/// A duration for people: `30 s`, `1.5 s`, `200 ms`.
fn seconds(d: Micros) -> String {
    match d.as_millis() {
        ms if ms < 1_000 => format!("{ms} ms"),
        ms if ms % 1_000 == 0 => format!("{} s", ms / 1_000),
        ms => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
    }
}
