// SPDX-License-Identifier: Apache-2.0
//! One model's collector and decider together, and the last answer they gave: what Knative's autoscaler process keeps
//! of a model.
//!
//! Owns when an answer is news and when a poke decides at once. Must not know the two seconds between decisions.

use serde::{Deserialize, Serialize};

use super::collector::{Averages, Collector, Report, second_of};
use super::decider::{self, Decider, Decision};
use super::settings::Settings;
use crate::units::Micros;

/// Windows, decider and last answer of one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Autoscaler {
    settings: Settings,
    collector: Collector,
    decider: Decider,
    answer: Answer,
}

/// The last valid answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Replicas before bounds; `None` before the first valid decision.
    pub desired: Option<u32>,
    /// Excess burst capacity; negative asks for the activator in the path.
    pub excess_burst_capacity: i32,
}

/// What a look at the windows came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Verdict {
    /// A decision.
    Decided(Decision),
    /// None: replicas should have reported and have not for longer than the stable window.
    NoData(Averages),
    /// None: how many replicas are ready is not known.
    ReadyUnknown,
}

impl Autoscaler {
    /// For a model with so many ready replicas.
    pub fn new(settings: Settings, now: Micros, ready: u32) -> Autoscaler {
        Autoscaler {
            collector: Collector::new(&settings),
            decider: Decider::new(&settings, now, ready),
            answer: Answer { desired: None, excess_burst_capacity: decider::excess_at_creation(&settings) },
            settings,
        }
    }

    /// Takes over changed settings. The averaging algorithm and the delay window stay those of the creation.
    pub fn configure(&mut self, settings: Settings, now: Micros) {
        self.collector.resize(&settings, now);
        self.settings = settings;
    }

    /// Settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The last valid answer.
    pub fn answer(&self) -> Answer {
        self.answer
    }

    /// State of the decider.
    pub fn decider(&self) -> &Decider {
        &self.decider
    }

    /// A report about the second with this number.
    pub fn record(&mut self, second: i64, report: &Report) {
        self.collector.record(second, report);
    }

    /// Averages to decide by from now on, instead of what is recorded.
    pub fn give(&mut self, averages: Averages) {
        self.collector.give(averages);
    }

    /// A first request after silence. True if it is to be decided on at once: the answer was zero.
    pub fn poke(&mut self, now: Micros, report: &Report) -> bool {
        self.collector.record(second_of(now), report);
        self.pokeable(report)
    }

    /// Whether a report that came as a poke is decided on at once.
    pub fn pokeable(&self, report: &Report) -> bool {
        self.answer.desired == Some(0) && report.concurrency != 0.0
    }

    /// Forgets the past: the answer is zero, and the next poke decides.
    pub fn rest(&mut self, now: Micros) {
        let settings = self.settings.clone();
        *self = Autoscaler::new(settings, now, 0);
        self.answer.desired = Some(0);
    }

    /// Decides now. `ready` is `None` if it is not known. Returns the verdict, and whether the answer is news: the
    /// count changed, or the sign of the excess burst capacity.
    pub fn decide(&mut self, now: Micros, ready: Option<u32>) -> (Verdict, bool) {
        let Some(ready) = ready else { return (Verdict::ReadyUnknown, false) };
        let (averages, valid) = self.collector.averages(&self.settings, now);
        if !valid {
            return (Verdict::NoData(averages), false);
        }
        let decision = self.decider.decide(&self.settings, now, ready, averages);
        let answer =
            Answer { desired: Some(decision.desired), excess_burst_capacity: decision.excess_burst_capacity };
        let short = |answer: Answer| answer.excess_burst_capacity < 0;
        let news = answer.desired != self.answer.desired || short(answer) != short(self.answer);
        self.answer = answer;
        (Verdict::Decided(decision), news)
    }
}
