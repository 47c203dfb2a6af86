// SPDX-License-Identifier: Apache-2.0
//! The endpoints of one model and the choice among them.
//!
//! Owns which endpoints exist, which slot is taken next, and when a drained endpoint is told of. Must not know queues.
//! Pure over `now`; used under the model's lock.
//!
//! The choice is exact: the lowest in-flight per weight over all endpoints with a free slot, starting at a place that
//! moves on with each choice, so that ties do not herd. An endpoint that was set aside after a failed connection is
//! skipped until its next trial is due.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_core::{Drained, Micros, ReplicaId, ReplicaRoute};

use super::endpoint::{Endpoint, Fullness};

/// One model's endpoints.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    routed: Vec<Slot>,
    /// No longer routed to, with something in flight.
    leaving: Vec<Slot>,
    start: usize,
}

#[derive(Debug)]
struct Slot {
    endpoint: Arc<Endpoint>,
    drain: Drain,
}

/// Whether the scaler waits to hear that an endpoint is empty, and for which of its drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drain {
    No,
    Awaited(u32),
    Reported(u32),
}

impl Pool {
    /// Takes a slot on the least full endpoint; not on `avoid` unless there is no other to try.
    pub(crate) fn reserve(&mut self, now: Micros, avoid: Option<ReplicaId>) -> Option<Arc<Endpoint>> {
        let avoid = avoid.filter(|&id| self.has_other(now, id));
        let mut best: Option<(&Arc<Endpoint>, Fullness)> = None;
        let start = self.start.checked_rem(self.routed.len()).unwrap_or(0);
        let (tail, head) = self.routed.split_at(start);
        for slot in head.iter().chain(tail) {
            let endpoint = &slot.endpoint;
            if Some(endpoint.id) == avoid || !endpoint.is_in_turn(now) {
                continue;
            }
            let Some(fullness) = endpoint.fullness(now) else { continue };
            if best.is_none_or(|(_, least)| fullness.is_below(least)) {
                best = Some((endpoint, fullness));
            }
        }
        let endpoint =
            best.filter(|(endpoint, _)| endpoint.try_reserve(now)).map(|(endpoint, _)| Arc::clone(endpoint));
        self.start = self.start.wrapping_add(1);
        endpoint
    }

    /// Gives a slot back; returns the drain that is complete by that.
    pub(crate) fn release(&mut self, endpoint: &Arc<Endpoint>) -> Option<Drained> {
        if endpoint.release() > 0 || !endpoint.is_draining() {
            return None;
        }
        let find = |slots: &[Slot]| slots.iter().position(|slot| Arc::ptr_eq(&slot.endpoint, endpoint));
        if let Some(at) = find(&self.leaving) {
            return self.leaving.swap_remove(at).emptied();
        }
        find(&self.routed).and_then(|at| self.routed.get_mut(at)).and_then(Slot::emptied)
    }

    /// Takes over the scaler's list. Endpoints are kept by id and address; one that is draining or no longer listed
    /// takes nothing new. `closed` closes all of them. Drains that are complete at once go to `drained`.
    pub(crate) fn apply(&mut self, replicas: &[ReplicaRoute], closed: bool, drained: &mut Vec<Drained>) {
        let mut former = std::mem::take(&mut self.routed);
        former.append(&mut self.leaving);
        for replica in replicas {
            let is_it =
                |slot: &Slot| slot.endpoint.id == replica.id && slot.endpoint.address == replica.address;
            let mut slot = match former.iter().position(is_it) {
                Some(at) => former.swap_remove(at),
                None => Slot { endpoint: Arc::new(Endpoint::new(replica)), drain: Drain::No },
            };
            slot.endpoint.set(replica.capacity, replica.draining || closed, replica.ready_since);
            slot.drain = match (replica.draining, slot.drain) {
                (false, _) => Drain::No,
                (true, Drain::Reported(told)) if told == replica.drains => Drain::Reported(told),
                (true, _) => Drain::Awaited(replica.drains),
            };
            self.routed.push(slot);
        }
        self.leaving = former;
        for slot in &mut self.leaving {
            slot.endpoint.close();
            if replicas.iter().any(|replica| replica.id == slot.endpoint.id) {
                // The same replica at a new address: what runs at the old one ends there, untold.
                slot.drain = Drain::Reported(0);
            } else if slot.drain == Drain::No {
                slot.drain = Drain::Awaited(0);
            }
        }
        let empty = |slot: &&mut Slot| slot.endpoint.in_flight() == 0;
        drained
            .extend(self.routed.iter_mut().chain(&mut self.leaving).filter(empty).filter_map(Slot::emptied));
        self.leaving.retain(|slot| slot.endpoint.in_flight() > 0);
    }

    /// Closes every endpoint without a drain: nothing new is sent, and nothing is told until the scaler drains it.
    pub(crate) fn close(&mut self) {
        for slot in &self.routed {
            slot.endpoint.close();
        }
    }

    /// Whether some endpoint takes requests, now or when it has room.
    pub(crate) fn is_ready(&self) -> bool {
        self.routed.iter().any(|slot| slot.endpoint.is_open())
    }

    /// Requests that may be in flight at once at all open endpoints together.
    pub(crate) fn slots(&self) -> u64 {
        let open = self.routed.iter().filter(|slot| slot.endpoint.is_open());
        open.map(|slot| u64::from(slot.endpoint.capacity())).sum()
    }

    /// Requests in flight by replica.
    pub(crate) fn by_replica(&self) -> BTreeMap<ReplicaId, u32> {
        let mut by_replica = BTreeMap::new();
        for slot in self.routed.iter().chain(&self.leaving) {
            *by_replica.entry(slot.endpoint.id).or_default() += slot.endpoint.in_flight();
        }
        by_replica
    }

    /// Every endpoint that is routed to.
    #[cfg(test)]
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = &Arc<Endpoint>> {
        self.routed.iter().map(|slot| &slot.endpoint)
    }

    fn has_other(&self, now: Micros, than: ReplicaId) -> bool {
        self.routed
            .iter()
            .map(|slot| &slot.endpoint)
            .any(|e| e.id != than && e.is_open() && e.is_in_turn(now))
    }
}

impl Slot {
    /// The drain's end, told once.
    fn emptied(&mut self) -> Option<Drained> {
        let Drain::Awaited(drain) = self.drain else { return None };
        self.drain = Drain::Reported(drain);
        Some(Drained { replica: self.endpoint.id, drain })
    }
}

#[cfg(test)]
mod tests;
