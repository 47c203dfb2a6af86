// SPDX-License-Identifier: Apache-2.0
//! How many requests of one model may be on a further attempt at once.
//!
//! Owns that count. A model whose replicas fail must not get its own load a second time on top: at most a fifth of what
//! is active may be retries, and always three, so that a quiet model is not left without.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Acquire};

/// Always allowed at once.
const ALWAYS: usize = 3;
/// One of so many active requests.
const ONE_OF: usize = 5;

/// The retries of one model that are under way.
#[derive(Debug, Default)]
pub(crate) struct Retries(Arc<AtomicUsize>);

/// One request on a further attempt; counts until dropped.
#[derive(Debug)]
pub struct Retry(Arc<AtomicUsize>);

impl Retries {
    /// One more, if the budget leaves one; `active` requests of the model are in flight or wait.
    pub(crate) fn take(&self, active: usize) -> Option<Retry> {
        let most = ALWAYS.max(active / ONE_OF);
        let more = |now: usize| (now < most).then_some(now + 1);
        self.0.fetch_update(AcqRel, Acquire, more).is_ok().then(|| Retry(self.0.clone()))
    }
}

impl Drop for Retry {
    fn drop(&mut self) {
        self.0.fetch_sub(1, AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_the_load_may_be_retries_and_always_three() {
        let retries = Retries::default();
        let quiet: Vec<_> = (0..ALWAYS).map(|_| retries.take(1)).collect();
        assert!(quiet.iter().all(Option::is_some));
        assert!(retries.take(1).is_none(), "a fourth of a quiet model");
        assert!(retries.take(19).is_none(), "a fourth of nineteen");
        let fourth = retries.take(20);
        assert!(fourth.is_some(), "a fourth of twenty");
        drop((quiet, fourth));
        assert!(retries.take(0).is_some(), "what ended is given back");
    }
}
