// SPDX-License-Identifier: Apache-2.0
//! The field cases: faults that users of such systems met, played against the real gateway.
//!
//! One program, so that the cases, which mostly wait, wait beside each other. `cargo test -p sluice-tests --test cases
//! -- --test-threads 8` is the quick way to run all; a name picks some.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod admin_api;
mod auth;
mod chaos;
mod commands;
mod compat_kpa;
mod draining;
mod edges;
mod edges_upstream;
mod metrics;
mod mission;
mod proxying;
mod queueing;
mod reload;
mod replay;
mod restart;
mod scale_to_zero;
mod scale_up;
mod service;
mod shell;
mod streaming;
mod support;
mod terminal;
mod top;
mod tracing;
