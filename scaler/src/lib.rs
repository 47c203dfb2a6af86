// SPDX-License-Identifier: Apache-2.0
//! Control plane of Sluice: drives the pure core with a real clock and carries out what it decides.

pub mod clock;
pub mod launch;
pub mod plane;

pub use launch::Launch;
pub use plane::{Command, CommandError, Handle, Input, Plan, Plane};
