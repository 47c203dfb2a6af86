// SPDX-License-Identifier: Apache-2.0
//! The process table, read from `/proc`: who exists, who descends from whom, who carries our mark.
//!
//! Owns the notion of identity: a process is its id *and* its start time, so that an id that was given out again is
//! never taken for the process that had it before. Must not know replicas.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// The environment variable that every process of a replica inherits: `<instance>/<replica>`.
pub(crate) const MARK: &str = "SLUICE_OWNER";

/// A process and no other, as long as the machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) pid: i32,
    /// In clock ticks since boot.
    pub(crate) start: u64,
}

/// One line of the process table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) identity: Identity,
    pub(crate) zombie: bool,
    pub(crate) parent: i32,
    pub(crate) group: i32,
}

/// All processes that can be seen.
pub(crate) fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(read).collect()
}

/// One process, if it exists.
pub(crate) fn read(pid: i32) -> Option<Process> {
    parse_stat(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// `/proc/PID/stat`: the program's name is in parentheses and may itself contain blanks and parentheses.
fn parse_stat(pid: i32, stat: &str) -> Option<Process> {
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let start = fields.nth(16)?.parse().ok()?;
    Some(Process { identity: Identity { pid, start }, zombie: matches!(state, "Z" | "X"), parent, group })
}

/// Everything below `root` in the tree of parents.
pub(crate) fn descendants(of: &[Process], root: i32) -> Vec<Process> {
    let mut children: BTreeMap<i32, Vec<&Process>> = BTreeMap::new();
    for process in of {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut seen = BTreeSet::from([root]);
    let mut open = vec![root];
    while let Some(parent) = open.pop() {
        for &process in children.get(&parent).into_iter().flatten() {
            if seen.insert(process.identity.pid) {
                found.push(*process);
                open.push(process.identity.pid);
            }
        }
    }
    found
}

/// What a process's environment says about its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It carries this mark.
    Marked(String),
    /// It carries none, has written over its environment, or does not let us look.
    Unknown,
}

/// Reads a process's mark.
pub(crate) fn origin(pid: i32) -> Origin {
    let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return Origin::Unknown };
    let mark = environment.split(|&b| b == 0).find_map(|entry| {
        let value = entry.strip_prefix(MARK.as_bytes())?.strip_prefix(b"=")?;
        String::from_utf8(value.to_vec()).ok()
    });
    mark.map_or(Origin::Unknown, Origin::Marked)
}

/// Signals exactly this process: if its id was given to another meanwhile, nobody is signalled.
pub(crate) fn signal(target: Identity, signal: Signal) {
    let Some(pid) = Pid::from_raw(target.pid) else { return };
    let handle = pidfd_open(pid, PidfdFlags::empty());
    if read(target.pid).is_none_or(|found| found.identity != target) {
        return;
    }
    // A process that has ended in between is no fault.
    let _ = match handle {
        Ok(handle) => pidfd_send_signal(handle, signal),
        // Kernels before 5.3 and strict sandboxes have no process handles.
        Err(_) => kill_process(pid, signal),
    };
}

/// Names this boot of this machine; process identities are good within one.
pub(crate) fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

/// Names the space that process ids belong to: a container has its own.
pub(crate) fn id_space() -> String {
    fs::read_link("/proc/self/ns/pid").map(|link| link.display().to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn reads_a_name_with_blanks_and_parentheses() {
        let stat = "42 (a) b (c)) S 7 41 40 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2";
        let process = parse_stat(42, stat).unwrap();
        assert_eq!(process.identity, Identity { pid: 42, start: 98765 });
        assert_eq!((process.parent, process.group, process.zombie), (7, 41, false));
        assert_eq!(parse_stat(42, "42 (cut"), None);
    }

    #[test]
    fn finds_itself_and_its_parent() {
        let own = i32::try_from(std::process::id()).unwrap();
        let table = all();
        let this = table.iter().find(|p| p.identity.pid == own).unwrap();
        assert_eq!(read(own).unwrap().identity, this.identity);
        assert!(descendants(&table, this.parent).iter().any(|p| p.identity.pid == own));
        assert!(descendants(&table, own).iter().all(|p| p.identity.pid != own));
    }

    #[test]
    fn a_process_with_another_start_time_is_not_signalled() {
        let own = i32::try_from(std::process::id()).unwrap();
        let other = Identity { pid: own, start: read(own).unwrap().identity.start + 1 };
        signal(other, Signal::KILL);
    }
}
