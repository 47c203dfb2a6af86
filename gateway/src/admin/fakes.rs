// SPDX-License-Identifier: Apache-2.0
//! Stand-ins for the scaler and the data plane in tests of the admin API and of the command line.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use sluice_core::{
    Address, Fault, FleetStatus, Micros, ModelName, ModelState, ModelStatus, Phase, ReplicaId, ReplicaStatus,
    WakeEstimate,
};
use sluice_scaler::logs::Stream;
use sluice_scaler::{Command, CommandError, Handle, Input, LogLine, Trial};
use tokio::sync::broadcast;

use super::{
    Access, AdminState, Change, ChangeError, Changed, ConfigInfo, ConfigReport, EventLog, LiveSettings,
    LoadView, LogSource, ModelLoad, Readiness, SettingsView,
};

/// A model that sleeps, has been measured and has no replica.
pub(crate) fn cold(name: &str) -> ModelStatus {
    ModelStatus {
        name: ModelName::from(name),
        state: ModelState::Cold,
        ready: 0,
        starting: 0,
        leaving: 0,
        wanted: Some(0),
        desired: 0,
        pinned: None,
        reason: "idle for 5m".to_owned(),
        wake: WakeEstimate { samples: 4, p50: Micros::from_millis(800), p90: Micros::from_millis(1_100) },
        fault: None,
        next: None,
    }
}

/// A model with one ready replica, never measured.
pub(crate) fn warm(name: &str) -> ModelStatus {
    ModelStatus {
        state: ModelState::Ready,
        ready: 1,
        wanted: Some(1),
        desired: 1,
        reason: "steady".to_owned(),
        wake: WakeEstimate::default(),
        ..cold(name)
    }
}

/// A model whose starts fail.
pub(crate) fn broken(name: &str, failures: u32) -> ModelStatus {
    let cause = "exit status 1: no such file: weights.gguf".to_owned();
    let fault = Fault { failures, answer_waiters: true, cause, retry_at: Micros::ZERO };
    ModelStatus { reason: "waiting after a failed start".to_owned(), fault: Some(fault), ..cold(name) }
}

/// The ready replica `r7` of a model.
pub(crate) fn replica(model: &str) -> ReplicaStatus {
    let socket = "127.0.0.1:41000".parse().unwrap();
    ReplicaStatus {
        id: ReplicaId(7),
        model: ModelName::from(model),
        phase: Phase::Ready,
        since: Micros::ZERO,
        address: Some(Address { socket, host: None, tls: false }),
        note: String::new(),
    }
}

type OnCommand = dyn Fn(&Command, &Handle) -> Result<(), CommandError> + Send;

/// Everything behind the admin listener.
pub(crate) struct Fake {
    pub(crate) handle: Handle,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) logs: Arc<FakeLogs>,
    pub(crate) loads: Arc<FakeLoads>,
    pub(crate) events: Arc<EventLog>,
    pub(crate) access: Access,
    pub(crate) settings: Arc<FakeSettings>,
    pub(crate) report: Arc<Mutex<ConfigReport>>,
}

impl Fake {
    /// A scaler with this status that takes every order for a model it has, without doing anything.
    pub(crate) fn new(models: Vec<ModelStatus>, replicas: Vec<ReplicaStatus>) -> Fake {
        Self::with(models, replicas, Box::new(|_, _| Ok(())))
    }

    /// As `new`, with the reaction to orders.
    pub(crate) fn with(models: Vec<ModelStatus>, replicas: Vec<ReplicaStatus>, on: Box<OnCommand>) -> Fake {
        let (handle, mut inputs) = Handle::new();
        handle.set_status(FleetStatus { at: Micros::ZERO, models, replicas });
        let events = Arc::new(EventLog::new());
        let log = events.clone();
        handle.observe(Box::new(move |former, new| log.compare(former, new)));
        let driver = handle.clone();
        std::thread::spawn(move || {
            while let Some(input) = inputs.blocking_recv() {
                match input {
                    Input::Command(command, answer) => {
                        let _ = answer.send(take(&command, &driver, &*on));
                    }
                    Input::Try(command, answer) => {
                        let status = FleetStatus::clone(&driver.status());
                        let trial = Trial { status, actions: Vec::new() };
                        let _ = answer.send(known(&command, &driver).map(|()| trial));
                    }
                    Input::DumpJournal(answer) => {
                        let _ = answer.send(b"{\"at\":1}\n{\"at\":2}\n".to_vec());
                    }
                    Input::Shutdown(_) => return,
                    _ => {}
                }
            }
        });
        Fake {
            handle,
            readiness: Arc::default(),
            logs: Arc::new(FakeLogs { lines: Mutex::default(), live: broadcast::Sender::new(4) }),
            loads: Arc::default(),
            events,
            access: Access::open(),
            settings: Arc::default(),
            report: Arc::default(),
        }
    }

    /// What the listener is given.
    pub(crate) fn state(&self) -> AdminState {
        AdminState {
            handle: self.handle.clone(),
            readiness: self.readiness.clone(),
            metrics: Arc::new(|_| "# TYPE sluice_build_info gauge\nsluice_build_info 1\n".to_owned()),
            logs: self.logs.clone(),
            settings: self.settings.clone(),
            loaded: Arc::new(FakeConfig(self.report.clone())),
            model_load: self.loads.clone(),
            events: self.events.clone(),
            access: self.access.clone(),
        }
    }

    /// Changes one model.
    pub(crate) fn set(handle: &Handle, model: ModelStatus) {
        let mut status = FleetStatus::clone(&handle.status());
        status.models.iter_mut().filter(|one| one.name == model.name).for_each(|one| *one = model.clone());
        handle.set_status(status);
    }
}

fn take(command: &Command, handle: &Handle, on: &OnCommand) -> Result<(), CommandError> {
    known(command, handle)?;
    on(command, handle)
}

fn known(command: &Command, handle: &Handle) -> Result<(), CommandError> {
    let name = match command {
        Command::Drain(id) => {
            let found = handle.status().replicas.iter().any(|replica| replica.id == *id);
            return if found { Ok(()) } else { Err(CommandError::UnknownReplica(*id)) };
        }
        Command::Wake(name) | Command::Sleep(name) | Command::Scale(name, _) | Command::DrainModel(name) => {
            name
        }
    };
    match handle.status().models.iter().any(|model| model.name == *name) {
        true => Ok(()),
        false => Err(CommandError::UnknownModel(name.clone())),
    }
}

/// Lines set by the test; the same for every model.
pub(crate) struct FakeLogs {
    pub(crate) lines: Mutex<Vec<LogLine>>,
    pub(crate) live: broadcast::Sender<LogLine>,
}

/// A line of `r7` at 1970-01-01T00:00:01Z.
pub(crate) fn line(text: &str) -> LogLine {
    LogLine { at_unix_ms: 1_000, replica: ReplicaId(7), stream: Stream::Stderr, text: text.into() }
}

impl LogSource for FakeLogs {
    fn tail(&self, _: &ModelName, lines: usize) -> (Vec<LogLine>, broadcast::Receiver<LogLine>) {
        let all = self.lines.lock().unwrap();
        (all[all.len().saturating_sub(lines)..].to_vec(), self.live.subscribe())
    }
}

/// Loads set by the test.
#[derive(Default)]
pub(crate) struct FakeLoads(pub(crate) Mutex<BTreeMap<ModelName, ModelLoad>>);

impl LoadView for FakeLoads {
    fn load(&self, model: &ModelName) -> Option<ModelLoad> {
        self.0.lock().unwrap().get(model).cloned()
    }
}

/// The settings of `m`, at version `v1`; what was asked for, and what is answered.
#[derive(Default)]
pub(crate) struct FakeSettings {
    pub(crate) asked: Mutex<Vec<Change>>,
    pub(crate) refuse: Mutex<Option<ChangeError>>,
    pub(crate) origins: Mutex<BTreeMap<String, String>>,
}

#[async_trait]
impl LiveSettings for FakeSettings {
    fn view(&self, model: &str) -> Option<SettingsView> {
        let (settings, origins) =
            (serde_json::json!({"window": "60s"}), self.origins.lock().unwrap().clone());
        ["a", "b", "m"].contains(&model).then(|| SettingsView { version: "v1".to_owned(), settings, origins })
    }

    async fn change(&self, change: Change) -> Result<Changed, ChangeError> {
        let view = self.view(&change.model).ok_or(ChangeError::UnknownModel)?;
        self.asked.lock().unwrap().push(change);
        match self.refuse.lock().unwrap().clone() {
            Some(error) => Err(error),
            None => Ok(Changed { view, keys: vec!["window".to_owned()], restarts: vec!["r7".to_owned()] }),
        }
    }
}

struct FakeConfig(Arc<Mutex<ConfigReport>>);

impl ConfigInfo for FakeConfig {
    fn report(&self) -> ConfigReport {
        self.0.lock().unwrap().clone()
    }
}
