// SPDX-License-Identifier: Apache-2.0
//! Taking over a changed configuration file: all or nothing, and only what changed is touched.
//!
//! Owns the configuration in force and the fate of the last change to it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sluice_scaler::{Handle, Input};
use tokio::sync::mpsc;

use super::notify;
use crate::admin::clock::unix_ms;
use crate::admin::events::Event;
use crate::admin::{ConfigInfo, ConfigReport, EventLog};
use crate::config::reload::{carry_over, diff};
use crate::config::watch::Watch;
use crate::config::{self, Loaded, Settings, Shutdown};
use crate::gateway::Gateway;
use crate::telemetry;

/// The configuration in force.
pub(super) struct Reload {
    path: PathBuf,
    settings: Settings,
    digest: u64,
    report: Arc<Shown>,
    events: Arc<EventLog>,
}

/// What the admin listener shows of it.
struct Shown(Mutex<ConfigReport>);

impl ConfigInfo for Shown {
    fn report(&self) -> ConfigReport {
        self.lock().clone()
    }
}

impl Shown {
    fn lock(&self) -> MutexGuard<'_, ConfigReport> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reload {
    /// The configuration that Sluice starts with.
    pub(super) fn new(path: PathBuf, loaded: &Loaded, events: Arc<EventLog>) -> Reload {
        let report = ConfigReport {
            file: path.display().to_string(),
            digest: shown(loaded.digest),
            loaded_at_unix_ms: unix_ms(),
            ..ConfigReport::default()
        };
        let report = Arc::new(Shown(Mutex::new(report)));
        Reload { path, settings: loaded.settings.clone(), digest: loaded.digest, report, events }
    }

    /// For the admin listener.
    pub(super) fn report(&self) -> Arc<dyn ConfigInfo> {
        self.report.clone()
    }

    /// How Sluice stops.
    pub(super) fn shutdown(&self) -> Shutdown {
        self.settings.shutdown.clone()
    }

    /// Says whenever the file has other content than is in force. The watch runs in a task of its own: it waits for
    /// quiet, and must not begin anew whenever something else happens.
    pub(super) fn watch(&self) -> mpsc::Receiver<()> {
        let mut watch = Watch::new(&self.path, self.digest);
        if let Err(error) = watch.listen() {
            tracing::warn!(%error, "config_watch");
        }
        let (poke, changes) = mpsc::channel(1);
        tokio::spawn(async move {
            loop {
                watch.changed().await;
                if poke.send(()).await.is_err() {
                    return;
                }
            }
        });
        changes
    }

    /// The file has changed, or a person asked (SIGHUP): all of it is taken over, or nothing.
    pub(super) fn now(&mut self, gateway: &Gateway, handle: &Handle) {
        notify::reloading();
        self.take(config::load(&self.path), gateway, handle);
        notify::ready(self.settings.models.len());
    }

    fn take(&mut self, loaded: Result<Loaded, config::Report>, gateway: &Gateway, handle: &Handle) {
        telemetry::config_reloaded(loaded.is_ok());
        let mut report = self.report.lock();
        report.reloaded_at_unix_ms = Some(unix_ms());
        let mut loaded = match loaded {
            Ok(loaded) => loaded,
            Err(problems) => {
                tracing::error!("config_refused: the former configuration stays in force\n{problems}");
                report.errors = problems
                    .problems
                    .iter()
                    .map(|p| format!("{}:{}: {}", p.line, p.column, p.message))
                    .collect();
                self.events.add(Event::reload("", &report.errors));
                return;
            }
        };
        report.errors.clear();
        report.digest = shown(loaded.digest);
        report.loaded_at_unix_ms = unix_ms();
        drop(report);
        carry_over(&self.settings, &mut loaded.settings);
        let change = diff(&self.settings, &loaded.settings);
        tracing::info!(%change, "config_reloaded");
        gateway.configure(&loaded.settings);
        handle.send(Input::Configure(loaded.settings.plan.clone()));
        self.events.add(Event::reload(&change.to_string(), &[]));
        self.settings = loaded.settings;
        self.digest = loaded.digest;
    }
}

fn shown(digest: u64) -> String {
    format!("{digest:016x}")
}
