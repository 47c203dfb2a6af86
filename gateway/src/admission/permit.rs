// SPDX-License-Identifier: Apache-2.0
//! What a request holds: a reserved slot, or a place in the line.
//!
//! Both give back what they hold when dropped, exactly once, on whatever way a request ends. Dropping takes the
//! model's lock for a moment and never waits.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use sluice_core::Micros;
use sluice_scaler::clock;
use tokio::sync::oneshot;

use super::ask::{Place, Spent, Ticket};
use super::line::Grant;
use super::model::Model;
use super::refusal::{Reason, Refusal};
use crate::balance::Endpoint;

/// One reserved slot on one endpoint of one model. Whoever holds it may send one request there.
#[must_use = "dropping a permit gives its slot to somebody else"]
pub struct Permit {
    model: Arc<Model>,
    endpoint: Arc<Endpoint>,
    ticket: Ticket,
    since: Micros,
    waited: Spent,
    /// Its slot was given back otherwise.
    spent: bool,
}

impl Permit {
    pub(super) fn new(model: Arc<Model>, grant: Grant) -> Permit {
        let Grant { endpoint, ticket, since, waited } = grant;
        Permit { model, endpoint, ticket, since, waited, spent: false }
    }

    /// Where to send.
    pub fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// For what model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Time waited in the line for this permit; earlier waits of a request that was readmitted are not in it.
    pub fn queued_for(&self) -> Duration {
        self.waited.cold.after(self.waited.warm).into()
    }

    /// Whether that wait was, at least in part, for a replica to start.
    pub fn cold(&self) -> bool {
        self.waited.cold > Micros::ZERO
    }

    pub(super) fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// The line takes the slot back itself.
    pub(super) fn spend(mut self) {
        self.spent = true;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.spent {
            self.model.release(clock::now(), &self.endpoint, self.since);
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("model", self.model.name()).field("endpoint", &self.endpoint).finish()
    }
}

/// A place in the line. Resolves to a permit or a refusal; dropping it before leaves the line at once, and a slot that
/// was granted meanwhile goes to the next.
#[must_use = "dropping a waiter leaves the line"]
pub struct Waiter {
    model: Arc<Model>,
    place: Place,
    decision: oneshot::Receiver<Result<Permit, Refusal>>,
    decided: bool,
}

impl Waiter {
    pub(super) fn new(
        model: Arc<Model>,
        place: Place,
        decision: oneshot::Receiver<Result<Permit, Refusal>>,
    ) -> Waiter {
        Waiter { model, place, decision, decided: false }
    }
}

impl Future for Waiter {
    type Output = Result<Permit, Refusal>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Poll::Ready(decision) = Pin::new(&mut self.decision).poll(cx) else { return Poll::Pending };
        self.decided = true;
        // The line answers everybody whom it takes out, so a lost answer means that the line itself is gone.
        Poll::Ready(decision.unwrap_or_else(|_| Err(self.model.refusal(Reason::ModelRemoved))))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if !self.decided {
            self.model.leave(clock::now(), self.place);
        }
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").field("model", self.model.name()).finish_non_exhaustive()
    }
}
