// SPDX-License-Identifier: Apache-2.0
//! The documents say what the program does: `docs/cli.md`, `docs/admin-api.md` and `docs/metrics.md`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fmt::Write;
use std::path::PathBuf;

use clap::CommandFactory;

use super::{Cli, Exit};
use crate::admin::problem::Kind;
use crate::telemetry::table::{LABELS, METRICS};

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
        Exit::HungUp,
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
fn the_list_of_metrics_is_the_table() {
    let mut list = "\n| name | kind | labels | meaning | moves when |\n|---|---|---|---|---|\n".to_owned();
    for metric in METRICS {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{}`", label.name)).collect();
        let (name, kind, help, moves) = (metric.name, metric.kind.as_str(), metric.help, metric.moves);
        writeln!(list, "| `{name}` | {kind} | {} | {help} | {moves} |", labels.join(", ")).unwrap();
    }
    list += "\n| label | values |\n|---|---|\n";
    for label in LABELS {
        writeln!(list, "| `{}` | {} |", label.name, label.values).unwrap();
    }
    assert_generated("metrics.md", &list);
}

#[test]
fn every_reason_of_a_refusal_is_documented() {
    let text = document("metrics.md");
    for reason in crate::admission::Reason::LABELS {
        assert!(text.contains(&format!("\n| `{reason}` | ")), "{reason}");
    }
}
