// SPDX-License-Identifier: Apache-2.0
//! Small adapters: what the admin listener asks for, from those who have it.

use std::sync::Arc;

use sluice_core::ModelName;
use sluice_scaler::{Handle, LogBook, LogLine, clock};
use tokio::sync::broadcast;

use crate::admin::{LoadView, LogSource, ModelLoad, Readiness};
use crate::gateway::Gateway;
use crate::route::Table;
use crate::telemetry::{self, Format, Sources};

/// The data plane's counters.
pub(super) struct Loads(pub(super) Arc<Table>);

impl LoadView for Loads {
    fn load(&self, model: &ModelName) -> Option<ModelLoad> {
        let demand = self.0.get(model.as_str())?.look();
        Some(ModelLoad {
            in_flight: demand.in_flight,
            queued: demand.queued,
            idle_since: demand.idle_since,
            by_replica: demand.by_replica,
        })
    }
}

/// What a scrape shows, from all over the process.
pub(super) struct Metrics {
    pub(super) gateway: Arc<Gateway>,
    pub(super) handle: Handle,
    pub(super) readiness: Arc<Readiness>,
}

impl Metrics {
    pub(super) fn render(&self, format: Format) -> String {
        let Gateway { table, connections, bodies, limits, .. } = &*self.gateway;
        let limits = limits.load();
        let sources = Sources {
            table,
            status: &self.handle.status(),
            counts: &self.handle.counts(),
            now: clock::now(),
            ready: self.readiness.verdict().passed(),
            connections: connections.open(),
            connections_refused: connections.refused(),
            connections_limit: limits.connections,
            body_memory: bodies.used(),
            body_memory_limit: limits.body_memory,
        };
        telemetry::render(format, &sources)
    }
}

/// What replicas print.
pub(super) struct Logs(pub(super) Arc<LogBook>);

impl LogSource for Logs {
    fn tail(&self, model: &ModelName, lines: usize) -> (Vec<LogLine>, broadcast::Receiver<LogLine>) {
        self.0.tail_and_follow(model, lines)
    }
}
