// SPDX-License-Identifier: Apache-2.0
//! `sluice replay`: the decisions of a journal once more, as they were and as other settings would have made them.
//!
//! Asks no running Sluice. Owns the order of things; what is read and what is said is below.

mod report;
mod tape;

use std::path::{Path, PathBuf};

use clap::Args;
use sluice_core::journal::Tape;
use sluice_core::{Event, FleetSpec, ModelName};

use super::console::Console;
use super::exit::{Exit, Failure};
use super::explain::Form;
use crate::config::what_if::{Change, ChangeError, apply};
use report::{Report, WhatIf};
use tape::Replayed;

/// `sluice replay`.
#[derive(Clone, Debug, Args)]
#[command(before_help = "\
Examples:
  sluice replay                         the journal of ./sluice.yaml: are its decisions reproduced?
  sluice replay /var/lib/sluice         that in a folder
  sluice replay --set models.gemma.scaleTarget=8
                                        what would have been decided with another target
  curl -s 127.0.0.1:8081/api/v1/journal > j && sluice replay j -o json")]
pub struct ReplayArgs {
    /// Folder of a journal, one of its files, or what `GET /api/v1/journal` answered; left out, that of --config.
    #[arg(value_name = "JOURNAL")]
    pub journal: Option<PathBuf>,
    /// Configuration file whose journal is meant.
    #[arg(
        short,
        long,
        env = "SLUICE_CONFIG",
        hide_env_values = true,
        default_value = "sluice.yaml",
        value_name = "FILE"
    )]
    pub config: PathBuf,
    /// A setting to decide with in place of the recorded one, such as models.gemma.window=5m. May be repeated.
    #[arg(long = "set", value_name = "models.NAME.KEY=VALUE")]
    pub set: Vec<String>,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    pub output: Form,
}

/// Carries out `sluice replay`. A journal whose decisions are not reproduced is a failure.
pub fn replay(args: &ReplayArgs, console: &mut Console<'_>) -> Result<(), Failure> {
    let named = match &args.journal {
        Some(journal) => journal.clone(),
        None => tape::of_config(&args.config)?,
    };
    let files = tape::files(&named)?;
    let replayed = tape::replay(&files, console)?;
    let what_if = match args.set.is_empty() {
        true => None,
        false => Some(what_if(&args.set, &replayed)?),
    };
    let report = Report::of(&named, &files, &replayed, what_if);
    match args.output {
        Form::Text => report.write(console)?,
        Form::Json => console.json(&report)?,
        Form::Yaml => console.yaml(&report)?,
    }
    verdict(&named, &replayed)
}

fn verdict(named: &Path, replayed: &Replayed) -> Result<(), Failure> {
    let named = named.display();
    if replayed.difference.is_some() {
        let message = format!(
            "the decisions in {named} are not reproduced: another version wrote them, or they were edited; replay them \
             with the version that wrote them"
        );
        return Err(Failure::new(Exit::Failed, message));
    }
    if replayed.unreadable > 0 {
        return Err(Failure::new(Exit::Failed, format!("part of {named} cannot be read")));
    }
    Ok(())
}

fn what_if(set: &[String], replayed: &Replayed) -> Result<WhatIf, Failure> {
    let wrong = |error: ChangeError| Failure::new(Exit::Usage, error.to_string());
    let mut fleets = Vec::new();
    for tape in &replayed.runs {
        fleets.extend(fleets_of(tape));
    }
    let names: std::collections::BTreeSet<&ModelName> =
        fleets.iter().flat_map(|fleet| fleet.models.keys()).collect();
    let read = |text: &String| Change::read(text, names.iter().copied());
    let changes = set.iter().map(read).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    // Every configuration of the record must take it, so that none is passed over later.
    for fleet in &fleets {
        apply(&changes, &mut fleet.clone()).map_err(wrong)?;
    }
    let change = |fleet: &mut FleetSpec| {
        let checked = apply(&changes, fleet);
        debug_assert!(checked.is_ok());
    };
    Ok(WhatIf::of(&changes, &replayed.runs, &change))
}

/// The configurations that decisions were made with.
fn fleets_of(tape: &Tape) -> Vec<FleetSpec> {
    let begin = (!tape.start.begins()).then(|| tape.start.fleet());
    let later = tape.entries.iter().filter_map(|entry| match &entry.event {
        Event::Configure(fleet) => Some(fleet.clone()),
        _ => None,
    });
    begin.into_iter().chain(later).collect()
}

#[cfg(test)]
mod tests;
