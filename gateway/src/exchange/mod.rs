// SPDX-License-Identifier: Apache-2.0
//! One request's way from its head to its last response byte.

pub mod answer;
pub mod budget;
pub mod io;
pub mod outgoing;
pub mod pool;
pub mod retry;
pub mod transport;
pub mod watch;
