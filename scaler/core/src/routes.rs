// SPDX-License-Identifier: Apache-2.0
//! What the gateway is told about one model, and what people are: both are read off the same state.

use crate::due;
use crate::ids::{ModelName, ReplicaId};
use crate::model::{Model, Replica};
use crate::report::{ModelRoute, ModelState, ReplicaRoute};
use crate::status::{ModelStatus, Phase, ReplicaStatus};
use crate::units::Micros;
use crate::want::wanted;

/// The model as the gateway sees it; `None` once a removed one has nothing left that finishes.
pub(crate) fn route(model: &Model) -> Option<ModelRoute> {
    let replicas: Vec<ReplicaRoute> =
        model.replicas.iter().filter_map(|(&id, replica)| replica_route(model, id, replica)).collect();
    if model.removed && replicas.is_empty() {
        return None;
    }
    let fault = match model.count(Phase::Ready) {
        0 => model.health.fault(model.start_attempts()),
        _ => None,
    };
    Some(ModelRoute {
        state: state(model),
        replicas,
        starting: model.count(Phase::Starting),
        desired: model.desired,
        ready_at: ready_at(model),
        wake: model.wake.estimate(),
        fault,
        contended: model.contended,
    })
}

/// The model as people see it.
pub(crate) fn model_status(name: &ModelName, model: &Model) -> ModelStatus {
    ModelStatus {
        name: name.clone(),
        state: state(model),
        ready: model.count(Phase::Ready),
        starting: model.count(Phase::Starting),
        leaving: model.count(Phase::Draining) + model.count(Phase::Stopping),
        wanted: wanted_by_load(model),
        desired: model.desired,
        pinned: model.pinned,
        reason: reason(model),
        wake: model.wake.estimate(),
        fault: model.health.fault(model.start_attempts()),
        next: due::foreseen(model),
    }
}

/// One replica as people see it.
pub(crate) fn replica_status(name: &ModelName, id: ReplicaId, replica: &Replica) -> ReplicaStatus {
    ReplicaStatus {
        id,
        model: name.clone(),
        phase: replica.phase,
        since: replica.since,
        address: replica.address.clone(),
        note: replica.note.clone(),
    }
}

fn wanted_by_load(model: &Model) -> Option<u32> {
    match &model.kpa {
        Some(kpa) => kpa.autoscaler().answer().desired,
        None => model.requests().map(|requests| wanted(requests, &model.spec.scale)),
    }
}

fn replica_route(model: &Model, id: ReplicaId, replica: &Replica) -> Option<ReplicaRoute> {
    let draining = match replica.phase {
        Phase::Ready => false,
        Phase::Unready | Phase::Draining => true,
        Phase::Starting | Phase::Stopping => return None,
    };
    let capacity = match model.spec.scale.container_concurrency {
        0 => u32::MAX,
        limit => limit,
    };
    let (address, ready_since) = (replica.address.clone()?, replica.ready?);
    let drains = replica.drains;
    Some(ReplicaRoute { id, address, capacity, draining, drains, ready_since })
}

fn state(model: &Model) -> ModelState {
    if model.count(Phase::Ready) > 0 {
        ModelState::Ready
    } else if model.desired > 0 || model.count(Phase::Starting) > 0 {
        ModelState::Starting
    } else if model.replicas.is_empty() {
        ModelState::Cold
    } else {
        ModelState::Draining
    }
}

/// When the first starting replica is expected; `None` if none starts or none was measured.
pub(crate) fn ready_at(model: &Model) -> Option<Micros> {
    let starting = model.replicas.values().filter(|r| r.phase == Phase::Starting);
    let first = starting.map(|r| r.started).min();
    let after_pause = || (model.missing() > 0 && model.health.failing()).then(|| model.health.retry_at());
    model.wake.expected(first.or_else(after_pause)?)
}

fn reason(model: &Model) -> String {
    let rule = model.rule.as_str();
    match model.missing() {
        0 => rule.to_owned(),
        _ if model.health.failing() => format!("{rule}; pauses after a failed start"),
        n if model.need > 0 => format!("{rule}; no room for {n} more"),
        _ => rule.to_owned(),
    }
}
