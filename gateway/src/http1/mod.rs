// SPDX-License-Identifier: Apache-2.0
//! HTTP/1 on both sides, over the strict codec of `sluice-wire`.

pub mod body;
pub mod client;
pub mod exchange;
mod over_http2;
pub mod relay;
pub mod replica;
mod upload;
