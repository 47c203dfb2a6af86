// SPDX-License-Identifier: Apache-2.0
//! Where the API's changes to settings outlive Sluice: one small file for each configuration file.
//!
//! Owns its place and its safe replacement. May hold secrets, so it is for this user alone.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use sluice_scaler::process::default_directories;

use crate::config::Overlay;

/// The file; none where no directory can hold it.
#[derive(Clone, Debug)]
pub(super) struct Store(Option<PathBuf>);

impl Store {
    /// The place for changes over this configuration file.
    pub(super) fn of(config: &Path) -> Store {
        let whole = config.canonicalize().unwrap_or_else(|_| config.to_path_buf());
        let digest = Sha256::digest(whole.as_os_str().as_encoded_bytes());
        let name: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let directory = default_directories().into_iter().find(|directory| is_ours(directory));
        Store(directory.map(|directory| directory.join(format!("settings-{name}.json"))))
    }

    /// What is kept; nothing if that cannot be read, which is logged.
    pub(super) fn load(&self) -> Overlay {
        let Some(file) = &self.0 else { return Overlay::default() };
        let text = match fs::read(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Overlay::default(),
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "settings_not_read");
                return Overlay::default();
            }
        };
        serde_json::from_slice(&text).unwrap_or_else(|error| {
            tracing::warn!(file = %file.display(), %error, "settings_not_understood");
            Overlay::default()
        })
    }

    /// Replaces what is kept, whole or not at all.
    pub(super) fn save(&self, overlay: &Overlay) -> io::Result<()> {
        let Some(file) = &self.0 else {
            return Err(io::Error::other("no directory for state can be written; set XDG_STATE_HOME"));
        };
        let fresh = file.with_extension("new");
        let text = serde_json::to_vec(overlay)?;
        let mut open = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&fresh)?;
        open.write_all(&text)?;
        open.sync_all()?;
        fs::rename(&fresh, file)
    }
}

/// Exists or can be made, belongs to this user and to nobody else.
fn is_ours(directory: &Path) -> bool {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    let own = nix::unistd::geteuid().as_raw();
    made.is_ok() && fs::metadata(directory).is_ok_and(|meta| meta.uid() == own && meta.mode() & 0o022 == 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_saved_is_read_again_and_nonsense_is_nothing() {
        let place = tempfile::tempdir().unwrap();
        let store = Store(Some(place.path().join("settings-x.json")));
        assert!(store.load().is_empty());
        let text = r#"{"a":[{"path":["window"],"value":"9s","file":""}]}"#;
        let overlay: Overlay = serde_json::from_str(text).unwrap();
        store.save(&overlay).unwrap();
        assert_eq!(store.load(), overlay);
        let mode = fs::metadata(store.0.as_ref().unwrap()).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(store.0.as_ref().unwrap(), "{").unwrap();
        assert!(store.load().is_empty());
        assert!(Store(None).save(&overlay).is_err());
    }
}
