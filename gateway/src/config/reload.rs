// SPDX-License-Identifier: Apache-2.0
//! What changes between two configurations.
//!
//! Owns the comparison and its words. Must not know how a change is carried out.

use std::fmt;
use std::sync::Arc;

use sluice_core::ModelName;

use super::settings::{ModelSettings, Settings, Tls};

/// The difference between the running configuration and a new one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Models that are new.
    pub models_added: Vec<ModelName>,
    /// Models that are gone.
    pub removed: Vec<ModelName>,
    /// Models of which anything is different.
    pub changed: Vec<ModelName>,
    /// Those of `changed` whose running replicas no longer fit and are replaced.
    pub replaced: Vec<ModelName>,
    /// Keys of the file itself that are different and take effect at once.
    pub live: Vec<&'static str>,
    /// Keys that are different and take effect only after a restart of Sluice.
    pub restart_required: Vec<&'static str>,
}

impl Change {
    /// Whether nothing is different.
    pub fn is_empty(&self) -> bool {
        *self == Change::default()
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names =
            |names: &[ModelName]| names.iter().map(ModelName::to_string).collect::<Vec<_>>().join(", ");
        let parts = [
            ("models added", names(&self.models_added)),
            ("models removed", names(&self.removed)),
            ("models changed", names(&self.changed)),
            ("replicas replaced of", names(&self.replaced)),
            ("changed", self.live.join(", ")),
            ("changed, in effect after a restart of sluice", self.restart_required.join(", ")),
        ];
        let said: Vec<_> = parts.iter().filter(|(_, what)| !what.is_empty()).collect();
        if said.is_empty() {
            return f.write_str("nothing changed");
        }
        for (at, (title, what)) in said.into_iter().enumerate() {
            let gap = if at == 0 { "" } else { "; " };
            write!(f, "{gap}{title}: {what}")?;
        }
        Ok(())
    }
}

/// What is different in `new`.
pub fn diff(old: &Settings, new: &Settings) -> Change {
    let mut change = Change {
        models_added: new.models.keys().filter(|name| !old.models.contains_key(*name)).cloned().collect(),
        removed: old.models.keys().filter(|name| !new.models.contains_key(*name)).cloned().collect(),
        ..Change::default()
    };
    for name in new.models.keys().filter(|name| old.models.contains_key(*name)) {
        let (before, after) = (&old.plan.fleet.models, &new.plan.fleet.models);
        let same = same_model(old.models.get(name), new.models.get(name))
            && before.get(name) == after.get(name)
            && old.plan.launches.get(name) == new.plan.launches.get(name);
        if same {
            continue;
        }
        change.changed.push(name.clone());
        if before.get(name).map(|spec| spec.generation) != after.get(name).map(|spec| spec.generation) {
            change.replaced.push(name.clone());
        }
    }
    let tls = |differs: fn(&Tls, &Tls) -> bool| {
        old.tls.as_ref().zip(new.tls.as_ref()).is_some_and(|(old, new)| differs(old, new))
    };
    let live = [
        ("tls.certificate", tls(|old, new| old.certificate != new.certificate)),
        ("tls.key", tls(|old, new| old.key != new.key)),
        ("limits", old.limits != new.limits),
        ("shutdown", old.shutdown != new.shutdown),
        ("memory", old.plan.fleet.memory != new.plan.fleet.memory),
    ];
    let fixed = [
        ("listen", old.listen != new.listen),
        ("admin", old.admin != new.admin),
        ("adminTokens", old.admin_tokens != new.admin_tokens),
        ("stateDirectory", old.state_directory != new.state_directory),
        ("tls", old.tls.is_some() != new.tls.is_some()),
        ("tls.listen", tls(|old, new| old.listen != new.listen)),
        ("tracing", old.tracing != new.tracing),
        ("threads", old.threads != new.threads),
    ];
    let different = |list: &[(&'static str, bool)]| -> Vec<&'static str> {
        list.iter().filter(|(_, different)| *different).map(|(name, _)| *name).collect()
    };
    change.live = different(&live);
    change.restart_required = different(&fixed);
    change
}

/// Makes of `new` what a reload may take over from `old`: models keep the time of their first load, and
/// models that did not change stay the very same value.
pub fn carry_over(old: &Settings, new: &mut Settings) {
    for (name, model) in &mut new.models {
        let Some(before) = old.models.get(name) else { continue };
        if same_model(Some(before), Some(model)) {
            *model = before.clone();
        } else {
            Arc::make_mut(model).created = before.created;
        }
    }
}

/// Whether two are the same but for the time of their load.
fn same_model(old: Option<&Arc<ModelSettings>>, new: Option<&Arc<ModelSettings>>) -> bool {
    let (Some(old), Some(new)) = (old, new) else { return false };
    ModelSettings { created: old.created, ..(**new).clone() } == **old
}

#[cfg(test)]
mod tests;
