// SPDX-License-Identifier: Apache-2.0
//! `compat: kpa` against what the real Knative autoscaler did (`tests/data/kpa`), and against hand-computed rows.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod accounting;
mod capacity;
mod closed_loop;
mod decider;
mod golden;
mod live;
mod records;
mod zero;
