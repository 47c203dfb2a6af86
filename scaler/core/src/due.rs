// SPDX-License-Identifier: Apache-2.0
//! When time alone next changes something for a model: deadlines, the end of a pause, a window or an idle time, a turn.

use crate::decide;
use crate::lifecycle;
use crate::model::Model;
use crate::routes;
use crate::spec::Source;
use crate::status::{Coming, Next, Phase};
use crate::units::Micros;

/// The next moment at which time alone changes something for the model.
pub(crate) fn next_due(model: &Model, now: Micros) -> Option<Micros> {
    let life = &model.spec.life;
    let deadlines = model.replicas.values().filter_map(|r| lifecycle::deadline(r, life));
    let short = model.desired > 0 && model.missing() > 0;
    let retry = Some(model.health.retry_at()).filter(|&t| short && t > now);
    let fall = model.hold.next_fall(model.spec.scale.window).filter(|_| model.desired > 0);
    let fall = fall.filter(|_| model.load.is_some() && model.fixed().is_none());
    let kpa = model.kpa.as_ref().filter(|_| model.asleep.is_none() && !model.removed);
    let kpa =
        kpa.filter(|kpa| !(model.spec.source == Source::Launched && kpa.rests(model.count(Phase::Ready))));
    let kpa = kpa.map(|kpa| kpa.next_due(now));
    let single = [retry, fall, decide::idle_end(model), model.room_due, kpa];
    deadlines.chain(single.into_iter().flatten()).min()
}

/// What people may expect to come next by time alone. Under `compat: kpa` averages decide, and of those only a start's end
/// can be told ahead.
pub(crate) fn foreseen(model: &Model) -> Option<Next> {
    if model.count(Phase::Starting) > 0 {
        return routes::ready_at(model).map(|at| Next { what: Coming::Ready, at });
    }
    if model.kpa.is_some() || model.desired == 0 || model.fixed().is_some() || model.load.is_none() {
        return None;
    }
    let scale = &model.spec.scale;
    // The last replica waits for the idle time, whatever leaves the window.
    let above = model.pinned.is_none() && model.desired > scale.min_replicas.max(1);
    let fall = model.hold.next_fall(scale.window).filter(|_| above);
    let fall = fall.map(|at| Next { what: Coming::Fewer, at });
    let what = if scale.min_replicas == 0 { Coming::Asleep } else { Coming::Fewer };
    let idle = decide::idle_end(model).filter(|_| model.desired > scale.min_replicas);
    fall.into_iter().chain(idle.map(|at| Next { what, at })).min_by_key(|next| next.at)
}
