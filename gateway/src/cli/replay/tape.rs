// SPDX-License-Identifier: Apache-2.0
//! Which files a journal consists of, and what comes of deciding it again.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use sluice_core::journal::{self, Difference, Outcome, Tape};
use sluice_core::{Core, Micros};
use sluice_scaler::keep::segments;
use sluice_scaler::process::default_directories;

use super::super::console::Console;
use super::super::exit::{Exit, Failure};
use super::report::date;
use crate::state;

/// A journal that was lived through again, until its end or the first difference.
#[derive(Default)]
pub(super) struct Replayed {
    /// Stretches without a gap.
    pub runs: Vec<Tape>,
    pub entries: u64,
    pub decisions: u64,
    /// Digests of what was decided.
    pub recorded: Sha256,
    pub replayed: Sha256,
    pub difference: Option<Differs>,
    /// Files that were not read, or not to their end.
    pub unreadable: usize,
}

/// Where a replay parts from the record.
pub(super) struct Differs {
    pub file: PathBuf,
    pub at: Micros,
    pub what: Difference,
}

/// The journal that a Sluice with this configuration writes.
pub(super) fn of_config(config: &Path) -> Result<PathBuf, Failure> {
    let loaded = crate::config::load(config).map_err(|report| {
        let message = format!("{report}\nname the journal itself, or a configuration by --config");
        Failure::new(Exit::InvalidConfig, message.trim_start_matches("error: "))
    })?;
    if let Some(named) = &loaded.settings.state_directory {
        return Ok(state::journal_in(named));
    }
    let places: Vec<PathBuf> =
        default_directories().iter().map(|place| state::usual_journal(place, config)).collect();
    let found = places.iter().find(|place| !segments(place).is_empty());
    found.cloned().ok_or_else(|| {
        let config = config.display();
        Failure::new(
            Exit::NotFound,
            format!("{config} has no journal yet: has sluice run with it, as this user?"),
        )
    })
}

/// The files of what was named: a file, the folder of a journal, or one that holds it.
pub(super) fn files(named: &Path) -> Result<Vec<PathBuf>, Failure> {
    if !named.is_dir() {
        return Ok(vec![named.to_owned()]);
    }
    let own = segments(named);
    if !own.is_empty() {
        return Ok(own);
    }
    let mut inside: Vec<PathBuf> = fs::read_dir(named)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_dir() && !segments(path).is_empty())
        .collect();
    inside.sort();
    match &inside[..] {
        [] => Err(Failure::new(Exit::NotFound, format!("there is no journal in {}", named.display()))),
        [one] => Ok(segments(one)),
        several => {
            let several: Vec<String> = several.iter().map(|path| path.display().to_string()).collect();
            let message = format!("there is more than one journal; name one of {}", several.join(", "));
            Err(Failure::new(Exit::Usage, message))
        }
    }
}

/// Decides again what is in these files, the oldest first.
pub(super) fn replay(files: &[PathBuf], console: &mut Console<'_>) -> Result<Replayed, Failure> {
    let mut replayed = Replayed::default();
    let mut last: Option<Core> = None;
    for file in files {
        let name = file.display();
        let mut tape = match fs::read(file)
            .map_err(|error| error.to_string())
            .and_then(|text| journal::read(&text).map_err(|error| error.to_string()))
        {
            Ok(tape) => tape,
            Err(error) if files.len() == 1 => {
                return Err(Failure::new(Exit::Failed, format!("{name}: {error}")));
            }
            Err(error) => {
                console.say(&format!("{name}: {error}: left out"));
                replayed.unreadable += 1;
                last = None;
                continue;
            }
        };
        if let Some(error) = tape.unreadable.take() {
            console.say(&format!("{name}: {error}: left out from there on"));
            replayed.unreadable += 1;
        }
        if tape.torn {
            console.say(&format!("{name}: the last line was cut off, as a crash does, and is left out"));
        }
        let end = replayed.live_through(&tape, file);
        let follows = last.is_some_and(|last| tape.start.continues(&last));
        if !follows && !tape.start.begins() && !replayed.runs.is_empty() {
            console.say(&format!("{name}: entries are missing before {}", date(tape.start.now())));
        }
        match replayed.runs.last_mut().filter(|_| follows) {
            Some(run) => run.entries.append(&mut tape.entries),
            None => replayed.runs.push(tape),
        }
        if replayed.difference.is_some() {
            break;
        }
        last = Some(end);
    }
    Ok(replayed)
}

impl Replayed {
    /// Until its end or the first difference; returns the core then.
    fn live_through(&mut self, tape: &Tape, file: &Path) -> Core {
        let mut at = tape.start.now();
        let (report, end) = tape.replay(|entry, outcome| {
            at = entry.now;
            self.decisions += entry.outcome.decisions.len() as u64;
            add(&mut self.recorded, &entry.outcome);
            add(&mut self.replayed, outcome);
        });
        self.entries += report.inputs;
        let file = file.to_owned();
        self.difference = report.difference.map(|what| Differs { file, at, what });
        end
    }
}

fn add(digest: &mut Sha256, outcome: &Outcome) {
    // An outcome was read from JSON, so that it can be written.
    digest.update(serde_json::to_vec(outcome).unwrap_or_default());
    digest.update(b"\n");
}

/// A digest in hexadecimal digits.
pub(super) fn hex(digest: &Sha256) -> String {
    digest.clone().finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
