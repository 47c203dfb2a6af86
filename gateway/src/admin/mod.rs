// SPDX-License-Identifier: Apache-2.0
//! The admin listener: health, metrics and the API that people and scripts steer Sluice with.
//!
//! Owns its thread, its runtime and the JSON shapes of the API. Must not know how requests are forwarded: what it shows
//! comes through the small traits of [`state`].

pub mod api;
pub mod auth;
pub mod clock;
pub mod decisions;
pub mod events;
mod guard;
mod idempotency;
mod logs;
pub mod openapi;
mod operations;
mod orders;
pub mod path;
pub mod problem;
mod read;
pub mod readiness;
mod routes;
mod server;
mod settings;
pub mod state;

pub mod watch;

#[cfg(test)]
mod contract_tests;
#[cfg(test)]
pub(crate) mod fakes;
#[cfg(test)]
mod tests;

pub use auth::{Access, Tokens};
pub use events::EventLog;
pub use readiness::Readiness;
pub use server::{Admin, AdminError};
pub use state::{
    AdminState, Change, ChangeError, Changed, ConfigInfo, ConfigReport, LiveSettings, LoadView, LogSource,
    ModelLoad, SettingsView,
};
