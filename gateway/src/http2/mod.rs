// SPDX-License-Identifier: Apache-2.0
//! HTTP/2 on both sides, by hyper; the exchange behind it is the same as for HTTP/1.

pub mod body;
pub mod exchange;
pub mod head;
pub mod replica;
pub mod server;
pub mod upload;
