// SPDX-License-Identifier: Apache-2.0
//! Taking over a changed configuration, from the file or from the API: all or nothing, and only what changed is touched.
//!
//! Owns the configuration in force and the fate of the last change to it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use sluice_scaler::{Handle, Input};
use tokio::sync::{mpsc, oneshot};

use super::notify;
use super::store::Store;
use crate::admin::clock::unix_ms;
use crate::admin::events::Event;
use crate::admin::problem::Mistake;
use crate::admin::{
    Change, ChangeError, Changed, ConfigInfo, ConfigReport, EventLog, LiveSettings, SettingsView,
};
use crate::config::reload::{carry_over, diff};
use crate::config::watch::Watch;
use crate::config::{Dropped, Loaded, Overlay, Report, Settings, Shutdown, Source};
use crate::front::Certificates;
use crate::gateway::Gateway;
use crate::telemetry;

/// Changes by the API that may wait for their turn.
const WAITING: usize = 16;

/// The configuration in force.
pub(super) struct Reload {
    path: PathBuf,
    loaded: Arc<Loaded>,
    overlay: Overlay,
    store: Store,
    shown: Arc<Shown>,
    events: Arc<EventLog>,
    requests: Option<mpsc::Receiver<Request>>,
    certificates: OnceLock<Arc<Certificates>>,
}

/// Why a file is not taken over.
struct Refused {
    /// For the log.
    text: String,
    /// For the API, one a mistake.
    errors: Vec<String>,
}

impl Refused {
    fn of(report: &Report) -> Refused {
        let told = report.problems.iter().map(|p| format!("{}:{}: {}", p.line, p.column, p.message));
        Refused { text: report.to_string(), errors: told.collect() }
    }
}

/// A change by the API.
pub(super) struct Request {
    change: Change,
    answer: oneshot::Sender<Result<Changed, ChangeError>>,
}

/// What the admin listener shows of it, and where its changes go.
pub(super) struct Shown {
    report: Mutex<ConfigReport>,
    loaded: ArcSwap<Loaded>,
    requests: mpsc::Sender<Request>,
}

impl ConfigInfo for Shown {
    fn report(&self) -> ConfigReport {
        self.lock().clone()
    }
}

#[async_trait]
impl LiveSettings for Shown {
    fn view(&self, model: &str) -> Option<SettingsView> {
        view(&self.loaded.load(), model)
    }

    async fn change(&self, change: Change) -> Result<Changed, ChangeError> {
        let (answer, made) = oneshot::channel();
        self.requests.send(Request { change, answer }).await.map_err(|_| ChangeError::Stopping)?;
        made.await.map_err(|_| ChangeError::Stopping)?
    }
}

impl Shown {
    fn lock(&self) -> MutexGuard<'_, ConfigReport> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The configuration that Sluice starts with: the file, and what the API changed before.
pub(super) fn load(path: &Path, store: &Store) -> Result<(Loaded, Overlay), Report> {
    let before = store.load();
    let (loaded, overlay, dropped) = Source::read(path)?.load_over(&before)?;
    dropped.iter().for_each(log_dropped);
    if overlay != before {
        keep(store, &overlay);
    }
    Ok((loaded, overlay))
}

impl Reload {
    /// The configuration that Sluice starts with.
    pub(super) fn new(
        path: PathBuf,
        (loaded, overlay): (Loaded, Overlay),
        store: Store,
        events: Arc<EventLog>,
    ) -> Reload {
        let report = ConfigReport {
            file: path.display().to_string(),
            digest: shown(loaded.digest),
            loaded_at_unix_ms: unix_ms(),
            changed: overlay.all_keys(),
            ..ConfigReport::default()
        };
        let (requests, receiver) = mpsc::channel(WAITING);
        let loaded = Arc::new(loaded);
        let shown =
            Arc::new(Shown { report: Mutex::new(report), loaded: ArcSwap::new(loaded.clone()), requests });
        let requests = Some(receiver);
        Reload { path, loaded, overlay, store, shown, events, requests, certificates: OnceLock::new() }
    }

    /// The listeners' certificates, which another file may replace.
    pub(super) fn serve_with(&self, certificates: Arc<Certificates>) {
        // Nobody else sets it.
        let _ = self.certificates.set(certificates);
    }

    /// For the admin listener.
    pub(super) fn shown(&self) -> Arc<Shown> {
        self.shown.clone()
    }

    /// The configuration file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The settings in force.
    pub(super) fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    /// Changes that the API asks for; `None` the second time.
    pub(super) fn requests(&mut self) -> Option<mpsc::Receiver<Request>> {
        self.requests.take()
    }

    /// How Sluice stops.
    pub(super) fn shutdown(&self) -> Shutdown {
        self.loaded.settings.shutdown.clone()
    }

    /// Says whenever the file has other content than is in force. The watch runs in a task of its own: it waits for
    /// quiet, and must not begin anew whenever something else happens.
    pub(super) fn watch(&self) -> mpsc::Receiver<()> {
        let mut watch = Watch::new(&self.path, self.loaded.digest);
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
        self.take(gateway, handle);
        notify::ready(self.loaded.settings.models.len());
    }

    fn take(&mut self, gateway: &Gateway, handle: &Handle) {
        let read = Source::read(&self.path).and_then(|source| source.load_over(&self.overlay));
        let read = read.map_err(|report| Refused::of(&report)).and_then(|read| {
            self.take_certificate(&read.0.settings)?;
            Ok(read)
        });
        telemetry::config_reloaded(read.is_ok());
        self.shown.lock().reloaded_at_unix_ms = Some(unix_ms());
        let (loaded, overlay, dropped) = match read {
            Ok(read) => read,
            Err(refused) => return self.refuse(refused),
        };
        for one in &dropped {
            log_dropped(one);
            self.events.add(Event::settings(&one.model, vec![one.key.clone()], ""));
        }
        if overlay != self.overlay {
            keep(&self.store, &overlay);
        }
        {
            let mut report = self.shown.lock();
            report.errors.clear();
            report.digest = shown(loaded.digest);
            report.loaded_at_unix_ms = unix_ms();
        }
        let change = self.put_in_force(loaded, overlay, gateway, handle);
        tracing::info!(%change, "config_reloaded");
        self.events.add(Event::reload(&change, &[]));
    }

    /// The last step that may fail. A listener that does not exist yet or not any more needs a restart anyway.
    fn take_certificate(&self, settings: &Settings) -> Result<(), Refused> {
        match (self.certificates.get(), &settings.tls) {
            (Some(certificates), Some(tls)) => {
                let taken = certificates.move_to(&tls.certificate, &tls.key);
                taken.map_err(|error| Refused {
                    text: format!("error: tls: {error}"),
                    errors: vec![format!("tls: {error}")],
                })
            }
            _ => Ok(()),
        }
    }

    fn refuse(&self, Refused { text, errors }: Refused) {
        tracing::error!("config_refused: the former configuration stays in force\n{text}");
        self.events.add(Event::reload("", &errors));
        self.shown.lock().errors = errors;
    }

    /// Returns what is different, in words.
    fn put_in_force(
        &mut self,
        mut loaded: Loaded,
        overlay: Overlay,
        gateway: &Gateway,
        handle: &Handle,
    ) -> String {
        carry_over(&self.loaded.settings, &mut loaded.settings);
        let change = diff(&self.loaded.settings, &loaded.settings).to_string();
        gateway.configure(&loaded.settings);
        handle.send(Input::Configure(loaded.settings.plan.clone()));
        self.shown.lock().changed = overlay.all_keys();
        self.loaded = Arc::new(loaded);
        self.overlay = overlay;
        self.shown.loaded.store(self.loaded.clone());
        change
    }

    /// The API asks for a change.
    pub(super) fn change(&mut self, request: Request, gateway: &Gateway, handle: &Handle) {
        let made = self.make(&request.change, gateway, handle);
        // Whoever asked may have left.
        let _ = request.answer.send(made);
    }

    fn make(&mut self, change: &Change, gateway: &Gateway, handle: &Handle) -> Result<Changed, ChangeError> {
        let model = change.model.as_str();
        let written = self.loaded.written.get(model).ok_or(ChangeError::UnknownModel)?;
        let version = written.version();
        if change.if_match.as_ref().is_some_and(|versions| !versions.contains(&version)) {
            return Err(ChangeError::OtherVersion(version));
        }
        let overlay = match &change.patch {
            Some(patch) => self.overlay.patched(model, written, patch),
            None => self.overlay.without(model),
        };
        let loaded =
            self.loaded.source.load(&overlay).map_err(|report| ChangeError::Invalid(mistakes(&report)))?;
        let changed = Changed {
            view: view(&loaded, model).ok_or(ChangeError::UnknownModel)?,
            keys: overlay.keys(model),
            restarts: self.restarts(&loaded, model, handle),
        };
        if change.dry_run || overlay == self.overlay {
            return Ok(changed);
        }
        self.store.save(&overlay).map_err(|error| ChangeError::NotKept(error.to_string()))?;
        let what = self.put_in_force(loaded, overlay, gateway, handle);
        tracing::info!(model, by = change.by, keys = ?changed.keys, change = what, "settings_changed");
        self.events.add(Event::settings(model, changed.keys.clone(), &change.by));
        Ok(changed)
    }

    /// The model's replicas, if they no longer fit.
    fn restarts(&self, new: &Loaded, model: &str, handle: &Handle) -> Vec<String> {
        let replaced = diff(&self.loaded.settings, &new.settings).replaced;
        if !replaced.iter().any(|name| name.as_str() == model) {
            return Vec::new();
        }
        let status = handle.status();
        let own = status.replicas.iter().filter(|replica| replica.model.as_str() == model);
        own.map(|replica| replica.id.to_string()).collect()
    }
}

fn view(loaded: &Loaded, model: &str) -> Option<SettingsView> {
    let written = loaded.written.get(model)?;
    let shown = written.shown(&model.into(), &loaded.settings);
    let origins = shown.origins.into_iter().map(|(key, origin)| (key, origin.to_owned())).collect();
    Some(SettingsView { version: written.version(), settings: shown.settings, origins })
}

fn mistakes(report: &Report) -> Vec<Mistake> {
    let problems = report.problems.iter();
    let mistake = |code: &str, message: &str, help: &Option<String>| Mistake {
        code: code.to_owned(),
        message: message.to_owned(),
        help: help.clone(),
    };
    problems.map(|problem| mistake(problem.code.id(), &problem.message, &problem.help)).collect()
}

/// What is only forgotten does not keep a file from coming into force.
fn keep(store: &Store, overlay: &Overlay) {
    if let Err(error) = store.save(overlay) {
        tracing::warn!(%error, "settings_not_kept");
    }
}

fn log_dropped(Dropped { model, key, why }: &Dropped) {
    tracing::warn!(model, key, why, "settings_change_dropped: the file holds again");
}

fn shown(digest: u64) -> String {
    format!("{digest:016x}")
}
