// SPDX-License-Identifier: Apache-2.0
//! Log events of replicas, with stable names: what was ordered, what was seen, and what the two mean together, which
//! is also counted.
//!
//! Must not influence anything: it is told and forgets.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_core::{Action, Micros, ModelName, ReplicaEvent, ReplicaId};

use crate::tally::Tally;

/// What is remembered of each living replica to put its events into words.
pub(crate) struct Chronicle {
    replicas: BTreeMap<ReplicaId, Known>,
    tally: Arc<Tally>,
}

struct Known {
    model: ModelName,
    started: Micros,
    ready: bool,
    stopping: bool,
}

impl Chronicle {
    pub(crate) fn new(tally: Arc<Tally>) -> Chronicle {
        Chronicle { replicas: BTreeMap::new(), tally }
    }

    pub(crate) fn ordered(&mut self, action: &Action, now: Micros) {
        match action {
            Action::Start { replica, model, .. } => {
                tracing::info!(%model, %replica, "replica_starting");
                let known = Known { model: model.clone(), started: now, ready: false, stopping: false };
                self.replicas.insert(*replica, known);
            }
            Action::Cut { replica } => {
                tracing::warn!(model = self.model(*replica), %replica, "requests_cut");
            }
            Action::Stop { replica, why } => {
                if let Some(known) = self.replicas.get_mut(replica)
                    && !std::mem::replace(&mut known.stopping, true)
                {
                    tracing::info!(model = %known.model, %replica, why, "replica_stopping");
                }
            }
        }
    }

    pub(crate) fn seen(&mut self, replica: ReplicaId, event: &ReplicaEvent, now: Micros) {
        match event {
            ReplicaEvent::Ready(address) => {
                let Some(known) = self.replicas.get_mut(&replica) else { return };
                let model = &known.model;
                if std::mem::replace(&mut known.ready, true) {
                    tracing::info!(%model, %replica, address = %address.socket, "replica_ready_again");
                } else {
                    let after_ms = now.since(known.started).as_millis();
                    self.tally.ready(model);
                    tracing::info!(%model, %replica, address = %address.socket, after_ms, "replica_ready");
                }
            }
            ReplicaEvent::NotReady { why } => {
                let Some(known) = self.replicas.get(&replica) else { return };
                match known.ready {
                    true => tracing::warn!(model = %known.model, %replica, why, "replica_unready"),
                    false => tracing::debug!(model = %known.model, %replica, why, "replica_not_ready_yet"),
                }
            }
            ReplicaEvent::Gone { cause } => {
                let Some(Known { model, ready, stopping, .. }) = self.replicas.remove(&replica) else {
                    return;
                };
                match (stopping, ready) {
                    (true, _) => {}
                    (false, false) => self.tally.failed(&model),
                    (false, true) => self.tally.died(&model),
                }
                match (stopping, ready) {
                    (true, _) => tracing::info!(%model, %replica, cause, "replica_stopped"),
                    (false, false) => tracing::warn!(%model, %replica, cause, "start_failed"),
                    (false, true) => tracing::warn!(%model, %replica, cause, "replica_died"),
                }
            }
        }
    }

    fn model(&self, replica: ReplicaId) -> &str {
        self.replicas.get(&replica).map_or("", |known| known.model.as_str())
    }
}
