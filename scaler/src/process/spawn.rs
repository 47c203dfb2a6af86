// SPDX-License-Identifier: Apache-2.0
//! Turns a program into a child process in a group of its own, bound to the life of the calling thread.
//!
//! The only place with unsafe code: what happens between fork and exec. Must be called from the permanent thread in
//! `children.rs`, because the parent-death signal comes when the *thread* that forked ends.

#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::table::{self, Identity};

/// Variables that speak to Sluice alone: a child that answered its service manager would speak in our name.
const NOT_INHERITED: [&str; 6] =
    ["NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// What to run.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// Program and arguments, not empty.
    pub(crate) arguments: Vec<String>,
    /// Added to our own environment. Values may be secrets.
    pub(crate) environment: BTreeMap<String, String>,
    /// Where it runs, if not where we do.
    pub(crate) directory: Option<PathBuf>,
    /// Soft limit of open files it gets, if not ours.
    pub(crate) open_files: Option<u64>,
}

/// A child that runs, or did for a moment.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) identity: Identity,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

/// Why a child did not come to be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpawnError {
    /// The template is empty.
    #[error("the command is empty")]
    Empty,
    /// Nothing there.
    #[error("working directory {0:?} does not exist")]
    NoDirectory(PathBuf),
    /// The system refused.
    #[error("cannot run {program:?}: {source}")]
    Refused {
        /// Its first word.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// Sluice ends at once and starts nothing more.
    #[error("sluice is ending")]
    Ending,
}

/// Starts `program` with nothing on its standard input and pipes for its output.
pub(super) fn spawn(program: &Program) -> Result<Child, SpawnError> {
    let (name, arguments) = program.arguments.split_first().ok_or(SpawnError::Empty)?;
    if let Some(directory) = program.directory.as_ref().filter(|directory| !directory.is_dir()) {
        return Err(SpawnError::NoDirectory(directory.clone()));
    }
    let mut command = Command::new(name);
    command.args(arguments).envs(&program.environment).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    NOT_INHERITED.iter().filter(|key| !program.environment.contains_key(**key)).for_each(|key| {
        command.env_remove(key);
    });
    if let Some(directory) = &program.directory {
        command.current_dir(directory);
    }
    let refused = |source| SpawnError::Refused { program: name.clone(), source };
    let open_files = program.open_files.map(open_files_limit).transpose().map_err(refused)?;
    let parent = libc::pid_t::try_from(std::process::id()).map_err(|e| refused(io::Error::other(e)))?;
    // SAFETY: `prepare` runs in the child between fork and exec and makes only async-signal-safe system calls: it
    // allocates nothing, takes no lock and touches no memory but its own stack and the values moved in.
    unsafe { command.pre_exec(move || prepare(parent, open_files.as_ref())) };
    let mut child = command.spawn().map_err(refused)?;
    let pid = i32::try_from(child.id()).map_err(|e| refused(io::Error::other(e)))?;
    // Unreaped, it stays in the table even if it has ended already.
    let start = table::read(pid).map_or(0, |process| process.identity.start);
    match (child.stdout.take(), child.stderr.take()) {
        (Some(stdout), Some(stderr)) => {
            Ok(Child { identity: Identity { pid, start }, stdout: stdout.into(), stderr: stderr.into() })
        }
        _ => Err(refused(io::Error::other("no pipe"))),
    }
}

/// The limit with another soft value; the hard one stays.
fn open_files_limit(soft: u64) -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for the answer.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    limit.rlim_cur = soft.min(limit.rlim_max);
    Ok(limit)
}

/// In the child, before exec. Anything but async-signal-safe calls is forbidden here.
fn prepare(parent: libc::pid_t, open_files: Option<&libc::rlimit>) -> io::Result<()> {
    // SAFETY: plain system calls on local values; see `pre_exec` above.
    unsafe {
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
            return Err(io::Error::last_os_error());
        }
        // The parent may have died before the line above: then nobody sends the signal.
        if libc::getppid() != parent {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        let mut none = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        for signal in [libc::SIGPIPE, libc::SIGTERM, libc::SIGINT, libc::SIGQUIT, libc::SIGCHLD] {
            libc::signal(signal, libc::SIG_DFL);
        }
        close_others_on_exec();
        if let Some(limit) = open_files
            && libc::setrlimit(libc::RLIMIT_NOFILE, limit) != 0
        {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Marks every descriptor above standard error: a library of ours may have forgotten to.
///
/// # Safety
/// Only to be called between fork and exec.
unsafe fn close_others_on_exec() {
    const ABOVE_STDERR: libc::c_uint = 3;
    // SAFETY: marks descriptors, closes none; the one that reports a failed exec is marked already.
    unsafe {
        let flags = libc::CLOSE_RANGE_CLOEXEC;
        if libc::syscall(libc::SYS_close_range, ABOVE_STDERR, libc::c_uint::MAX, flags) == 0 {
            return;
        }
        // Kernels before 5.11.
        for descriptor in 3..4096 {
            libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
}
