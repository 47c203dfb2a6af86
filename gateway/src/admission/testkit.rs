// SPDX-License-Identifier: Apache-2.0
//! What the tests of admission, routes and metrics build their worlds from.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sluice_core::{
    Address, Bytes, Fault, LifeSpec, Micros, ModelName, ModelRoute, ModelSpec, ModelState, ReplicaId,
    ReplicaRoute, Routes, ScaleSpec, Source,
};
use sluice_scaler::Plan;

use super::line::{Limits, unrouted};
use super::queue::Budgets;
use crate::config::{self, ModelSettings, Protocol, Settings, Shutdown, Timeouts};

pub(crate) const fn ms(n: u64) -> Micros {
    Micros::from_millis(n)
}

pub(crate) fn replica(id: u64, capacity: u32) -> ReplicaRoute {
    ReplicaRoute {
        id: ReplicaId(id),
        address: Address {
            socket: ([127, 0, 0, 1], u16::try_from(id).unwrap()).into(),
            host: None,
            tls: false,
        },
        capacity,
        draining: false,
        ready_since: Micros::ZERO,
    }
}

pub(crate) fn draining(id: u64, capacity: u32) -> ReplicaRoute {
    ReplicaRoute { draining: true, ..replica(id, capacity) }
}

pub(crate) fn ready(replicas: &[ReplicaRoute]) -> ModelRoute {
    let count = u32::try_from(replicas.len()).unwrap();
    ModelRoute { state: ModelState::Ready, replicas: replicas.to_vec(), desired: count, ..unrouted() }
}

pub(crate) fn starting() -> ModelRoute {
    ModelRoute { state: ModelState::Starting, starting: 1, desired: 1, ..unrouted() }
}

pub(crate) fn failing(failures: u32, retry_at: Micros) -> ModelRoute {
    let fault =
        Fault { failures, answer_waiters: true, cause: "exit status 3: no such file".into(), retry_at };
    ModelRoute { fault: Some(fault), ..unrouted() }
}

pub(crate) fn limits(queue_length: usize, replica_slots: usize) -> Limits {
    let budgets = Budgets { cold: ms(60_000), warm: ms(30_000) };
    Limits { queue_length, queue_bytes: 1 << 20, budgets, replica_slots }
}

pub(crate) fn model_settings(name: &str) -> ModelSettings {
    ModelSettings {
        name: name.into(),
        body_limit: 1 << 20,
        body_memory: 1 << 20,
        queue_length: 100,
        queue_bytes: 1 << 20,
        timeouts: Timeouts {
            cold_start: Duration::from_secs(60),
            queue: Duration::from_secs(60),
            connect: Duration::from_secs(1),
            first_byte: None,
            between_bytes: None,
            total: None,
        },
        protocol: Protocol::Http1,
        backend_key: None,
        pass_credentials: false,
        retry_stale: true,
        created: 0,
    }
}

fn model_spec(container_concurrency: u32) -> ModelSpec {
    let scale = ScaleSpec {
        min_replicas: 0,
        max_replicas: 1,
        target_milli: 1_000,
        container_concurrency,
        idle_after: ms(1_000),
        window: ms(1_000),
        preload: false,
    };
    let life = LifeSpec {
        start_deadline: ms(1_000),
        drain_deadline: ms(1_000),
        stop_deadline: ms(1_000),
        start_attempts: 1,
        backoff_first: ms(100),
        backoff_max: ms(100),
    };
    ModelSpec { generation: 1, source: Source::Launched, scale, life, memory: Bytes(0), groups: Vec::new() }
}

/// A configuration with these models, each with that `containerConcurrency`.
pub(crate) fn settings(models: &[(&str, u32)]) -> Settings {
    let mut plan = Plan::default();
    for (name, slots) in models {
        plan.fleet.models.insert((*name).into(), model_spec(*slots));
    }
    let names = models.iter().map(|(name, _)| *name);
    Settings {
        listen: Vec::new(),
        tls: None,
        admin: ([127, 0, 0, 1], 0).into(),
        threads: 1,
        limits: config::Limits {
            connections: 100,
            connections_per_source: 0,
            head_timeout: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(1),
            body_timeout: Duration::from_secs(1),
            write_timeout: Duration::from_secs(1),
            body_memory: 1 << 20,
            body_limit: 1 << 20,
            h2_streams: 10,
        },
        shutdown: Shutdown { drain_delay: Duration::ZERO, deadline: Duration::from_secs(1) },
        models: names.map(|name| (ModelName::from(name), Arc::new(model_settings(name)))).collect(),
        plan,
    }
}

pub(crate) fn routes(version: u64, models: &[(&str, ModelRoute)]) -> Arc<Routes> {
    let models: BTreeMap<_, _> = models.iter().map(|(name, route)| ((*name).into(), route.clone())).collect();
    Arc::new(Routes { version, models })
}
