// SPDX-License-Identifier: Apache-2.0
//! The last decisions of each model, bounded, for people.
//!
//! Must not influence anything. While nothing but the rule changes, back and forth, only the last such record is kept,
//! so that a model in steady use does not lose what it decided an hour ago.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::decision::Decision;
use crate::ids::ModelName;

/// The last decisions of each model.
#[derive(Clone, Debug)]
pub struct History {
    per_model: usize,
    models: BTreeMap<ModelName, VecDeque<Arc<Decision>>>,
}

impl Default for History {
    /// A hundred decisions of each model.
    fn default() -> Self {
        History::new(100)
    }
}

impl History {
    /// Keeps up to `per_model` (at least 1) decisions of each model.
    pub fn new(per_model: usize) -> History {
        History { per_model: per_model.max(1), models: BTreeMap::new() }
    }

    /// Adds one, the latest of its model.
    pub fn push(&mut self, decision: &Decision) {
        let kept = self.models.entry(decision.model.clone()).or_default();
        if kept.back().is_some_and(|last| only_the_rule(last) && only_the_rule(decision)) {
            kept.pop_back();
        }
        if kept.len() == self.per_model {
            kept.pop_front();
        }
        kept.push_back(Arc::new(decision.clone()));
    }

    /// Forgets models that are not among these.
    pub fn retain(&mut self, models: &BTreeSet<ModelName>) {
        self.models.retain(|name, _| models.contains(name));
    }

    /// What is kept of one model, or of all in the order of the decisions; the latest is last.
    pub fn of(&self, model: Option<&ModelName>) -> Vec<Arc<Decision>> {
        if let Some(model) = model {
            return self.models.get(model).into_iter().flatten().cloned().collect();
        }
        let mut all: Vec<_> = self.models.values().flatten().cloned().collect();
        all.sort_by_key(|decision| decision.number);
        all
    }
}

fn only_the_rule(decision: &Decision) -> bool {
    decision.before == decision.after && decision.deeds.is_empty() && decision.limits.is_empty()
}
