// SPDX-License-Identifier: Apache-2.0
//! Facts about the core's state that hold after every step. Used by tests.

use crate::core::Core;
use crate::ids::ModelName;
use crate::ledger::Ledger;
use crate::model::Model;
use crate::status::Phase;

/// Panics with the fact that does not hold.
pub(crate) fn check(core: &Core) {
    let routes = core.routes();
    assert_eq!(core.ledger, Ledger::of(&core.models), "the ledger is the sum over the live replicas");
    for (name, model) in &core.models {
        check_count(name, model);
        assert!(model.is_recorded(), "{name}: the last record says what is desired and by which rule");
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

/// Launched replicas that stay are at most `maxReplicas`, and one more while generations change; of fixed addresses
/// there is one replica each, besides those of a former configuration.
fn check_count(name: &ModelName, model: &Model) {
    let staying = model.staying();
    match model.fixed() {
        None => {
            let most = model.most_staying();
            assert!(staying <= most, "{name}: {staying} replicas where {most} are allowed");
        }
        Some(addresses) => {
            let current = model.replicas.values().filter(|r| r.stays() && !model.outdated(r));
            let mut ordinals: Vec<u32> = current.map(|r| r.ordinal).collect();
            let count = ordinals.len();
            ordinals.sort_unstable();
            ordinals.dedup();
            assert_eq!(ordinals.len(), count, "{name}: an address is attached twice");
            assert!(count as u32 <= addresses.max(model.desired), "{name}: {count} of {addresses} addresses");
        }
    }
}
