// SPDX-License-Identifier: Apache-2.0
//! From a YAML file to validated [`Settings`], with every error at once.
//!
//! Two stages: [`tree`] turns text into words with places, [`reader`] with the table in [`keys`] turns those
//! into typed values; what holds between keys is checked on the way to [`Settings`].

mod annotations;
mod excerpt;
mod expand;
mod file;
mod keys;
mod launch;
mod model;
mod program;
mod reader;
mod reference;
pub mod reload;
mod report;
mod scale;
pub mod settings;
mod tree;
mod units;
pub mod watch;

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

pub use reference::reference;
pub use report::{Code, Note, Problem, Report};
pub use settings::{Limits, ModelSettings, Protocol, Settings, Shutdown, Timeouts, Tls, Tracing};

/// Environment variables by name.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A configuration that may be used.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What it says.
    pub settings: Settings,
    /// Warnings, and where words mean something else than elsewhere.
    pub notes: Vec<Note>,
    /// Of the file's text: two files with the same digest are the same.
    pub digest: u64,
}

/// Reads, checks and completes a configuration file.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load(path: &Path) -> Result<Loaded, Report> {
    let origin = path.display().to_string();
    let bytes = std::fs::read(path)
        .map_err(|error| Report::of_file(&origin, Code::Unreadable, format!("cannot be read: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let message = format!("is not UTF-8: byte {} begins no character", error.utf8_error().valid_up_to());
        Report::of_file(&origin, Code::Unreadable, message)
    })?;
    build(&text, &origin, &|name| std::env::var(name).ok(), true)
}

/// Checks and completes the configuration in `text`. Relative paths start at the directory of `origin`, which
/// is also the name in reports; `env` gives environment variables.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse(text: &str, origin: &str, env: Env<'_>) -> Result<Loaded, Report> {
    build(text, origin, env, false)
}

/// As [`parse`]; `look` says whether to look for the programs of commands on this machine.
fn build(text: &str, origin: &str, env: Env<'_>, look: bool) -> Result<Loaded, Report> {
    let failed = |faults, notes, shown: &[(usize, usize)]| Report {
        origin: origin.to_owned(),
        problems: report::finish(text, faults, shown),
        notes: report::finish(text, notes, shown),
    };
    let (root, faults) = tree::parse(text).map_err(|faults| failed(faults, Vec::new(), &[]))?;
    let base = Path::new(origin).parent().unwrap_or(Path::new(""));
    let reader = reader::Reader::new(env, base);
    faults.into_iter().for_each(|fault| reader.fault(fault));
    let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let read = file::read(&reader, &root, created);
    if let Some(read) = read.as_ref().filter(|_| look) {
        program::note_absent(&reader, read);
    }
    let (faults, notes, shown) = reader.finish();
    match read {
        Some(read) if faults.is_empty() => {
            let notes = report::finish(text, notes, &shown);
            Ok(Loaded { settings: read.settings, notes, digest: digest(text.as_bytes()) })
        }
        _ => Err(failed(faults, notes, &shown)),
    }
}

/// The digest of a file's content, as in [`Loaded::digest`].
fn digest(content: &[u8]) -> u64 {
    Sha256::digest(content).iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests;
