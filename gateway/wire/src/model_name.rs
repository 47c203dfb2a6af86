// SPDX-License-Identifier: Apache-2.0
//! What a model name may look like in a field or a path. A body may name anything: see `model_id`.
//!
//! Must not know which models exist.

/// Bytes of a model name at most.
pub const BYTES_MAX: usize = 512;

/// Whether `name` can be a model's: 1 to [`BYTES_MAX`] bytes without control characters.
pub fn is_sound(name: &str) -> bool {
    (1..=BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control)
}
