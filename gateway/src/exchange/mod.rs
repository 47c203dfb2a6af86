// SPDX-License-Identifier: Apache-2.0
//! One request's way from its head to its last response byte.

pub mod answer;
pub mod body;
pub mod budget;
pub mod dispatch;
pub mod error;
pub mod identify;
pub mod io;
pub mod local;
pub mod outgoing;
pub mod peer;
pub mod pool;
pub mod record;
pub mod retry;
pub mod transport;
pub mod watch;
