// SPDX-License-Identifier: Apache-2.0
//! The control surfaces of inference engines: they put a replica to sleep, change its weights or show other
//! people's prompts, so no client reaches them.
//!
//! Owns the list. A path is blocked when any reader on the way to an engine could take it for one of the
//! list, so more is decoded and collapsed here than for matching.

use super::spelling::decoded;

/// First segments, alone or behind `/v1`, that are blocked with everything below them; sorted, as all lists here.
const ROOTS: [&str; 40] = [
    "abort_request",
    "clear_hicache_storage_backend",
    "close_session",
    "collective_rpc",
    "continue_generation",
    "destroy_weights_update_group",
    "finish_weight_update",
    "flush_cache",
    "freeze_gc",
    "get_weights_by_name",
    "get_world_size",
    "init_weight_transfer_engine",
    "init_weights_update_group",
    "is_paused",
    "is_scaling_elastic_ep",
    "is_sleeping",
    "load_lora_adapter",
    "lora-adapters",
    "open_session",
    "pause",
    "pause_generation",
    "release_memory_occupation",
    "reset_encoder_cache",
    "reset_mm_cache",
    "reset_prefix_cache",
    "resume",
    "resume_memory_occupation",
    "scale_elastic_ep",
    "server_info",
    "set_internal_state",
    "sleep",
    "slots",
    "start_profile",
    "start_weight_update",
    "stop_profile",
    "unload_lora_adapter",
    "update_weights",
    "update_weights_from_disk",
    "update_weights_from_tensor",
    "wake_up",
];

/// Segments under `/v2` that are blocked with everything below them.
const V2_ROOTS: [&str; 4] = ["cudasharedmemory", "logging", "systemsharedmemory", "trace"];

/// How often a path is decoded at most: more layers than any chain of readers peels off.
const LAYERS: usize = 4;

/// Whether a client may not go here. `normal` is the normal spelling of `raw`.
pub(super) fn is_blocked(raw: &[u8], normal: &[u8]) -> bool {
    is_listed(segments(normal)) || (needs_a_closer_look(raw) && may_be_read_as_listed(raw))
}

fn needs_a_closer_look(raw: &[u8]) -> bool {
    memchr::memchr3(b'%', b';', b'\\', raw).is_some()
        || raw.windows(2).any(|pair| matches!(pair, b"//" | b"/."))
}

fn may_be_read_as_listed(raw: &[u8]) -> bool {
    let mut layer = raw.to_vec();
    for _ in 0..LAYERS {
        let full = segments(&layer).filter(|s| !s.is_empty());
        if is_listed(segments(&layer)) || is_listed(resolved(segments(&layer))) || is_listed(resolved(full)) {
            return true;
        }
        let next = decoded(&layer).into_owned();
        if next == layer {
            return false;
        }
        layer = next;
    }
    // Nobody means a path of so many layers.
    true
}

/// Cut at slashes of either kind, each without its parameters behind `;`.
fn segments(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|c| matches!(c, b'/' | b'\\'))
        .skip(1)
        .map(|s| s.split(|c| *c == b';').next().unwrap_or_default())
}

/// Dot segments taken out; what leads above the root stays there.
fn resolved<'a>(segments: impl Iterator<Item = &'a [u8]>) -> impl Iterator<Item = &'a [u8]> {
    let mut out = Vec::new();
    for segment in segments {
        match segment {
            b"." => {}
            b".." => drop(out.pop()),
            _ => out.push(segment),
        }
    }
    out.into_iter()
}

/// Empty segments are skipped and letter case is ignored.
fn is_listed<'a>(segments: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut segments = segments.filter(|s| !s.is_empty());
    let mut next = || segments.next().unwrap_or_default();
    let is_one_of = |segment: &[u8], sorted: &[&str]| {
        let lower = || segment.iter().map(u8::to_ascii_lowercase);
        sorted.binary_search_by(|listed| listed.bytes().cmp(lower())).is_ok()
    };
    let first = next();
    if first.eq_ignore_ascii_case(b"v1") {
        return is_one_of(next(), &ROOTS);
    }
    if !first.eq_ignore_ascii_case(b"v2") {
        return is_one_of(first, &ROOTS);
    }
    let second = next();
    if second.eq_ignore_ascii_case(b"repository") {
        return is_one_of(segments.last().unwrap_or_default(), &["load", "unload"]);
    }
    is_one_of(second, &V2_ROOTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted_and_every_name_in_them_is_found() {
        assert!(ROOTS.is_sorted() && V2_ROOTS.is_sorted());
        for (at, list) in [("", &ROOTS[..]), ("/V1", &ROOTS[..]), ("/v2", &V2_ROOTS[..])] {
            for name in list {
                let path = format!("{at}/{}/x", name.to_ascii_uppercase());
                assert!(is_blocked(path.as_bytes(), path.as_bytes()), "{path}");
            }
        }
        assert!(!is_blocked(b"/v1/sleeping", b"/v1/sleeping") && !is_blocked(b"/v2/sleep", b"/v2/sleep"));
    }
}
