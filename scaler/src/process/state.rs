// SPDX-License-Identifier: Apache-2.0
//! What outlives Sluice on disk, so that the next start can reclaim what a killed one left behind.
//!
//! One directory per running instance, locked by it as long as it lives, with one small file per replica: written
//! before the fork, completed after it, removed when nothing of the replica is left. Owns the decision which processes
//! are leftovers: those that carry a dead instance's mark, and those it wrote down by id and start time, unless they
//! carry another mark. Nobody else is ever signalled.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Signal, geteuid, getpid};
use serde::{Deserialize, Serialize};
use sluice_core::{ModelName, ReplicaId};

use super::table::{self, Identity, Origin, Process};

const LOCK: &str = "lock";
const INSTANCE: &str = "instance.json";

/// How long leftovers are killed again and again before the start goes on without them.
const RECLAIM_LIMIT: Duration = Duration::from_secs(10);

/// Records of another process-id space (a container's, on a shared directory) are dropped when they are this old.
const FOREIGN_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Why the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The system refused.
    #[error("cannot use state directory {path:?}: {source}")]
    Io {
        /// Which file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others could plant records there.
    #[error("state directory {0:?} can be written to by others: make it yours with mode 0700")]
    NotOurs(PathBuf),
}

/// What is known of one replica's processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) replica: ReplicaId,
    pub(super) model: ModelName,
    pub(super) port: u16,
    /// Unknown between the first writing and the fork.
    pub(super) leader: Option<Identity>,
    /// Seen below the leader when it became ready.
    pub(super) members: Vec<Identity>,
    /// To run when the replica is reclaimed, for what outlives its processes.
    pub(super) stop: Option<StopRecord>,
}

/// A stop command with everything filled in but secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StopRecord {
    pub(super) arguments: Vec<String>,
    pub(super) directory: Option<PathBuf>,
    pub(super) deadline_ms: u64,
}

/// What must be the same for process ids to mean the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Instance {
    boot: String,
    id_space: String,
}

/// This instance's part of the state directory.
#[derive(Debug)]
pub(crate) struct State {
    directory: PathBuf,
    _lock: File,
}

/// What dead instances have left.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    /// How many processes were killed.
    pub(super) killed: usize,
    /// Stop commands still to run.
    pub(super) stops: Vec<StopRecord>,
}

/// The first of systemd's `$STATE_DIRECTORY`, `$XDG_STATE_HOME/sluice`, `~/.local/state/sluice`, or a directory of this
/// user below the temporary one: in that order, as far as the environment names them.
pub fn default_directories() -> Vec<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let listed = std::env::var_os("STATE_DIRECTORY");
    let by_systemd = listed.and_then(|listed| std::env::split_paths(&listed).find(|path| path.is_absolute()));
    let named = variable("XDG_STATE_HOME").filter(|path| path.is_absolute()).map(|path| path.join("sluice"));
    let home = variable("HOME").map(|path| path.join(".local/state/sluice"));
    let temporary = std::env::temp_dir().join(format!("sluice-{}", geteuid().as_raw()));
    by_systemd.into_iter().chain(named).chain(home).chain([temporary]).collect()
}

impl State {
    /// Reclaims what dead instances left below `root`, then makes room for `instance`. Blocks, seconds at worst.
    pub(super) fn open(root: &Path, instance: &str) -> Result<(State, Leftovers), StateError> {
        let at = |path: &Path, source| StateError::Io { path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(|e| at(root, e))?;
        let metadata = fs::metadata(root).map_err(|e| at(root, e))?;
        if metadata.uid() != geteuid().as_raw() || metadata.mode() & 0o022 != 0 {
            return Err(StateError::NotOurs(root.to_owned()));
        }
        // Two starts at a time must not take each other for dead.
        let turn = root.join(LOCK);
        let _turn = locked(&turn).map_err(|e| at(&turn, e))?;
        let leftovers = reclaim(root);
        let directory = root.join(instance);
        let state = State::create(directory.clone()).map_err(|e| at(&directory, e))?;
        Ok((state, leftovers))
    }

    fn create(directory: PathBuf) -> io::Result<State> {
        DirBuilder::new().mode(0o700).create(&directory)?;
        let lock = locked(&directory.join(LOCK))?;
        let instance = Instance { boot: table::boot(), id_space: table::id_space() };
        write(&directory, INSTANCE, &instance)?;
        Ok(State { directory, _lock: lock })
    }

    /// Writes down or replaces what is known of a replica; a reader sees the old or the new text.
    pub(super) fn record(&self, record: &Record) -> io::Result<()> {
        write(&self.directory, &file_name(record.replica), record)
    }

    /// Nothing of the replica is left.
    pub(super) fn forget(&self, replica: ReplicaId) {
        // A record too many is harmless: it names processes that no longer exist.
        let _ = fs::remove_file(self.directory.join(file_name(replica)));
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if records(&self.directory).is_empty() {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

fn file_name(replica: ReplicaId) -> String {
    format!("{replica}.json")
}

fn locked(path: &Path) -> io::Result<File> {
    let file = File::options().create(true).write(true).truncate(false).open(path)?;
    file.lock()?;
    Ok(file)
}

fn write<T: Serialize>(directory: &Path, name: &str, value: &T) -> io::Result<()> {
    let unfinished = directory.join(format!("{name}.new"));
    fs::write(&unfinished, serde_json::to_vec(value)?)?;
    fs::rename(unfinished, directory.join(name))
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn records(directory: &Path) -> Vec<Record> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let records =
        paths.filter(|path| path.extension().is_some_and(|e| e == "json") && !path.ends_with(INSTANCE));
    records.filter_map(|path| read(&path)).collect()
}

/// A dead instance whose processes can be told apart.
struct Dead {
    name: String,
    directory: PathBuf,
    records: Vec<Record>,
}

/// Ends what dead instances left, all at once: one look at the process table serves them all.
fn reclaim(root: &Path) -> Leftovers {
    let Ok(entries) = fs::read_dir(root) else { return Leftovers::default() };
    let directories = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let directories = directories.filter(|path| path.is_dir() && is_instances(path));
    let dead: Vec<Dead> = directories.filter(|path| !is_alive(path)).filter_map(dead).collect();
    let Some(killed) = kill(&dead) else {
        tracing::error!("leftovers_survive_sigkill");
        return Leftovers::default();
    };
    let mut stops = Vec::new();
    for Dead { directory, records, .. } in dead {
        stops.extend(records.into_iter().filter_map(|record| record.stop));
        let _ = fs::remove_dir_all(directory);
    }
    Leftovers { killed, stops }
}

/// An instance's name is 32 hexadecimal digits. Whatever else is there is not ours to clear away.
fn is_instances(directory: &Path) -> bool {
    let name = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_alive(directory: &Path) -> bool {
    // The lock file is missing if the instance died while it made its directory.
    let lock = File::open(directory.join(LOCK));
    lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
}

/// Reads what a dead instance wrote, or clears it away if its process ids mean nothing any more.
fn dead(directory: PathBuf) -> Option<Dead> {
    let instance: Option<Instance> = read(&directory.join(INSTANCE));
    let same_boot = instance.as_ref().is_some_and(|instance| instance.boot == table::boot());
    let reachable = instance.is_some_and(|instance| instance.id_space == table::id_space());
    match (same_boot, reachable) {
        (true, true) => {
            let name = directory.file_name()?.to_str()?.to_owned();
            let records = records(&directory);
            return Some(Dead { name, directory, records });
        }
        (true, false) if !is_old(&directory) => {}
        _ => drop(fs::remove_dir_all(directory)),
    }
    None
}

fn is_old(directory: &Path) -> bool {
    let changed = fs::metadata(directory).and_then(|metadata| metadata.modified()).ok();
    changed.and_then(|at| SystemTime::now().duration_since(at).ok()).is_some_and(|age| age > FOREIGN_KEPT)
}

/// Kills until two looks find nothing (a process shows no environment for the moment in which it becomes another
/// program). Says how many there were, or `None` if some survive.
fn kill(dead: &[Dead]) -> Option<usize> {
    let begun = Instant::now();
    let mut seen = BTreeSet::new();
    let mut clear = if dead.is_empty() { 2 } else { 0 };
    while clear < 2 {
        if begun.elapsed() > RECLAIM_LIMIT {
            return None;
        }
        let found = find(dead);
        clear = if found.is_empty() { clear + 1 } else { 0 };
        for process in found {
            if seen.insert(process.identity) {
                tracing::warn!(pid = process.identity.pid, "leftover_killed");
            }
            table::signal(process.identity, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Some(seen.len())
}

/// The living leftovers.
fn find(dead: &[Dead]) -> Vec<Process> {
    let table = table::all();
    let ours = lineage(&table);
    let mut found = table;
    found.retain(|process| !process.zombie && !ours.contains(&process.identity.pid));
    found.retain(|process| match table::origin(process.identity.pid) {
        Origin::Marked(mark) => {
            mark.split_once('/').is_some_and(|(of, _)| dead.iter().any(|dead| dead.name == of))
        }
        // Programs that rewrite their title write over their environment.
        Origin::Unknown => dead.iter().flat_map(|dead| &dead.records).any(|record| {
            record.leader == Some(process.identity) || record.members.contains(&process.identity)
        }),
    });
    found
}

/// We ourselves and what we descend from: Sluice may have been started from inside a replica.
fn lineage(table: &[Process]) -> Vec<i32> {
    let mut line = vec![getpid().as_raw_pid()];
    while let Some(process) = table.iter().find(|process| Some(&process.identity.pid) == line.last()) {
        if line.contains(&process.parent) {
            break;
        }
        line.push(process.parent);
    }
    line
}
