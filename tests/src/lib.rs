// SPDX-License-Identifier: Apache-2.0
//! What the end-to-end suites stand on: a scripted fake engine, a client that can misbehave, and a harness that runs
//! the real gateway between them.
//!
//! Must not link any crate of the product: everything here speaks to it as a stranger would.
#![allow(clippy::unwrap_used, clippy::expect_used)]

pub mod chance;
pub mod client;
pub mod clock;
pub mod engine;
pub mod harness;
pub mod wire;
