// SPDX-License-Identifier: Apache-2.0
//! Everything that came out of one replica's command: its process group, and what left the group.
//!
//! What belongs: members of the leader's group; processes that carry the replica's mark; and those that were seen below
//! the leader while it lived. The leader stays unreaped as long as a family exists, so the group's id cannot become a
//! stranger's; everything else is signalled by its identity.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::time::Instant;

use super::table::{self, Identity, Origin, Process};

/// Pauses between two looks at the process table, growing from the first to the second.
const LOOK_FIRST: Duration = Duration::from_millis(5);
const LOOK_MAX: Duration = Duration::from_millis(100);

/// Looks in a row that must find nothing: a process shows no environment for the moment in which it becomes another
/// program.
const CLEAR_LOOKS: u32 = 2;

/// How long an ended member may wait for its parent to reap it before it is no longer waited for.
const UNREAPED: Duration = Duration::from_secs(1);

/// One replica's processes.
#[derive(Clone, Debug)]
pub(super) struct Family {
    pub(super) leader: Identity,
    pub(super) mark: String,
    strays: BTreeSet<Identity>,
}

impl Family {
    pub(super) fn new(leader: Identity, mark: String) -> Self {
        Family { leader, mark, strays: BTreeSet::new() }
    }

    /// Everything of the family but its leader.
    fn others(&self) -> Vec<Process> {
        let mut found = table::all();
        found.retain(|process| process.identity.pid != self.leader.pid && self.includes(process));
        found
    }

    fn includes(&self, process: &Process) -> bool {
        process.group == self.leader.pid
            || self.strays.contains(&process.identity)
            || (process.identity.start >= self.leader.start && !process.zombie && self.marks(process))
    }

    fn marks(&self, process: &Process) -> bool {
        matches!(table::origin(process.identity.pid), Origin::Marked(mark) if mark == self.mark)
    }

    /// Remembers what is below the leader now, so that it is found later even without group and mark.
    pub(super) async fn remember(&mut self) -> Vec<Identity> {
        let leader = self.leader.pid;
        let below = blocking(move || table::descendants(&table::all(), leader)).await;
        self.strays.extend(below.iter().map(|process| process.identity));
        self.strays.iter().copied().collect()
    }

    /// Signals the group, and what left it, with each of `signals` in turn.
    pub(super) async fn signal(&self, signals: &'static [Signal]) {
        let family = self.clone();
        blocking(move || family.signal_now(signals)).await;
    }

    fn signal_now(&self, signals: &[Signal]) {
        for &signal in signals {
            // Nobody left in the group is no fault.
            let _ = Pid::from_raw(self.leader.pid).map(|group| kill_process_group(group, signal));
        }
        let strays = self.others().into_iter().filter(|process| process.group != self.leader.pid);
        for process in strays {
            signals.iter().for_each(|&signal| table::signal(process.identity, signal));
        }
    }

    /// Waits until nothing but the ended leader is left; with a deadline, says whether that was in time.
    pub(super) async fn gone(&self, deadline: Option<Instant>) -> bool {
        let begun = Instant::now();
        let mut pause = LOOK_FIRST;
        let mut clear = 0;
        loop {
            let family = self.clone();
            let others = blocking(move || family.others()).await;
            let only_unreaped = others.iter().all(|process| process.zombie);
            clear = if others.is_empty() || (only_unreaped && begun.elapsed() > UNREAPED) {
                clear + 1
            } else {
                0
            };
            if clear == CLEAR_LOOKS {
                return true;
            }
            if clear == 0 && deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return false;
            }
            tokio::time::sleep(pause).await;
            pause = if clear == 0 { (pause * 2).min(LOOK_MAX) } else { LOOK_FIRST };
        }
    }

    /// Kills until nothing is left: what is being killed may start more.
    pub(super) async fn kill(&self) {
        let mut grace = LOOK_MAX;
        loop {
            self.signal(&[Signal::KILL]).await;
            if self.gone(Some(Instant::now() + grace)).await {
                return;
            }
            if grace > Duration::from_secs(5) {
                tracing::error!(leader = self.leader.pid, "processes_survive_sigkill");
            }
            grace = (grace * 2).min(Duration::from_secs(10));
        }
    }
}

/// Reading the whole process table takes milliseconds: not on a thread that serves others.
async fn blocking<T: Default + Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    // It fails only when the runtime ends.
    tokio::task::spawn_blocking(work).await.unwrap_or_default()
}
