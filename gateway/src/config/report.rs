// SPDX-License-Identifier: Apache-2.0
//! What is wrong with a configuration, where, and what to do: for people and for machines.
//!
//! Owns the codes and how a problem is shown. An excerpt shows keys, values of known harmless keys and the
//! word that the problem is about; every other letter is covered, so that no secret of the file can reach a
//! log.

use std::fmt;

use super::excerpt;
use super::tree::Place;

/// Most problems that are listed; a file with more is not worth reading on.
pub(super) const MAX_PROBLEMS: usize = 500;

/// Declares the codes once, for the enum, its texts and the documentation.
macro_rules! codes {
    ($($variant:ident = $id:literal, $title:literal;)*) => {
        /// The kinds of problems and notes; their numbers never change.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Code { $(#[doc = $title] $variant,)* }

        impl Code {
            /// All codes, by number.
            pub const ALL: &[Code] = &[$(Code::$variant,)*];

            /// The stable number.
            pub fn id(self) -> &'static str {
                match self { $(Code::$variant => $id,)* }
            }

            /// What it stands for, in one line.
            pub fn title(self) -> &'static str {
                match self { $(Code::$variant => $title,)* }
            }
        }
    };
}

codes! {
    Unreadable = "SLU0001", "the file cannot be read, or is not UTF-8";
    Syntax = "SLU0002", "the text is not valid YAML";
    Shape = "SLU0003", "the file is empty or has more than one document";
    TooLarge = "SLU0004", "the file, or what its aliases stand for, is too large";
    Alias = "SLU0005", "an alias stands inside of what it stands for";
    Tag = "SLU0006", "a YAML tag, or a key that is not a single word";
    DuplicateKey = "SLU0007", "a key is set twice in one table";
    UnknownKey = "SLU0010", "a key that does not exist";
    NotYet = "SLU0011", "a key or value that is known and not supported yet";
    Missing = "SLU0012", "a required key is missing";
    WrongType = "SLU0013", "a list, table or single value where another is expected";
    Malformed = "SLU0014", "a value that cannot be read";
    OutOfRange = "SLU0015", "a value outside of the allowed range";
    Unset = "SLU0016", "an environment variable that is not set";
    Expansion = "SLU0017", "a `${env.…}` that cannot be read";
    SecretFile = "SLU0018", "a file with a secret that cannot be read";
    Conflict = "SLU0020", "two settings that contradict or exclude each other";
    DuplicateName = "SLU0021", "a name or address that is taken already";
    UnknownName = "SLU0022", "a reference to something that is not configured";
    Bounds = "SLU0023", "two limits that do not fit each other";
    NotHere = "SLU0024", "a key that has no meaning in this place";
    Deviation = "SLU0101", "a setting whose meaning differs from KServe's or Knative's";
    Program = "SLU0102", "a program that is not found";
    NoEffect = "SLU0103", "a setting that changes nothing or can hardly be meant";
    Exposed = "SLU0104", "something that others can reach or read";
}

/// A finding before it is turned into words with an excerpt.
#[derive(Debug)]
pub(super) struct Fault {
    pub code: Code,
    pub place: Place,
    pub message: String,
    pub help: Option<String>,
    /// The word at `place` may be a secret.
    pub hidden: bool,
}

impl Fault {
    pub fn new(code: Code, place: Place, message: impl Into<String>) -> Self {
        Fault { code, place, message: message.into(), help: None, hidden: false }
    }

    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    pub fn hidden(mut self) -> Self {
        self.hidden = true;
        self
    }
}

/// One thing that is wrong or worth knowing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What kind it is.
    pub code: Code,
    /// Line, from 1; 0 where the problem is not in a line.
    pub line: usize,
    /// Character in the line, from 1; 0 where the problem is not in a line.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: Option<String>,
    /// The line with a mark under the word, secrets covered; empty where there is no line.
    pub excerpt: String,
}

/// A warning, or a deviation from what the same words mean elsewhere.
pub type Note = Problem;

/// Everything that is wrong with one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The file's name as it was given.
    pub origin: String,
    /// The errors, by place.
    pub problems: Vec<Problem>,
    /// Notes, by place.
    pub notes: Vec<Note>,
}

impl Report {
    /// A report about a file as a whole.
    pub(super) fn of_file(origin: &str, code: Code, message: String) -> Self {
        let problem = Problem { code, line: 0, column: 0, message, help: None, excerpt: String::new() };
        Report { origin: origin.to_owned(), problems: vec![problem], notes: Vec::new() }
    }

    /// For machines: `{"file", "valid", "problems": [{"code", "severity", "line", "column", "message",
    /// "help"}]}`.
    pub fn to_json(&self) -> serde_json::Value {
        let item = |severity: &str, p: &Problem| {
            serde_json::json!({
                "code": p.code.id(),
                "severity": severity,
                "line": p.line,
                "column": p.column,
                "message": p.message,
                "help": p.help,
            })
        };
        let errors = self.problems.iter().map(|p| item("error", p));
        let items: Vec<_> = errors.chain(self.notes.iter().map(|p| item("note", p))).collect();
        serde_json::json!({ "file": self.origin, "valid": self.problems.is_empty(), "problems": items })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.problems {
            write_problem(f, &self.origin, "error", problem)?;
        }
        for note in &self.notes {
            write_problem(f, &self.origin, "note", note)?;
        }
        Ok(())
    }
}

impl std::error::Error for Report {}

fn write_problem(f: &mut fmt::Formatter<'_>, origin: &str, severity: &str, problem: &Problem) -> fmt::Result {
    match problem.line {
        0 => write!(f, "{origin}: ")?,
        line => write!(f, "{origin}:{line}:{}: ", problem.column)?,
    }
    writeln!(f, "{severity} {}: {}", problem.code.id(), problem.message)?;
    f.write_str(&problem.excerpt)?;
    match &problem.help {
        Some(help) => writeln!(f, "  help: {help}"),
        None => Ok(()),
    }
}

/// Turns findings into problems, in the order of the text.
pub(super) fn finish(text: &str, mut faults: Vec<Fault>, shown: &[(usize, usize)]) -> Vec<Problem> {
    faults.sort_by_key(|fault| (fault.place.line, fault.place.column));
    faults.truncate(MAX_PROBLEMS);
    let cover = excerpt::Cover::new(text, shown);
    faults.into_iter().map(|fault| problem(&cover, fault)).collect()
}

fn problem(cover: &excerpt::Cover<'_>, fault: Fault) -> Problem {
    let Fault { code, place, message, help, hidden } = fault;
    let excerpt = cover.excerpt(place, hidden);
    Problem { code, line: place.line, column: place.column, message, help, excerpt }
}
