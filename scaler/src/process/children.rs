// SPDX-License-Identifier: Apache-2.0
//! The one permanent thread that forks every child and reaps every child.
//!
//! Who reaps what, in this process:
//! * A *leader* (a child started here) is only looked at when it ends. It stays a zombie until its owner calls
//!   [`release`], so that its process id, which is also its group's id, cannot be given to a stranger while the group is
//!   still being killed.
//! * An *orphan* (a descendant whose parent has died; we are a child subreaper) is reaped as soon as it ends.
//! * A child that other code of this process started keeps our own process group, and is left to that code. As process
//!   1 there is no such code, and whatever ends is reaped.
//!
//! Forking and reaping happen on the same thread, so no child can be taken for an orphan before it is known. The thread
//! never ends while the process lives: its end would send the parent-death signal to every child.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, getpid, kill_process_group,
    set_child_subreaper, waitid, waitpid,
};
use tokio::signal::unix::SignalKind;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::spawn::{Child, Program, SpawnError, spawn};
use super::table::{self, Identity, MARK, Origin};

/// Ends are looked for this often even without a signal: signals may coalesce or be lost to a foreign handler.
const LOOK: Duration = Duration::from_secs(1);

/// Shortest pause between two scans of the process table for orphans.
const SCAN_PAUSE: Duration = Duration::from_millis(50);

/// A hard end waits this long for the list of children: longer than any fork takes.
const LIST_WAIT: Duration = Duration::from_secs(2);

static THREAD: LazyLock<Thread> = LazyLock::new(Thread::start);

/// Every leader that is not released yet. Held across a fork, so that `kill_all` misses none.
static LEADERS: Mutex<Leaders> = Mutex::new(Leaders { ending: false, live: BTreeMap::new() });

struct Leaders {
    ending: bool,
    live: BTreeMap<i32, Leader>,
}

struct Leader {
    mark: String,
    exit: watch::Sender<Option<Exit>>,
    /// Nobody waits for it: to be reaped as soon as it ends.
    abandoned: bool,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    Status(i32),
    Signal(i32),
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Exit::Status(status) => write!(f, "exited with status {status}"),
            Exit::Signal(number) => match Signal::from_named_raw(number) {
                Some(signal) => write!(f, "was killed by {signal:?}"),
                None => write!(f, "was killed by signal {number}"),
            },
        }
    }
}

/// A child that was started.
#[derive(Debug)]
pub(super) struct Born {
    pub(super) identity: Identity,
    pub(super) exit: watch::Receiver<Option<Exit>>,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

enum Request {
    Start(Box<Program>, oneshot::Sender<Result<Born, SpawnError>>),
    Release(i32, oneshot::Sender<()>),
}

struct Thread {
    requests: mpsc::UnboundedSender<Request>,
}

/// Starts a child whose environment carries `program.environment[MARK]`.
pub(super) async fn start(program: Program) -> Result<Born, SpawnError> {
    let (answer, started) = oneshot::channel();
    // The thread never ends; if it did, `started` says so.
    let _ = THREAD.requests.send(Request::Start(Box::new(program), answer));
    started.await.unwrap_or(Err(SpawnError::Ending))
}

/// Reaps a leader that has ended and whose group is gone. From here on its id may be a stranger's.
pub(super) async fn release(leader: Identity) {
    let (answer, released) = oneshot::channel();
    let _ = THREAD.requests.send(Request::Release(leader.pid, answer));
    let _ = released.await;
}

/// Kills what was started with the chosen marks, without waiting for it, and takes care of the remains.
pub(super) fn abandon(chosen: impl Fn(&str) -> bool) {
    kill(&mut leaders(), chosen);
}

/// Kills every process that was started here, with its group and whatever carries its mark, and starts none any more.
/// For a hard end of Sluice itself: a second signal, or a panic that ends the process. If the part that panicked is the
/// one that holds the list of children, the parent-death signal is left to do it.
pub fn kill_all() {
    let begun = std::time::Instant::now();
    while begun.elapsed() < LIST_WAIT {
        match LEADERS.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
            Ok(mut leaders) => return kill_every(&mut leaders),
            Err(TryLockError::Poisoned(leaders)) => return kill_every(&mut leaders.into_inner()),
        }
    }
}

fn kill_every(leaders: &mut Leaders) {
    leaders.ending = true;
    kill(leaders, |_| true);
}

fn kill(leaders: &mut Leaders, chosen: impl Fn(&str) -> bool) {
    let mut groups = Vec::new();
    for (&pid, leader) in leaders.live.iter_mut().filter(|(_, leader)| chosen(&leader.mark)) {
        leader.abandoned = true;
        groups.push((pid, leader.mark.clone()));
    }
    if groups.is_empty() {
        return;
    }
    for pid in groups.iter().filter_map(|(pid, _)| Pid::from_raw(*pid)) {
        // The group's id is ours as long as its leader is not reaped.
        let _ = kill_process_group(pid, Signal::KILL);
    }
    for process in table::all() {
        if let Origin::Marked(mark) = table::origin(process.identity.pid)
            && groups.iter().any(|(_, of)| *of == mark)
        {
            table::signal(process.identity, Signal::KILL);
        }
    }
}

fn leaders() -> MutexGuard<'static, Leaders> {
    LEADERS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Thread {
    fn start() -> Thread {
        let (requests, receiver) = mpsc::unbounded_channel();
        let thread = std::thread::Builder::new().name("sluice-children".to_owned());
        let body = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(serve(receiver)),
                Err(error) => tracing::error!(%error, "children_thread_failed"),
            }
        };
        if let Err(error) = thread.spawn(body) {
            tracing::error!(%error, "children_thread_failed");
        }
        Thread { requests }
    }
}

async fn serve(mut requests: mpsc::UnboundedReceiver<Request>) {
    if let Err(error) = set_child_subreaper(Some(getpid())) {
        tracing::warn!(%error, "orphans_not_adopted");
    }
    let mut ended = match tokio::signal::unix::signal(SignalKind::child()) {
        Ok(ended) => ended,
        Err(error) => {
            tracing::error!(%error, "children_thread_failed");
            return;
        }
    };
    let mut look = tokio::time::interval(LOOK);
    let mut next_scan = Instant::now();
    let mut scan_wanted = false;
    loop {
        tokio::select! {
            biased;
            request = requests.recv() => match request {
                Some(request) => take(request),
                None => return,
            },
            _ = ended.recv() => scan_wanted |= see_ends(),
            _ = look.tick() => scan_wanted |= see_ends(),
            () = tokio::time::sleep_until(next_scan), if scan_wanted => {
                reap_orphans();
                scan_wanted = false;
                next_scan = Instant::now() + SCAN_PAUSE;
            }
        }
    }
}

fn take(request: Request) {
    match request {
        Request::Start(program, answer) => {
            let started = start_here(&program);
            let pid = started.as_ref().ok().map(|born| born.identity.pid);
            if let (Err(_), Some(pid)) = (answer.send(started), pid) {
                // Nobody waits for the answer any more.
                let mut leaders = leaders();
                let mark = leaders.live.get(&pid).map(|leader| leader.mark.clone());
                kill(&mut leaders, |of| Some(of) == mark.as_deref());
            }
        }
        Request::Release(pid, answer) => {
            reap(pid);
            leaders().live.remove(&pid);
            let _ = answer.send(());
        }
    }
}

fn start_here(program: &Program) -> Result<Born, SpawnError> {
    let mut leaders = leaders();
    if leaders.ending {
        return Err(SpawnError::Ending);
    }
    let Child { identity, stdout, stderr } = spawn(program)?;
    let (exit, seen) = watch::channel(None);
    let mark = program.environment.get(MARK).cloned().unwrap_or_default();
    leaders.live.insert(identity.pid, Leader { mark, exit, abandoned: false });
    Ok(Born { identity, exit: seen, stdout, stderr })
}

/// Tells owners of leaders that have ended. True if there is something to reap that is not a leader, as far as can be
/// told without a scan.
fn see_ends() -> bool {
    let mut leaders = leaders();
    leaders.live.retain(|&pid, leader| {
        if leader.exit.borrow().is_none() {
            leader.exit.send_replace(peek(pid));
        }
        let over = leader.abandoned && leader.exit.borrow().is_some();
        if over {
            reap(pid);
        }
        !over
    });
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::All, ended), Ok(Some(_)))
}

/// How a child of ours has ended, without reaping it.
fn peek(pid: i32) -> Option<Exit> {
    let pid = Pid::from_raw(pid)?;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match waitid(WaitId::Pid(pid), options) {
        Ok(status) => status.map(|status| exit_of(&status)),
        // Somebody else has reaped it; how it ended is lost.
        Err(_) => Some(Exit::Status(-1)),
    }
}

fn exit_of(status: &WaitIdStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(status), _) => Exit::Status(status),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Status(-1),
    }
}

fn reap(pid: i32) {
    // A child that is gone already is what we want.
    let _ = Pid::from_raw(pid).map(|pid| waitpid(Some(pid), WaitOptions::NOHANG));
}

/// Reaps ended children that are neither leaders nor another part's.
fn reap_orphans() {
    let leaders = leaders();
    let own = getpid();
    let table = table::all();
    // Not `getpgrp`: as process 1 of a namespace we may be in a group from outside, whose id reads as 0.
    let own_group =
        table.iter().find(|process| process.identity.pid == own.as_raw_pid()).map(|own| own.group);
    for process in &table {
        let orphan = process.zombie && process.parent == own.as_raw_pid();
        let adopted = Some(process.group) != own_group || own.is_init();
        if orphan && adopted && !leaders.live.contains_key(&process.identity.pid) {
            reap(process.identity.pid);
        }
    }
}
