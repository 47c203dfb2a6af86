// SPDX-License-Identifier: Apache-2.0
//! The `metrics` facade: counters of the process that code below this crate counts by name, without knowing who
//! exposes them.
//!
//! Owns which names are known. Numbers of models are not here: they live with their models, so that a request adds to
//! them without a look-up.

use std::sync::Arc;

use metrics::{Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

use super::table::Name;
use super::value;

/// Inputs that the scaler's core was given.
static JOURNAL_INPUTS: value::Counter = value::Counter::new();
/// What was written of the journal on disk.
static JOURNAL_WRITTEN: value::Counter = value::Counter::new();
/// What was not.
static JOURNAL_LOST: value::Counter = value::Counter::new();

/// What can be counted by name.
static COUNTERS: &[(Name, &value::Counter)] = &[
    (Name::JournalInputs, &JOURNAL_INPUTS),
    (Name::JournalWritten, &JOURNAL_WRITTEN),
    (Name::JournalLost, &JOURNAL_LOST),
];

/// Takes what is counted by name from now on. Only the first call of a process counts.
pub fn install() {
    let _ = metrics::set_global_recorder(Facade);
}

/// Name and value of every such counter.
pub(super) fn counters() -> impl Iterator<Item = (Name, u64)> {
    COUNTERS.iter().map(|(name, counter)| (*name, counter.get()))
}

struct Facade;

struct Cell(&'static value::Counter);

impl CounterFn for Cell {
    fn increment(&self, n: u64) {
        self.0.add(n);
    }

    fn absolute(&self, n: u64) {
        self.0.add(n.saturating_sub(self.0.get()));
    }
}

impl Recorder for Facade {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let known = COUNTERS.iter().find(|(name, _)| name.metric().name == key.name());
        known.map_or_else(Counter::noop, |(_, counter)| Counter::from_arc(Arc::new(Cell(counter))))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_by_name_is_exposed_and_unknown_names_are_not_kept() {
        metrics::with_local_recorder(&Facade, || {
            let before = JOURNAL_INPUTS.get();
            metrics::counter!("sluice_journal_inputs_total").increment(2);
            metrics::counter!("sluice_journal_inputs_total").absolute(before + 5);
            metrics::counter!("nobody_knows_this_total").increment(1);
            assert!(JOURNAL_INPUTS.get() >= before + 5);
            assert!(counters().any(|(name, value)| name == Name::JournalInputs && value >= before + 5));
        });
    }
}
