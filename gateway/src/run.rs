// SPDX-License-Identifier: Apache-2.0
//! `sluice run`: all roles in one process.

use crate::cli::{Exit, RunArgs};

/// Serves until told to stop.
pub fn run(_args: RunArgs) -> Exit {
    Exit::Failed
}
