// SPDX-License-Identifier: Apache-2.0
//! The journal on disk: which folder, and what its absence means.

use std::path::Path;

use sluice_core::Core;
use sluice_scaler::keep::KeepError;
use sluice_scaler::{Keeper, clock};

use crate::state;

/// Opens the journal of this configuration file and reads what the last run left. A folder that nobody named and that
/// cannot be used costs the journal and nothing else, and is said.
///
/// # Errors
/// If the directory that was named cannot be used.
pub(super) fn open(named: Option<&Path>, config: &Path) -> Result<Option<(Keeper, Option<Core>)>, KeepError> {
    if let Some(named) = named {
        return Keeper::open(&state::journal_in(named), clock::now()).map(Some);
    }
    let Some(directory) = state::directory() else {
        tracing::warn!(
            "journal_not_kept: no directory for state can be written; name one by `stateDirectory`"
        );
        return Ok(None);
    };
    match Keeper::open(&state::usual_journal(&directory, config), clock::now()) {
        Ok(kept) => Ok(Some(kept)),
        Err(error) => {
            tracing::warn!(%error, "journal_not_kept");
            Ok(None)
        }
    }
}
