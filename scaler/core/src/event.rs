// SPDX-License-Identifier: Apache-2.0
//! Everything that can come into the core.

use serde::{Deserialize, Serialize};

use crate::ids::{ModelName, ReplicaId};
use crate::kpa::{Averages, Report};
use crate::report::{Address, Demand, Drained};
use crate::spec::FleetSpec;

/// One input of `Core::step`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// The configuration, at the start and after each reload.
    Configure(FleetSpec),
    /// Load of one model has changed. A model never reported has unknown load, which is not zero.
    Demand(Demand),
    /// The backend saw something happen to a replica.
    Replica(ReplicaId, ReplicaEvent),
    /// The gateway has nothing in flight any more at a replica that it was told to drain.
    Drained(Drained),
    /// A person asked for at least one replica now.
    Wake(ModelName),
    /// A person asked for zero replicas now, whatever `minReplicas` says, until the next request or wake.
    Sleep(ModelName),
    /// A person asked for this many replicas now (0 is `Sleep`), within `maxReplicas` and whatever demand and
    /// `minReplicas` say, until the model has idled; `None` gives the say back to them.
    Scale(ModelName, Option<u32>),
    /// A person asked that this replica take nothing new, finish and go. What demand wants is started anew.
    Drain(ReplicaId),
    /// The same for every replica that the model has now.
    DrainModel(ModelName),
    /// What is told of a model whose replicas run elsewhere.
    Elsewhere(ModelName, Elsewhere),
    /// Sluice ends: drain and stop everything, start nothing.
    Shutdown,
    /// Time has passed.
    Tick,
}

/// What is told of a model whose replicas run elsewhere. The load part is for `compat: kpa` alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Elsewhere {
    /// So many replicas are ready; `None`: that cannot be said. Nothing is decided before the first one.
    Ready(Option<u32>),
    /// Load that was counted there.
    Report {
        /// The second it was counted in, on the core's time line.
        second: i64,
        /// What was counted.
        report: Report,
    },
    /// Averages that were made there, to be decided by from now on.
    Averages(Averages),
    /// Decide now: whoever tells keeps the pace.
    Decide,
}

/// What the backend tells about one replica, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicaEvent {
    /// It answered its readiness probe often enough; first time or again.
    Ready(Address),
    /// It was ready and fails its probe now; the process, if any, still exists.
    NotReady {
        /// In one line, for people.
        why: String,
    },
    /// Its process group is gone (or never came to be), or the fixed address was detached. Nothing of it is left.
    Gone {
        /// Exit status and last error lines in one line, for people, without secrets.
        cause: String,
    },
}
