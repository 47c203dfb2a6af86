// SPDX-License-Identifier: Apache-2.0
//! What the admin listener shows, and the traits through which the rest of the process offers it.
//!
//! Every method is called from the admin thread: it must be short and must not block on the data plane.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use sluice_core::{Micros, ModelName, ReplicaId};
use sluice_scaler::{Handle, LogLine};
use tokio::sync::broadcast;

use super::auth::Access;
use super::events::EventLog;
use super::problem::Mistake;
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
    /// The settings of models, and changes to them.
    pub settings: Arc<dyn LiveSettings>,
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

impl ModelLoad {
    /// Requests in flight at this replica.
    pub fn on(&self, replica: ReplicaId) -> u32 {
        self.by_replica.get(&replica).copied().unwrap_or(0)
    }
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
    /// Keys that the API has changed over the file, by model.
    pub changed: BTreeMap<String, Vec<String>>,
}

/// The settings of models, and changes to them while Sluice runs.
#[async_trait]
pub trait LiveSettings: Send + Sync + 'static {
    /// One model's settings in force; `None` without such a model.
    fn view(&self, model: &str) -> Option<SettingsView>;

    /// Checks a change and, unless it is a dry run, puts it in force before it returns.
    async fn change(&self, change: Change) -> Result<Changed, ChangeError>;
}

/// One model's settings, without secrets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SettingsView {
    /// Changes with the settings.
    pub version: String,
    /// Every key with its value, as in the file, defaults filled in.
    pub settings: Value,
    /// Where each value comes from: `file`, `api`, `annotation` or `default`.
    pub origins: BTreeMap<String, String>,
}

/// A change of one model's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The model.
    pub model: String,
    /// A merge patch (RFC 7396) of the model's table in the file; `None` takes every change back.
    pub patch: Option<Value>,
    /// Versions of which the present one must be one; `None` is any.
    pub if_match: Option<Vec<String>>,
    /// Check only.
    pub dry_run: bool,
    /// Name of the token; empty without one.
    pub by: String,
}

/// What a change comes to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changed {
    /// The settings with it.
    pub view: SettingsView,
    /// All keys that the API has changed over the file, with it.
    pub keys: Vec<String>,
    /// Replicas that no longer fit and are replaced.
    pub restarts: Vec<String>,
}

/// Why a change is not taken.
#[derive(Clone, Debug, PartialEq)]
pub enum ChangeError {
    /// No such model.
    UnknownModel,
    /// The present version is this other one.
    OtherVersion(String),
    /// The configuration would not be valid.
    Invalid(Vec<Mistake>),
    /// It could not be written down, for this reason.
    NotKept(String),
    /// Sluice stops.
    Stopping,
}
