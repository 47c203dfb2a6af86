// SPDX-License-Identifier: Apache-2.0
//! What a new core takes over from one that has ended: desired counts, windows, measured starts, times of last use,
//! orders. Never replicas, nor what was known of load and failures: those are seen anew.
//!
//! A restart changes desired by nothing: until the first report the load is unknown, and what was desired stays so. Only
//! a model whose idle time has passed meanwhile begins at zero, and one that waited for room does not get it before
//! those that had it: its requests have ended with the process.

use crate::core::Core;
use crate::decide;
use crate::health::Health;
use crate::model::Model;
use crate::residency::Standing;
use crate::units::Micros;

impl Core {
    /// A core that continues where `former` ended, at `now` on the same time line. Until it is configured it takes no
    /// reports; models that are not configured any more are forgotten then. Numbers of replicas are not used again.
    pub fn restored(former: Core, now: Micros) -> Core {
        let mut core = Core::new();
        core.now = former.now.max(now);
        core.restored = true;
        core.next_replica = former.next_replica;
        core.decided = former.decided;
        for (name, model) in former.models {
            if !model.removed && model.fixed().is_none() {
                let short = former.short.contains(&name);
                core.models.insert(name, taken_over(model, short, now));
            }
        }
        core
    }
}

fn taken_over(mut model: Model, short: bool, now: Micros) -> Model {
    if decide::idle_end(&model).is_some_and(|end| end <= now) || (short && model.staying() == 0) {
        model.forget_use();
        model.desired = 0;
        model.kpa.iter_mut().for_each(|kpa| kpa.rest(now));
    }
    model.kpa.iter_mut().for_each(|kpa| kpa.restart());
    if model.quiet().is_none() && model.load.is_some() {
        model.used = now;
    }
    model.load = None;
    model.replicas.clear();
    model.asleep = model.asleep.map(|_| 0);
    model.health = Health::default();
    model.standing = Standing::default();
    (model.need, model.waiting, model.contended) = (0, None, false);
    (model.room_due, model.due) = (None, None);
    model.told.forget_replicas();
    model
}
