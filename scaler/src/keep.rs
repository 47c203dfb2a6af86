// SPDX-License-Identifier: Apache-2.0
//! The journal on disk: what the next Sluice continues from, and what `sluice replay` reads.
//!
//! One folder, locked by whoever writes. In it segments named by their time, each complete in itself: the core as it
//! was, then every input. Ticks that did nothing are left out, but for one each ten seconds that says that time went on.
//! Lines are handed to the system in batches, so they survive the death of Sluice; they are forced to the disk when a
//! segment ends, so a power cut may cost the last ones.
//!
//! The driver never waits: it hands lines over to a thread of its own, and what that cannot take or write is lost,
//! counted and said once. Must not know what is decided.

mod writer;

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use sluice_core::journal::{self, Entry};
use sluice_core::{Core, Micros};
use writer::Writer;

/// Lines on their way to the disk at most.
const BACKLOG: usize = 8192;
/// What a former run left is continued from if it was last written no longer ago than this.
const KEPT_FOR: Micros = Micros::from_secs(600);
/// Clocks of two runs may differ by so much.
const SKEW: Micros = Micros::from_secs(5);
/// After a failure nothing is written for so long.
const PAUSE: Micros = Micros::from_secs(10);
/// A line at least this often, so that it can be seen until when Sluice lived.
const HEARTBEAT: Micros = Micros::from_secs(10);
const LOCK: &str = "lock";

/// Why nothing is kept.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The folder or a file in it.
    #[error("journal folder {path}: {source}: make it writable, or name another by `stateDirectory`")]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Two with the same configuration.
    #[error("journal folder {0} is in use by another sluice: give one of them another `stateDirectory`")]
    InUse(PathBuf),
}

enum Line {
    /// A segment begins at that time with this core; `true` if Sluice was just told to end.
    Begin(Micros, Box<Core>, bool),
    Input(Arc<Entry>),
}

/// What the writer tells.
#[derive(Debug, Default)]
struct Signals {
    /// The present segment is to be followed by another.
    full: AtomicBool,
    /// The present segment was given up.
    failed: AtomicBool,
}

/// The writing half of a journal on disk.
pub struct Keeper {
    /// Until it is dropped.
    lines: Option<SyncSender<Line>>,
    writer: Option<JoinHandle<()>>,
    signals: Arc<Signals>,
    /// There is a segment to which lines can be appended.
    open: bool,
    /// No segment is begun before.
    not_before: Micros,
    /// The last line's time.
    written: Micros,
    /// Sluice was told to end: no further segment is begun.
    ending: bool,
    /// Losses were said.
    warned: bool,
}

impl Keeper {
    /// Opens the folder and reads what the last run left there: the core to continue from, if it is recent.
    ///
    /// # Errors
    /// If the folder cannot be used.
    pub fn open(folder: &Path, now: Micros) -> Result<(Keeper, Option<Core>), KeepError> {
        let at = |path: &Path, source| KeepError::Io { path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|e| at(folder, e))?;
        let lock = lock(folder)?;
        let former = former(folder, now);
        let (lines, received) = sync_channel(BACKLOG);
        let signals = Arc::new(Signals::default());
        let writer = Writer::new(folder.to_owned(), lock, signals.clone());
        let thread = std::thread::Builder::new().name("sluice-journal".to_owned());
        let writer = thread.spawn(move || writer.run(&received)).map_err(|e| at(folder, e))?;
        let keeper = Keeper {
            lines: Some(lines),
            writer: Some(writer),
            signals,
            open: false,
            not_before: Micros::ZERO,
            written: Micros::ZERO,
            ending: false,
            warned: false,
        };
        Ok((keeper, former))
    }

    /// To be called before a step: where a segment must begin, it begins with this core.
    pub(crate) fn before(&mut self, core: &Core, now: Micros) {
        if self.signals.failed.swap(false, Ordering::Relaxed) {
            self.open = false;
            self.not_before = now.after(PAUSE);
        }
        let full = self.signals.full.swap(false, Ordering::Relaxed);
        if (full || !self.open) && now >= self.not_before && !self.ending {
            self.begin(core, now);
        }
    }

    /// To be called after the step; `idle` if the input was a tick that had nothing to do.
    pub(crate) fn after(&mut self, entry: &Arc<Entry>, idle: bool) {
        if idle && entry.now.since(self.written) < HEARTBEAT {
            return;
        }
        self.written = entry.now;
        if self.open && self.hand_over(Line::Input(entry.clone()), entry.now) {
            return;
        }
        metrics::counter!("sluice_journal_lost_inputs_total").increment(1);
    }

    /// Sluice was told to end: the next run continues from this core, whatever becomes of it from now on.
    pub(crate) fn end(&mut self, core: &Core, now: Micros) {
        if !std::mem::replace(&mut self.ending, true) && now >= self.not_before {
            self.begin(core, now);
        }
    }

    fn begin(&mut self, core: &Core, now: Micros) {
        self.open = self.hand_over(Line::Begin(now, Box::new(core.clone()), self.ending), now);
    }

    /// Whether it was taken. After a loss nothing can be appended any more.
    fn hand_over(&mut self, line: Line, now: Micros) -> bool {
        let Some(lines) = &self.lines else { return false };
        match lines.try_send(line) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.open = false;
                self.not_before = now.after(PAUSE);
                if !std::mem::replace(&mut self.warned, true) {
                    tracing::warn!("journal_too_slow: inputs are lost to the journal, not to sluice");
                }
                false
            }
        }
    }
}

impl Drop for Keeper {
    /// Everything handed over is on the disk afterwards.
    fn drop(&mut self) {
        self.lines = None;
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has said so.
            let _ = writer.join();
        }
    }
}

fn lock(folder: &Path) -> Result<File, KeepError> {
    let path = folder.join(LOCK);
    let at = |source| KeepError::Io { path: path.clone(), source };
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(at)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(KeepError::InUse(folder.to_owned())),
        Err(TryLockError::Error(source)) => Err(at(source)),
    }
}

/// A journal's segments, oldest first.
pub fn segments(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut found: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl")).collect();
    found.sort();
    found
}

/// What the last run ended with, made ready for this one.
fn former(folder: &Path, now: Micros) -> Option<Core> {
    for path in segments(folder).iter().rev() {
        let segment = path.display();
        let read = fs::read(path).map_err(|error| error.to_string());
        let tape = match read.and_then(|dump| journal::read(&dump).map_err(|error| error.to_string())) {
            Ok(tape) => tape,
            Err(error) => {
                tracing::warn!(error, %segment, "journal_segment_passed_over");
                continue;
            }
        };
        if let Some(error) = &tape.unreadable {
            tracing::warn!(%error, %segment, "journal_read_in_part");
        }
        let until = tape.until();
        let age_s = now.since(until).as_millis() / 1_000;
        if until > now.after(SKEW) || now.since(until) > KEPT_FOR {
            tracing::info!(age_s, %segment, "journal_not_continued: it is from another time");
            return None;
        }
        tracing::info!(age_s, %segment, "journal_continued");
        return Some(Core::restored(tape.into_last(), now));
    }
    None
}

#[cfg(test)]
mod tests;
