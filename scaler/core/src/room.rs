// SPDX-License-Identifier: Apache-2.0
//! Carries out what `residency` decides: keeps the list of those short of room, starts who fits, lets victims go,
//! takes evictions back when nobody waits for them any more.

use std::collections::BTreeSet;

use crate::action::Action;
use crate::core::Core;
use crate::ids::ModelName;
use crate::ledger::Ledger;
use crate::residency::{self, Outcome, View};

impl Core {
    /// Notes whether the model is short of room after its own rules were applied.
    pub(crate) fn enlist(&mut self, name: &ModelName) {
        let Some(model) = self.models.get_mut(name) else { return };
        model.waiting = residency::is_waiting(model).then(|| model.waiting.unwrap_or(self.now));
        if model.need > 0 {
            self.short.insert(name.clone());
        } else {
            model.room_due = None;
            self.short.remove(name);
        }
    }

    /// Looks at all models short of room, if anything about room may have changed. Adds the models that this changed
    /// to `touched`.
    pub(crate) fn share_room(&mut self, touched: &mut BTreeSet<ModelName>, actions: &mut Vec<Action>) {
        let mut changed = std::mem::take(&mut self.freed);
        for name in touched.iter() {
            changed |= self.stands_anew(name);
        }
        let nothing_open = self.short.is_empty() && self.evictions.is_empty() && self.contended.is_empty();
        if nothing_open || !changed {
            return;
        }
        let returned = self.take_back_evictions();
        self.look_at(returned, touched, actions);
        let outcome = residency::look(&self.view(), &self.short);
        self.carry_out(outcome, touched, actions);
    }

    /// After a new configuration: lets go what it no longer allows side by side.
    pub(crate) fn let_excess_go(&mut self, touched: &mut BTreeSet<ModelName>) {
        self.ledger = Ledger::of(&self.models);
        self.freed = true;
        for (name, id) in residency::excess(&self.view()) {
            let Some(replica) = self.models.get_mut(&name).and_then(|m| m.replicas.get_mut(&id)) else {
                continue;
            };
            if !replica.doomed {
                replica.doomed = true;
                replica.note = "no room for it by the changed configuration".to_owned();
            }
            touched.insert(name);
        }
    }

    fn view(&self) -> View<'_> {
        View { models: &self.models, ledger: &self.ledger, budget: self.memory, now: self.now }
    }

    /// Whether what of the model matters to room has changed, or its time to look again has come. Notes the new state.
    fn stands_anew(&mut self, name: &ModelName) -> bool {
        let (budget, now) = (self.memory, self.now);
        let Some(model) = self.models.get_mut(name).filter(|m| residency::needs_room(m, budget)) else {
            return false;
        };
        let standing = residency::standing(model);
        let changed = std::mem::replace(&mut model.standing, standing) != standing;
        changed || model.room_due.is_some_and(|due| due <= now)
    }

    /// Evictions for models that no longer wait are off. Returns the models that may keep their replicas.
    fn take_back_evictions(&mut self) -> BTreeSet<ModelName> {
        let mut returned = BTreeSet::new();
        let models = &mut self.models;
        self.evictions.retain(|(waiting, victim)| {
            if models.get(waiting).is_some_and(|model| model.waiting.is_some()) {
                return models.get(victim).is_some_and(|model| !model.replicas.is_empty());
            }
            if let Some(model) = models.get_mut(victim) {
                for replica in model.replicas.values_mut().filter(|r| r.evicted_for.as_ref() == Some(waiting))
                {
                    replica.evicted_for = None;
                }
                returned.insert(victim.clone());
            }
            false
        });
        returned
    }

    fn carry_out(&mut self, outcome: Outcome, touched: &mut BTreeSet<ModelName>, actions: &mut Vec<Action>) {
        let mut again = BTreeSet::new();
        for name in outcome.starts {
            self.start_launched(&name, actions);
            self.enlist(&name);
            self.stands_anew(&name);
            touched.insert(name);
        }
        for (victim, id, waiting) in outcome.evictions {
            let Some(model) = self.models.get_mut(&victim) else { continue };
            let Some(replica) = model.replicas.get_mut(&id) else { continue };
            replica.evicted_for = Some(waiting.clone());
            if model.staying() == 0 {
                model.forget_use();
            }
            self.evictions.insert((waiting, victim.clone()));
            again.insert(victim);
        }
        for (name, id) in outcome.outdated {
            let Some(replica) = self.models.get_mut(&name).and_then(|m| m.replicas.get_mut(&id)) else {
                continue;
            };
            replica.doomed = true;
            replica.note = "makes room for its successor".to_owned();
            again.insert(name);
        }
        for name in outcome.impossible {
            self.refuse(&name);
            again.insert(name);
        }
        self.look_at(again, touched, actions);
        for name in &self.short {
            let Some(model) = self.models.get_mut(name) else { continue };
            let due = outcome.dues.get(name).copied();
            if model.room_due != due {
                model.room_due = due;
                touched.insert(name.clone());
            }
        }
        self.mark_contended(outcome.contended, touched);
    }

    /// A model that needs more than there is fails like one whose start fails: waiting requests are told.
    fn refuse(&mut self, name: &ModelName) {
        let (Some(model), Some(budget)) = (self.models.get_mut(name), self.memory) else { return };
        let cause = format!(
            "a replica needs {} bytes of memory, more than the {} that all replicas together may use",
            model.spec.memory.0, budget.0
        );
        let life = model.spec.life.clone();
        model.health.start_failed(self.now, self.now, &life, cause);
    }

    /// Applies the models' own rules again. What this changes is no reason for another look, what changes back is.
    fn look_at(
        &mut self,
        names: BTreeSet<ModelName>,
        touched: &mut BTreeSet<ModelName>,
        actions: &mut Vec<Action>,
    ) {
        for name in names {
            self.reconcile(&name, actions);
            self.stands_anew(&name);
            touched.insert(name);
        }
    }

    fn mark_contended(&mut self, contended: BTreeSet<ModelName>, touched: &mut BTreeSet<ModelName>) {
        for name in contended.symmetric_difference(&self.contended) {
            if let Some(model) = self.models.get_mut(name) {
                model.contended = contended.contains(name);
                touched.insert(name.clone());
            }
        }
        self.contended = contended;
    }
}
