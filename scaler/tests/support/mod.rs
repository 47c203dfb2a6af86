// SPDX-License-Identifier: Apache-2.0
//! What the backend's suites share: a backend on a throw-away state directory, launches, and waiting for events.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_core::{Address, ModelName, ReplicaEvent, ReplicaId};
use sluice_scaler::launch::{Launch, Probe, ProcessLaunch, Secret};
use sluice_scaler::{Backend, BackendEvent, LocalBackend, LocalOptions};
use tempfile::TempDir;
use tokio::sync::mpsc::UnboundedReceiver;

/// No event is late by less than this.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A backend, its events, and a directory of its own.
pub struct Bench {
    pub backend: LocalBackend,
    pub events: UnboundedReceiver<BackendEvent>,
    pub directory: TempDir,
    launches: BTreeMap<ModelName, Arc<Launch>>,
}

impl Bench {
    pub fn new() -> Bench {
        Bench::with(LocalOptions::default())
    }

    pub fn with(options: LocalOptions) -> Bench {
        let directory = tempfile::tempdir().unwrap();
        let state_directory = Some(directory.path().join("state"));
        let mut backend = LocalBackend::open(LocalOptions { state_directory, ..options }).unwrap();
        let events = backend.events();
        Bench { backend, events, directory, launches: BTreeMap::new() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub fn launch(&mut self, model: &str, launch: impl Into<Launch>) {
        self.launches.insert(model.into(), Arc::new(launch.into()));
        self.backend.configure(&self.launches);
    }

    pub fn start(&mut self, id: u64, model: &str) -> ReplicaId {
        self.backend.start(ReplicaId(id), &model.into(), 0);
        ReplicaId(id)
    }

    pub async fn event(&mut self) -> BackendEvent {
        tokio::time::timeout(PATIENCE, self.events.recv()).await.expect("an event").unwrap()
    }

    /// The next event that is not about a start still under way.
    pub async fn outcome(&mut self, of: ReplicaId) -> ReplicaEvent {
        let (replica, event) = self.event().await;
        assert_eq!(replica, of);
        event
    }

    pub async fn ready(&mut self, of: ReplicaId) -> Address {
        loop {
            match self.outcome(of).await {
                ReplicaEvent::Ready(address) => return address,
                ReplicaEvent::NotReady { .. } => {}
                ReplicaEvent::Gone { cause } => panic!("gone instead of ready: {cause}"),
            }
        }
    }

    pub async fn not_ready(&mut self, of: ReplicaId) -> String {
        match self.outcome(of).await {
            ReplicaEvent::NotReady { why } => why,
            other => panic!("{other:?} instead of not ready"),
        }
    }

    pub async fn gone(&mut self, of: ReplicaId) -> String {
        loop {
            match self.outcome(of).await {
                ReplicaEvent::Gone { cause } => return cause,
                ReplicaEvent::NotReady { .. } => {}
                ReplicaEvent::Ready(_) => panic!("ready instead of gone"),
            }
        }
    }

    pub async fn stop(&mut self, replica: ReplicaId) -> String {
        self.backend.stop(replica);
        self.gone(replica).await
    }
}

pub fn probe() -> Probe {
    Probe {
        path: "/health".to_owned(),
        period: Duration::from_millis(20),
        ready_period: Duration::from_millis(20),
        timeout: Duration::from_secs(5),
        successes: 1,
        failures: 2,
        headers: Vec::new(),
    }
}

pub fn process(command: &[&str]) -> ProcessLaunch {
    ProcessLaunch {
        command: command.iter().map(|argument| (*argument).to_owned()).collect(),
        stop_command: None,
        env: BTreeMap::new(),
        working_directory: None,
        stop_deadline: Duration::from_secs(10),
        probe: probe(),
    }
}

pub fn shell(script: &str) -> ProcessLaunch {
    process(&["sh", "-c", script])
}

/// The scripted replica with options.
pub fn replica(options: &[&str]) -> ProcessLaunch {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/replica.py");
    process(&[&["python3", script, "${PORT}"], options].concat())
}

pub fn secret(text: &str) -> Secret {
    Secret(text.to_owned())
}

/// Waits until `holds` returns something.
pub fn eventually<T>(what: &str, mut holds: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = holds() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Like `eventually`, for tests on a runtime.
pub async fn eventually_async<T>(what: &str, mut holds: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = holds() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// State letter of a process, if it is in the table.
pub fn state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat[stat.rfind(')')? + 1..].trim_start().chars().next()
}

pub fn alive(pid: i32) -> bool {
    state(pid).is_some_and(|state| state != 'Z' && state != 'X')
}

/// A number in a file, once it is there.
pub fn number(path: &Path) -> Option<i32> {
    std::fs::read_to_string(path).ok()?.lines().next()?.trim().parse().ok()
}
