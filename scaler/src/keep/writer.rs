// SPDX-License-Identifier: Apache-2.0
//! The thread that writes segments, and how many of them there may be.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use sluice_core::{Micros, journal};

use super::{Line, Signals, segments};

/// A segment whose inputs have grown to so many bytes is followed by the next.
pub(super) const SEGMENT_BYTES: u64 = 8 << 20;
/// Segments that came before the present one may have so many bytes together; the oldest go first.
pub(super) const FORMER_BYTES: u64 = 56 << 20;
/// And there may be so many of them.
pub(super) const FORMER: usize = 255;

pub(super) struct Writer {
    folder: PathBuf,
    /// Held as long as it writes.
    _lock: File,
    segment: Option<Segment>,
    /// The last attempt to write failed, and that was said.
    failed: bool,
    signals: Arc<Signals>,
}

struct Segment {
    file: BufWriter<File>,
    /// Bytes of inputs.
    size: u64,
}

impl Writer {
    pub(super) fn new(folder: PathBuf, lock: File, signals: Arc<Signals>) -> Writer {
        Writer { folder, _lock: lock, segment: None, failed: false, signals }
    }

    /// Writes until nobody hands lines over any more.
    pub(super) fn run(mut self, lines: &Receiver<Line>) {
        let mut text = Vec::new();
        while let Ok(line) = lines.recv() {
            self.take(&line, &mut text);
            while let Ok(line) = lines.try_recv() {
                self.take(&line, &mut text);
            }
            if let Err(error) = self.flush() {
                self.fail(&error);
            }
        }
        self.end_segment();
    }

    fn take(&mut self, line: &Line, text: &mut Vec<u8>) {
        text.clear();
        let written = match line {
            Line::Begin(at, core, ending) => {
                journal::write_snapshot(text, core, *ending);
                self.begin(*at, text)
            }
            Line::Input(entry) => {
                journal::write_entry(text, entry);
                self.append(text)
            }
        };
        if let Err(error) = written {
            self.fail(&error);
        }
    }

    fn begin(&mut self, at: Micros, text: &[u8]) -> io::Result<()> {
        self.end_segment();
        let (path, file) = create(&self.folder, at)?;
        let mut file = BufWriter::new(file);
        // A segment without its first line is worth nothing.
        if let Err(error) = file.write_all(text).and_then(|()| file.flush()) {
            let _ = file.into_parts();
            let _ = fs::remove_file(path);
            return Err(error);
        }
        self.segment = Some(Segment { file, size: 0 });
        count(text);
        if std::mem::take(&mut self.failed) {
            tracing::info!("journal_written_again");
        }
        prune(&self.folder, &path)
    }

    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        let Some(segment) = &mut self.segment else {
            lost();
            return Ok(());
        };
        segment.file.write_all(text)?;
        segment.size += text.len() as u64;
        if segment.size >= SEGMENT_BYTES {
            self.signals.full.store(true, Ordering::Relaxed);
        }
        count(text);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.segment.as_mut().map_or(Ok(()), |segment| segment.file.flush())
    }

    fn end_segment(&mut self) {
        let flushed = self.flush();
        let synced = flushed.and_then(|()| match &self.segment {
            Some(segment) => segment.file.get_ref().sync_data(),
            None => Ok(()),
        });
        match synced {
            Ok(()) => self.segment = None,
            Err(error) => self.fail(&error),
        }
    }

    /// The segment is given up; the driver begins another after a pause.
    fn fail(&mut self, error: &io::Error) {
        if let Some(segment) = self.segment.take() {
            // What is buffered cannot be written; dropping must not try again.
            let _ = segment.file.into_parts();
        }
        lost();
        self.signals.failed.store(true, Ordering::Relaxed);
        if !std::mem::replace(&mut self.failed, true) {
            let folder = self.folder.display();
            tracing::warn!(%error, %folder, "journal_not_written: sluice goes on without and tries again");
        }
    }
}

fn count(text: &[u8]) {
    metrics::counter!("sluice_journal_written_bytes_total").increment(text.len() as u64);
}

fn lost() {
    metrics::counter!("sluice_journal_lost_inputs_total").increment(1);
}

/// A file that was not there, named by its time. It comes after those that are there, whatever the clock says.
fn create(folder: &Path, at: Micros) -> io::Result<(PathBuf, File)> {
    let last = segments(folder).pop().and_then(|path| path.file_stem()?.to_str()?.parse::<u64>().ok());
    let mut number = last.map_or(at.0, |last| at.0.max(last.saturating_add(1)));
    loop {
        let path = folder.join(format!("{number:020}.jsonl"));
        match OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < u64::MAX => number += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Removes the oldest segments beyond the bounds.
fn prune(folder: &Path, present: &Path) -> io::Result<()> {
    let (mut count, mut bytes) = (0, 0);
    for path in segments(folder).into_iter().rev().filter(|path| path != present) {
        count += 1;
        bytes += fs::metadata(&path).map_or(0, |file| file.len());
        if count > FORMER || bytes > FORMER_BYTES {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sluice_core::journal::Journal;
    use sluice_core::{Core, Event};

    use super::*;

    #[test]
    fn a_full_disk_ends_the_segment_and_the_next_one_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let lock = File::create(folder.path().join("lock")).unwrap();
        let signals = Arc::new(Signals::default());
        let mut writer = Writer::new(folder.path().to_owned(), lock, signals.clone());
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        writer.segment = Some(Segment { file: BufWriter::new(full), size: 0 });
        let (mut core, mut journal, mut text) = (Core::new(), Journal::new(9), Vec::new());
        let line = Line::Input(journal.step(&mut core, Micros::from_secs(1), Event::Tick, &mut Vec::new()));
        writer.take(&line, &mut text);
        assert!(!writer.failed, "it is buffered");
        let error = writer.flush().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        writer.fail(&error);
        assert!(signals.failed.load(Ordering::Relaxed) && writer.segment.is_none());
        writer.take(&line, &mut text);
        writer.take(&Line::Begin(Micros::ZERO, Box::new(core), false), &mut text);
        writer.take(&line, &mut text);
        writer.flush().unwrap();
        assert!(!writer.failed);
        let files = segments(folder.path());
        assert_eq!(journal::read(&fs::read(&files[0]).unwrap()).unwrap().entries.len(), 1);
    }
}
