// SPDX-License-Identifier: Apache-2.0
//! How many client connections may be open, in all and from one address.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

use dashmap::DashMap;

use crate::config::Limits;

/// Counts open connections.
#[derive(Clone, Default)]
pub struct Guard {
    all: Arc<AtomicUsize>,
    refused: Arc<AtomicU64>,
    /// Grows and shrinks with traffic: an address without connections has no entry.
    by_source: Arc<DashMap<IpAddr, usize>>,
}

/// One open connection; counts until dropped.
pub struct Place {
    guard: Guard,
    source: IpAddr,
}

impl Guard {
    /// Connections that are open now.
    pub fn open(&self) -> usize {
        self.all.load(SeqCst)
    }

    /// Connections that got no place, ever.
    pub fn refused(&self) -> u64 {
        self.refused.load(SeqCst)
    }

    /// A place for one more connection, if the limits leave one.
    pub fn enter(&self, source: IpAddr, limits: &Limits) -> Option<Place> {
        let before = self.all.fetch_add(1, SeqCst);
        let mut of_source = self.by_source.entry(source).or_default();
        *of_source += 1;
        let per_source = limits.connections_per_source;
        let fits = before < limits.connections && (per_source == 0 || *of_source <= per_source);
        drop(of_source);
        let place = Place { guard: self.clone(), source };
        if !fits {
            self.refused.fetch_add(1, SeqCst);
        }
        fits.then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.guard.all.fetch_sub(1, SeqCst);
        if let Some(mut count) = self.guard.by_source.get_mut(&self.source) {
            *count = count.saturating_sub(1);
        }
        self.guard.by_source.remove_if(&self.source, |_, count| *count == 0);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;

    fn limits(connections: usize, connections_per_source: usize) -> Limits {
        Limits {
            connections,
            connections_per_source,
            head_timeout: Duration::ZERO,
            idle_timeout: Duration::ZERO,
            body_timeout: Duration::ZERO,
            write_timeout: Duration::ZERO,
            body_memory: 0,
            body_limit: 0,
            h2_streams: 1,
        }
    }

    #[test]
    fn the_limits_hold_and_places_come_back() {
        let guard = Guard::default();
        let (a, b): (IpAddr, IpAddr) = ("127.0.0.1".parse().unwrap(), "127.0.0.2".parse().unwrap());
        let first = guard.enter(a, &limits(2, 1));
        assert!(first.is_some());
        assert!(guard.enter(a, &limits(2, 1)).is_none(), "one per source");
        let second = guard.enter(b, &limits(2, 1));
        assert!(second.is_some());
        assert!(guard.enter(b, &limits(2, 0)).is_none(), "two in all");
        drop(first);
        assert!(guard.enter(a, &limits(2, 1)).is_some());
        drop(second);
        assert!(guard.by_source.is_empty(), "no entry stays behind");
    }
}
