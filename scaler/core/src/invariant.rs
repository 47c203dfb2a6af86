// SPDX-License-Identifier: Apache-2.0
//! Facts about the core's state that hold after every step. Used by tests.

use crate::core::Core;
use crate::status::Phase;

/// Panics with the fact that does not hold.
pub(crate) fn check(core: &Core) {
    let routes = core.routes();
    for (name, model) in &core.models {
        let staying = model.staying();
        let most = model.fixed().unwrap_or(model.max_replicas()).max(model.desired);
        assert!(staying <= most, "{name}: {staying} replicas where {most} are allowed");
        for (id, replica) in &model.replicas {
            let listed = routes.models.get(name).and_then(|r| r.replicas.iter().find(|r| r.id == *id));
            match replica.phase {
                Phase::Ready => {
                    assert!(listed.is_some_and(|r| !r.draining), "{name}: {id} is ready, not routed")
                }
                Phase::Unready | Phase::Draining => {
                    assert!(
                        listed.is_none_or(|r| r.draining),
                        "{name}: {id} is routed and {:?}",
                        replica.phase
                    );
                }
                Phase::Starting | Phase::Stopping => {
                    assert!(listed.is_none(), "{name}: {id} is listed and {:?}", replica.phase);
                }
            }
        }
    }
    for (name, route) in &routes.models {
        let known = |id| core.models.get(name).is_some_and(|model| model.replicas.contains_key(id));
        assert!(
            route.replicas.iter().all(|r| known(&r.id)),
            "{name}: a replica is listed that does not exist"
        );
    }
}
