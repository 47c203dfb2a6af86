// SPDX-License-Identifier: Apache-2.0
//! What live replicas occupy: memory in sum, and who is in which exclusive group. A replica is entered when its start
//! is ordered and struck out when it is gone, whatever happens between. Must not know why anybody wants room.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::ModelName;
use crate::model::{Model, Replica};

/// Occupied memory and groups.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ledger {
    used: u64,
    /// Live replicas per group and model.
    groups: BTreeMap<String, BTreeMap<ModelName, u32>>,
}

impl Ledger {
    /// Counts everything anew.
    pub fn of(models: &BTreeMap<ModelName, Model>) -> Ledger {
        let mut ledger = Ledger::default();
        for (name, model) in models {
            model.replicas.values().for_each(|replica| ledger.enter(name, replica));
        }
        ledger
    }

    /// A replica is being started.
    pub fn enter(&mut self, model: &ModelName, replica: &Replica) {
        self.used = self.used.saturating_add(replica.memory.0);
        for group in &replica.groups {
            let members = self.groups.entry(group.clone()).or_default();
            *members.entry(model.clone()).or_default() += 1;
        }
    }

    /// A replica is gone.
    pub fn strike(&mut self, model: &ModelName, replica: &Replica) {
        self.used = self.used.saturating_sub(replica.memory.0);
        for group in &replica.groups {
            let Some(members) = self.groups.get_mut(group) else { continue };
            if let Some(count) = members.get_mut(model) {
                *count -= 1;
                if *count == 0 {
                    members.remove(model);
                }
            }
            if members.is_empty() {
                self.groups.remove(group);
            }
        }
    }

    /// Memory of all live replicas, in bytes.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Models with live replicas in a group.
    pub fn members(&self, group: &str) -> impl Iterator<Item = &ModelName> {
        self.groups.get(group).into_iter().flat_map(BTreeMap::keys)
    }

    /// Groups that have live replicas of more than one model.
    pub fn crowded(&self) -> impl Iterator<Item = &String> {
        self.groups.iter().filter(|(_, members)| members.len() > 1).map(|(group, _)| group)
    }
}
