// SPDX-License-Identifier: Apache-2.0
//! The orderly stop: readiness red, a pause for load balancers, no new connections, what runs may finish, replicas go.

use std::time::Duration;

use sluice_scaler::{Input, clock};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};

use super::{Running, notify};
use crate::cli::Exit;
use crate::config::Shutdown;

const POLL: Duration = Duration::from_millis(20);
/// Longest time for the last traces to leave.
const TRACES: Duration = Duration::from_secs(3);
/// Polls that open connections without requests are waited for.
const GOODBYE: u32 = 25;

/// Stops everything within the configured deadline.
pub(super) async fn stop(running: &mut Running) -> Exit {
    let shutdown = running.reload.shutdown();
    running.handle.send(Input::Ending);
    running.readiness.drain();
    notify::stopping(longest(&shutdown));
    tracing::info!(delay_ms = shutdown.drain_delay.as_millis(), "stopping");
    sleep(shutdown.drain_delay).await;
    running.front.close();
    running.gateway.begin_drain();
    let deadline = Instant::now() + shutdown.deadline;
    let finished = timeout_at(deadline, idle(running)).await.is_ok();
    if !finished {
        let (in_flight, _) = running.gateway.table.in_flight_total();
        tracing::warn!(in_flight, "stop_deadline_passed");
    }
    let (done, stopped) = oneshot::channel();
    running.handle.send(Input::Shutdown(done));
    // Replicas have deadlines of their own; past all of them the backend kills what is left.
    let patience = if finished { patience(&shutdown) } else { Duration::from_secs(2) };
    if tokio::time::timeout(patience, stopped).await.is_err() {
        tracing::warn!("replicas_did_not_stop_in_time");
        sluice_scaler::process::kill_all();
    }
    if let Some(tracer) = running.gateway.tracer.get() {
        tracer.flush(TRACES).await;
    }
    tracing::info!("stopped");
    Exit::Ok
}

/// How long replicas may take to stop.
fn patience(shutdown: &Shutdown) -> Duration {
    shutdown.deadline.max(Duration::from_secs(30))
}

/// More than any stop takes.
fn longest(shutdown: &Shutdown) -> Duration {
    shutdown.drain_delay + shutdown.deadline + patience(shutdown) + Duration::from_secs(15)
}

/// A second signal: nothing is waited for, nothing is left behind.
pub(super) fn at_once() -> Exit {
    tracing::warn!("stopping_at_once");
    sluice_scaler::process::kill_all();
    Exit::Terminated
}

/// Waits until every request has had its last byte, and a moment longer for connections to say goodbye. New requests
/// are refused by now.
async fn idle(running: &Running) {
    let mut goodbye = 0;
    loop {
        let (in_flight, queued) = running.gateway.table.in_flight_total();
        if in_flight + queued == 0 && running.gateway.exchanges() == 0 {
            if running.gateway.connections.open() == 0 || goodbye == GOODBYE {
                return;
            }
            goodbye += 1;
        }
        running.gateway.table.sweep(clock::now());
        sleep(POLL).await;
    }
}
