// SPDX-License-Identifier: Apache-2.0
//! One decision: averages and ready replicas in, desired replicas before bounds out.
//!
//! knative/serving `pkg/autoscaler/scaling`: wants, limits per decision, activation scale, panic, scale-down delay,
//! excess burst capacity, in this order. Must not know windows, bounds or who asks.

use serde::{Deserialize, Serialize};

use super::collector::Averages;
use super::delay::DelayWindow;
use super::settings::Settings;
use crate::units::Micros;

/// Fewest activators in a model's path.
pub const MIN_ACTIVATORS: u32 = 2;

/// What one decider remembers between decisions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decider {
    /// Since when, or when last renewed, demand has been over the threshold.
    panic_since: Option<Micros>,
    /// Largest count of this panic; before the first one, what was ready at the creation.
    memory: u32,
    /// Built with the decider and never rebuilt.
    delay: Option<DelayWindow>,
}

/// A decision with everything that led to it: its arithmetic can be checked from this alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Averages read.
    pub averages: Averages,
    /// Ready replicas.
    pub ready: u32,
    /// Divisor of the wants.
    pub target: f64,
    /// Before utilization.
    pub total: f64,
    /// Replicas wanted for the stable average, before limits.
    pub want_stable: f64,
    /// Replicas wanted for the panic average, before limits.
    pub want_panic: f64,
    /// Most that the scale-up rate allows.
    pub most: f64,
    /// Fewest that the scale-down rate allows.
    pub least: f64,
    /// The want of the panic average over ready replicas reached the threshold.
    pub over: bool,
    /// Panic holds after the decision.
    pub in_panic: bool,
    /// Largest count of this panic; 0 after one, and before the first one what was ready at the creation.
    pub panic_memory: u32,
    /// Before the scale-down delay.
    pub undelayed: u32,
    /// Replicas wanted after all this, before bounds.
    pub desired: u32,
    /// Spare capacity at the moment in units of the metric, after `targetBurstCapacity`.
    pub excess_burst_capacity: i32,
    /// What decided.
    pub rule: Rule,
}

/// What decided `desired`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// The stable average over the target.
    Stable,
    /// The panic average over the target.
    Panic,
    /// Panic holds a larger, former count.
    PanicMemory,
    /// The scale-up rate allows no more.
    ScaleUpRate,
    /// The scale-down rate allows no fewer.
    ScaleDownRate,
    /// `activation-scale`.
    ActivationScale,
    /// `scale-down-delay` holds a larger, former count.
    ScaleDownDelay,
}

impl Rule {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Rule::Stable => "stable window",
            Rule::Panic => "panic window",
            Rule::PanicMemory => "held by panic",
            Rule::ScaleUpRate => "max-scale-up-rate",
            Rule::ScaleDownRate => "max-scale-down-rate",
            Rule::ActivationScale => "activation-scale",
            Rule::ScaleDownDelay => "scale-down-delay",
        }
    }
}

impl Decider {
    /// A new decider holds what is there: it starts in panic if more than one replica is ready.
    pub fn new(settings: &Settings, now: Micros, ready: u32) -> Decider {
        Decider {
            panic_since: (ready > 1).then_some(now),
            memory: ready,
            delay: DelayWindow::new(settings.scale_down_delay),
        }
    }

    /// Whether it panics.
    pub fn in_panic(&self) -> bool {
        self.panic_since.is_some()
    }

    /// Largest count of the present panic; 0 after one, and before the first one what was ready at the creation.
    pub fn panic_memory(&self) -> u32 {
        self.memory
    }

    /// Decides, for `ready` replicas that serve and the averages as of `now`.
    pub fn decide(&mut self, settings: &Settings, now: Micros, ready: u32, averages: Averages) -> Decision {
        let target = settings.resolve();
        let at_least_one = f64::from(ready.max(1));
        let want_stable = (averages.stable / target.target).ceil();
        let want_panic = (averages.panic / target.target).ceil();
        let most = (settings.max_scale_up_rate * at_least_one).ceil();
        let least = match settings.reachable() {
            true => (at_least_one / settings.max_scale_down_rate).floor(),
            false => 0.0,
        };
        let over = want_panic / at_least_one >= settings.panic_threshold();
        self.panic(over, now, settings.window);
        let limits = Limits { most, least, activation: settings.activation_scale };
        let (mut desired, mut rule) = limits.apply(want_stable, Rule::Stable);
        if self.in_panic() {
            let by_panic = limits.apply(want_panic, Rule::Panic);
            if by_panic.0 > desired {
                (desired, rule) = by_panic;
            }
            if self.memory > desired {
                rule = Rule::PanicMemory;
            }
            self.memory = self.memory.max(desired);
            desired = self.memory;
        }
        let undelayed = desired;
        if let Some(delay) = self.delay.as_mut().filter(|_| settings.reachable()) {
            desired = delay.hold(now, undelayed);
        }
        if desired != undelayed {
            rule = Rule::ScaleDownDelay;
        }
        let excess_burst_capacity = excess(settings, target.total, ready, averages.panic);
        Decision {
            averages,
            ready,
            target: target.target,
            total: target.total,
            want_stable,
            want_panic,
            most,
            least,
            over,
            in_panic: self.in_panic(),
            panic_memory: self.memory,
            undelayed,
            desired,
            excess_burst_capacity,
            rule,
        }
    }

    /// Enters, renews or leaves panic.
    fn panic(&mut self, over: bool, now: Micros, window: Micros) {
        if over {
            self.panic_since = Some(now);
        } else if self.panic_since.is_some_and(|since| since.after(window) < now) {
            self.panic_since = None;
            self.memory = 0;
        }
    }
}

/// What a want may become in one decision.
struct Limits {
    most: f64,
    least: f64,
    activation: u32,
}

impl Limits {
    /// The limited want and what decided it; `own` if nothing limits.
    fn apply(&self, want: f64, own: Rule) -> (u32, Rule) {
        let limited = want.max(self.least).min(self.most);
        let rule = match limited {
            limited if limited > want => Rule::ScaleDownRate,
            limited if limited < want => Rule::ScaleUpRate,
            _ => own,
        };
        let count = whole(limited);
        match self.activation > 1 && want > 0.0 && self.activation > count {
            true => (self.activation, Rule::ActivationScale),
            false => (count, rule),
        }
    }
}

/// A replica count; never negative, at most what Knative's 32-bit counts can hold.
fn whole(count: f64) -> u32 {
    (count as i32).max(0) as u32
}

/// Excess burst capacity of a decision.
fn excess(settings: &Settings, total: f64, ready: u32, panic: f64) -> i32 {
    let burst = settings.target_burst_capacity;
    match burst {
        0.0 => 0,
        burst if burst > 0.0 => (f64::from(ready) * total - burst - panic).floor() as i32,
        _ => -1,
    }
}

/// Excess burst capacity before the first decision: truncated, not rounded down.
pub fn excess_at_creation(settings: &Settings) -> i32 {
    let burst = settings.target_burst_capacity;
    match burst {
        0.0 | -1.0 => burst as i32,
        _ => (f64::from(settings.initial_scale) * settings.resolve().total - burst) as i32,
    }
}

/// How many activators a model's path has.
pub fn activators(settings: &Settings, ready: u32) -> u32 {
    let burst = settings.target_burst_capacity;
    if burst == 0.0 {
        return MIN_ACTIVATORS;
    }
    let load = f64::from(ready) * settings.resolve().total + burst.max(0.0);
    whole((load / settings.activator_capacity).ceil()).max(MIN_ACTIVATORS)
}
