// SPDX-License-Identifier: Apache-2.0
//! Small adapters: what the admin listener asks for, from those who have it.

use std::sync::Arc;

use sluice_core::ModelName;
use sluice_scaler::{LogBook, LogLine};
use tokio::sync::broadcast;

use crate::admin::{LoadView, LogSource, ModelLoad};
use crate::route::Table;

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

/// What replicas print.
pub(super) struct Logs(pub(super) Arc<LogBook>);

impl LogSource for Logs {
    fn tail(&self, model: &ModelName, lines: usize) -> (Vec<LogLine>, broadcast::Receiver<LogLine>) {
        self.0.tail_and_follow(model, lines)
    }
}
