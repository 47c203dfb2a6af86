// SPDX-License-Identifier: Apache-2.0
//! The `sluice` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::SUCCESS
}
