// SPDX-License-Identifier: Apache-2.0
//! Where a command's data and messages go.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use super::args::Color;
use super::exit::{Exit, Failure};

/// The two streams of a command.
pub struct Console<'a> {
    /// Data.
    pub out: &'a mut dyn Write,
    /// Messages.
    pub err: &'a mut dyn Write,
    /// Colour the tables.
    pub colour: bool,
}

impl Console<'_> {
    /// Writes data; a reader who has left ends the command without an error.
    pub fn print(&mut self, data: &str) -> Result<(), Failure> {
        let written = self.out.write_all(data.as_bytes()).and_then(|()| self.out.flush());
        written.map_err(Failure::from)
    }

    /// Writes a message line; nobody reading it is no reason to stop.
    pub fn say(&mut self, message: &str) {
        let _ = writeln!(self.err, "{message}");
    }

    /// Writes a document as indented JSON.
    pub fn json<T: Serialize>(&mut self, document: &T) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(document).map_err(unprintable)?;
        self.print(&(text + "\n"))
    }

    /// Writes a document as one line of JSON.
    pub fn json_line<T: Serialize>(&mut self, document: &T) -> Result<(), Failure> {
        let text = serde_json::to_string(document).map_err(unprintable)?;
        self.print(&(text + "\n"))
    }

    /// Writes a document as YAML.
    pub fn yaml<T: Serialize>(&mut self, document: &T) -> Result<(), Failure> {
        let text = serde_saphyr::to_string(document).map_err(unprintable)?;
        self.print(&text)
    }
}

/// Whether to colour what goes to stdout.
pub fn colour(choice: Color) -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let forced = std::env::var_os("CLICOLOR_FORCE").is_some_and(|value| !value.is_empty() && value != "0");
    decide(choice, set("NO_COLOR"), forced, io::stdout().is_terminal())
}

fn decide(choice: Color, no_colour: bool, forced: bool, terminal: bool) -> bool {
    match choice {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => !no_colour && (forced || terminal),
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::new(Exit::Ok, ""),
            _ => Failure::new(Exit::Failed, format!("the output cannot be written: {error}")),
        }
    }
}

fn unprintable(error: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Failed, format!("the answer cannot be printed: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_follows_flag_then_environment_then_terminal() {
        assert!(decide(Color::Always, true, false, false));
        assert!(!decide(Color::Never, false, true, true));
        assert!(decide(Color::Auto, false, false, true));
        assert!(!decide(Color::Auto, false, false, false));
        assert!(decide(Color::Auto, false, true, false));
        assert!(!decide(Color::Auto, true, true, true));
    }
}
