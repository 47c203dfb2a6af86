// SPDX-License-Identifier: Apache-2.0
//! The `sluice` command line: from arguments to an exit code.
//!
//! Data goes to stdout, everything else to stderr. Must not know the data plane: commands that ask a running Sluice go
//! through its admin listener like anybody else.

pub mod args;
pub mod args_orders;
pub mod check;
mod client;
mod console;
mod describe;
mod events;
pub mod exit;
mod explain;
mod follow;
mod get;
mod logs;
mod order;
mod replay;
mod shell;
mod sse;
mod table;
mod token;
mod top;
mod version;

#[cfg(test)]
mod docs_tests;
#[cfg(test)]
mod follow_tests;
#[cfg(test)]
mod order_tests;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::io;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use tokio::signal::unix::{SignalKind, signal};

pub use args::{Cli, Command, RunArgs};
use console::Console;
pub use exit::{Exit, Failure};

/// Parses the process's arguments and carries them out.
pub fn main() -> ExitCode {
    shell::complete();
    match Cli::try_parse() {
        Ok(cli) => dispatch(cli),
        Err(error) => {
            let _ = error.print();
            u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
        }
    }
}

/// Carries out a parsed command line with the process's own streams.
pub fn dispatch(cli: Cli) -> ExitCode {
    match cli.command {
        Some(Command::Run(args)) => return crate::run::run(args).into(),
        Some(Command::Check(args)) => return check::run(args),
        Some(Command::DemoEngine(args)) => return crate::demo_engine::run(args),
        Some(Command::Bench(args)) => return crate::bench::run(args),
        _ => {}
    }
    let colour = console::colour(cli.color);
    let mut console = Console { out: &mut io::stdout(), err: &mut io::stderr(), colour };
    execute(cli, &mut console).into()
}

/// Carries out a command that prints and ends.
fn execute(cli: Cli, console: &mut Console<'_>) -> Exit {
    let result = match cli.command {
        None => console.print(&Cli::command().render_help().to_string()),
        Some(Command::Run(_) | Command::DemoEngine(_) | Command::Bench(_) | Command::Check(_)) => {
            Err(Failure::new(Exit::Failed, "this build has no such command"))
        }
        Some(Command::Token(args)) => token::token(args.what, console),
        Some(Command::Openapi) => console.print(&crate::admin::openapi::text_of_document()),
        Some(Command::Version(args)) => version::version(&args, console),
        Some(Command::Get(args)) => block_on(get::get(args.what, console)),
        Some(Command::Wake(args)) => block_on(order::wake(args, console)),
        Some(Command::Sleep(args)) => block_on(order::sleep(args, console)),
        Some(Command::Scale(args)) => block_on(order::scale(args, console)),
        Some(Command::Drain(args)) => block_on(order::drain(args, console)),
        Some(Command::Describe(args)) => block_on(describe::describe(args.what, console)),
        Some(Command::Events(args)) => block_on(events::events(args, console)),
        Some(Command::Top(args)) => block_on(top::top(args, console.colour)),
        Some(Command::Completion(args)) => shell::completion(args.shell, console),
        Some(Command::Man(args)) => shell::man(args.dir.as_deref(), console),
        Some(Command::Explain(args)) => block_on(explain::explain(args, console)),
        Some(Command::Replay(args)) => replay::replay(&args, console),
        Some(Command::Logs(args)) => block_on(logs::logs(args, console)),
    };
    match result {
        Ok(()) => Exit::Ok,
        Err(failure) => {
            if !failure.message.is_empty() {
                console.say(&format!("error: {}", failure.message));
            }
            failure.exit
        }
    }
}

/// Runs a command that asks a running Sluice, until it ends or a signal ends it.
fn block_on(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let cannot = |error: io::Error| Failure::new(Exit::Failed, format!("cannot start: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
        tokio::select! {
            result = work => result,
            _ = interrupt.recv() => Err(Failure::new(Exit::Interrupted, "")),
            _ = terminate.recv() => Err(Failure::new(Exit::Terminated, "")),
        }
    })
}
