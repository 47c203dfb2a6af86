// SPDX-License-Identifier: Apache-2.0
//! The Knative Pod Autoscaler's arithmetic, exactly, for models under `compat: kpa`.
//!
//! Pure: times and settings come in as values. Formulas, constants and their quirks are those of knative/serving
//! v0.51.0 and are proved by replaying what that version did. Everything is binary64 in upstream's order of
//! operations, because a rounding that differs by one unit in the last place can differ by a replica.

pub mod accounting;
mod autoscaler;
mod buckets;
mod collector;
pub mod decider;
mod delay;
mod live;
pub mod settings;
pub mod zero;

pub use accounting::{Accountant, Load, Meter};
pub use autoscaler::{Answer, Autoscaler, Verdict};
pub use collector::{Averages, Collector, Report, second_of};
pub use decider::{Decider, Decision, Rule};
pub use live::Live;
pub use settings::{Algorithm, Metric, Reachability, Settings, Target};
pub use zero::{Activity, Outcome, Path, Sight, Standing};
