// SPDX-License-Identifier: Apache-2.0
//! From a decider's answer to replicas asked for: bounds, initial scale, the way to zero, and the model's conditions.
//!
//! knative/serving `pkg/reconciler/autoscaling/kpa`: one call is one reconcile, and everything it looks at comes in. On
//! one machine the gateway is always in the path, so most of what concerns the path is constant there (`Sight::local`).

use serde::{Deserialize, Serialize};

use super::autoscaler::Answer;
use super::decider::{self, MIN_ACTIVATORS};
use super::settings::{Reachability, Settings};
use crate::units::Micros;

/// On top of the progress deadline before an activation has failed.
const ACTIVATION_GRACE: Micros = Micros::from_secs(30);
/// When to look again after becoming inactive with the activator in the path already.
const LOOK_AGAIN: Micros = Micros::from_secs(3);

/// The Active condition with its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activity {
    /// Replicas are wanted and too few are ready (`Queued`).
    Activating,
    /// Enough are ready.
    Active,
    /// None is wanted (`NoTraffic`).
    Idle,
    /// None is wanted, because none became ready in time (`TimedOut`).
    TimedOut,
}

/// Where the model's public address leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// To activators.
    Proxy,
    /// To replicas.
    Serve,
}

/// What is remembered of a model between reconciles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// `None` before the first reconcile.
    pub activity: Option<Activity>,
    /// Since when.
    pub since: Micros,
    /// As many replicas as the initial scale asks for were ready once.
    pub initialized: bool,
    /// Replicas reported as desired; `None` before the first reconcile, `Some(None)` while nothing is known.
    #[serde(with = "as_list")]
    pub reported: Option<Option<u32>>,
}

/// Written as a list of at most one: JSON has only one `null`.
mod as_list {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &Option<Option<u32>>, to: S) -> Result<S::Ok, S::Error> {
        value.as_slice().serialize(to)
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Option<Option<u32>>, D::Error> {
        Ok(Vec::deserialize(from)?.pop())
    }
}

/// What one reconcile looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// The decider's last answer.
    pub answer: Answer,
    /// Ready replicas.
    pub ready: u32,
    /// Replicas asked for.
    pub asked: u32,
    /// The path exists and knows its replicas. Nothing is decided without.
    pub path_known: bool,
    /// Where it leads.
    pub path: Path,
    /// For how long it has been backed by activators; zero if it is not.
    pub backed: Micros,
    /// What a probe of the public address says if it is asked: the activator answers.
    pub probe: bool,
}

/// What one reconcile decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Replicas to ask for, if other than before.
    pub patch: Option<u32>,
    /// Replicas wanted; `None`: not known.
    pub want: Option<u32>,
    /// Where the path is to lead.
    pub path: Path,
    /// How many activators it is to have.
    pub activators: u32,
    /// Look again after so long, whatever happens.
    pub again: Option<Micros>,
    /// The public address was probed, with this answer.
    pub probed: Option<bool>,
    /// Fewest and most replicas (0: no limit) that applied, initial scale included.
    pub bounds: (u32, u32),
    /// What decided.
    pub rule: Rule,
}

/// What decided the replicas asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// The decider's answer.
    Decider,
    /// `min-scale`.
    MinScale,
    /// `max-scale`.
    MaxScale,
    /// `initial-scale`, until so many were ready once.
    InitialScale,
    /// The decider has not answered yet: nothing changes.
    Unknown,
    /// Scale to zero is off for the installation: one stays.
    ZeroOff,
    /// Not ready yet, and the activation deadline has not passed.
    Activating,
    /// Not ready within the activation deadline: zero.
    ActivationFailed,
    /// Idle, but active for less than a stable window: one stays.
    ActiveForWindow,
    /// Idle for long enough: inactive from now on, replicas stay for the moment.
    BecomesInactive,
    /// The activator is not seen in the path: nothing changes.
    ProbeFailed,
    /// `scale-to-zero-pod-retention-period`: nothing changes.
    Retention,
    /// The activator has not been in the path for the grace period: nothing changes.
    Grace,
    /// Inactive for long enough, with the activator in the path: zero.
    Zero,
}

impl Rule {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Rule::Decider => "decider",
            Rule::MinScale => "min-scale",
            Rule::MaxScale => "max-scale",
            Rule::InitialScale => "initial-scale",
            Rule::Unknown => "no decision yet",
            Rule::ZeroOff => "scale to zero is off",
            Rule::Activating => "activating",
            Rule::ActivationFailed => "not activated in time",
            Rule::ActiveForWindow => "active for less than the window",
            Rule::BecomesInactive => "idle for the window",
            Rule::ProbeFailed => "activator not in the path",
            Rule::Retention => "retention period",
            Rule::Grace => "grace period",
            Rule::Zero => "idle",
        }
    }
}

impl Sight {
    /// On one machine: the gateway has been the activator in the path ever since, and answers every probe.
    pub fn local(answer: Answer, ready: u32, asked: u32) -> Sight {
        let backed = Micros(u64::MAX);
        Sight { answer, ready, asked, path_known: true, path: Path::Proxy, backed, probe: true }
    }
}

impl Standing {
    /// One reconcile.
    pub fn reconcile(&mut self, settings: &Settings, now: Micros, sight: &Sight) -> Outcome {
        if !sight.path_known {
            self.conclude(settings, now, None, 0, false);
            let activators = MIN_ACTIVATORS;
            let bounds = (settings.min_scale, settings.max_scale);
            let (patch, want, again, probed, rule) = (None, None, None, None, Rule::Unknown);
            return Outcome { patch, want, path: Path::Proxy, activators, again, probed, bounds, rule };
        }
        let bounds = (self.floor(settings), settings.max_scale);
        let course = self.course(settings, now, sight, bounds);
        let spare = sight.answer.excess_burst_capacity >= 0;
        let path = match course.want {
            Some(want) if want > 0 && spare => Path::Serve,
            _ => Path::Proxy,
        };
        self.conclude(settings, now, course.want, sight.ready, true);
        Outcome {
            patch: course.want.filter(|&want| course.apply && want != sight.asked),
            want: course.want,
            path,
            activators: decider::activators(settings, sight.ready),
            again: course.again,
            probed: course.probed,
            bounds,
            rule: course.rule,
        }
    }

    /// Fewest replicas: `min-scale`, and `initial-scale` until it was reached, both only while reachable.
    fn floor(&self, settings: &Settings) -> u32 {
        let initial = settings.initial_scale;
        match settings.reachability {
            Reachability::Unreachable => 0,
            _ if initial > 1 && !self.initialized => settings.min_scale.max(initial),
            _ => settings.min_scale,
        }
    }

    fn course(&self, settings: &Settings, now: Micros, sight: &Sight, (min, max): (u32, u32)) -> Course {
        let Some(answer) = sight.answer.desired.or(self.activating().then_some(0)) else {
            return Course::keep(None, Rule::Unknown);
        };
        // The floor is looked at first, so it wins over a smaller ceiling.
        let (want, rule) = match answer {
            answer if answer < min && min > settings.min_scale => (min, Rule::InitialScale),
            answer if answer < min => (min, Rule::MinScale),
            answer if max > 0 && answer > max => (max, Rule::MaxScale),
            answer => (answer, Rule::Decider),
        };
        match want {
            0 => self.towards_zero(settings, now, sight),
            want => Course::apply(want, rule),
        }
    }

    fn towards_zero(&self, settings: &Settings, now: Micros, sight: &Sight) -> Course {
        let lasts = now.since(self.since);
        if !settings.enable_scale_to_zero {
            return Course::apply(1, Rule::ZeroOff);
        }
        match self.activity {
            Some(Activity::Activating) => {
                let limit = settings.progress_deadline.after(ACTIVATION_GRACE);
                match lasts > limit {
                    true => Course::apply(0, Rule::ActivationFailed),
                    false => Course::keep(None, Rule::Activating).again(limit),
                }
            }
            Some(Activity::Active) if lasts >= settings.window => {
                let again = (sight.path == Path::Proxy).then_some(LOOK_AGAIN);
                Course { again, ..Course::keep(Some(0), Rule::BecomesInactive) }
            }
            Some(Activity::Active) => {
                Course::apply(1, Rule::ActiveForWindow).again(settings.window.since(lasts))
            }
            Some(Activity::Idle | Activity::TimedOut) | None => {
                let probed = settings.scraped().then_some(sight.probe);
                Course { probed, ..idle(settings, lasts, sight.backed, probed) }
            }
        }
    }

    /// Sets conditions and what is reported.
    fn conclude(&mut self, settings: &Settings, now: Micros, want: Option<u32>, ready: u32, served: bool) {
        if want.is_some() || self.reported.is_none() {
            self.reported = Some(want);
        }
        let min = match settings.reachability {
            Reachability::Unreachable => 0,
            _ => settings.min_scale,
        };
        let enough = min.max(if self.initialized { 1 } else { settings.initial_scale });
        self.initialized |= served && ready >= enough;
        let activity = match want {
            _ if enough == 0 => Activity::Idle,
            Some(0) if self.activating() => Activity::TimedOut,
            Some(0) => Activity::Idle,
            None if self.inactive() && ready < enough => Activity::Idle,
            None if self.inactive() => return,
            _ if ready < enough => Activity::Activating,
            _ => Activity::Active,
        };
        if self.activity != Some(activity) {
            self.activity = Some(activity);
            self.since = now;
        }
    }

    fn activating(&self) -> bool {
        self.activity == Some(Activity::Activating)
    }

    fn inactive(&self) -> bool {
        matches!(self.activity, Some(Activity::Idle | Activity::TimedOut))
    }
}

/// Inactive: when may the last replica go?
fn idle(settings: &Settings, lasts: Micros, backed: Micros, probed: Option<bool>) -> Course {
    if probed == Some(false) {
        return Course::keep(Some(0), Rule::ProbeFailed);
    }
    let grace = settings.scale_to_zero_grace_period;
    let retention = if settings.reachable() { settings.retention } else { Micros::ZERO };
    if lasts >= grace.max(retention) {
        Course::apply(0, Rule::Zero)
    } else if lasts < retention {
        Course::keep(Some(0), Rule::Retention).again(retention.since(lasts))
    } else if backed >= grace {
        Course::apply(0, Rule::Zero)
    } else {
        Course::keep(Some(0), Rule::Grace).again(grace.since(backed))
    }
}

/// What to do about the replicas.
struct Course {
    want: Option<u32>,
    /// Ask for that many; otherwise what was asked for stays.
    apply: bool,
    again: Option<Micros>,
    probed: Option<bool>,
    rule: Rule,
}

impl Course {
    fn apply(want: u32, rule: Rule) -> Course {
        Course { want: Some(want), apply: true, again: None, probed: None, rule }
    }

    fn keep(want: Option<u32>, rule: Rule) -> Course {
        Course { want, apply: false, again: None, probed: None, rule }
    }

    fn again(self, after: Micros) -> Course {
        Course { again: Some(after), ..self }
    }
}
