// SPDX-License-Identifier: Apache-2.0
//! When another value of a key takes effect, for documentation.
//!
//! Owns the words. That the comparison of two configurations agrees is tested beside it, key by key.

use super::keys::{Key, Kind, Section};

/// What a reload with another value does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// It holds from then on; replicas stay.
    AtOnce,
    /// Connections of clients that are opened from then on follow it.
    NewConnections,
    /// Its model gets new replicas, and the former ones finish.
    NewReplicas,
    /// It is another model; the former one is gone.
    OtherModel,
    /// It waits for the next start of Sluice.
    Restart,
}

impl Effect {
    /// The words of the tables.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Effect::AtOnce => "at once",
            Effect::NewConnections => "new connections",
            Effect::NewReplicas => "new replicas",
            Effect::OtherModel => "another model",
            Effect::Restart => "restart",
        }
    }
}

/// Of a key of this section; `None` for a table whose keys say it one by one.
pub(super) fn effect(section: &Section, key: &Key) -> Option<Effect> {
    Some(match (section.path, key.name) {
        ("", "tls" | "tracing") => Effect::Restart,
        _ if matches!(key.kind, Kind::Table(_) | Kind::Tables(_)) => return None,
        ("", "listen" | "admin" | "adminTokens" | "stateDirectory" | "threads") => Effect::Restart,
        ("tls", "certificate" | "key") => Effect::NewConnections,
        ("tls" | "tracing", _) => Effect::Restart,
        ("limits", "bodyMemory") => Effect::AtOnce,
        ("limits", _) => Effect::NewConnections,
        ("models[]", "name") => Effect::OtherModel,
        ("models[]", "command" | "env" | "workingDirectory" | "url" | "urls") => Effect::NewReplicas,
        _ => Effect::AtOnce,
    })
}
