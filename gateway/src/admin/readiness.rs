// SPDX-License-Identifier: Apache-2.0
//! Whether this process wants traffic, and why not.
//!
//! Shared between threads: the state is one atomic that only moves forward (starting, ready, draining), so the data
//! plane reads it without a lock; the reasons of single checks are behind a mutex that nothing on a request's way takes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Where the process is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Not everything is up yet.
    Starting = 0,
    /// Takes traffic.
    Ready = 1,
    /// Still answers, but wants no new traffic.
    Draining = 2,
}

impl Stage {
    /// The word used in `/readyz`.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Starting => "starting",
            Stage::Ready => "ready",
            Stage::Draining => "draining",
        }
    }
}

/// The process's readiness; starts as [`Stage::Starting`].
#[derive(Debug, Default)]
pub struct Readiness {
    stage: AtomicU8,
    checks: Mutex<BTreeMap<&'static str, Result<(), String>>>,
}

/// What `/readyz` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Where the process is in its life.
    pub stage: Stage,
    /// Every named check, by name; `Err` carries what is wrong.
    pub checks: Vec<(&'static str, Result<(), String>)>,
}

impl Readiness {
    /// A process that is starting.
    pub fn new() -> Self {
        Self::default()
    }

    /// Everything is up. Does nothing once draining has begun.
    pub fn ready(&self) {
        self.stage.fetch_max(Stage::Ready as u8, Ordering::SeqCst);
    }

    /// No new traffic is wanted from now on; there is no way back.
    pub fn drain(&self) {
        self.stage.fetch_max(Stage::Draining as u8, Ordering::SeqCst);
    }

    /// Records a check's latest result. Any failed check makes the process unready.
    pub fn check(&self, name: &'static str, result: Result<(), String>) {
        self.lock().insert(name, result);
    }

    /// Where the process is in its life.
    pub fn stage(&self) -> Stage {
        match self.stage.load(Ordering::SeqCst) {
            0 => Stage::Starting,
            1 => Stage::Ready,
            _ => Stage::Draining,
        }
    }

    /// The whole picture.
    pub fn verdict(&self) -> Verdict {
        let checks = self.lock().iter().map(|(name, result)| (*name, result.clone())).collect();
        Verdict { stage: self.stage(), checks }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Result<(), String>>> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Verdict {
    /// Ready and every check passed.
    pub fn passed(&self) -> bool {
        self.stage == Stage::Ready && self.checks.iter().all(|(_, result)| result.is_ok())
    }

    /// One line: `ready`, or what stands in the way.
    pub fn summary(&self) -> String {
        if self.stage != Stage::Ready {
            return format!("not ready: {}", self.stage.as_str());
        }
        let failed: Vec<String> = self
            .checks
            .iter()
            .filter_map(|(name, result)| result.as_ref().err().map(|why| format!("{name}: {why}")))
            .collect();
        if failed.is_empty() { "ready".to_owned() } else { format!("not ready: {}", failed.join("; ")) }
    }

    /// One line for each check, then the summary.
    pub fn verbose(&self) -> String {
        let mut text = String::new();
        let stage = if self.stage == Stage::Ready { Ok(()) } else { Err(self.stage.as_str().to_owned()) };
        for (name, result) in std::iter::once(&("stage", stage)).chain(&self.checks) {
            match result {
                Ok(()) => text.push_str(&format!("[+] {name}: ok\n")),
                Err(why) => text.push_str(&format!("[-] {name}: {why}\n")),
            }
        }
        text.push_str(&self.summary());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_only_move_forward() {
        let readiness = Readiness::new();
        assert_eq!(readiness.stage(), Stage::Starting);
        assert!(!readiness.verdict().passed());
        readiness.ready();
        assert!(readiness.verdict().passed());
        readiness.drain();
        readiness.ready();
        assert_eq!(readiness.stage(), Stage::Draining);
        assert_eq!(readiness.verdict().summary(), "not ready: draining");
    }

    #[test]
    fn a_failed_check_makes_it_unready_until_it_passes() {
        let readiness = Readiness::new();
        readiness.ready();
        readiness.check("scaler", Err("stopped".to_owned()));
        let verdict = readiness.verdict();
        assert!(!verdict.passed());
        assert_eq!(verdict.summary(), "not ready: scaler: stopped");
        assert_eq!(verdict.verbose(), "[+] stage: ok\n[-] scaler: stopped\nnot ready: scaler: stopped");
        readiness.check("scaler", Ok(()));
        assert_eq!(readiness.verdict().verbose(), "[+] stage: ok\n[+] scaler: ok\nready");
    }
}
