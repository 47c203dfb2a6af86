// SPDX-License-Identifier: Apache-2.0
//! What every client connection shares.
//!
//! Owns the references to the route table, the limits and the body budget, and the fact that Sluice is stopping. Must
//! not know protocols.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;

use crate::config::{Limits, Settings};
use crate::exchange::budget::Budget;
use crate::exchange::watch;
use crate::front::Guard;
use crate::route::Table;
use crate::trace::Tracer;

/// Shared by all connections.
pub struct Gateway {
    /// Models by name.
    pub table: Arc<Table>,
    /// Limits towards clients; replaced by a reload.
    pub limits: ArcSwap<Limits>,
    /// Bytes of bodies held in memory, all models together.
    pub bodies: Budget,
    /// Open client connections.
    pub connections: Guard,
    /// Records requests, if traces are configured; set before the first one.
    pub tracer: OnceLock<Tracer>,
    /// Requests between their head and their last byte.
    pub(crate) exchanges: AtomicUsize,
    draining: AtomicBool,
}

impl Gateway {
    /// Serving from the start.
    pub fn new(table: Arc<Table>, settings: &Settings) -> Arc<Gateway> {
        Arc::new(Gateway {
            table,
            bodies: Budget::new(settings.limits.body_memory),
            limits: ArcSwap::from_pointee(settings.limits.clone()),
            connections: Guard::default(),
            tracer: OnceLock::new(),
            exchanges: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
        })
    }

    /// Takes over a changed configuration; connections see new limits when they are opened.
    pub fn configure(&self, settings: &Settings) {
        self.limits.store(Arc::new(settings.limits.clone()));
        self.bodies.resize(settings.limits.body_memory);
        self.table.configure(settings);
    }

    /// Requests between their head and their last byte.
    pub fn exchanges(&self) -> usize {
        self.exchanges.load(SeqCst)
    }

    /// From now on every answer ends its connection, and idle connections close.
    pub fn begin_drain(&self) {
        self.draining.store(true, SeqCst);
        self.table.begin_drain();
        watch::wake_all();
    }

    /// Sluice is stopping.
    pub fn is_draining(&self) -> bool {
        self.draining.load(SeqCst)
    }
}
