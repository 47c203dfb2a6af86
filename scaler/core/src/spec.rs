// SPDX-License-Identifier: Apache-2.0
//! What the owner of a model asked for, as the core needs it: validated, typed, with every default filled in.
//!
//! Must not know files, YAML or annotations, nor how a replica is launched: `generation` stands for that.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::ModelName;
use crate::kpa;
use crate::units::{Bytes, Micros};

/// Everything the core manages. Replaces the former one as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetSpec {
    /// The models, by name.
    pub models: BTreeMap<ModelName, ModelSpec>,
    /// Memory that all launched replicas together may use; `None` is unlimited. A replica counts with
    /// its model's `memory` from its start until its process is gone.
    pub memory: Option<Bytes>,
}

/// One model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelSpec {
    /// Changes when a running replica no longer fits the configuration (command, environment, address):
    /// replicas of another generation are replaced.
    pub generation: u64,
    /// Whether Sluice starts replicas itself.
    pub source: Source,
    /// How many replicas.
    pub scale: ScaleSpec,
    /// How long starting, draining and failing may take.
    pub life: LifeSpec,
    /// Memory one replica needs; 0 if not declared.
    pub memory: Bytes,
    /// Names of exclusive groups: of the models in one group at most one has live processes at a time.
    pub groups: Vec<String>,
}

/// Where replicas come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// The backend launches them.
    Launched,
    /// That many fixed addresses that somebody else runs; they are attached and probed, never scaled.
    Fixed(u32),
    /// Somebody else starts and stops as many as are desired, and tells how many are ready.
    Elsewhere,
}

/// Whose arithmetic makes replicas of load.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Profile {
    /// Sluice's own.
    #[default]
    Sized,
    /// Knative's, with all of its settings; those of `ScaleSpec` that say how many replicas are wanted have no say.
    Kpa(Box<kpa::Settings>),
}

/// The scaling keys (KServe's names in the configuration).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaleSpec {
    /// `minReplicas`: 0 lets the model go to zero.
    pub min_replicas: u32,
    /// `maxReplicas`, at least 1 and at least `min_replicas`.
    pub max_replicas: u32,
    /// `scaleTarget` in thousandths of a request in flight or queued per replica, at least 1.
    pub target_milli: u64,
    /// `containerConcurrency`: hard limit per replica; 0 is unlimited.
    pub container_concurrency: u32,
    /// With nothing in flight or queued for this long since the last byte, a `min_replicas: 0` model goes to zero.
    pub idle_after: Micros,
    /// Scaling in follows the largest want of this window; scaling out does not wait.
    pub window: Micros,
    /// Start one replica at once although nothing asked for it yet.
    pub preload: bool,
    /// How load becomes replicas.
    pub profile: Profile,
}

/// Deadlines and failure handling of one model's replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LifeSpec {
    /// From start to readiness; later the start has failed.
    pub start_deadline: Micros,
    /// From the drain's begin until what is still in flight is cut off and the replica is stopped.
    pub drain_deadline: Micros,
    /// From the stop order until the backend must have reported the end; it kills in between.
    pub stop_deadline: Micros,
    /// From this many failed starts in a row on, waiting requests are told the cause at each failure.
    pub start_attempts: u32,
    /// Pause after the first failed start; doubles with each further one.
    pub backoff_first: Micros,
    /// Longest such pause.
    pub backoff_max: Micros,
}
