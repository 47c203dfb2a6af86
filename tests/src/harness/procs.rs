// SPDX-License-Identifier: Apache-2.0
//! The process table, read from `/proc`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its parent.
    pub parent: u32,
    /// State letter; `Z` is dead and not waited for.
    pub state: char,
    /// Its command line, words joined by spaces.
    pub command: String,
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok())
}

fn proc(pid: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

/// That process, if it exists.
pub fn process(pid: u32) -> Option<Process> {
    let stat = std::fs::read_to_string(proc(pid, "stat")).ok()?;
    let (_, after) = stat.rsplit_once(") ")?;
    let mut words = after.split(' ');
    let state = words.next()?.chars().next()?;
    let parent = words.next()?.parse().ok()?;
    let command = std::fs::read(proc(pid, "cmdline")).unwrap_or_default();
    let command = String::from_utf8_lossy(&command).replace('\0', " ");
    Some(Process { pid, parent, state, command })
}

/// Whether the process runs: exists and is not a zombie.
pub fn alive(pid: u32) -> bool {
    process(pid).is_some_and(|p| p.state != 'Z')
}

/// All processes with that entry in their environment. Zombies have none.
pub fn marked(entry: &str) -> Vec<Process> {
    let has = |pid: &u32| {
        let environ = std::fs::read(proc(*pid, "environ")).unwrap_or_default();
        environ.split(|b| *b == 0).any(|e| e == entry.as_bytes())
    };
    pids().filter(has).filter_map(process).filter(|p| p.state != 'Z').collect()
}

/// Children of a process.
pub fn children(parent: u32) -> Vec<Process> {
    pids().filter_map(process).filter(|p| p.parent == parent).collect()
}

/// Marked processes that are still there when the time is up.
pub(super) fn gone_within(entry: &str, limit: Duration) -> Vec<Process> {
    let deadline = Instant::now() + limit;
    loop {
        let left = marked(entry);
        if left.is_empty() || Instant::now() > deadline {
            return left;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Open descriptors.
pub fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(proc(pid, "fd")).map_or(0, Iterator::count)
}

/// What they are, for messages.
pub fn descriptor_list(pid: u32) -> Vec<String> {
    let entries = std::fs::read_dir(proc(pid, "fd")).into_iter().flatten().flatten();
    let target = |e: std::fs::DirEntry| std::fs::read_link(e.path()).ok().map(|t| t.display().to_string());
    entries.filter_map(target).collect()
}

/// Threads.
pub fn threads(pid: u32) -> usize {
    std::fs::read_dir(proc(pid, "task")).map_or(0, Iterator::count)
}

/// Resident memory in bytes, now and at its peak.
pub fn memory(pid: u32) -> (u64, u64) {
    let status = std::fs::read_to_string(proc(pid, "status")).unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name));
        let kib: Option<u64> = line.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok());
        kib.unwrap_or(0) * 1024
    };
    (field("VmRSS:"), field("VmHWM:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_find_ourselves() {
        let pid = std::process::id();
        assert!(alive(pid) && descriptors(pid) > 2 && threads(pid) > 0);
        let (now, peak) = memory(pid);
        assert!(now > 0 && peak >= now);
    }

    #[test]
    fn children_and_zombies_are_seen() {
        let mut child = std::process::Command::new("true").env("SLUICE_MARKED", "yes").spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while process(child.id()).unwrap().state != 'Z' {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!alive(child.id()));
        assert!(children(std::process::id()).iter().any(|p| p.pid == child.id() && p.state == 'Z'));
        child.wait().unwrap();
        let mut child =
            std::process::Command::new("sleep").arg("60").env("SLUICE_MARKED", "we").spawn().unwrap();
        assert_eq!(marked("SLUICE_MARKED=we").iter().map(|p| p.pid).collect::<Vec<_>>(), [child.id()]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(gone_within("SLUICE_MARKED=we", Duration::ZERO).is_empty());
    }
}
