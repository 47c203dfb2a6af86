// SPDX-License-Identifier: Apache-2.0
//! From a model's name to its entry, and the gateway's side of the seam to the scaler.

pub mod table;

pub use table::Table;
