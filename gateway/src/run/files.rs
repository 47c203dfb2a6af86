// SPDX-License-Identifier: Apache-2.0
//! The limit of open files: raised to what the system allows, and compared with what the settings may need.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::config::Limits;

/// Files that are not connections: listeners, logs, pipes of replicas.
const OTHER: u64 = 256;

/// Raises the soft limit to the hard one. Returns the former soft limit, which replicas get back.
pub(super) fn raise_limit(limits: &Limits) -> Option<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    if soft < hard
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::warn!(%error, soft, hard, "open_files_limit_not_raised");
    }
    let need = needed(limits);
    let have = getrlimit(Resource::RLIMIT_NOFILE).map_or(soft, |(now, _)| now);
    if have < need {
        tracing::warn!(
            have,
            need,
            "limits.connections needs more open files than the system allows: raise the hard limit (ulimit -Hn) or \
             lower limits.connections"
        );
    }
    Some(soft)
}

/// Every client connection may need one to a replica.
fn needed(limits: &Limits) -> u64 {
    (limits.connections as u64).saturating_mul(2).saturating_add(OTHER)
}
