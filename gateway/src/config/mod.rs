// SPDX-License-Identifier: Apache-2.0
//! From a YAML file to validated [`Settings`], with every error at once.
//!
//! Two stages: [`tree`] turns text into words with places, [`reader`] with the table in [`keys`] turns those
//! into typed values; what holds between keys is checked on the way to [`Settings`].

mod annotations;
mod autoscaler;
mod effect;
mod excerpt;
mod expand;
mod file;
mod keys;
mod launch;
mod model;
pub mod overlay;
mod program;
mod reader;
mod reference;
pub mod reload;
mod report;
mod scale;
mod schema;
pub mod settings;
mod tree;
mod units;
pub mod watch;
pub mod what_if;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

pub use overlay::{Dropped, Overlay, Written};
pub use reference::reference;
pub use report::{Code, Note, Problem, Report};
pub use schema::schema;
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
    /// The file's text.
    pub source: Source,
    /// Each model as it is written.
    pub written: BTreeMap<String, Written>,
}

/// A file's text, which may hold secrets, and its name in reports.
#[derive(Clone)]
pub struct Source {
    origin: String,
    text: Arc<str>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)
    }
}

impl Source {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(path: &Path) -> Result<Source, Report> {
        let origin = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|error| {
            Report::of_file(&origin, Code::Unreadable, format!("cannot be read: {error}"))
        })?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let message =
                format!("is not UTF-8: byte {} begins no character", error.utf8_error().valid_up_to());
            Report::of_file(&origin, Code::Unreadable, message)
        })?;
        Ok(Source { origin, text: text.into() })
    }

    /// Checks and completes what it says with these changes.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load(&self, overlay: &Overlay) -> Result<Loaded, Report> {
        build(&self.text, &self.origin, &|name| std::env::var(name).ok(), true, overlay)
    }

    /// As [`Source::load`]. Changes that the file has edited since are left out, and so are those of a model that are
    /// not valid with it any more.
    ///
    /// # Errors
    /// Everything that is wrong with the file itself.
    pub fn load_over(&self, overlay: &Overlay) -> Result<(Loaded, Overlay, Vec<Dropped>), Report> {
        let alone = self.load(&Overlay::default())?;
        if overlay.is_empty() {
            return Ok((alone, Overlay::default(), Vec::new()));
        }
        let (settled, mut dropped) = overlay.settle(&alone.written);
        if let Ok(loaded) = self.load(&settled) {
            return Ok((loaded, settled, dropped));
        }
        let (mut kept, mut best) = (Overlay::default(), alone);
        for model in settled.models() {
            let more = kept.and(&settled.only(&model));
            match self.load(&more) {
                Ok(loaded) => (kept, best) = (more, loaded),
                Err(_) => dropped.extend(settled.keys(&model).into_iter().map(|key| Dropped {
                    model: model.clone(),
                    key,
                    why: "it is not valid with the file any more",
                })),
            }
        }
        Ok((best, kept, dropped))
    }
}

/// Reads, checks and completes a configuration file.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load(path: &Path) -> Result<Loaded, Report> {
    Source::read(path)?.load(&Overlay::default())
}

/// Checks and completes the configuration in `text`. Relative paths start at the directory of `origin`, which
/// is also the name in reports; `env` gives environment variables.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse(text: &str, origin: &str, env: Env<'_>) -> Result<Loaded, Report> {
    build(text, origin, env, false, &Overlay::default())
}

/// As [`parse`]; `look` says whether to look for the programs of commands on this machine.
fn build(text: &str, origin: &str, env: Env<'_>, look: bool, overlay: &Overlay) -> Result<Loaded, Report> {
    let failed = |faults, notes, shown: &[(usize, usize)]| Report {
        origin: origin.to_owned(),
        problems: report::finish(text, faults, shown),
        notes: report::finish(text, notes, shown),
    };
    let (root, faults) = tree::parse(text).map_err(|faults| failed(faults, Vec::new(), &[]))?;
    let (root, written) = overlay.apply(&root, env);
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
            let source = Source { origin: origin.to_owned(), text: text.into() };
            Ok(Loaded { settings: read.settings, notes, digest: digest(text.as_bytes()), source, written })
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
