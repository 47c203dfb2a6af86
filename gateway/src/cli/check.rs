// SPDX-License-Identifier: Apache-2.0
//! `sluice check`: everything that is wrong with configuration files, at once.
//!
//! Owns the form of the answer and its exit code. Must not know what is checked: that is `config`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::config::{self, Code, Report};

/// Every file is right.
const RIGHT: u8 = 0;
/// A file cannot be read, or the answer not be written.
const FAILED: u8 = 1;
/// A file is wrong.
const WRONG: u8 = 3;

/// `sluice check`.
#[derive(Clone, Debug, Args)]
#[command(
    before_help = "\
Examples:
  sluice check sluice.yaml              every error and note, with its line
  sluice check --strict *.yaml          in continuous integration: notes are errors, too
  sluice check --format json a.yaml     for an editor
  sluice check --keys                   every key with its range, default and meaning
  sluice check --schema                 the same as JSON Schema, for editors",
    after_help = "\
Exit codes:
  0  every file is right; notes may have been printed
  1  a file cannot be read
  3  a file is wrong; with --strict also: there is a note

Files that keys such as `backendKeyFile` name are read, programs are looked up, no address is connected to."
)]
pub struct CheckArgs {
    /// Configuration files.
    #[arg(required_unless_present_any = ["keys", "schema"], value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Form of the answer on stdout.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Notes are errors, too.
    #[arg(long)]
    pub strict: bool,
    /// Print every key there is, as Markdown.
    #[arg(long, conflicts_with_all = ["files", "strict", "format"])]
    pub keys: bool,
    /// Print the JSON Schema of a configuration file.
    #[arg(long, conflicts_with_all = ["files", "strict", "format", "keys"])]
    pub schema: bool,
}

/// Form of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people: `file:line:column`, the line, the word, what to do.
    Text,
    /// A JSON array with an object per file.
    Json,
}

/// Checks the files and prints what was found on stdout.
pub fn run(args: CheckArgs) -> ExitCode {
    match check(&args, &mut io::stdout().lock()) {
        Ok(code) => ExitCode::from(code),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::from(RIGHT),
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: the answer cannot be written: {error}");
            ExitCode::from(FAILED)
        }
    }
}

fn check(args: &CheckArgs, out: &mut dyn Write) -> io::Result<u8> {
    if args.keys {
        out.write_all(config::reference().as_bytes())?;
        return out.flush().map(|()| RIGHT);
    }
    if args.schema {
        serde_json::to_writer_pretty(&mut *out, &config::schema())?;
        writeln!(out)?;
        return out.flush().map(|()| RIGHT);
    }
    let reports: Vec<Report> = args.files.iter().map(|file| inspect(file)).collect();
    match args.format {
        Format::Json => {
            let items: Vec<_> = reports.iter().map(Report::to_json).collect();
            serde_json::to_writer_pretty(&mut *out, &items)?;
            writeln!(out)?;
        }
        Format::Text => {
            for report in &reports {
                write!(out, "{report}{}", summary(report))?;
            }
        }
    }
    out.flush()?;
    Ok(code(&reports, args.strict))
}

/// What is wrong with one file, or only its notes.
fn inspect(file: &Path) -> Report {
    match config::load(file) {
        Ok(loaded) => {
            Report { origin: file.display().to_string(), problems: Vec::new(), notes: loaded.notes }
        }
        Err(report) => report,
    }
}

fn summary(report: &Report) -> String {
    let count = |number: usize, word: &str| match number {
        1 => format!("1 {word}"),
        _ => format!("{number} {word}s"),
    };
    let notes = count(report.notes.len(), "note");
    match report.problems.len() {
        0 if report.notes.is_empty() => format!("{}: right\n", report.origin),
        0 => format!("{}: right, with {notes}\n", report.origin),
        errors => format!("{}: {}, {notes}\n", report.origin, count(errors, "error")),
    }
}

fn code(reports: &[Report], strict: bool) -> u8 {
    let unreadable = |report: &Report| report.problems.iter().any(|problem| problem.code == Code::Unreadable);
    let wrong = |report: &Report| match report.problems.is_empty() {
        true => strict && !report.notes.is_empty(),
        false => !unreadable(report),
    };
    match reports {
        _ if reports.iter().any(wrong) => WRONG,
        _ if reports.iter().any(unreadable) => FAILED,
        _ => RIGHT,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use clap::Parser;

    use super::*;

    const RIGHT_FILE: &str = "models:\n  - name: m\n    command: [sh, -c, 'exit']\n";
    const NOTED_FILE: &str = "models:\n  - name: m\n    command: [no-such-program]\n";
    const WRONG_FILE: &str =
        "models:\n  - name: m\n    comand: [sh]\n    minReplicas: -1\n    maxReplicas: 1\n";

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: CheckArgs,
    }

    /// The exit code and the answer for `words`, with `files` written beforehand in place of `@0`, `@1`, …
    fn outcome(words: &str, files: &[&str]) -> (u8, String) {
        let dir = tempfile::tempdir().unwrap();
        let mut words = words.to_owned();
        for (at, text) in files.iter().enumerate() {
            let path = dir.path().join(format!("{at}.yaml"));
            std::fs::write(&path, text).unwrap();
            words = words.replace(&format!("@{at}"), path.to_str().unwrap());
        }
        let line = Line::try_parse_from(format!("check {words}").split_whitespace()).unwrap();
        let mut out = Vec::new();
        let code = check(&line.args, &mut out).unwrap();
        (code, String::from_utf8(out).unwrap().replace(dir.path().to_str().unwrap(), "DIR"))
    }

    #[test]
    fn a_right_file_is_0() {
        assert_eq!(outcome("@0", &[RIGHT_FILE]), (0, "DIR/0.yaml: right\n".to_owned()));
    }

    #[test]
    fn every_error_of_every_file_is_printed() {
        let (code, text) = outcome("@0 @1 @0", &[WRONG_FILE, RIGHT_FILE]);
        assert_eq!(code, 3);
        let expected = "\
DIR/0.yaml:3:5: error SLU0010: unknown key `comand`
  3 |     comand: [··]
    |     ^^^^^^
  help: did you mean `command`?
DIR/0.yaml:4:18: error SLU0014: `minReplicas` cannot be `-1`
  4 |     minReplicas: -1
    |                  ^^
  help: write a whole number from 0 to 10000
DIR/0.yaml: 2 errors, 0 notes
";
        assert_eq!(text, format!("{expected}DIR/1.yaml: right\n{expected}"));
    }

    #[test]
    fn notes_are_printed_and_are_errors_only_when_strict() {
        let (code, text) = outcome("@0", &[NOTED_FILE]);
        assert_eq!(code, 0);
        assert!(text.contains("DIR/0.yaml:3:15: note SLU0102: the program `no-such-program`"), "{text}");
        assert!(text.ends_with("DIR/0.yaml: right, with 1 note\n"), "{text}");
        assert_eq!(outcome("--strict @0", &[NOTED_FILE]).0, 3);
        assert_eq!(outcome("--strict @0", &[RIGHT_FILE]).0, 0);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_1_unless_another_is_wrong() {
        let (code, text) = outcome("/no/such/file.yaml", &[]);
        assert_eq!(code, 1);
        assert!(text.starts_with("/no/such/file.yaml: error SLU0001: cannot be read: "), "{text}");
        assert_eq!(outcome("/no/such/file.yaml @0", &[WRONG_FILE]).0, 3);
    }

    #[test]
    fn json_holds_one_object_per_file() {
        let (code, text) = outcome("--format json @0 @1", &[WRONG_FILE, NOTED_FILE]);
        assert_eq!(code, 3);
        let files: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&files[0]["valid"], &files[1]["valid"]), (&false.into(), &true.into()));
        let first = &files[0]["problems"][0];
        assert_eq!(
            (&first["code"], &first["line"], &first["column"]),
            (&"SLU0010".into(), &3.into(), &5.into())
        );
        assert_eq!(first["help"], "did you mean `command`?");
        assert_eq!(files[1]["problems"][0]["severity"], "note");
    }

    #[test]
    fn the_keys_are_printed_without_a_file() {
        let (code, text) = outcome("--keys", &[]);
        assert_eq!(code, 0);
        assert!(text.contains("| `minReplicas` | 0 to 10000 | `0` |"), "{text}");
    }

    #[test]
    fn the_schema_is_printed_as_json_without_a_file() {
        let (code, text) = outcome("--schema", &[]);
        assert_eq!(code, 0);
        let schema: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    }

    #[test]
    fn no_file_is_a_usage_error_and_help_begins_with_examples() {
        assert_eq!(Line::try_parse_from(["check"]).err().unwrap().exit_code(), 2);
        let help = Line::try_parse_from(["check", "--help"]).err().unwrap().to_string();
        assert!(help.starts_with("Examples:"), "{help}");
    }
}
