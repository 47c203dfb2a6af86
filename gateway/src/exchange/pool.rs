// SPDX-License-Identifier: Apache-2.0
//! Idle connections to replicas, kept for the next request.
//!
//! Owns which connection may be used again. No task watches an idle connection: the runtime has heard of a close by the
//! time one is taken out or swept, and the look costs no system call while nothing has happened. What still slips
//! through (the replica closes while the request is on its way) is what the retry rule is for.

use std::pin::Pin;
use std::sync::LazyLock;
use std::task::Context;
use std::time::{Duration, Instant};

use dashmap::DashMap;
use sluice_core::ReplicaId;
use tokio::io::{AsyncRead, ReadBuf};

use super::transport::Transport;

/// Below the 5 s after which the servers under most Python engines close an idle connection.
const IDLE_MAX: Duration = Duration::from_secs(4);
/// Connections kept per replica.
const KEPT_MAX: usize = 1024;

struct Idle {
    io: Transport,
    since: Instant,
}

static POOL: LazyLock<DashMap<ReplicaId, Vec<Idle>>> = LazyLock::new(DashMap::new);

/// A kept connection that is still open, the latest used first.
pub fn take(replica: ReplicaId) -> Option<Transport> {
    let mut kept = POOL.get_mut(&replica)?;
    while let Some(mut idle) = kept.pop() {
        if idle.since.elapsed() < IDLE_MAX && is_quiet(&mut idle.io) {
            return Some(idle.io);
        }
    }
    None
}

/// Keeps a connection whose last exchange ended cleanly.
pub fn put(replica: ReplicaId, io: Transport) {
    let mut kept = POOL.entry(replica).or_default();
    if kept.len() < KEPT_MAX {
        kept.push(Idle { io, since: Instant::now() });
    }
}

/// Closes what has been idle for too long or was closed by its replica. Runs ten times a second.
pub fn sweep() {
    POOL.retain(|_, kept| {
        kept.retain_mut(|idle| idle.since.elapsed() < IDLE_MAX && is_quiet(&mut idle.io));
        !kept.is_empty()
    });
}

/// Nothing has arrived: neither a close nor bytes that nobody asked for.
fn is_quiet(io: &mut Transport) -> bool {
    let mut byte = [0];
    let mut cx = Context::from_waker(std::task::Waker::noop());
    Pin::new(io).poll_read(&mut cx, &mut ReadBuf::new(&mut byte)).is_pending()
}
