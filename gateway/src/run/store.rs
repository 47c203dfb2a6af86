// SPDX-License-Identifier: Apache-2.0
//! Where the API's changes to settings outlive Sluice: one small file for each configuration file.
//!
//! Owns its safe replacement. May hold secrets, so it is for this user alone.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::config::Overlay;
use crate::state;

/// The file; none where no directory can hold it.
#[derive(Clone, Debug)]
pub(super) struct Store(Option<PathBuf>);

impl Store {
    /// The place for changes over this configuration file.
    pub(super) fn of(config: &Path) -> Store {
        let name = format!("settings-{}.json", state::digits_of(config));
        Store(state::directory().map(|directory| directory.join(name)))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::MetadataExt;

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
