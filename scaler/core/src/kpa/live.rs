// SPDX-License-Identifier: Apache-2.0
//! One model under `compat: kpa` as the core runs it: when its load is reported, when it is decided about, and how many
//! replicas come of it.
//!
//! Owns the pace: a report at each whole second, a decision every two seconds from the model's creation and at a first
//! request after silence. What is late is made up for once, as a ticker would. Must not know how replicas come to be.

use serde::{Deserialize, Serialize};

use super::accounting::{Accountant, Load, POKE};
use super::autoscaler::{Autoscaler, Verdict};
use super::collector::{Averages, Report, second_of};
use super::decider::Decision;
use super::settings::Settings;
use super::zero::{Activity, Rule, Sight, Standing};
use crate::report::Demand;
use crate::units::Micros;

/// Between two decisions: a constant of Knative.
const DECIDE_EVERY: Micros = Micros::from_secs(2);
/// Between two reports: a constant of Knative.
const REPORT_EVERY: Micros = Micros::from_secs(1);

/// Autoscaler, accountant and standing of one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Live {
    scaler: Autoscaler,
    accountant: Accountant,
    standing: Standing,
    /// Replicas asked for.
    asked: u32,
    /// When the next report and the next decision are due.
    report_at: Micros,
    decide_at: Micros,
    /// When time alone may change the standing.
    again: Option<Micros>,
    /// A person asked for a replica.
    summoned: bool,
    verdict: Option<Verdict>,
    bounds: (u32, u32),
    rule: Rule,
}

impl Live {
    /// A model with so many ready replicas and so many asked for, if they are allowed.
    pub(crate) fn new(settings: Settings, now: Micros, ready: u32, asked: u32) -> Live {
        let asked = asked.min(most(&settings));
        let bounds = (settings.min_scale, settings.max_scale);
        Live {
            scaler: Autoscaler::new(settings, now, ready),
            accountant: Accountant::default(),
            standing: Standing::default(),
            asked,
            report_at: Micros((now.0 / REPORT_EVERY.0 + 1) * REPORT_EVERY.0),
            decide_at: now.after(DECIDE_EVERY),
            again: None,
            summoned: false,
            verdict: None,
            bounds,
            rule: Rule::Unknown,
        }
    }

    /// Takes over changed settings.
    pub(crate) fn configure(&mut self, settings: &Settings, now: Micros) {
        if self.scaler.settings() != settings {
            self.asked = self.asked.min(most(settings));
            self.scaler.configure(settings.clone(), now);
        }
    }

    /// Takes a look at the load. `ready` as in `decide`.
    pub(crate) fn demand(&mut self, now: Micros, demand: &Demand, ready: Option<u32>) {
        let area = u128::from(demand.in_flight_micros) + u128::from(demand.queued_micros);
        let load = Load {
            number: u64::from(demand.in_flight) + u64::from(demand.queued),
            peak: u64::from(demand.peak),
            arrivals: demand.arrivals,
            area: u64::try_from(area * 1_000).unwrap_or(u64::MAX),
        };
        if let Some(poke) = self.accountant.look(nanos(now), load) {
            self.poke(now, &poke, ready);
        }
    }

    /// What somebody else has counted in a second.
    pub(crate) fn record(&mut self, second: i64, report: &Report) {
        self.scaler.record(second, report);
    }

    /// Averages that somebody else has made: they count instead of the windows from now on.
    pub(crate) fn give(&mut self, averages: Averages) {
        self.scaler.give(averages);
    }

    /// Decides now, whatever the pace. `ready` is `None` while it is not known how many are.
    pub(crate) fn decide(&mut self, now: Micros, ready: Option<u32>) {
        self.verdict = Some(self.scaler.decide(now, ready).0);
    }

    /// A person asks for a replica: at the next look, as if a request had come.
    pub(crate) fn summon(&mut self) {
        self.summoned = true;
    }

    /// A person asks for none: what was counted is forgotten, and the next request is a first one.
    pub(crate) fn rest(&mut self, now: Micros) {
        self.scaler.rest(now);
        self.accountant.forget();
        self.asked = 0;
        self.summoned = false;
        self.standing = Standing { activity: Some(Activity::Idle), since: now, ..self.standing };
    }

    /// The gateway counts from zero again. Windows and answers stay.
    pub(crate) fn restart(&mut self) {
        self.accountant = Accountant::default();
    }

    /// Rest is over for requests that were there before it began: they count as first ones.
    pub(crate) fn recall(&mut self, now: Micros, ready: Option<u32>) {
        if let Some(poke) = self.accountant.recall(nanos(now)) {
            self.poke(now, &poke, ready);
        }
    }

    /// Makes the reports and decisions that are due. `counted`: the ready replicas are known to have had nothing but what
    /// the gateway has seen, so that they report zero.
    pub(crate) fn pace(&mut self, now: Micros, ready: Option<u32>, counted: bool) {
        if now >= self.report_at {
            let at = latest(self.report_at, REPORT_EVERY, now);
            self.report(at, ready.unwrap_or(0), counted);
            self.report_at = at.after(REPORT_EVERY);
        }
        if now >= self.decide_at {
            let at = latest(self.decide_at, DECIDE_EVERY, now);
            self.decide(at, ready);
            self.decide_at = at.after(DECIDE_EVERY);
        }
    }

    /// How many replicas there are to be.
    pub(crate) fn settle(&mut self, now: Micros, ready: Option<u32>) -> u32 {
        if std::mem::take(&mut self.summoned) {
            self.record(second_of(now), &POKE);
            self.decide(now, ready);
        }
        self.reconcile(now, ready.unwrap_or(0));
        self.asked
    }

    /// Whether only a request or an order can change anything, if all load is known: decisions until then all come to
    /// zero and leave no trace.
    pub(crate) fn rests(&self, ready: u32) -> bool {
        self.asked == 0
            && ready == 0
            && self.scaler.answer().desired == Some(0)
            && !self.scaler.decider().in_panic()
            && !self.accountant.is_recording()
            && matches!(self.standing.activity, Some(Activity::Idle | Activity::TimedOut))
    }

    /// When the next look is due.
    pub(crate) fn next_due(&self, now: Micros) -> Micros {
        let due = self.report_at.min(self.decide_at);
        self.again.filter(|&again| again > now).map_or(due, |again| due.min(again))
    }

    /// The last valid decision; `None` before the first one, and while there is none.
    pub fn decision(&self) -> Option<&Decision> {
        match &self.verdict {
            Some(Verdict::Decided(decision)) => Some(decision),
            _ => None,
        }
    }

    /// What the last look at the windows came to; `None` before the first one.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    /// Windows, decider and last answer.
    pub fn autoscaler(&self) -> &Autoscaler {
        &self.scaler
    }

    /// Its conditions.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Fewest and most replicas (0: no limit) that applied last.
    pub fn bounds(&self) -> (u32, u32) {
        self.bounds
    }

    /// What decided the replicas asked for.
    pub fn rule(&self) -> Rule {
        self.rule
    }

    /// At rest reports and decisions were passed over: they begin again after this moment.
    fn poke(&mut self, now: Micros, poke: &Report, ready: Option<u32>) {
        if self.report_at <= now {
            self.report_at = latest(self.report_at, REPORT_EVERY, now).after(REPORT_EVERY);
        }
        if self.decide_at < now {
            self.decide_at = latest(self.decide_at, DECIDE_EVERY, now).after(DECIDE_EVERY);
        }
        if self.scaler.poke(now, poke) {
            self.decide(now, ready);
        }
    }

    /// What the gateway and the ready replicas report of the second that ends at `at`.
    fn report(&mut self, at: Micros, ready: u32, counted: bool) {
        let second = second_of(at);
        if let Some(report) = self.accountant.report(nanos(at)) {
            self.scaler.record(second, &report);
        }
        if counted && ready > 0 && self.scaler.settings().scraped() {
            self.scaler.record(second, &Report::default());
        }
    }

    /// Until nothing changes any more: a reconcile that changed something is followed by one that sees it.
    fn reconcile(&mut self, now: Micros, ready: u32) {
        for _ in 0..3 {
            let before = (self.standing, self.asked);
            let sight = Sight::local(self.scaler.answer(), ready, self.asked);
            let outcome = self.standing.reconcile(self.scaler.settings(), now, &sight);
            self.asked = outcome.patch.unwrap_or(self.asked);
            self.again = outcome.again.map(|after| now.after(after));
            (self.bounds, self.rule) = (outcome.bounds, outcome.rule);
            if before == (self.standing, self.asked) {
                return;
            }
        }
    }
}

/// Most replicas that may ever be asked for: the initial scale is not held to the maximum.
fn most(settings: &Settings) -> u32 {
    match settings.max_scale {
        0 => u32::MAX,
        max => max.max(settings.initial_scale),
    }
}

/// The last time of a pace that has passed.
fn latest(due: Micros, every: Micros, now: Micros) -> Micros {
    due.after(Micros(now.since(due).0 / every.0 * every.0))
}

fn nanos(at: Micros) -> u64 {
    at.0.saturating_mul(1_000)
}
