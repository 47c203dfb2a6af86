// SPDX-License-Identifier: Apache-2.0
//! The admin listener: health, metrics and the API that people and scripts steer Sluice with.
//!
//! Owns its thread, its runtime and the JSON shapes of the API. Must not know how requests are forwarded: what it shows
//! comes through the small traits of [`state`].

pub mod api;
pub mod clock;
mod guard;
mod logs;
pub mod path;
pub mod problem;
pub mod readiness;
mod routes;
mod server;
pub mod state;

#[cfg(test)]
pub(crate) mod fakes;
#[cfg(test)]
mod tests;

pub use readiness::Readiness;
pub use server::{Admin, AdminError};
pub use state::{AdminState, ConfigInfo, ConfigReport, LoadView, LogSource, ModelLoad};
