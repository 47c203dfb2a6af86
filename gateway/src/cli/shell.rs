// SPDX-License-Identifier: Apache-2.0
//! What shells and `man` need: completion, with the names of models from the running Sluice, and manual pages.
//!
//! A completion script calls `sluice` itself with [`VARIABLE`] set, so it never goes out of date. Without that variable
//! nothing here runs.

use std::fs;
use std::path::Path;
use std::time::Duration;

use clap::{Command, CommandFactory};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::Shells;
use clap_mangen::Man;

use super::Cli;
use super::args::{ADMIN, AdminArgs, Shell};
use super::client::Client;
use super::console::Console;
use super::exit::{Exit, Failure};
use crate::admin::api::Model;

/// Set by completion scripts.
const VARIABLE: &str = "COMPLETE";

/// Longest time for the names of models: somebody has pressed Tab.
const PATIENCE: Duration = Duration::from_millis(500);

/// Answers a completion script and ends the process, if one asks.
pub fn complete() {
    if std::env::var_os(VARIABLE).is_some() {
        CompleteEnv::with_factory(Cli::command).complete();
    }
}

/// Completes the names of models.
pub fn model_names() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        ask_names().unwrap_or_default().into_iter().map(CompletionCandidate::new).collect()
    })
}

fn ask_names() -> Option<Vec<String>> {
    let admin = std::env::var("SLUICE_ADMIN").unwrap_or_else(|_| ADMIN.to_owned());
    let token_file = std::env::var_os("SLUICE_TOKEN_FILE").map(Into::into);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    runtime.block_on(async {
        let client = Client::new(&AdminArgs { admin, token_file }).ok()?;
        let models = client.list::<Model>("/api/v1/models");
        let models = tokio::time::timeout(PATIENCE, models).await.ok()?.ok()?;
        Some(models.into_iter().map(|model| model.name).collect())
    })
}

/// Carries out `sluice completion`.
pub fn completion(shell: Shell, console: &mut Console<'_>) -> Result<(), Failure> {
    let name = match shell {
        Shell::Bash => "bash",
        Shell::Zsh => "zsh",
        Shell::Fish => "fish",
        Shell::Powershell => "powershell",
    };
    let shells = Shells::builtins();
    let completer = shells
        .completer(name)
        .ok_or_else(|| Failure::new(Exit::Failed, format!("there is no completion for {name}")))?;
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, "sluice", "sluice", "sluice", &mut script)?;
    console.print(&String::from_utf8_lossy(&script))
}

/// Carries out `sluice man`.
pub fn man(dir: Option<&Path>, console: &mut Console<'_>) -> Result<(), Failure> {
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let Some(dir) = dir else {
        return console.print(&String::from_utf8_lossy(&page(root)?));
    };
    let failed = |error: std::io::Error| Failure::new(Exit::Failed, format!("{}: {error}", dir.display()));
    fs::create_dir_all(dir).map_err(failed)?;
    for command in with_below(root) {
        let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
        fs::write(dir.join(format!("{name}.1")), page(command)?).map_err(failed)?;
    }
    Ok(())
}

/// A command and all below it.
fn with_below(command: Command) -> Vec<Command> {
    let below: Vec<Command> = command.get_subcommands().cloned().flat_map(with_below).collect();
    std::iter::once(command).chain(below).collect()
}

fn page(command: Command) -> Result<Vec<u8>, Failure> {
    let examples = command.get_before_help().map(ToString::to_string).unwrap_or_default();
    let mut text = Vec::new();
    let version = concat!("Sluice ", env!("CARGO_PKG_VERSION"));
    Man::new(command).source(version).manual("Sluice Manual").render(&mut text)?;
    text.extend_from_slice(examples_section(&examples).as_bytes());
    Ok(text)
}

/// The examples that every help begins with, as they are.
fn examples_section(help: &str) -> String {
    let mut section = ".SH EXAMPLES\n.nf\n".to_owned();
    for line in help.lines().skip(1) {
        let line = line.strip_prefix("  ").unwrap_or(line).replace('\\', "\\e").replace('-', "\\-");
        // What begins with a point or a quote is a request.
        section += &format!("\\&{line}\n");
    }
    section + ".fi\n"
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::ValueEnum;

    use super::*;

    fn printed(work: impl FnOnce(&mut Console<'_>) -> Result<(), Failure>) -> String {
        let mut out = Vec::new();
        work(&mut Console { out: &mut out, err: &mut std::io::sink(), colour: false }).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_shell_has_a_script_that_calls_sluice() {
        for shell in Shell::value_variants() {
            let script = printed(|console| completion(*shell, console));
            assert!(script.contains(VARIABLE) && script.contains("sluice"), "{shell:?}: {script}");
        }
    }

    #[test]
    fn there_is_a_page_with_every_option_and_example_for_every_command() {
        let dir = tempfile::tempdir().unwrap();
        printed(|console| man(Some(dir.path()), console));
        let mut root = Cli::command().disable_help_subcommand(true);
        root.build();
        let commands = with_below(root);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), commands.len());
        for command in &commands {
            let name = command.get_display_name().unwrap_or("sluice");
            let page = fs::read_to_string(dir.path().join(format!("{name}.1"))).unwrap();
            assert!(page.contains(".SH SYNOPSIS"), "{name}");
            for option in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
                let text = match option.get_long() {
                    Some(long) => format!("\\-\\-{}", long.replace('-', "\\-")),
                    None => option.get_value_names().unwrap()[0].to_string(),
                };
                assert!(page.contains(&text), "{text} of {name}");
            }
            let examples = page.split(".SH EXAMPLES").nth(1).unwrap();
            let first =
                command.get_before_help().unwrap().to_string().lines().nth(1).unwrap().trim().to_owned();
            assert!(examples.contains(&first.replace('-', "\\-")), "{first} of {name}");
        }
        assert!(printed(|console| man(None, console)).contains(".TH sluice 1"));
    }

    #[test]
    fn an_example_is_printed_as_it_is() {
        let section = examples_section("Examples:\n  sluice run -c a\\b\n  .x");
        assert_eq!(section, ".SH EXAMPLES\n.nf\n\\&sluice run \\-c a\\eb\n\\&.x\n.fi\n");
    }
}
