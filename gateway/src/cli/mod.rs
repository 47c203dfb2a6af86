// SPDX-License-Identifier: Apache-2.0
//! The `sluice` command line: from arguments to an exit code.
//!
//! Data goes to stdout, everything else to stderr. Must not know the data plane: commands that ask a running Sluice go
//! through its admin listener like anybody else.

pub mod args;
pub mod exit;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

pub use args::{Cli, Command, RunArgs};
pub use exit::{Exit, Failure};

/// Parses the process's arguments and carries them out.
pub fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => dispatch(cli).into(),
        Err(error) => {
            let _ = error.print();
            u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
        }
    }
}

/// Carries out a parsed command line.
pub fn dispatch(cli: Cli) -> Exit {
    match cli.command {
        None => {
            let _ = Cli::command().print_help();
            Exit::Ok
        }
        Some(Command::Run(args)) => crate::run::run(args),
        Some(_) => Exit::Failed,
    }
}
