// SPDX-License-Identifier: Apache-2.0
//! Replicas that are child processes of ours.
//!
//! `supervise` is one replica's life from fork to nothing left; `children` forks and reaps; `family` finds and signals
//! everything that came out of a command; `state` is what the next start needs if we are killed. Must not know
//! decisions: it does what it is told and says what it sees.

mod children;
mod family;
mod output;
mod ports;
mod spawn;
mod state;
mod supervise;
mod table;

use std::path::Path;
use std::time::Duration;

pub use children::kill_all;
pub(crate) use state::State;
pub use state::{StateError, default_directories};
pub(crate) use supervise::{Nursery, Order, attend};

use sluice_core::ReplicaId;

use spawn::Program;
use state::StopRecord;
use table::MARK;

/// Opens the state directory and ends what a dead instance left. Blocks, seconds at worst: longer only for stop
/// commands of containers that have outlived their client, each within its own deadline.
pub(crate) fn open_state(root: &Path, instance: &str) -> Result<State, StateError> {
    let (state, leftovers) = State::open(root, instance)?;
    if leftovers.killed > 0 || !leftovers.stops.is_empty() {
        tracing::warn!(
            processes = leftovers.killed,
            stop_commands = leftovers.stops.len(),
            "leftovers_reclaimed"
        );
    }
    if !leftovers.stops.is_empty() {
        run_stops(leftovers.stops, instance);
    }
    Ok(state)
}

/// Runs the stop commands side by side. On a thread of its own, for the caller may be inside a runtime.
fn run_stops(stops: Vec<StopRecord>, instance: &str) {
    let mark = format!("{instance}/reclaim");
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let runs: Vec<_> =
                stops.into_iter().map(|stop| tokio::spawn(run_stop(stop, mark.clone()))).collect();
            for run in runs {
                let _ = run.await;
            }
        });
        std::io::Result::Ok(())
    };
    if let Ok(Err(error)) = std::thread::spawn(work).join() {
        tracing::error!(%error, "stop_command_failed");
    }
}

async fn run_stop(stop: StopRecord, mark: String) {
    let program = Program {
        arguments: stop.arguments,
        environment: [(MARK.to_owned(), mark)].into(),
        directory: stop.directory,
        open_files: None,
    };
    supervise::run_to_end(program, Duration::from_millis(stop.deadline_ms), None).await;
}

/// Ends everything that carries marks of this instance, at once.
pub(crate) fn abandon(instance: &str) {
    let prefix = format!("{instance}/");
    children::abandon(|mark| mark.starts_with(&prefix));
}

/// Ends everything that one replica started, at once.
pub(crate) fn abandon_one(instance: &str, replica: ReplicaId) {
    let mark = mark(instance, replica);
    children::abandon(|of| of == mark);
}

/// What a replica's processes carry in their environment.
fn mark(instance: &str, replica: ReplicaId) -> String {
    format!("{instance}/{replica}")
}
