// SPDX-License-Identifier: Apache-2.0
//! Control plane of Sluice: drives the pure core with a real clock and carries out what it decides.

pub mod backend;
mod chronicle;
pub mod clock;
pub mod driver;
mod fixed;
pub mod keep;
pub mod launch;
pub mod logs;
pub mod plane;
mod probe;
pub mod process;
mod tally;
mod text;

pub use backend::{Backend, BackendError, BackendEvent, LocalBackend, LocalOptions};
pub use driver::Driver;
pub use keep::Keeper;
pub use launch::Launch;
pub use logs::{LogBook, LogLine};
pub use plane::{Command, CommandError, Handle, Input, Observer, Plan, Plane, Trial};
pub use tally::Counts;
