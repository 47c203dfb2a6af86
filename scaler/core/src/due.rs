// SPDX-License-Identifier: Apache-2.0
//! When time alone next changes something for a model: deadlines, the end of a pause, a window or an idle time, a turn.

use crate::decide;
use crate::lifecycle;
use crate::model::Model;
use crate::spec::Source;
use crate::status::Phase;
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
