// SPDX-License-Identifier: Apache-2.0
//! Says when the configuration file has other content.
//!
//! Editors write in place, truncate first or rename a new file over the old one; Kubernetes swaps a link two
//! levels up. So the directories are watched rather than the file, a change counts once it has been quiet,
//! and only other bytes are a change. Where the system sends no events, a look once a second finds it. Must
//! not know what the file says.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Quiet for so long, a change is complete.
const QUIET: Duration = Duration::from_millis(200);
/// In a directory that is never quiet, a change is looked at after so long all the same.
const RESTLESS: Duration = Duration::from_secs(1);
/// Between looks where no event comes.
const LOOK: Duration = Duration::from_secs(1);

/// Why a file cannot be watched by events; looking once a second goes on.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be watched, so changes are looked for every second: {cause}", directory.display())]
pub struct WatchError {
    directory: PathBuf,
    cause: notify::Error,
}

/// Watches one file.
pub struct Watch {
    file: PathBuf,
    seen: u64,
    poked: Arc<Notify>,
    watcher: Option<RecommendedWatcher>,
    /// The directories that are watched: the file's own, and that of what it links to.
    directories: Vec<PathBuf>,
}

impl Watch {
    /// Watches `file`; `digest` is that of the content in use, as in [`super::Loaded::digest`], so that a
    /// change between the loading and this call is not missed.
    pub fn new(file: &Path, digest: u64) -> Watch {
        let (file, poked) = (file.to_path_buf(), Arc::new(Notify::new()));
        Watch { file, seen: digest, poked, watcher: None, directories: Vec::new() }
    }

    /// Asks the system for events.
    ///
    /// # Errors
    /// It sends none; [`Watch::changed`] works all the same, a second later. For the log.
    pub fn listen(&mut self) -> Result<(), WatchError> {
        let parent = |path: &Path| match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        let target = self.file.canonicalize().ok();
        let wanted = [Some(parent(&self.file)), target.as_deref().map(parent)];
        for directory in wanted.into_iter().flatten() {
            if self.directories.contains(&directory) {
                continue;
            }
            let watched = self.watcher().and_then(|it| it.watch(&directory, RecursiveMode::NonRecursive));
            watched.map_err(|cause| WatchError { directory: directory.clone(), cause })?;
            self.directories.push(directory);
        }
        Ok(())
    }

    fn watcher(&mut self) -> notify::Result<&mut RecommendedWatcher> {
        let watcher = match self.watcher.take() {
            Some(watcher) => watcher,
            None => {
                let poked = self.poked.clone();
                notify::recommended_watcher(move |event: notify::Result<Event>| {
                    if event.is_ok_and(|event| is_change(event.kind)) {
                        poked.notify_one();
                    }
                })?
            }
        };
        Ok(self.watcher.insert(watcher))
    }

    /// Waits until the file has other content than at the last answer. It may be dropped and called again at
    /// any time.
    pub async fn changed(&mut self) {
        loop {
            // A link may lead elsewhere by now; where that cannot be watched, the look below finds the
            // change.
            let _ = self.listen();
            if timeout(LOOK, self.poked.notified()).await.is_ok() {
                self.settle().await;
            }
            let Some(digest) = self.digest().await.filter(|digest| *digest != self.seen) else { continue };
            // Without events it may be half written: it counts once it stays.
            sleep(QUIET).await;
            if self.digest().await == Some(digest) {
                self.seen = digest;
                return;
            }
        }
    }

    /// Waits until no event comes any more.
    async fn settle(&self) {
        let latest = Instant::now() + RESTLESS;
        while Instant::now() < latest {
            let quiet = latest.min(Instant::now() + QUIET);
            if timeout_at(quiet, self.poked.notified()).await.is_err() {
                return;
            }
        }
    }

    /// Of the content now; `None` while there is none to read.
    async fn digest(&self) -> Option<u64> {
        let file = self.file.clone();
        let read = tokio::task::spawn_blocking(move || std::fs::read(file));
        Some(super::digest(&read.await.ok()?.ok()?))
    }
}

/// Whether an event can mean other content; our own reading is none.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

#[cfg(test)]
mod tests;
