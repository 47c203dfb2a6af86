// SPDX-License-Identifier: Apache-2.0
//! Every configured model by name: read by each request, changed only by configuration and routes.
//!
//! Owns which models exist. The map is an immutable snapshot that is swapped whole; changes are serialised by one lock,
//! which requests never take. Entries live across snapshots. A model that is no longer configured is kept aside until
//! nothing of it is in flight, and taken back if it is configured again before.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use sluice_core::{Demand, Micros, ModelName, ReplicaId, Routes};
use sluice_scaler::{Handle, Plane, clock};

use crate::admission::Model;
use crate::config::Settings;
use crate::exchange::watch;
use crate::telemetry::ModelMetrics;

/// The models.
pub struct Table {
    models: ArcSwap<HashMap<ModelName, Arc<Model>>>,
    writer: Mutex<Writer>,
    unknown: ModelMetrics,
    scaler: Handle,
}

#[derive(Default)]
struct Writer {
    routes: Arc<Routes>,
    /// No longer configured, with something in flight.
    leaving: Vec<Arc<Model>>,
    stopping: bool,
}

impl Table {
    /// A table without models, whose entries report to `scaler`.
    pub fn new(scaler: Handle) -> Arc<Table> {
        Arc::new(Table {
            models: ArcSwap::default(),
            writer: Mutex::default(),
            unknown: ModelMetrics::default(),
            scaler,
        })
    }

    /// Takes over a configuration: new models wait for their routes, kept ones change in place, the waiting requests of
    /// those that are gone are refused.
    pub fn configure(&self, settings: &Settings) {
        let now = clock::now();
        let mut writer = self.write();
        let mut former = HashMap::clone(&self.models.load());
        let mut models = HashMap::with_capacity(settings.models.len());
        for (name, wanted) in &settings.models {
            let spec = settings.plan.fleet.models.get(name);
            let slots = spec.map_or(0, |spec| spec.scale.container_concurrency);
            let kept = former.remove(name).or_else(|| writer.take_back(name));
            let is_known = kept.is_some();
            let model = kept.unwrap_or_else(|| Model::new(Arc::clone(wanted), slots, self.scaler.clone()));
            if is_known {
                model.configure(Arc::clone(wanted), slots);
            }
            if writer.stopping {
                model.stop(now);
            }
            model.publish(now, writer.routes.models.get(name));
            models.insert(name.clone(), model);
        }
        self.models.store(Arc::new(models));
        for model in former.into_values() {
            model.remove(now);
            writer.leaving.push(model);
        }
    }

    /// The model of that name.
    pub fn get(&self, name: &str) -> Option<Arc<Model>> {
        self.models.load().get(name).cloned()
    }

    /// All models, by name.
    pub fn list(&self) -> Vec<Arc<Model>> {
        let mut models: Vec<_> = self.models.load().values().cloned().collect();
        models.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        models
    }

    /// What requests for models that do not exist are counted under.
    pub fn unknown(&self) -> &ModelMetrics {
        &self.unknown
    }

    /// Sluice stops: waiting requests and new ones are refused; what is in flight goes on.
    pub fn begin_drain(&self) {
        let now = clock::now();
        let mut writer = self.write();
        writer.stopping = true;
        for model in self.models.load().values() {
            model.stop(now);
        }
    }

    /// Requests in flight and queued, over all models, also those that are no longer configured.
    pub fn in_flight_total(&self) -> (usize, usize) {
        let writer = self.write();
        let models = self.models.load();
        let counts = models.values().chain(&writer.leaving).map(|model| model.counts());
        counts.fold((0, 0), |(in_flight, queued), (i, q)| (in_flight + i, queued + q))
    }

    /// Refuses waiting requests whose budget is used up, and gives them endpoints that are due for a trial. To be
    /// called every 20 to 50 ms: budgets are kept to that.
    pub fn sweep(&self, now: Micros) {
        for model in self.models.load().values() {
            model.sweep(now);
        }
    }

    fn write(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Plane for Table {
    fn demand(&self, of: Option<&[ModelName]>, out: &mut Vec<Demand>) {
        let now = clock::now();
        let models = self.models.load();
        let Some(names) = of else {
            let writer = self.write();
            out.extend(models.values().chain(&writer.leaving).map(|model| model.demand(now)));
            return;
        };
        let named = names.iter().filter_map(|name| models.get(name));
        out.extend(named.map(|model| model.demand(now)));
    }

    fn publish(&self, routes: &Arc<Routes>) {
        let now = clock::now();
        let mut writer = self.write();
        writer.routes = Arc::clone(routes);
        let models = self.models.load();
        for model in models.values().chain(&writer.leaving) {
            model.publish(now, routes.models.get(model.name()));
        }
        // Only once the scaler no longer names it: its drains are told until then.
        writer.leaving.retain(|model| routes.models.contains_key(model.name()) || model.counts().0 > 0);
    }

    fn cut(&self, replica: ReplicaId) {
        watch::cut(replica);
    }
}

impl Writer {
    fn take_back(&mut self, name: &ModelName) -> Option<Arc<Model>> {
        let at = self.leaving.iter().position(|model| model.name() == name)?;
        Some(self.leaving.swap_remove(at))
    }
}

#[cfg(test)]
mod tests;
