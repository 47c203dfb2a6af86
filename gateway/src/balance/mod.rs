// SPDX-License-Identifier: Apache-2.0
//! Which replica a request goes to: the endpoints of one model, their free slots and their health.

pub mod endpoint;
pub mod pick;

pub use endpoint::Endpoint;
