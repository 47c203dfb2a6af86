// SPDX-License-Identifier: Apache-2.0
//! What the tests of admission, routes and metrics build their worlds from.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use sluice_core::{Address, Fault, Micros, ModelRoute, ModelState, ReplicaId, ReplicaRoute};

use super::line::{Limits, unrouted};
use super::queue::Budgets;

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
        drains: 0,
        ready_since: Micros::ZERO,
    }
}

pub(crate) fn draining(id: u64, capacity: u32) -> ReplicaRoute {
    ReplicaRoute { draining: true, drains: 1, ..replica(id, capacity) }
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
