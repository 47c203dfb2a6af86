// SPDX-License-Identifier: Apache-2.0
//! What the exit code of `sluice` means. Part of the public interface.

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Ok = 0,
    /// Failed for a reason that has no code of its own.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The configuration is wrong.
    InvalidConfig = 3,
    /// The named model or replica does not exist.
    NotFound = 4,
    /// It exists and its state does not allow the order.
    Conflict = 5,
    /// The awaited state did not come in time.
    TimedOut = 6,
    /// No Sluice answers at the address.
    Unreachable = 7,
    /// Not allowed.
    Unauthorised = 8,
    /// Part of it was done.
    Partly = 9,
    /// The terminal of `top` went away, or SIGHUP said so.
    HungUp = 129,
    /// Ended by SIGINT (^C).
    Interrupted = 130,
    /// Ended by SIGTERM.
    Terminated = 143,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// A command's failure: what to print on stderr and how to exit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// How to exit.
    pub exit: Exit,
    /// What went wrong and what to do about it.
    pub message: String,
}

impl Failure {
    /// A failure with this code and text.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Failure { exit, message: message.into() }
    }
}
