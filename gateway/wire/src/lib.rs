// SPDX-License-Identifier: Apache-2.0
//! What Sluice reads from hostile bytes, as pure functions: HTTP/1 heads, chunks, model ids, paths, event
//! boundaries.
//!
//! Nothing here is repaired: what two readers could understand differently is refused. No function blocks,
//! owns a socket, or knows a replica; each takes bytes and gives a verdict, and how its input was cut never
//! changes it.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::expect_used, clippy::panic))]

pub mod chunk;
pub mod fields;
pub mod head;
pub mod model_id;
pub mod model_name;
pub mod sse;
pub mod target;
pub mod usage;
