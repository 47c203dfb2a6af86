// SPDX-License-Identifier: Apache-2.0
//! The decisions of Sluice as pure functions: `Core::step(now, event) -> actions`.
//!
//! No clock, no I/O, no threads, no randomness: time comes in as a number, everything else as an [`Event`]. The live
//! loop and every replay drive the same `step`.

pub mod action;
pub mod core;
mod decide;
pub mod decision;
mod due;
pub mod event;
mod fill;
mod health;
pub mod history;
pub mod ids;
#[cfg(test)]
mod invariant;
pub mod journal;
pub mod kpa;
mod ledger;
mod lifecycle;
mod model;
pub mod report;
mod residency;
mod restore;
mod room;
mod routes;
pub mod spec;
pub mod status;
#[cfg(test)]
mod testkit;
pub mod units;
mod victims;
mod wake;
mod want;
pub mod what_if;
mod window;

#[cfg(test)]
mod tests;

pub use action::Action;
pub use core::Core;
pub use decide::Rule;
pub use decision::Decision;
pub use event::{Elsewhere, Event, ReplicaEvent};
pub use history::History;
pub use ids::{ModelName, ReplicaId};
pub use journal::{Difference, Journal, Outcome, ReplayError, ReplayReport, replay};
pub use report::{
    Address, Demand, Drained, Fault, ModelRoute, ModelState, ReplicaRoute, Routes, WakeEstimate,
};
pub use spec::{FleetSpec, LifeSpec, ModelSpec, Profile, ScaleSpec, Source};
pub use status::{Coming, FleetStatus, ModelStatus, Next, Phase, ReplicaStatus};
pub use units::{Bytes, Micros};
