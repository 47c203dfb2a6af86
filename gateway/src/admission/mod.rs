// SPDX-License-Identifier: Apache-2.0
//! May a request run now, wait, or neither: the waiting line of each model and the permits it gives.
//!
//! `line` decides, purely, over time given as a number; `model` carries out what it decided, under one short lock per
//! model that is never held over an await. A permit is a reserved slot on one replica: whoever holds one may send.

mod ask;
mod line;
mod load;
mod model;
mod outlook;
mod permit;
mod queue;
mod refusal;
mod retries;
#[cfg(test)]
pub(crate) mod testkit;

pub use ask::{Ask, Class};
pub use model::{Admission, Model};
pub use outlook::Prospect;
pub use permit::{Permit, Waiter};
pub use refusal::{Reason, Refusal};
pub use retries::Retry;
