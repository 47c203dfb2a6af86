// SPDX-License-Identifier: Apache-2.0
//! The waiting requests of one model, in order, with their budgets.
//!
//! Owns order, bytes and the two stopwatches of each request: time waited while the model had no ready replica and
//! while it had one. Must not know replicas. Pure over `now`. `R` is how a request is answered.
//!
//! The stopwatches are two running totals of the whole line; a request remembers where they stood when it came, so a
//! change of the model's condition costs nothing per request. `due` is a lower bound of the next expiry: a sweep
//! before it looks at nobody.

use std::collections::BTreeMap;
use std::ops::Bound;

use sluice_core::Micros;

use super::ask::{Class, Place, Spent, Ticket};

/// Longest waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budgets {
    /// While the model has no ready replica.
    pub cold: Micros,
    /// While it has one.
    pub warm: Micros,
}

/// The line of one model.
#[derive(Debug)]
pub(crate) struct Queue<R> {
    waiting: BTreeMap<Place, Waiting<R>>,
    depth: [usize; Class::ALL.len()],
    bytes: usize,
    ready: bool,
    since: Micros,
    total: Spent,
    budgets: Budgets,
    due: Micros,
}

/// One waiting request.
#[derive(Debug)]
pub(crate) struct Waiting<R> {
    pub ticket: Ticket,
    pub reply: R,
    /// Of this wait alone; known when it is over.
    pub waited: Spent,
    mark: Spent,
}

impl<R> Queue<R> {
    pub(crate) fn new(budgets: Budgets) -> Self {
        let due = Micros(u64::MAX);
        let (waiting, depth, since, total) = Default::default();
        Queue { waiting, depth, bytes: 0, ready: false, since, total, budgets, due }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Body bytes of all waiting requests.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Waiting requests by class, in the order of `Class::ALL`.
    pub(crate) fn depth(&self) -> [usize; Class::ALL.len()] {
        self.depth
    }

    /// Whether time counts as waiting for a busy replica (`true`) or for one to start.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready
    }

    /// Changes what time counts as, from `now` on.
    pub(crate) fn set_ready(&mut self, now: Micros, ready: bool) {
        self.total = self.total(now);
        self.since = self.since.max(now);
        if self.ready != ready {
            self.ready = ready;
            self.due = Micros::ZERO;
        }
    }

    /// Changes the budgets, for those already waiting too.
    pub(crate) fn set_budgets(&mut self, budgets: Budgets) {
        if self.budgets != budgets {
            self.budgets = budgets;
            self.due = Micros::ZERO;
        }
    }

    /// When a request that has already spent what its ticket says would have to leave, were it to wait from `now`.
    pub(crate) fn leaves_at(&self, now: Micros, ticket: &Ticket) -> Micros {
        let left = if self.ready {
            self.budgets.warm.since(ticket.spent.warm)
        } else {
            self.budgets.cold.since(ticket.spent.cold)
        };
        now.after(left).min(ticket.deadline.unwrap_or(Micros(u64::MAX)))
    }

    /// Puts a request at its place.
    pub(crate) fn insert(&mut self, now: Micros, ticket: Ticket, reply: R) {
        self.due = self.due.min(self.leaves_at(now, &ticket));
        self.bytes = self.bytes.saturating_add(ticket.body_bytes);
        self.count(ticket.place, 1);
        let (waited, mark) = (Spent::default(), self.total(now));
        self.waiting.insert(ticket.place, Waiting { ticket, reply, waited, mark });
    }

    /// Takes a request out, its waits brought up to `now`.
    pub(crate) fn remove(&mut self, now: Micros, place: Place) -> Option<Waiting<R>> {
        let mut waiting = self.waiting.remove(&place)?;
        self.bytes = self.bytes.saturating_sub(waiting.ticket.body_bytes);
        self.count(place, -1);
        waiting.waited = self.total(now).since(waiting.mark);
        waiting.ticket.spent = waiting.ticket.spent.plus(waiting.waited);
        Some(waiting)
    }

    /// The first request behind `after`, or of all, and whether its budget is used up.
    pub(crate) fn next(&self, now: Micros, after: Option<Place>) -> Option<(&Ticket, bool)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (_, waiting) = self.waiting.range((from, Bound::Unbounded)).next()?;
        Some((&waiting.ticket, self.is_over(now, waiting)))
    }

    /// Takes out everybody whose budget is used up.
    pub(crate) fn expire(&mut self, now: Micros) -> Vec<Waiting<R>> {
        if now < self.due {
            return Vec::new();
        }
        let over = |waiting: &&Waiting<R>| self.is_over(now, waiting);
        let places: Vec<Place> =
            self.waiting.values().filter(over).map(|waiting| waiting.ticket.place).collect();
        let expired = places.into_iter().filter_map(|place| self.remove(now, place)).collect();
        let ends = self.waiting.values().map(|waiting| self.ends(now, waiting));
        self.due = ends.min().unwrap_or(Micros(u64::MAX));
        expired
    }

    /// Takes out everybody, in order.
    pub(crate) fn drain(&mut self, now: Micros) -> Vec<Waiting<R>> {
        let places: Vec<Place> = self.waiting.keys().copied().collect();
        places.into_iter().filter_map(|place| self.remove(now, place)).collect()
    }

    fn is_over(&self, now: Micros, waiting: &Waiting<R>) -> bool {
        self.ends(now, waiting) <= now
    }

    fn ends(&self, now: Micros, waiting: &Waiting<R>) -> Micros {
        self.leaves_at(now, &Ticket { spent: self.spent(now, waiting), ..waiting.ticket })
    }

    fn spent(&self, now: Micros, waiting: &Waiting<R>) -> Spent {
        waiting.ticket.spent.plus(self.total(now).since(waiting.mark))
    }

    fn total(&self, now: Micros) -> Spent {
        let span = now.since(self.since);
        let running = if self.ready {
            Spent { warm: span, ..Spent::default() }
        } else {
            Spent { cold: span, ..Spent::default() }
        };
        self.total.plus(running)
    }

    fn count(&mut self, place: Place, by: isize) {
        if let Some(depth) = self.depth.get_mut(place.class() as usize) {
            *depth = depth.saturating_add_signed(by);
        }
    }
}

#[cfg(test)]
mod tests;
