// SPDX-License-Identifier: Apache-2.0
//! One configured model in the data plane. Lives across route tables and reloads, so that its counts survive.
//!
//! Owns the lock around the model's line and carries out what the line decides. Lock order: the table's writer lock,
//! then one line; never two lines. Answers, wake-ups and messages to the scaler happen after the lock is released.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use sluice_core::{Demand, Micros, ModelName, ModelRoute};
use sluice_scaler::{Handle, Input, clock};
use tokio::sync::oneshot;

use super::ask::{Ask, Place};
use super::line::{Effect, Limits, Line, Step, unrouted};
use super::outlook::Prospect;
use super::permit::{Permit, Waiter};
use super::queue::Budgets;
use super::refusal::{Reason, Refusal};
use super::retries::{Retries, Retry};
use crate::balance::Endpoint;
use crate::config::ModelSettings;
use crate::exchange::budget::Budget;
use crate::telemetry::{Exposition, ModelMetrics, Phase};

type Reply = oneshot::Sender<Result<Permit, Refusal>>;

/// One model.
pub struct Model {
    name: ModelName,
    settings: ArcSwap<ModelSettings>,
    route: ArcSwap<ModelRoute>,
    line: Mutex<Line<Reply>>,
    bodies: Budget,
    retries: Retries,
    metrics: ModelMetrics,
    scaler: Handle,
}

/// What a request that was not refused got.
#[derive(Debug)]
pub enum Admission {
    /// A slot.
    Now(Permit),
    /// A place in the line.
    Wait(Waiter),
}

impl Model {
    /// A model that the scaler has not named yet. `replica_slots`: `containerConcurrency`, 0 if unlimited.
    pub fn new(settings: Arc<ModelSettings>, replica_slots: u32, scaler: Handle) -> Arc<Model> {
        Arc::new(Model {
            name: settings.name.clone(),
            line: Mutex::new(Line::new(settings.name.clone(), limits(&settings, replica_slots))),
            route: ArcSwap::from_pointee(unrouted()),
            bodies: Budget::new(settings.body_memory),
            retries: Retries::default(),
            metrics: ModelMetrics::default(),
            settings: ArcSwap::new(settings),
            scaler,
        })
    }

    /// Its name.
    pub fn name(&self) -> &ModelName {
        &self.name
    }

    /// Its configuration now.
    pub fn settings(&self) -> Arc<ModelSettings> {
        self.settings.load_full()
    }

    /// The scaler's latest word on it.
    pub fn route(&self) -> Arc<ModelRoute> {
        self.route.load_full()
    }

    /// Memory for the bodies of its requests.
    pub fn bodies(&self) -> &Budget {
        &self.bodies
    }

    /// Its metric handles.
    pub fn metrics(&self) -> &ModelMetrics {
        &self.metrics
    }

    /// A slot, a place in the line, or a refusal.
    pub fn admit(self: &Arc<Self>, ask: Ask) -> Result<Admission, Refusal> {
        self.decide(|line, now| line.admit(now, &ask))
    }

    /// After a failure at `permit`'s endpoint before any response byte: a slot elsewhere, or the request's old place in
    /// the line, which is before everybody of its class who came later. The same endpoint only if there is no other.
    /// Waits of one request count together against its budgets.
    pub fn readmit(self: &Arc<Self>, permit: Permit, ask: Ask) -> Result<Admission, Refusal> {
        debug_assert!(Arc::ptr_eq(self, permit.model()), "a permit is readmitted to its own model");
        let (endpoint, ticket) = (Arc::clone(permit.endpoint()), permit.ticket());
        permit.spend();
        self.decide(|line, now| line.readmit(now, &endpoint, ticket, &ask))
    }

    /// Leave for one request to be tried again, held until it ends; `None` while too many are.
    pub fn retry(&self) -> Option<Retry> {
        let (in_flight, queued) = self.counts();
        self.retries.take(in_flight + queued)
    }

    /// What a client may be told of the model now.
    pub fn prospect(&self) -> Prospect {
        self.lock().prospect(clock::now())
    }

    /// Its load now, for people to look at: the scaler's next report is not changed by it.
    pub fn look(&self) -> Demand {
        self.lock().look(clock::now())
    }

    /// In flight and queued.
    pub fn counts(&self) -> (usize, usize) {
        self.lock().counts()
    }

    pub(crate) fn configure(self: &Arc<Self>, settings: Arc<ModelSettings>, replica_slots: u32) {
        self.bodies.resize(settings.body_memory);
        let limits = limits(&settings, replica_slots);
        self.settings.store(settings);
        self.apply(|line| line.configure(limits));
    }

    pub(crate) fn publish(self: &Arc<Self>, now: Micros, route: Option<&ModelRoute>) {
        self.apply(|line| {
            line.publish(now, route);
            if !Arc::ptr_eq(line.route(), &self.route.load()) {
                self.route.store(Arc::clone(line.route()));
                self.metrics.routed(now, line.route());
            }
        });
    }

    pub(crate) fn remove(self: &Arc<Self>, now: Micros) {
        self.apply(|line| line.remove(now));
    }

    pub(crate) fn stop(self: &Arc<Self>, now: Micros) {
        self.apply(|line| line.stop(now));
    }

    pub(crate) fn sweep(self: &Arc<Self>, now: Micros) {
        self.apply(|line| line.sweep(now));
    }

    pub(crate) fn demand(&self, now: Micros) -> Demand {
        self.lock().demand(now)
    }

    /// Appends its numbers to a scrape.
    pub(crate) fn expose(&self, out: &mut Exposition) {
        let gauges = self.lock().gauges();
        self.metrics.expose(out, self.name.as_str(), &gauges);
    }

    pub(super) fn release(self: &Arc<Self>, now: Micros, endpoint: &Arc<Endpoint>, since: Micros) {
        self.apply(|line| line.release(now, endpoint, since));
    }

    pub(super) fn leave(self: &Arc<Self>, now: Micros, place: Place) {
        let reply = self.apply(|line| line.leave(now, place));
        if reply.is_some() {
            self.metrics.cancelled(Phase::Waiting);
        }
    }

    pub(super) fn refusal(&self, reason: Reason) -> Refusal {
        Refusal { model: self.name.clone(), reason, prospect: self.prospect() }
    }

    fn decide(
        self: &Arc<Self>,
        ask: impl FnOnce(&mut Line<Reply>, Micros) -> Result<Step, Refusal>,
    ) -> Result<Admission, Refusal> {
        let now = clock::now();
        let decided = self.apply(|line| {
            Ok(match ask(line, now)? {
                Step::Go(grant) => Admission::Now(Permit::new(Arc::clone(self), grant)),
                Step::Wait(ticket) => {
                    let (reply, decision) = oneshot::channel();
                    line.wait(now, ticket, reply);
                    Admission::Wait(Waiter::new(Arc::clone(self), ticket.place, decision))
                }
            })
        });
        decided.inspect_err(|refusal: &Refusal| self.metrics.refused(&refusal.reason))
    }

    /// Runs `change` under the lock and, after it, what it asks for.
    fn apply<T>(self: &Arc<Self>, change: impl FnOnce(&mut Line<Reply>) -> T) -> T {
        let mut line = self.lock();
        let result = change(&mut line);
        let effects = line.take_effects();
        drop(line);
        for effect in effects {
            self.carry_out(effect);
        }
        result
    }

    fn carry_out(self: &Arc<Self>, effect: Effect<Reply>) {
        match effect {
            Effect::Granted(reply, grant) => {
                let permit = Permit::new(Arc::clone(self), grant);
                self.metrics.waited(permit.queued_for(), permit.cold());
                // If the client has just left, the permit comes back, is dropped here and passes its slot on.
                let _ = reply.send(Ok(permit));
            }
            Effect::Refused(reply, refusal) => {
                self.metrics.refused(&refusal.reason);
                let _ = reply.send(Err(refusal));
            }
            Effect::Drained(told) => self.scaler.send(Input::Drained(told)),
            Effect::Poke => self.scaler.send(Input::Poke(self.name.clone())),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Line<Reply>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").field("name", &self.name).finish_non_exhaustive()
    }
}

fn limits(settings: &ModelSettings, replica_slots: u32) -> Limits {
    Limits {
        queue_length: settings.queue_length,
        queue_bytes: settings.queue_bytes,
        budgets: Budgets { cold: settings.timeouts.cold_start.into(), warm: settings.timeouts.queue.into() },
        replica_slots: replica_slots.max(1) as usize,
    }
}

#[cfg(test)]
mod tests;
