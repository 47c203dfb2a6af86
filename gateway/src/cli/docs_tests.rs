// SPDX-License-Identifier: Apache-2.0
//! The documents say what the program does: `docs/cli.md`, `docs/admin-api.md` and `docs/metrics.md`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;

use clap::CommandFactory;

use super::{Cli, Exit};
use crate::admin::problem::Kind;

/// Set to `1` to write what is generated instead of comparing it.
const UPDATE: &str = "SLUICE_UPDATE_DOCS";

const BEGIN: &str =
    "<!-- generated from the program: SLUICE_UPDATE_DOCS=1 cargo test -p sluice-gateway docs_tests -->\n";

fn path(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "docs", name].iter().collect()
}

fn document(name: &str) -> String {
    std::fs::read_to_string(path(name)).expect(name)
}

/// The rest of the document after [`BEGIN`] is `generated`.
fn assert_generated(name: &str, generated: &str) {
    let text = document(name);
    let (before, after) = text.split_once(BEGIN).expect("the mark of the generated part");
    if std::env::var_os(UPDATE).is_some_and(|value| value == "1") {
        std::fs::write(path(name), format!("{before}{BEGIN}{generated}")).unwrap();
    } else {
        assert_eq!(after, generated, "docs/{name} is out of date: run its tests once with {UPDATE}=1");
    }
}

#[test]
fn the_command_reference_is_the_help() {
    fn walk(command: &mut clap::Command, path: &str, out: &mut String) {
        let help = command.render_long_help().to_string();
        let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
        write!(out, "\n### {path}\n\n```text\n{}\n```\n", lines.join("\n").trim_end()).unwrap();
        for inner in command.get_subcommands_mut().filter(|inner| inner.get_name() != "help") {
            let path = format!("{path} {}", inner.get_name());
            walk(inner, &path, out);
        }
    }
    let mut command = Cli::command();
    command.build();
    let mut reference = String::new();
    walk(&mut command, "sluice", &mut reference);
    assert_generated("cli.md", &reference);
}

#[test]
fn every_exit_code_is_documented() {
    let text = document("cli.md");
    let all = [
        Exit::Ok,
        Exit::Failed,
        Exit::Usage,
        Exit::InvalidConfig,
        Exit::NotFound,
        Exit::Conflict,
        Exit::TimedOut,
        Exit::Unreachable,
        Exit::Unauthorised,
        Exit::Partly,
        Exit::Interrupted,
        Exit::Terminated,
    ];
    for exit in all {
        assert!(text.contains(&format!("\n| {} | ", exit as u8)), "{exit:?}");
    }
}

#[test]
fn every_problem_is_documented_with_its_status() {
    let text = document("admin-api.md");
    for kind in Kind::ALL {
        let row = format!("\n| `{}` | {} | ", kind.slug(), kind.status().as_u16());
        assert!(text.contains(&row), "{row}");
    }
    let rows = text
        .lines()
        .filter(|line| line.starts_with("| `") && line.contains("` | 4") || line.contains("` | 5"));
    assert_eq!(rows.count(), Kind::ALL.len());
}

#[test]
fn exactly_the_existing_metrics_are_documented() {
    let source = include_str!("../telemetry.rs");
    let names: BTreeSet<&str> =
        source.split('"').skip(1).step_by(2).filter(|text| text.starts_with("sluice_")).collect();
    let text = document("metrics.md");
    let documented: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `sluice_")?.split_once('`'))
        .map(|(name, _)| name)
        .collect();
    let names: BTreeSet<&str> = names.into_iter().map(|name| &name["sluice_".len()..]).collect();
    assert!(names.len() > 10, "{names:?}");
    assert_eq!(documented, names);
}

#[test]
fn metrics_are_documented_in_the_words_of_the_exposition() {
    let source = include_str!("../telemetry.rs");
    let start = source.find("const METRICS").expect("the table of metrics");
    let table = &source[start..start + source[start..].find("\n];").expect("the end of the table")];
    let meanings: Vec<&str> = table.split('"').skip(1).step_by(2).collect();
    let text = document("metrics.md");
    assert!(meanings.len() > 10);
    for meaning in meanings {
        assert!(text.contains(meaning), "{meaning}");
    }
}

#[test]
fn every_reason_of_a_refusal_is_documented() {
    let text = document("metrics.md");
    for reason in crate::admission::Reason::LABELS {
        assert!(text.contains(&format!("\n| `{reason}` | ")), "{reason}");
    }
}
