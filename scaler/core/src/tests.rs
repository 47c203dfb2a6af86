// SPDX-License-Identifier: Apache-2.0
//! The rules as sentences, each on a core of its own.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cases;
mod decisions;
mod kpa;
mod orders;
mod residency;
mod restore;
mod scaling;
mod simulation;
mod what_if;
mod world;
