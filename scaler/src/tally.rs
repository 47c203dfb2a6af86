// SPDX-License-Identifier: Apache-2.0
//! Counts of what became of starts and decisions, for metrics.
//!
//! Written by the driver, read by whoever is scraped; one short lock. Must not influence anything.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluice_core::{ModelName, ModelStatus};

/// Rules with a count of their own; a model has fewer.
const REASONS_MAX: usize = 24;

/// One model's counts, since it was configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Replicas that were ready for the first time.
    pub ready: u64,
    /// Replicas that ended before they were ready.
    pub failed: u64,
    /// Replicas that had been ready and ended without being told to.
    pub died: u64,
    /// Changes of the number of replicas wanted, by the rule that decided.
    pub decisions: BTreeMap<String, u64>,
}

/// The counts of all configured models.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    entries: Mutex<BTreeMap<ModelName, Entry>>,
}

#[derive(Debug, Default)]
struct Entry {
    counts: Counts,
    desired: u32,
}

impl Tally {
    pub(crate) fn ready(&self, model: &ModelName) {
        self.change(model, |counts| counts.ready += 1);
    }

    pub(crate) fn failed(&self, model: &ModelName) {
        self.change(model, |counts| counts.failed += 1);
    }

    pub(crate) fn died(&self, model: &ModelName) {
        self.change(model, |counts| counts.died += 1);
    }

    /// Compares with what was wanted before. Models that are not in `models` are forgotten.
    pub(crate) fn decided(&self, models: &[ModelStatus]) {
        let mut entries = self.lock();
        if entries.len() > models.len() {
            entries.retain(|name, _| models.iter().any(|model| model.name == *name));
        }
        for model in models {
            let entry = match entries.get_mut(&model.name) {
                Some(entry) => entry,
                None => entries.entry(model.name.clone()).or_default(),
            };
            if entry.desired != model.desired {
                entry.desired = model.desired;
                entry.counts.decide(&model.reason);
            }
        }
    }

    pub(crate) fn counts(&self) -> BTreeMap<ModelName, Counts> {
        self.lock().iter().map(|(name, entry)| (name.clone(), entry.counts.clone())).collect()
    }

    fn change(&self, model: &ModelName, change: impl FnOnce(&mut Counts)) {
        // A model that is not known any more has nobody who asks.
        if let Some(entry) = self.lock().get_mut(model) {
            change(&mut entry.counts);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ModelName, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    /// `reason` begins with the rule's name; what follows a semicolon explains the moment.
    fn decide(&mut self, reason: &str) {
        let rule = reason.split(';').next().unwrap_or_default().trim();
        let known = self.decisions.contains_key(rule) || self.decisions.len() < REASONS_MAX;
        *self.decisions.entry(if known { rule } else { "other" }.to_owned()).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use sluice_core::{ModelState, WakeEstimate};

    use super::*;

    fn status(name: &str, desired: u32, reason: &str) -> ModelStatus {
        ModelStatus {
            name: ModelName::from(name),
            state: ModelState::Cold,
            ready: 0,
            starting: 0,
            leaving: 0,
            wanted: None,
            desired,
            reason: reason.to_owned(),
            wake: WakeEstimate::default(),
            fault: None,
            pinned: None,
            next: None,
        }
    }

    #[test]
    fn a_decision_is_a_change_and_counts_under_its_rule() {
        let tally = Tally::default();
        for (desired, reason) in [(0, "idle"), (1, "demand"), (1, "floor"), (2, "demand; no room for 1 more")]
        {
            tally.decided(&[status("m", desired, reason)]);
        }
        tally.ready(&"m".into());
        let counts = &tally.counts()[&ModelName::from("m")];
        assert_eq!(counts.decisions, BTreeMap::from([("demand".to_owned(), 2)]));
        assert_eq!((counts.ready, counts.failed, counts.died), (1, 0, 0));
    }

    #[test]
    fn models_that_are_gone_are_forgotten() {
        let tally = Tally::default();
        tally.decided(&[status("a", 1, "x"), status("b", 1, "x")]);
        tally.decided(&[status("b", 1, "x")]);
        tally.died(&"a".into());
        assert_eq!(tally.counts().keys().map(ModelName::as_str).collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn reasons_are_bounded() {
        let tally = Tally::default();
        for n in 1..100 {
            tally.decided(&[status("m", n, &format!("rule {n}"))]);
        }
        let counts = &tally.counts()[&ModelName::from("m")];
        assert_eq!(counts.decisions.len(), REASONS_MAX + 1);
        assert_eq!(counts.decisions.values().sum::<u64>(), 99);
    }
}
