// SPDX-License-Identifier: Apache-2.0
//! Takes over a renewed certificate while listening.

use std::sync::Arc;

use crate::config::watch::Watch;
use crate::front::Certificates;

/// Reads certificate and key again whenever one of the files changes. A pair that does not belong together (the other
/// file is still on its way) is refused, and the old one stays until the next change. Never returns.
pub(super) async fn keep_fresh(certificates: Arc<Certificates>) {
    let watch = || {
        // No content has digest 0, so each file is read once more at the start.
        certificates.files().each_ref().map(|file| Watch::new(file, 0))
    };
    let [mut first, mut second] = watch();
    loop {
        tokio::select! {
            () = first.changed() => {}
            () = second.changed() => {}
            () = certificates.moved() => {
                [first, second] = watch();
                continue;
            }
        }
        match certificates.reload() {
            Ok(()) => tracing::info!("certificate_loaded"),
            Err(error) => tracing::warn!(%error, "certificate_refused"),
        }
    }
}
