// SPDX-License-Identifier: Apache-2.0
//! One model's admission as a state machine: who gets a slot, who waits, who is refused, what the scaler is told.
//!
//! Pure over `now`; `R` is how a waiting request is answered. Everything that has to be done outside (answering,
//! telling the scaler) is left as an [`Effect`], to be carried out after the lock around the line is released.
//!
//! Rules it keeps after every call:
//! * no slot is free at an endpoint in rotation while somebody waits who may use it;
//! * slots go by class, then by arrival; a newcomer gets one only when everybody waiting was offered it;
//! * each request that came in is answered once: its place is taken out of the queue by whoever decides it;
//! * a closed endpoint (draining, no longer routed to) gets nothing.

use std::sync::Arc;

use sluice_core::{Demand, Drained, Micros, ModelName, ModelRoute, ModelState, WakeEstimate};

use super::ask::{Ask, Place, Spent, Ticket};
use super::load::Load;
use super::outlook::{self, Pace, Prospect};
use super::queue::{Budgets, Queue, Waiting};
use super::refusal::{Reason, Refusal};
use crate::balance::Endpoint;
use crate::balance::pick::Pool;
use crate::telemetry::ModelGauges;

/// Bounds of one model's line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Waiting requests at most, beyond those that the first replica could take at once.
    pub queue_length: usize,
    /// Bytes of their bodies at most.
    pub queue_bytes: usize,
    /// Longest waits.
    pub budgets: Budgets,
    /// Slots of one replica, as far as its configuration tells; at least 1.
    pub replica_slots: usize,
}

/// A slot that was reserved for a request.
#[derive(Debug)]
pub(crate) struct Grant {
    pub endpoint: Arc<Endpoint>,
    pub ticket: Ticket,
    /// When it was reserved.
    pub since: Micros,
    /// The wait before it.
    pub waited: Spent,
}

/// What becomes of a request that asks.
#[derive(Debug)]
pub(crate) enum Step {
    /// It has a slot.
    Go(Grant),
    /// It may wait: `Line::wait` is to follow under the same lock.
    Wait(Ticket),
}

/// To be done outside.
#[derive(Debug)]
pub(crate) enum Effect<R> {
    Granted(R, Grant),
    Refused(R, Refusal),
    Drained(Drained),
    Poke,
}

/// Whether there is a model behind the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    /// Configured here; the scaler has not named it yet.
    Awaited,
    Routed,
    /// The scaler named it and does so no longer.
    Withdrawn,
    /// No longer configured here.
    Removed,
}

/// One model's line.
#[derive(Debug)]
pub(crate) struct Line<R> {
    name: ModelName,
    limits: Limits,
    pool: Pool,
    queue: Queue<R>,
    load: Load,
    route: Arc<ModelRoute>,
    presence: Presence,
    stopping: bool,
    /// `Fault::failures` whose cause the waiting were told.
    answered: u32,
    /// A poke is on its way that no report has answered yet.
    poked: bool,
    arrivals: u64,
    effects: Vec<Effect<R>>,
}

impl<R> Line<R> {
    pub(crate) fn new(name: ModelName, limits: Limits) -> Self {
        Line {
            name,
            limits,
            pool: Pool::default(),
            queue: Queue::new(limits.budgets),
            load: Load::default(),
            route: Arc::new(unrouted()),
            presence: Presence::Awaited,
            stopping: false,
            answered: 0,
            poked: false,
            arrivals: 0,
            effects: Vec::new(),
        }
    }

    /// Takes over bounds; a removed model is there again.
    pub(crate) fn configure(&mut self, limits: Limits) {
        self.limits = limits;
        self.queue.set_budgets(limits.budgets);
        if self.presence == Presence::Removed {
            self.presence = Presence::Awaited;
        }
    }

    /// A request comes in.
    pub(crate) fn admit(&mut self, now: Micros, ask: &Ask) -> Result<Step, Refusal> {
        if let Some(reason) = self.closed() {
            return Err(self.refusal(now, reason));
        }
        self.arrivals += 1;
        let ticket = Ticket {
            place: Place::new(ask.class, self.arrivals),
            body_bytes: ask.body_bytes,
            deadline: ask.deadline,
            spent: Spent::default(),
            avoid: None,
        };
        self.check_deadline(now, &ticket)?;
        self.grant(now);
        if let Some(endpoint) = self.pool.reserve(now, None) {
            self.load.arrive_in_flight(now);
            return Ok(Step::Go(Grant { endpoint, ticket, since: now, waited: Spent::default() }));
        }
        self.check_wait(now, ask, &ticket)?;
        self.check_room(now, &ticket)?;
        Ok(Step::Wait(ticket))
    }

    /// The request at `endpoint` failed there without a response byte and asks for another replica. Its slot is given
    /// back; the line's bounds do not hold for it, because it was let in once.
    pub(crate) fn readmit(
        &mut self,
        now: Micros,
        endpoint: &Arc<Endpoint>,
        ticket: Ticket,
        ask: &Ask,
    ) -> Result<Step, Refusal> {
        let ticket =
            Ticket { avoid: Some(endpoint.id), deadline: ask.deadline, body_bytes: ask.body_bytes, ..ticket };
        self.give_back(endpoint);
        let step = self.again(now, ask, ticket);
        if step.is_err() {
            self.load.complete(now, None);
            self.ended();
        }
        if !matches!(step, Ok(Step::Wait(_))) {
            self.grant(now);
        }
        step
    }

    /// The request of `Step::Wait` takes its place.
    pub(crate) fn wait(&mut self, now: Micros, ticket: Ticket, reply: R) {
        if ticket.avoid.is_some() {
            self.load.requeue(now);
        } else {
            self.load.arrive_queued(now);
        }
        self.queue.insert(now, ticket, reply);
        self.poke();
        self.grant(now);
    }

    /// A waiting request's client has left. `None` if the request was decided before.
    pub(crate) fn leave(&mut self, now: Micros, place: Place) -> Option<R> {
        let waiting = self.queue.remove(now, place)?;
        self.load.unqueue(now, true, waiting.ticket.avoid.is_some());
        self.ended();
        Some(waiting.reply)
    }

    /// A request at `endpoint` has ended, having held its slot since `since`.
    pub(crate) fn release(&mut self, now: Micros, endpoint: &Arc<Endpoint>, since: Micros) {
        self.give_back(endpoint);
        self.load.complete(now, Some(now.since(since)));
        self.grant(now);
        self.ended();
    }

    /// Time has passed: refuses those whose budget is used up and offers slots that have come back into rotation.
    pub(crate) fn sweep(&mut self, now: Micros) {
        if self.queue.is_empty() {
            return;
        }
        for waiting in self.queue.expire(now) {
            self.refuse_late(now, waiting);
        }
        self.grant(now);
    }

    /// Takes over the scaler's word on this model; `None` if it does not name it.
    pub(crate) fn publish(&mut self, now: Micros, route: Option<&ModelRoute>) {
        if self.presence == Presence::Routed && route == Some(&self.route) {
            return;
        }
        self.presence = match (self.presence, route) {
            (Presence::Removed, _) => Presence::Removed,
            (_, Some(_)) => Presence::Routed,
            (Presence::Awaited, None) => Presence::Awaited,
            (_, None) => Presence::Withdrawn,
        };
        let former = std::mem::replace(&mut self.route, Arc::new(route.map_or_else(unrouted, Clone::clone)));
        let mut drained = Vec::new();
        self.pool.apply(&self.route.replicas, self.presence == Presence::Removed, &mut drained);
        self.effects.extend(drained.into_iter().map(Effect::Drained));
        self.queue.set_ready(now, self.pool.is_ready());
        if self.is_gone() {
            self.refuse_all(now, &Reason::ModelRemoved);
        }
        self.answer_fault(now);
        self.grant(now);
        if self.route.contended && !former.contended {
            self.ended();
        }
    }

    /// The model is no longer configured here. What is in flight ends in peace.
    pub(crate) fn remove(&mut self, now: Micros) {
        self.presence = Presence::Removed;
        self.pool.close();
        self.queue.set_ready(now, false);
        self.refuse_all(now, &Reason::ModelRemoved);
    }

    /// Sluice stops: nobody waits any more, and nobody comes in.
    pub(crate) fn stop(&mut self, now: Micros) {
        self.stopping = true;
        self.refuse_all(now, &Reason::Draining);
    }

    /// The load up to `now`. Later changes poke again.
    pub(crate) fn demand(&mut self, now: Micros) -> Demand {
        self.poked = false;
        let mut demand = self.load.report(now, self.name.clone());
        demand.by_replica = self.pool.by_replica();
        demand
    }

    /// The load up to `now`, without beginning a new report.
    pub(crate) fn look(&self, now: Micros) -> Demand {
        let mut demand = self.load.clone().report(now, self.name.clone());
        demand.by_replica = self.pool.by_replica();
        demand
    }

    /// What is to be done outside, in order. To be taken after every call.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect<R>> {
        std::mem::take(&mut self.effects)
    }

    /// The current route.
    pub(crate) fn route(&self) -> &Arc<ModelRoute> {
        &self.route
    }

    /// What a client may be told now.
    pub(crate) fn prospect(&self, now: Micros) -> Prospect {
        let waiting = self.queue.len() as u64;
        let pace = Pace { waiting, slots: self.pool.slots(), service: self.load.service() };
        outlook::prospect(now, &self.route, pace)
    }

    /// In flight and queued.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.load.in_flight() as usize, self.queue.len())
    }

    pub(crate) fn gauges(&self) -> ModelGauges {
        let replicas = &self.route.replicas;
        let draining = replicas.iter().filter(|replica| replica.draining).count();
        ModelGauges {
            in_flight: self.pool.by_replica(),
            queued: self.queue.depth(),
            ready: replicas.len() - draining,
            starting: self.route.starting,
            draining,
            desired: self.route.desired,
        }
    }

    /// Offers free slots to the waiting, in order.
    fn grant(&mut self, now: Micros) {
        self.grant_before(now, None);
    }

    /// Offers free slots to those who wait at an earlier place than `end`.
    fn grant_before(&mut self, now: Micros, end: Option<Place>) {
        let mut after = None;
        while let Some((ticket, is_late)) = self.queue.next(now, after) {
            let (place, avoid) = (ticket.place, ticket.avoid);
            if end.is_some_and(|end| place > end) {
                return;
            }
            if is_late {
                if let Some(waiting) = self.queue.remove(now, place) {
                    self.refuse_late(now, waiting);
                }
                continue;
            }
            match self.pool.reserve(now, avoid) {
                Some(endpoint) => self.dispatch(now, place, endpoint),
                // What is free may be just the endpoint where it failed: the next one may take that.
                None if avoid.is_some() => after = Some(place),
                None => return,
            }
        }
    }

    fn dispatch(&mut self, now: Micros, place: Place, endpoint: Arc<Endpoint>) {
        if let Some(Waiting { ticket, reply, waited, .. }) = self.queue.remove(now, place) {
            self.load.dispatch(now);
            self.effects.push(Effect::Granted(reply, Grant { endpoint, ticket, since: now, waited }));
        }
    }

    fn again(&mut self, now: Micros, ask: &Ask, ticket: Ticket) -> Result<Step, Refusal> {
        self.check_deadline(now, &ticket)?;
        self.grant_before(now, Some(ticket.place));
        if let Some(endpoint) = self.pool.reserve(now, ticket.avoid) {
            return Ok(Step::Go(Grant { endpoint, ticket, since: now, waited: Spent::default() }));
        }
        if let Some(reason) = self.closed() {
            return Err(self.refusal(now, reason));
        }
        self.check_wait(now, ask, &ticket)?;
        Ok(Step::Wait(ticket))
    }

    fn check_deadline(&self, now: Micros, ticket: &Ticket) -> Result<(), Refusal> {
        if ticket.deadline.is_some_and(|deadline| deadline <= now) {
            return Err(self.refusal(now, Reason::WaitedTooLong { by_client: true }));
        }
        Ok(())
    }

    /// Whether waiting makes sense: it is wanted, and a replica may be there in time by all that is known. The first
    /// request at zero always waits, or nothing would ever be started for it.
    fn check_wait(&self, now: Micros, ask: &Ask, ticket: &Ticket) -> Result<(), Refusal> {
        if !ask.hold {
            return Err(self.refusal(now, Reason::NotHeld));
        }
        let leaves_at = self.queue.leaves_at(now, ticket);
        let retry_at = self.route.fault.as_ref().map(|fault| fault.retry_at);
        let known = if self.queue.is_ready() { None } else { self.route.ready_at.or(retry_at) };
        if leaves_at <= now || known.is_some_and(|ready_at| ready_at > leaves_at) {
            return Err(self.refusal(now, Reason::NotInTime));
        }
        Ok(())
    }

    /// The bounds of the line. While no replica is ready, what the first one takes at once does not count against
    /// them: as many requests are let in at zero as would be beside an idle replica. One body may always wait.
    fn check_room(&self, now: Micros, ticket: &Ticket) -> Result<(), Refusal> {
        let waiting = self.queue.len();
        let first = if self.queue.is_ready() { 0 } else { self.limits.replica_slots };
        let is_long = waiting >= self.limits.queue_length.saturating_add(first);
        let is_large =
            waiting > 0 && self.queue.bytes().saturating_add(ticket.body_bytes) > self.limits.queue_bytes;
        if is_long || is_large {
            return Err(self.refusal(now, Reason::QueueFull { waiting }));
        }
        Ok(())
    }

    /// Why nobody new is let in.
    fn closed(&self) -> Option<Reason> {
        if self.is_gone() { Some(Reason::ModelRemoved) } else { self.stopping.then_some(Reason::Draining) }
    }

    fn is_gone(&self) -> bool {
        matches!(self.presence, Presence::Withdrawn | Presence::Removed)
    }

    /// Tells the waiting why starts fail, once per failure and only if none of them could be served otherwise.
    fn answer_fault(&mut self, now: Micros) {
        let Some(fault) = &self.route.fault else {
            self.answered = 0;
            return;
        };
        if fault.answer_waiters && fault.failures != self.answered {
            self.answered = fault.failures;
            if !self.queue.is_ready() {
                let cause = fault.cause.clone();
                self.refuse_all(now, &Reason::StartFailed { cause });
            }
        }
    }

    fn refuse_all(&mut self, now: Micros, reason: &Reason) {
        for waiting in self.queue.drain(now) {
            self.refuse(now, waiting, reason.clone());
        }
    }

    fn refuse_late(&mut self, now: Micros, waiting: Waiting<R>) {
        let by_client = waiting.ticket.deadline.is_some_and(|deadline| deadline <= now);
        self.refuse(now, waiting, Reason::WaitedTooLong { by_client });
    }

    fn refuse(&mut self, now: Micros, waiting: Waiting<R>, reason: Reason) {
        self.load.unqueue(now, false, waiting.ticket.avoid.is_some());
        let refusal = self.refusal(now, reason);
        self.effects.push(Effect::Refused(waiting.reply, refusal));
        self.ended();
    }

    fn refusal(&self, now: Micros, reason: Reason) -> Refusal {
        Refusal { model: self.name.clone(), reason, prospect: self.prospect(now) }
    }

    fn give_back(&mut self, endpoint: &Arc<Endpoint>) {
        let drained = self.pool.release(endpoint);
        self.effects.extend(drained.map(Effect::Drained));
    }

    /// A request has ended: if it was the last one and another model waits for what this one occupies, say so.
    fn ended(&mut self) {
        if self.route.contended && self.load.is_idle() {
            self.poke();
        }
    }

    fn poke(&mut self) {
        if !std::mem::replace(&mut self.poked, true) {
            self.effects.push(Effect::Poke);
        }
    }
}

/// What is known of a model that the scaler has not named.
pub(crate) fn unrouted() -> ModelRoute {
    ModelRoute {
        state: ModelState::Cold,
        replicas: Vec::new(),
        starting: 0,
        desired: 0,
        ready_at: None,
        wake: WakeEstimate::default(),
        fault: None,
        contended: false,
    }
}

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
