// SPDX-License-Identifier: Apache-2.0
//! Where on disk is what outlives Sluice: the API's changes to settings, and the journal of decisions.
//!
//! Owns places and names. Must not know what is in the files.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use sluice_scaler::process::default_directories;

/// The first of the usual directories that belongs to this user and to nobody else; it is made if it can be.
pub(crate) fn directory() -> Option<PathBuf> {
    default_directories().into_iter().find(|directory| is_ours(directory))
}

/// Exists or can be made, belongs to this user and to nobody else.
fn is_ours(directory: &Path) -> bool {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    let own = nix::unistd::geteuid().as_raw();
    made.is_ok() && fs::metadata(directory).is_ok_and(|meta| meta.uid() == own && meta.mode() & 0o022 == 0)
}

/// Sixteen digits that stand for this configuration file, so that several can share a directory.
pub(crate) fn digits_of(config: &Path) -> String {
    let whole = config.canonicalize().unwrap_or_else(|_| config.to_path_buf());
    let digest = Sha256::digest(whole.as_os_str().as_encoded_bytes());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Where the journal is kept if `stateDirectory` names a directory.
pub(crate) fn journal_in(named: &Path) -> PathBuf {
    named.join("journal")
}

/// Where in one of the usual directories the journal of this configuration file is kept.
pub(crate) fn usual_journal(directory: &Path, config: &Path) -> PathBuf {
    directory.join(format!("journal-{}", digits_of(config)))
}
