// SPDX-License-Identifier: Apache-2.0
//! When a request may be sent again (pure).
//!
//! A request is sent again only before any byte of an answer was seen. After a refused connection nothing was sent, so
//! every request may. After a reset of a *reused* connection the replica almost certainly closed it as idle: once, and
//! only if the model allows it. A reset of a fresh connection says nothing about whether the request was applied
//! (RFC 9110 §9.2.2): never.

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// No connection came to be; nothing was sent.
    NotConnected,
    /// The connection broke after the request was (partly) sent.
    Broken {
        /// It came from the pool.
        reused: bool,
        /// At least one byte had come back.
        responded: bool,
    },
}

/// Attempts at connecting for one request, over all replicas.
pub const CONNECTS_MAX: u32 = 3;

/// Whether to try again after `connects` failed connections and `resends` repeated sendings.
pub fn again(ended: Ended, connects: u32, resends: u32, retry_stale: bool) -> bool {
    match ended {
        Ended::NotConnected => connects < CONNECTS_MAX,
        Ended::Broken { reused, responded } => reused && !responded && retry_stale && resends == 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_connection_is_tried_elsewhere_a_bounded_number_of_times() {
        assert!(again(Ended::NotConnected, 1, 0, false));
        assert!(again(Ended::NotConnected, 2, 1, false));
        assert!(!again(Ended::NotConnected, CONNECTS_MAX, 0, true));
    }

    #[test]
    fn only_a_reused_connection_without_an_answer_is_repeated_and_only_once() {
        let broken = |reused, responded| Ended::Broken { reused, responded };
        assert!(again(broken(true, false), 0, 0, true));
        assert!(!again(broken(true, false), 0, 1, true));
        assert!(!again(broken(true, false), 0, 0, false));
        assert!(!again(broken(true, true), 0, 0, true));
        assert!(!again(broken(false, false), 0, 0, true));
    }
}
