// SPDX-License-Identifier: Apache-2.0
//! What a replay found, as a document and in words.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use sluice_core::journal::{Outcome, Tape};
use sluice_core::what_if::{Parting, Totals, partings, recorded, supposed};
use sluice_core::{FleetSpec, Micros, ModelName};

use super::super::console::Console;
use super::super::exit::Failure;
use super::super::explain::words;
use super::super::table::{Cell, Table, short};
use super::tape::{Replayed, hex};
use crate::admin::clock::{Moment, rfc3339};
use crate::admin::decisions::{Decision, document};
use crate::config::what_if::Change;

/// A replay.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    journal: String,
    files: usize,
    from: String,
    until: String,
    entries: u64,
    decisions: u64,
    runs: usize,
    /// Digest of what was recorded, and of what was decided now; until the first difference.
    recorded: String,
    replayed: String,
    equal: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<Differs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    what_if: Option<WhatIf>,
}

#[derive(Debug, Serialize)]
struct Differs {
    file: PathBuf,
    line: u64,
    at: String,
    recorded: Outcome,
    replayed: Outcome,
}

/// What other settings would have decided.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WhatIf {
    set: Vec<String>,
    /// The first time in which another number of replicas would have been desired.
    first: Option<Different>,
    models: Vec<Model>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Different {
    model: String,
    from: String,
    seconds: f64,
    unchanged: u32,
    supposed: u32,
    unchanged_by: Option<Decision>,
    supposed_by: Option<Decision>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Model {
    model: String,
    /// With the recorded settings, and with the other ones.
    unchanged: Sums,
    supposed: Sums,
    /// Times in which the desired counts differ, and the replica-seconds between them.
    differences: usize,
    differing_replica_seconds: f64,
    /// How far the recorded settings with made-up replicas are from the record.
    off_record_replica_seconds: f64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Sums {
    replica_seconds: f64,
    peak: u32,
    changes: u32,
}

/// A point of the journal's time line, which begins with the Unix epoch.
pub(super) fn date(at: Micros) -> String {
    rfc3339(at.as_millis())
}

impl Report {
    pub(super) fn of(
        journal: &Path,
        files: &[PathBuf],
        replayed: &Replayed,
        what_if: Option<WhatIf>,
    ) -> Report {
        let runs = &replayed.runs;
        let edge = |tape: Option<&Tape>, at: fn(&Tape) -> Micros| tape.map(at).map(date).unwrap_or_default();
        let (recorded, again) = (hex(&replayed.recorded), hex(&replayed.replayed));
        Report {
            journal: journal.display().to_string(),
            files: files.len(),
            from: edge(runs.first(), |tape| tape.entries.first().map_or(tape.start.now(), |entry| entry.now)),
            until: edge(runs.last(), Tape::until),
            entries: replayed.entries,
            decisions: replayed.decisions,
            runs: runs.len(),
            equal: recorded == again && replayed.difference.is_none(),
            recorded,
            replayed: again,
            difference: replayed.difference.as_ref().map(|differs| Differs {
                file: differs.file.clone(),
                line: differs.what.line,
                at: date(differs.at),
                recorded: differs.what.recorded.clone(),
                replayed: differs.what.replayed.clone(),
            }),
            what_if,
        }
    }

    /// For people.
    pub(super) fn write(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "journal    {}, files: {}", clean(&self.journal), self.files);
        let _ = writeln!(text, "time       {} to {}", self.from, self.until);
        let _ = writeln!(text, "replayed   entries: {}, decisions: {}", self.entries, self.decisions);
        match &self.difference {
            None => {
                let _ = writeln!(text, "decisions  as recorded, sha256 {}", self.replayed);
            }
            Some(differs) => {
                let (file, line) = (clean(&differs.file.display().to_string()), differs.line);
                let _ = writeln!(text, "differs    at {}, line {line} of {file}", differs.at);
                outcome(&mut text, "recorded", &differs.recorded);
                outcome(&mut text, "replayed", &differs.replayed);
            }
        }
        console.print(&text)?;
        self.what_if.iter().try_for_each(|what_if| what_if.write(console))
    }
}

fn outcome(text: &mut String, name: &str, outcome: &Outcome) {
    // It was read from JSON or is of the same kind, so that it can be written.
    let actions = serde_json::to_string(&outcome.actions).unwrap_or_default();
    let decisions = serde_json::to_string(&outcome.decisions).unwrap_or_default();
    let deadline = outcome.deadline.map_or_else(|| "none".to_owned(), date);
    let _ = writeln!(text, "{name:<9}  actions {}", clean(&actions));
    let _ = writeln!(text, "           decisions {}", clean(&decisions));
    let _ = writeln!(text, "           routes {}, next look {deadline}", outcome.routes);
}

/// Nothing that could steer a terminal.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

impl WhatIf {
    pub(super) fn of(changes: &[Change], runs: &[Tape], change: &dyn Fn(&mut FleetSpec)) -> WhatIf {
        let mut first: Option<Parting> = None;
        let mut models: BTreeMap<ModelName, Model> = BTreeMap::new();
        for tape in runs {
            let end = tape.until();
            // Replicas are made up on both sides, so that only the settings differ.
            let (was, would) = (supposed(tape, &|_| {}), supposed(tape, change));
            for (name, totals) in was.totals(end) {
                of(&mut models, &name).unchanged.add(totals);
            }
            for (name, totals) in would.totals(end) {
                of(&mut models, &name).supposed.add(totals);
            }
            for parting in partings(&recorded(tape), &was, end) {
                of(&mut models, &parting.model).off_record_replica_seconds += between(&parting);
            }
            for parting in partings(&was, &would, end) {
                let model = of(&mut models, &parting.model);
                model.differences += 1;
                model.differing_replica_seconds += between(&parting);
                first.get_or_insert(parting);
            }
        }
        WhatIf {
            set: changes.iter().map(Change::to_string).collect(),
            first: first.as_ref().map(Different::of),
            models: models.into_values().collect(),
        }
    }

    fn write(&self, console: &mut Console<'_>) -> Result<(), Failure> {
        let mut text = format!("\nwith {}\n\n", clean(&self.set.join(" ")));
        match &self.first {
            None => text += "no difference: the same replicas would have been desired throughout\n\n",
            Some(first) => first.write(&mut text),
        }
        console.print(&text)?;
        let header =
            &["MODEL", "REPLICA-SECONDS", "WITH", "PEAK", "WITH", "CHANGES", "WITH", "DIFFERENCES", "BY"];
        let rows: Vec<_> = self.models.iter().map(Model::row).collect();
        let mut table = Table::new(header);
        table.header(&rows, console.out)?;
        table.rows(&rows, console.colour, console.out)?;
        let off: f64 = self.models.iter().map(|model| model.off_record_replica_seconds).sum();
        if off >= 1.0 {
            console.say(&format!(
                "on both sides replicas are made up; with the recorded settings they are {off:.0} replica-seconds off the \
                 record"
            ));
        }
        Ok(())
    }
}

fn of<'a>(models: &'a mut BTreeMap<ModelName, Model>, name: &ModelName) -> &'a mut Model {
    models.entry(name.clone()).or_insert_with(|| Model {
        model: name.as_str().to_owned(),
        unchanged: Sums { replica_seconds: 0.0, peak: 0, changes: 0 },
        supposed: Sums { replica_seconds: 0.0, peak: 0, changes: 0 },
        differences: 0,
        differing_replica_seconds: 0.0,
        off_record_replica_seconds: 0.0,
    })
}

/// Replica-seconds between two courses.
fn between(parting: &Parting) -> f64 {
    f64::from(parting.recorded.abs_diff(parting.supposed)) * seconds(parting.until.since(parting.from))
}

fn seconds(time: Micros) -> f64 {
    time.0 as f64 / 1e6
}

impl Sums {
    fn add(&mut self, totals: Totals) {
        self.replica_seconds += totals.replica_micros as f64 / 1e6;
        self.peak = self.peak.max(totals.peak);
        self.changes += totals.changes;
    }
}

impl Model {
    fn row(&self) -> Vec<Cell> {
        let (was, would) = (&self.unchanged, &self.supposed);
        let whole = |number: f64| Cell::new(format!("{number:.0}"));
        let count = |number: u32| Cell::new(number.to_string());
        let by = format!("{:.0} replica-seconds", self.differing_replica_seconds);
        vec![
            Cell::new(&self.model),
            whole(was.replica_seconds),
            whole(would.replica_seconds),
            count(was.peak),
            count(would.peak),
            count(was.changes),
            count(would.changes),
            Cell::new(self.differences.to_string()),
            Cell::new(by),
        ]
    }
}

impl Different {
    fn of(parting: &Parting) -> Different {
        let epoch = Moment { micros: Micros::ZERO, unix_ms: 0 };
        let told = |by: &Option<sluice_core::Decision>| by.as_ref().map(|by| document(by, epoch));
        Different {
            model: parting.model.as_str().to_owned(),
            from: date(parting.from),
            seconds: seconds(parting.until.since(parting.from)),
            unchanged: parting.recorded,
            supposed: parting.supposed,
            unchanged_by: told(&parting.recorded_by),
            supposed_by: told(&parting.supposed_by),
        }
    }

    fn write(&self, text: &mut String) {
        let long = short((self.seconds * 1e3) as u64);
        let (model, from) = (clean(&self.model), &self.from);
        let _ = writeln!(
            text,
            "first difference at {from}: for {long}, {} of {model} would have been desired in place of {}\n",
            self.supposed, self.unchanged
        );
        let before = "desired since before the journal begins, or since its settings were changed\n";
        for (name, by) in [("as it was:", &self.unchanged_by), ("with that:", &self.supposed_by)] {
            let told = by.as_ref().map_or_else(|| before.to_owned(), words);
            let _ = writeln!(text, "{name} {told}");
        }
    }
}
