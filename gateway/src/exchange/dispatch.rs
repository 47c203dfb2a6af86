// SPDX-License-Identifier: Apache-2.0
//! From a whole request to a replica's response head: admission, connection, sending, and another try where allowed.
//!
//! Owns the order of these steps and the budgets between dispatch and response head. Must not know who the client is;
//! whoever calls drops the future when the client leaves, and everything held here is released by that.

use std::sync::Arc;
use std::time::Duration;

use sluice_scaler::clock;

use super::error::Failure;
use super::io::Pair;
use super::outgoing::with_host;
use super::pool;
use super::record::Record;
use super::retry::{self, Ended};
use super::transport::{self, Transport};
use super::watch::{Over, Tick, Watch};
use crate::admission::{Admission, Ask, Model, Permit};
use crate::http1::replica::{Asked, Broken, Up};

/// What to send, for whom.
pub struct Job<'a> {
    /// The model.
    pub model: &'a Arc<Model>,
    /// How it wants to be admitted.
    pub ask: Ask,
    /// Decides how the answer is read.
    pub asked: Asked,
    /// Of the connection or stream.
    pub watch: &'a Watch,
}

/// A replica that has begun to answer, or is connected to and waits for the request.
pub struct Dispatched {
    /// The replica's side.
    pub up: Up,
    /// End of the request's total budget.
    pub total: Option<Tick>,
}

/// Sends a request that is wholly in memory and waits for the first response head, which `out` gets.
pub async fn whole(
    job: &Job<'_>,
    request: Pair<'_>,
    record: &mut Record,
    out: &mut Vec<u8>,
) -> Result<Dispatched, Failure> {
    let settings = job.model.settings();
    let (mut connects, mut resends) = (0, 0);
    // Held until the response head: a request sent again is load that its replicas have had once.
    let mut leave;
    let mut admission = job.model.admit(job.ask)?;
    loop {
        let permit = admitted(job, admission, record).await?;
        let mut up = match connected(job, permit, resends == 0).await {
            Ok(up) => up,
            Err(permit) => {
                connects += 1;
                if !retry::again(Ended::NotConnected, connects, resends, settings.retry_stale) {
                    return Err(Failure::Unreachable);
                }
                admission = job.model.readmit(permit, job.ask)?;
                continue;
            }
        };
        let total = settings.timeouts.total.map(Tick::after);
        match first_head(job, &mut up, request, total, out).await {
            Ok(()) => {
                up.permit().endpoint().answered();
                record.answered(up.head().status);
                return Ok(Dispatched { up, total });
            }
            Err(Broken::Closed) => {
                let ended = Ended::Broken { reused: up.reused(), responded: up.responded() };
                let may = retry::again(ended, connects, resends, settings.retry_stale);
                leave = if may { job.model.retry() } else { None };
                if leave.is_none() {
                    up.permit().endpoint().broke_off(clock::now());
                    return Err(Failure::Upstream("it closed the connection"));
                }
                resends += 1;
                admission = job.model.readmit(up.into_permit(), job.ask)?;
            }
            Err(broken) => return Err(failure(broken, total)),
        }
    }
}

/// Waits for a replica and connects to it; for a request whose body is streamed and can be sent only once.
pub async fn connect_only(job: &Job<'_>, record: &mut Record) -> Result<Dispatched, Failure> {
    let mut connects = 0;
    let mut admission = job.model.admit(job.ask)?;
    loop {
        let permit = admitted(job, admission, record).await?;
        match connected(job, permit, false).await {
            Ok(up) => {
                let total = job.model.settings().timeouts.total.map(Tick::after);
                return Ok(Dispatched { up, total });
            }
            Err(permit) => {
                connects += 1;
                if !retry::again(Ended::NotConnected, connects, 0, false) {
                    return Err(Failure::Unreachable);
                }
                admission = job.model.readmit(permit, job.ask)?;
            }
        }
    }
}

/// A reservation, at once or after waiting in line. The line keeps its own budgets.
pub(crate) async fn admitted(
    job: &Job<'_>,
    admission: Admission,
    record: &mut Record,
) -> Result<Permit, Failure> {
    job.watch.set(None);
    job.watch.uses(None);
    let permit = match admission {
        Admission::Now(permit) => permit,
        Admission::Wait(waiter) => waiter.await?,
    };
    record.dispatched(&permit);
    job.watch.uses(Some(permit.endpoint().id));
    Ok(permit)
}

/// A connection to the reserved replica; the reservation comes back if there is none.
async fn connected(job: &Job<'_>, permit: Permit, kept: bool) -> Result<Up, Permit> {
    let endpoint = permit.endpoint();
    if kept && let Some(io) = pool::take(endpoint.id) {
        return Ok(Up::new(io, true, permit, job.asked));
    }
    match open(&permit, false, job.model.settings().timeouts.connect).await {
        Some(io) => Ok(Up::new(io, false, permit, job.asked)),
        None => Err(permit),
    }
}

/// A fresh connection; a failure is remembered against the replica.
pub(crate) async fn open(permit: &Permit, http2: bool, limit: Duration) -> Option<Transport> {
    let endpoint = permit.endpoint();
    // Boxed: most requests find a kept connection, and every waiting one would hold the room of a TLS handshake.
    match Box::pin(transport::connect(&endpoint.address, http2, limit)).await {
        Ok(io) => {
            endpoint.connected();
            Some(io)
        }
        Err(error) => {
            tracing::debug!(replica = %endpoint.id, %error, "replica_connect_failed");
            endpoint.connect_failed(clock::now());
            None
        }
    }
}

async fn first_head(
    job: &Job<'_>,
    up: &mut Up,
    request: Pair<'_>,
    total: Option<Tick>,
    out: &mut Vec<u8>,
) -> Result<(), Broken> {
    let first_byte = job.model.settings().timeouts.first_byte.map(Tick::after);
    job.watch.set_until(earlier(first_byte, total));
    match up.permit().endpoint().address.host.clone() {
        None => up.next_head(request, job.watch, out).await,
        Some(host) => {
            let head = with_host(request.0, &host);
            up.next_head(Pair(&head, request.1), job.watch, out).await
        }
    }
}

/// The earlier of two deadlines of which each may be absent.
pub fn earlier(a: Option<Tick>, b: Option<Tick>) -> Option<Tick> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}

/// What a broken wait for a head means for the client.
pub fn failure(broken: Broken, total: Option<Tick>) -> Failure {
    match broken {
        Broken::Closed => Failure::Upstream("it closed the connection"),
        Broken::Malformed(reason) => Failure::Upstream(reason),
        Broken::Over(Over::Cut) => Failure::Cut,
        Broken::Over(Over::Late) if total.is_some_and(Tick::is_past) => Failure::Total,
        Broken::Over(Over::Late) => Failure::FirstByte,
    }
}
