// SPDX-License-Identifier: Apache-2.0
//! One request's way from its head to its last response byte.

pub mod budget;
pub mod watch;
