// SPDX-License-Identifier: Apache-2.0
//! The core's state as people see it: what the admin API lists.

use serde::{Deserialize, Serialize};

use crate::ids::{ModelName, ReplicaId};
use crate::report::{Address, Fault, ModelState, WakeEstimate};
use crate::units::Micros;

/// All models and replicas at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FleetStatus {
    /// When it was taken.
    pub at: Micros,
    /// By name.
    pub models: Vec<ModelStatus>,
    /// By id. Includes replicas of models that are no longer configured.
    pub replicas: Vec<ReplicaStatus>,
}

/// One configured model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelStatus {
    /// Its name.
    pub name: ModelName,
    /// What a client may be told.
    pub state: ModelState,
    /// Replicas that take requests.
    pub ready: u32,
    /// Replicas on their way.
    pub starting: u32,
    /// Replicas that finish or stop.
    pub leaving: u32,
    /// Replicas wanted from demand alone; `None` while the load is unknown.
    pub wanted: Option<u32>,
    /// Replicas wanted after all rules.
    pub desired: u32,
    /// Replicas that a person has ordered, until the model has idled.
    pub pinned: Option<u32>,
    /// Name of the rule that decided `desired` last, in words.
    pub reason: String,
    /// Measured starts.
    pub wake: WakeEstimate,
    /// Set while starts fail.
    pub fault: Option<Fault>,
    /// What time alone brings next; `None` where that is nothing or not known.
    pub next: Option<Next>,
}

/// A change that comes if nothing else happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Next {
    /// Which.
    pub what: Coming,
    /// When; of a start by measurement, so that it may have passed.
    pub at: Micros,
}

/// What may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Coming {
    /// The first replica that starts is ready: nine of ten starts take no longer.
    Ready,
    /// A larger want leaves the window, or the model has idled and has `minReplicas`: fewer replicas are wanted.
    Fewer,
    /// The model has idled and goes to zero.
    Asleep,
}

/// One replica.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplicaStatus {
    /// Its identity.
    pub id: ReplicaId,
    /// Its model.
    pub model: ModelName,
    /// Where it is in its life.
    pub phase: Phase,
    /// Since when it has been in this phase.
    pub since: Micros,
    /// Known once it was ready.
    pub address: Option<Address>,
    /// Why it is not ready, or why it goes, in words; empty otherwise.
    pub note: String,
}

/// A replica's life, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Launched, not ready yet.
    Starting,
    /// Takes requests.
    Ready,
    /// Was ready, fails its probe.
    Unready,
    /// Takes nothing new, finishes what it has.
    Draining,
    /// Told to stop; its end is not seen yet.
    Stopping,
}
