// SPDX-License-Identifier: Apache-2.0
//! What gateway and scaler tell each other, as plain data: `Demand` one way, `Routes` the other.
//!
//! Counted once, in the gateway. Cumulative counters only ever grow, so a lost report loses nothing.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{ModelName, ReplicaId};
use crate::units::Micros;

/// One gateway's view of one model's load at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    /// The model.
    pub model: ModelName,
    /// Requests sent to replicas and not finished.
    pub in_flight: u32,
    /// Requests waiting in the gateway for a replica.
    pub queued: u32,
    /// Largest `in_flight + queued` since the previous report.
    pub peak: u32,
    /// Requests that came in for the model, ever.
    pub arrivals: u64,
    /// Requests that ended after having had a replica, ever.
    pub completions: u64,
    /// Requests whose client left while they waited, ever.
    pub abandons: u64,
    /// Time integral of `in_flight`, in request-microseconds, ever.
    pub in_flight_micros: u64,
    /// Time integral of `queued`, in request-microseconds, ever.
    pub queued_micros: u64,
    /// When the last request left (its last byte); `None` if there was none yet or some are there now.
    pub idle_since: Option<Micros>,
    /// Requests in flight at each replica that is or was routed to; absent replicas have none.
    pub by_replica: BTreeMap<ReplicaId, u32>,
}

/// What the gateway needs to route: an immutable snapshot, replaced as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Routes {
    /// Grows with every change.
    pub version: u64,
    /// Every configured model, with or without replicas. A model that is no longer configured stays here, with
    /// `desired` 0 and every replica `draining`, until the last of these is drained: whether a model exists is
    /// for the settings to say, not for this map.
    pub models: BTreeMap<ModelName, ModelRoute>,
}

/// One model's replicas and prospects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelRoute {
    /// What a client may be told.
    pub state: ModelState,
    /// Replicas to send to, and those that finish what they have (`draining`).
    pub replicas: Vec<ReplicaRoute>,
    /// Replicas that were started and are not ready yet.
    pub starting: u32,
    /// Replicas wanted after all rules.
    pub desired: u32,
    /// When the next replica is expected to be ready, from measured starts; `None` if unknown or none is coming.
    pub ready_at: Option<Micros>,
    /// Measured time from start to readiness.
    pub wake: WakeEstimate,
    /// Set while starts fail and no replica takes requests.
    pub fault: Option<Fault>,
    /// Another model waits for what this one occupies: tell the scaler as soon as it falls idle.
    pub contended: bool,
}

/// State of a model as told in `x-sluice-model-state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelState {
    /// No process.
    Cold,
    /// A replica is on its way and none is ready.
    Starting,
    /// Processes exist, weights are off the device.
    Slept,
    /// At least one replica takes requests.
    Ready,
    /// The last replicas finish what they have.
    Draining,
}

impl ModelState {
    /// The word used in headers and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            ModelState::Cold => "cold",
            ModelState::Starting => "starting",
            ModelState::Slept => "slept",
            ModelState::Ready => "ready",
            ModelState::Draining => "draining",
        }
    }
}

/// One routable replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaRoute {
    /// Its identity.
    pub id: ReplicaId,
    /// Where it listens.
    pub address: Address,
    /// Most requests at once; `u32::MAX` is unlimited.
    pub capacity: u32,
    /// Takes nothing new; the gateway reports `Drained` when nothing is in flight there. May become false again:
    /// a drain is called off when demand returns, and a fixed address that failed its probe is ready again.
    pub draining: bool,
    /// How many drains of it have begun, for `Drained`.
    pub drains: u32,
    /// When it became ready: a fresh replica is loaded slowly.
    pub ready_since: Micros,
}

/// Nothing is in flight any more at a replica that drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    /// The replica.
    pub replica: ReplicaId,
    /// Which of its drains this is about: `ReplicaRoute::drains` of the routes that asked for it. A report about a
    /// drain that was called off says nothing about a later one.
    pub drain: u32,
}

/// A replica's address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Address {
    /// Resolved, so that the data plane never asks a name server.
    pub socket: SocketAddr,
    /// Host (and port if not the scheme's own) to name in `Host` and SNI; `None` keeps the client's `Host`.
    pub host: Option<Arc<str>>,
    /// Speak TLS to it.
    pub tls: bool,
}

/// Percentiles of the last measured starts; all zero and `samples` 0 before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeEstimate {
    /// How many starts it rests on.
    pub samples: u32,
    /// Half of the starts took at most this.
    pub p50: Micros,
    /// Nine of ten starts took at most this.
    pub p90: Micros,
}

/// Why a model has no replica although it should.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Grows with every failed start; requests that waited when it grew past the allowed attempts are answered.
    pub failures: u32,
    /// The waiting requests are to be answered with `cause` now, not held for the next attempt.
    pub answer_waiters: bool,
    /// Cause in one line, for the client too: exit status and last error lines, without secrets.
    pub cause: String,
    /// No start before this.
    pub retry_at: Micros,
}
