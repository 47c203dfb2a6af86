// SPDX-License-Identifier: Apache-2.0
//! The JSON documents of the admin API.
//!
//! Owns their field names, which are public. Built field by field from the scaler's and the data plane's own types, so
//! that those may change without the API changing.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_core::{Action, FleetStatus, ModelName, ModelStatus, Phase, ReplicaStatus};

use sluice_scaler::logs::Stream;
use sluice_scaler::{LogLine, Trial};

use super::clock::{Moment, rfc3339};
use super::state::{ConfigReport, LoadView, ModelLoad, SettingsView};

/// A list of documents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct List<T> {
    /// In the order of their names.
    pub items: Vec<T>,
    /// Where the next page begins, for `cursor`; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// One configured model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    /// Its name.
    pub name: String,
    /// `cold`, `starting`, `slept`, `ready` or `draining`.
    pub state: String,
    /// Replicas that take requests.
    pub ready: u32,
    /// Replicas on their way.
    pub starting: u32,
    /// Replicas that finish or stop.
    pub leaving: u32,
    /// Replicas wanted from demand alone; null while the load is unknown.
    pub wanted: Option<u32>,
    /// Replicas wanted after all rules.
    pub desired: u32,
    /// Replicas ordered by `:scale`; null when demand decides.
    #[serde(default)]
    pub pinned: Option<u32>,
    /// Why `desired` is what it is.
    pub reason: String,
    /// Requests at replicas; null while the load is unknown.
    pub in_flight: Option<u32>,
    /// Requests waiting for a replica; null while the load is unknown.
    pub queued: Option<u32>,
    /// Milliseconds since the last request left; null when one is there or none ever came.
    pub idle_ms: Option<u64>,
    /// Measured starts.
    pub wake: Wake,
    /// Set while starts fail.
    pub fault: Option<Fault>,
    /// What comes next if nothing else happens; null where that is nothing or not known.
    #[serde(default)]
    pub next: Option<Coming>,
}

/// A change that time alone brings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Coming {
    /// `ready`: a replica that starts, by measured starts; `fewer`: replicas; `asleep`: the model goes to zero.
    pub what: String,
    /// Milliseconds until then; 0 if it is overdue.
    pub in_ms: u64,
}

/// How long starts take, from the latest ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Wake {
    /// Half of the starts took at most this; null before the first.
    pub p50_ms: Option<u64>,
    /// Nine of ten starts took at most this; null before the first.
    pub p90_ms: Option<u64>,
    /// How many starts that rests on.
    pub samples: u32,
}

/// Why a model has no replica although it should.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Fault {
    /// In one line.
    pub cause: String,
    /// Failed starts in a row.
    pub failures: u32,
    /// Waiting requests are answered with the cause instead of being held for the next attempt.
    pub answers_waiters: bool,
    /// Milliseconds until the next attempt.
    pub retry_in_ms: u64,
}

/// One replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Replica {
    /// Its identity, such as `r7`.
    pub id: String,
    /// Its model.
    pub model: String,
    /// `starting`, `ready`, `unready`, `draining` or `stopping`.
    pub phase: String,
    /// When it entered the phase, RFC 3339 in UTC.
    pub since: String,
    /// Milliseconds since then.
    pub age_ms: u64,
    /// Where it listens; null until it was ready.
    pub address: Option<String>,
    /// Requests in flight there; null while the load is unknown.
    pub in_flight: Option<u32>,
    /// Why it is not ready, or why it goes; empty otherwise.
    pub note: String,
}

/// What an order would change, from `?dryRun=true`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Effects {
    /// The model as it would be right after the order.
    pub model: Model,
    /// Replicas that would be started at once, by model.
    pub starts: BTreeMap<String, u32>,
    /// Replicas that would begin to drain or stop, of any model.
    pub leave: Vec<String>,
}

/// How many replicas, for `:scale`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScaleOrder {
    /// So many from now on, at most `maxReplicas`, until the model has idled; 0 is the same as `:sleep`. Null gives
    /// the say back to demand.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schemars(required)]
    pub replicas: Option<u32>,
}

/// The configuration in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Config {
    /// The file it was read from.
    pub file: String,
    /// Digest of the file's content.
    pub digest: String,
    /// When it came into force, RFC 3339 in UTC.
    pub loaded_at: String,
    /// The last reload; null before the first.
    pub last_reload: Option<Reload>,
    /// Keys that the API has changed over the file, by model.
    #[serde(default)]
    pub changed_by_api: BTreeMap<String, Vec<String>>,
}

/// A model's settings in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Settings {
    /// The model.
    pub model: String,
    /// Every key with its value, as in the file, defaults filled in; secrets are `***`.
    pub settings: serde_json::Value,
    /// Where the value of each key (`queue.length`) comes from: `file`, `api`, `annotation` or `default`.
    pub origins: BTreeMap<String, String>,
}

/// What a change of settings comes to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SettingsChange {
    /// The settings with it.
    #[serde(flatten)]
    pub settings: Settings,
    /// All keys that the API has changed over the file, with it.
    pub changed: Vec<String>,
    /// Replicas that no longer fit and are replaced.
    pub restarts: Vec<String>,
    /// Nothing was changed.
    pub dry_run: bool,
}

/// How a reload went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reload {
    /// When, RFC 3339 in UTC.
    pub at: String,
    /// `applied`, or `refused` with the former configuration still in force.
    pub outcome: String,
    /// Every reason for a refusal.
    pub errors: Vec<String>,
}

/// One line that a replica printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Line {
    /// When it was read, RFC 3339 in UTC.
    pub at: String,
    /// The replica that printed it.
    pub replica: String,
    /// `stdout` or `stderr`; `sluice` for a remark about lines that are missing here.
    pub stream: String,
    /// The line without its end.
    pub text: String,
}

/// All models, by name.
pub fn models(status: &FleetStatus, loads: &dyn LoadView, now: Moment) -> List<Model> {
    let items = status.models.iter().map(|model| self::model(model, loads.load(&model.name).as_ref(), now));
    List { items: items.collect(), next_cursor: None }
}

/// One model.
pub fn model(status: &ModelStatus, load: Option<&ModelLoad>, now: Moment) -> Model {
    let wake = status.wake;
    let measured = wake.samples > 0;
    let fault = status.fault.as_ref().map(|fault| Fault {
        cause: fault.cause.clone(),
        failures: fault.failures,
        answers_waiters: fault.answer_waiters,
        retry_in_ms: fault.retry_at.since(now.micros).as_millis(),
    });
    let mut model = Model {
        name: status.name.as_str().to_owned(),
        state: status.state.as_str().to_owned(),
        ready: status.ready,
        starting: status.starting,
        leaving: status.leaving,
        wanted: status.wanted,
        desired: status.desired,
        pinned: status.pinned,
        reason: status.reason.clone(),
        in_flight: None,
        queued: None,
        idle_ms: None,
        wake: Wake {
            p50_ms: measured.then(|| wake.p50.as_millis()),
            p90_ms: measured.then(|| wake.p90.as_millis()),
            samples: wake.samples,
        },
        fault,
        next: status.next.map(|next| Coming {
            what: coming(next.what).to_owned(),
            in_ms: next.at.since(now.micros).as_millis(),
        }),
    };
    add_load(&mut model, load, now);
    model
}

fn coming(what: sluice_core::Coming) -> &'static str {
    match what {
        sluice_core::Coming::Ready => "ready",
        sluice_core::Coming::Fewer => "fewer",
        sluice_core::Coming::Asleep => "asleep",
    }
}

/// The load of a model, where it is known.
pub fn add_load(model: &mut Model, load: Option<&ModelLoad>, now: Moment) {
    model.in_flight = load.map(|load| load.in_flight);
    model.queued = load.map(|load| load.queued);
    let idle_since = load.and_then(|load| load.idle_since);
    model.idle_ms = idle_since.map(|since| now.micros.since(since).as_millis());
}

/// All replicas, by id.
pub fn replicas(status: &FleetStatus, loads: &dyn LoadView, now: Moment) -> List<Replica> {
    let items = status.replicas.iter();
    let items = items.map(|one| replica(one, loads.load(&one.model).as_ref(), now)).collect();
    List { items, next_cursor: None }
}

/// What `trial` of an order for `model` says; `None` if the model is gone.
pub fn effects(before: &FleetStatus, trial: &Trial, model: &ModelName, now: Moment) -> Option<Effects> {
    let mut starts = BTreeMap::new();
    for action in &trial.actions {
        if let Action::Start { model, .. } = action {
            *starts.entry(model.as_str().to_owned()).or_default() += 1;
        }
    }
    let stayed = |id| before.replicas.iter().any(|one| one.id == id && !leaves(one.phase));
    let after = trial.status.replicas.iter().filter(|one| leaves(one.phase) && stayed(one.id));
    let leave = after.map(|one| one.id.to_string()).collect();
    let after = trial.status.models.iter().find(|one| one.name == *model)?;
    Some(Effects { model: self::model(after, None, now), starts, leave })
}

fn leaves(phase: Phase) -> bool {
    matches!(phase, Phase::Draining | Phase::Stopping)
}

/// A phase's word.
pub fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Starting => "starting",
        Phase::Ready => "ready",
        Phase::Unready => "unready",
        Phase::Draining => "draining",
        Phase::Stopping => "stopping",
    }
}

/// One replica.
pub fn replica(status: &ReplicaStatus, load: Option<&ModelLoad>, now: Moment) -> Replica {
    Replica {
        id: status.id.to_string(),
        model: status.model.as_str().to_owned(),
        phase: phase(status.phase).to_owned(),
        since: rfc3339(now.unix_ms_of(status.since)),
        age_ms: now.micros.since(status.since).as_millis(),
        address: status.address.as_ref().map(|address| address.socket.to_string()),
        in_flight: load.map(|load| load.on(status.id)),
        note: status.note.clone(),
    }
}

/// The configuration in force.
pub fn config(report: ConfigReport) -> Config {
    let last_reload = report.reloaded_at_unix_ms.map(|at| Reload {
        at: rfc3339(at),
        outcome: if report.errors.is_empty() { "applied" } else { "refused" }.to_owned(),
        errors: report.errors,
    });
    Config {
        file: report.file,
        digest: report.digest,
        loaded_at: rfc3339(report.loaded_at_unix_ms),
        last_reload,
        changed_by_api: report.changed,
    }
}

/// A model's settings.
pub fn settings(model: &str, view: SettingsView) -> Settings {
    Settings { model: model.to_owned(), settings: view.settings, origins: view.origins }
}

fn stream_name(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    }
}

/// A replica's line.
pub fn line(line: &LogLine) -> Line {
    Line {
        at: rfc3339(line.at_unix_ms),
        replica: line.replica.to_string(),
        stream: stream_name(line.stream).to_owned(),
        text: line.text.to_string(),
    }
}
