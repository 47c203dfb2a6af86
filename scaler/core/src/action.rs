// SPDX-License-Identifier: Apache-2.0
//! Everything that can come out of the core. Actions are requests: state changes when their outcome comes in
//! as an event. Drains are not actions: they travel in `Routes`, which are to be published before a step's actions
//! are carried out.

use serde::{Deserialize, Serialize};

use crate::ids::{ModelName, ReplicaId};

/// One thing to do, idempotent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Launch a replica, or attach the fixed address number `ordinal` of the model.
    Start {
        /// Its identity from now on.
        replica: ReplicaId,
        /// Of which model.
        model: ModelName,
        /// Smallest number that no live replica of the model has; for fixed addresses the position of the address,
        /// which a replica of a former configuration that still drains may share.
        ordinal: u32,
    },
    /// End what is in flight at the replica: its drain deadline has passed. A `Stop` follows.
    Cut {
        /// Which one.
        replica: ReplicaId,
    },
    /// Stop the replica's processes (or detach the address). Nothing is in flight there any more.
    Stop {
        /// Which one.
        replica: ReplicaId,
        /// Rule that decided, for people.
        why: String,
    },
}
