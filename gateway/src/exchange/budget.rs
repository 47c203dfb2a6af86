// SPDX-License-Identifier: Apache-2.0
//! Bytes of request bodies held in memory: per process and per model.
//!
//! Owns the two numbers of each budget. Must not know what the bytes are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An amount of memory that may be taken and is given back. Clones share it.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Amounts>);

#[derive(Debug)]
struct Amounts {
    limit: AtomicUsize,
    used: AtomicUsize,
}

impl Budget {
    /// A budget of `limit` bytes, none of them taken.
    pub fn new(limit: usize) -> Budget {
        Budget(Arc::new(Amounts { limit: AtomicUsize::new(limit), used: AtomicUsize::new(0) }))
    }

    /// Takes `n` bytes, or `None` if fewer are left.
    pub fn try_take(&self, n: usize) -> Option<Hold> {
        self.add(n).then(|| Hold { bytes: n, charged: [Some(self.clone()), None] })
    }

    /// Changes the limit; what is taken stays taken.
    pub fn resize(&self, limit: usize) {
        self.0.limit.store(limit, Ordering::Relaxed);
    }

    /// Bytes taken now.
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    fn add(&self, n: usize) -> bool {
        let limit = self.0.limit.load(Ordering::Relaxed);
        let fits = |used: usize| used.checked_add(n).filter(|&sum| n == 0 || sum <= limit);
        self.0.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    fn give_back(&self, n: usize) {
        self.0.used.fetch_sub(n, Ordering::Relaxed);
    }
}

/// Bytes taken from up to two budgets at once; dropping it gives them back to each.
#[derive(Debug)]
pub struct Hold {
    bytes: usize,
    charged: [Option<Budget>; 2],
}

impl Hold {
    /// Charges what is held to a second budget too (the model's, once it is known). `false`, and nothing changed, if
    /// it does not fit. A further budget replaces the second one.
    pub fn charge(&mut self, budget: &Budget) -> bool {
        if !budget.add(self.bytes) {
            return false;
        }
        let [_, second] = &mut self.charged;
        if let Some(former) = second.replace(budget.clone()) {
            former.give_back(self.bytes);
        }
        true
    }

    /// Takes `n` more bytes from every charged budget. `false`, and nothing changed, if one of them lacks them.
    pub fn grow(&mut self, n: usize) -> bool {
        let [first, second] = &self.charged;
        if !first.as_ref().is_none_or(|budget| budget.add(n)) {
            return false;
        }
        if !second.as_ref().is_none_or(|budget| budget.add(n)) {
            if let Some(budget) = first {
                budget.give_back(n);
            }
            return false;
        }
        self.bytes += n;
        true
    }

    /// Gives back what is held beyond `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        let surplus = self.bytes.saturating_sub(bytes);
        for budget in self.charged.iter().flatten() {
            budget.give_back(surplus);
        }
        self.bytes -= surplus;
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_and_changes_nothing() {
        let budget = Budget::new(10);
        let first = budget.try_take(7).unwrap();
        assert!(budget.try_take(4).is_none());
        assert_eq!(budget.used(), 7);
        drop(first);
        assert_eq!(budget.used(), 0);
        assert!(budget.try_take(10).is_some());
    }

    #[test]
    fn growth_is_charged_to_both_or_to_none() {
        let (process, model) = (Budget::new(100), Budget::new(20));
        let mut hold = process.try_take(10).unwrap();
        assert!(hold.charge(&model));
        assert!(hold.grow(10));
        assert!(!hold.grow(1), "the model's is full");
        assert_eq!((hold.bytes(), process.used(), model.used()), (20, 20, 20));
        hold.shrink_to(5);
        assert_eq!((process.used(), model.used()), (5, 5));
        drop(hold);
        assert_eq!((process.used(), model.used()), (0, 0));
    }

    #[test]
    fn a_refused_charge_leaves_the_first_budget_alone() {
        let (process, model) = (Budget::new(100), Budget::new(5));
        let mut hold = process.try_take(10).unwrap();
        assert!(!hold.charge(&model));
        assert_eq!((process.used(), model.used()), (10, 0));
    }

    #[test]
    fn a_smaller_limit_holds_for_what_comes_next() {
        let budget = Budget::new(10);
        let mut hold = budget.try_take(8).unwrap();
        budget.resize(4);
        assert!(!hold.grow(1));
        assert!(budget.try_take(1).is_none());
        assert!(budget.try_take(0).is_some(), "an empty body needs no memory");
        drop(hold);
        assert!(budget.try_take(4).is_some());
    }
}
