// SPDX-License-Identifier: Apache-2.0
//! The admin API's tokens: read at the start, and again when their file changes.

use std::path::{Path, PathBuf};

use crate::admin::auth::{Access, READABLE, Tokens, TokensError};
use crate::config::watch::Watch;

/// Who may use the admin API.
///
/// # Errors
/// The file is there to be read and cannot be.
pub(super) fn access(file: Option<&Path>) -> Result<Access, TokensError> {
    file.map_or(Ok(Access::open()), |file| read(file).map(Access::with))
}

/// Takes the file over whenever it changes. One that is not understood is refused, and the former tokens stay. Never
/// returns.
pub(super) async fn keep_fresh(file: PathBuf, access: Access) {
    // No content has digest 0, so the file is read once more at the start.
    let mut watch = Watch::new(&file, 0);
    loop {
        watch.changed().await;
        match read(&file) {
            Ok(tokens) => {
                access.renew(tokens);
                tracing::info!("admin_tokens_loaded");
            }
            Err(error) => tracing::warn!(%error, "admin_tokens_refused"),
        }
    }
}

fn read(file: &Path) -> Result<Tokens, TokensError> {
    Tokens::read(file, std::env::var_os(READABLE).is_some_and(|value| value == "1"))
}
