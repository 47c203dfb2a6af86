// SPDX-License-Identifier: Apache-2.0
//! What the admin listener shows, and the traits through which the rest of the process offers it.
//!
//! Every method is called from the admin thread: it must be short and must not block on the data plane.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_core::{Micros, ModelName, ReplicaId};
use sluice_scaler::{Handle, LogLine};
use tokio::sync::broadcast;

use super::auth::Access;
use super::events::EventLog;
use super::readiness::Readiness;
use crate::telemetry::Format;

/// Everything the admin listener needs; cheap to clone.
#[derive(Clone)]
pub struct AdminState {
    /// The scaler.
    pub handle: Handle,
    /// Whether the process wants traffic.
    pub readiness: Arc<Readiness>,
    /// The metrics, as of now. Called on a thread of its own, so it may take a while.
    pub metrics: Arc<dyn Fn(Format) -> String + Send + Sync>,
    /// What replicas print.
    pub logs: Arc<dyn LogSource>,
    /// The configuration in force.
    pub loaded: Arc<dyn ConfigInfo>,
    /// The data plane's counters.
    pub model_load: Arc<dyn LoadView>,
    /// What has changed.
    pub events: Arc<EventLog>,
    /// Who may do what.
    pub access: Access,
}

/// One model's load at this moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelLoad {
    /// Requests sent to replicas and not finished.
    pub in_flight: u32,
    /// Requests waiting for a replica.
    pub queued: u32,
    /// When the last request left; `None` if there was none yet or some are there now.
    pub idle_since: Option<Micros>,
    /// Requests in flight at each replica; absent replicas have none.
    pub by_replica: BTreeMap<ReplicaId, u32>,
}

/// The data plane's counters, read without changing them.
pub trait LoadView: Send + Sync + 'static {
    /// The model's load; `None` when the data plane does not know the model (yet).
    fn load(&self, model: &ModelName) -> Option<ModelLoad>;
}

/// What replicas print, kept in memory.
pub trait LogSource: Send + Sync + 'static {
    /// The last `lines` lines of all replicas of the model, oldest first, and every line after them.
    fn tail(&self, model: &ModelName, lines: usize) -> (Vec<LogLine>, broadcast::Receiver<LogLine>);
}

/// The configuration in force and the fate of the last change to it.
pub trait ConfigInfo: Send + Sync + 'static {
    /// The present picture.
    fn report(&self) -> ConfigReport;
}

/// See [`ConfigInfo`]. Carries no secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigReport {
    /// The file it was read from.
    pub file: String,
    /// Digest of the file's content, such as `sha256:…`.
    pub digest: String,
    /// When it came into force, in milliseconds since the Unix epoch.
    pub loaded_at_unix_ms: u64,
    /// When a reload was last tried; `None` before the first.
    pub reloaded_at_unix_ms: Option<u64>,
    /// Why the last reload was refused, every reason; empty when it was taken or there was none.
    pub errors: Vec<String>,
}
