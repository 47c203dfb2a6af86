// SPDX-License-Identifier: Apache-2.0
//! The scaler's decisions as documents: what was known, what it asked for, what limited it, what was done.
//!
//! Owns the words. Must not decide anything: a record says by itself why it came out as it did.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_core::decision::{Deed, LimitKind, Reasoning};

use super::api::List;
use super::clock::{Moment, rfc3339};
use super::problem::{Kind, Problem};
use super::routes::{Answer, Shared, find, parameters};

/// Decisions of one answer, unless it is said how many.
const USUAL: usize = 100;

/// One decision about one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// Counts the scaler's decisions, of all models.
    pub number: u64,
    /// When, RFC 3339 in UTC.
    pub at: String,
    /// About which model.
    pub model: String,
    /// Desired replicas before.
    pub before: u32,
    /// Desired replicas from then on.
    pub after: u32,
    /// The rule that decided it.
    pub rule: String,
    /// What was known.
    pub inputs: Inputs,
    /// How the load became a number of replicas; null where an order or a fact left it no say, and under `compat: kpa`.
    pub sized: Option<Sized>,
    /// The same under `compat: kpa`; null also as long as the KPA has not decided.
    pub kpa: Option<Kpa>,
    /// Limits in force, in the order in which they were applied.
    pub limits: Vec<Limit>,
    /// What was done about it at once.
    pub deeds: Vec<String>,
}

/// What was known of a model. Load is null while it is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Inputs {
    /// Requests at replicas.
    pub in_flight: Option<u32>,
    /// Requests waiting for a replica.
    pub queued: Option<u32>,
    /// Milliseconds without a request; null while there is one.
    pub idle_ms: Option<u64>,
    /// Replicas that take requests.
    pub ready: u32,
    /// Replicas on their way.
    pub starting: u32,
    /// Replicas that finish or stop.
    pub leaving: u32,
}

/// From load to replicas, before limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sized {
    /// Requests that count; null while the load is not known.
    pub requests: Option<u32>,
    /// `scaleTarget`.
    pub target: f64,
    /// Replicas that these requests want.
    pub want: Option<u32>,
    /// The largest want of the window.
    pub window_largest: u32,
    /// What comes of both and of what exists.
    pub asked: u32,
}

/// The last decision of the KPA under `compat: kpa`, in Knative's terms. Averages, target and capacity are in the unit
/// of the metric, the rest are replicas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Kpa {
    /// Average over the stable window.
    pub stable: f64,
    /// Average over the panic window.
    pub panic: f64,
    /// What one replica is to carry, utilization included.
    pub target: f64,
    /// Ready replicas that it counted with.
    pub ready: u32,
    /// Replicas for the stable average.
    pub want_stable: f64,
    /// Replicas for the panic average.
    pub want_panic: f64,
    /// The largest count of this panic, which holds until it ends; null outside of a panic.
    pub held_by_panic: Option<u32>,
    /// Most that `max-scale-up-rate` allows.
    pub most: f64,
    /// Fewest that `max-scale-down-rate` allows.
    pub least: f64,
    /// Replicas before `min-scale`, `max-scale` and `initial-scale`.
    pub desired: u32,
    /// Capacity to spare beyond `target-burst-capacity`; negative if there is too little.
    pub excess_burst_capacity: i32,
    /// What decided `desired`.
    pub rule: String,
    /// Fewest replicas, before so many were ready once `initial-scale` included.
    pub min: u32,
    /// Most replicas; 0 is no limit.
    pub max: u32,
}

/// A limit: so many replicas went into it and so many came out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limit {
    /// `minReplicas`, `maxReplicas`, `initialScale`, `backOff` or `room`.
    pub kind: String,
    /// Replicas that were asked for.
    pub before: u32,
    /// Replicas that it leaves.
    pub after: u32,
    /// The fact behind it; empty if the kind says it all.
    pub why: String,
}

/// Query of the list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DecisionQuery {
    model: Option<String>,
    limit: Option<usize>,
}

/// Answers the last decisions, the latest last.
pub(super) async fn list(
    State(shared): State<Shared>,
    query: Result<Query<DecisionQuery>, QueryRejection>,
) -> Answer<Json<List<Decision>>> {
    let query = parameters(query)?;
    let limit = query.limit.unwrap_or(USUAL);
    if limit == 0 || limit > 1000 {
        return Err(Problem::new(Kind::InvalidParameter, "limit: from 1 to 1000"));
    }
    let handle = &shared.admin.handle;
    let model = match &query.model {
        Some(name) => Some(find(&handle.status(), name)?.name.clone()),
        None => None,
    };
    Ok(Json(last(&handle.decisions(model.as_ref()), limit, Moment::now())))
}

fn last(all: &[std::sync::Arc<sluice_core::Decision>], limit: usize, now: Moment) -> List<Decision> {
    let skipped = all.len().saturating_sub(limit);
    let items = all.iter().skip(skipped).map(|decision| document(decision, now)).collect();
    List { items, next_cursor: None }
}

pub(crate) fn document(decision: &sluice_core::Decision, now: Moment) -> Decision {
    let known = &decision.inputs;
    let limits = decision.limits.iter().map(|limit| Limit {
        kind: limit_name(limit.kind).to_owned(),
        before: limit.before,
        after: limit.after,
        why: limit.why.clone(),
    });
    Decision {
        number: decision.number,
        at: rfc3339(now.unix_ms_of(decision.at)),
        model: decision.model.as_str().to_owned(),
        before: decision.before,
        after: decision.after,
        rule: decision.rule.as_str().to_owned(),
        inputs: Inputs {
            in_flight: known.in_flight,
            queued: known.queued,
            idle_ms: known.idle_since.map(|since| decision.at.since(since).as_millis()),
            ready: known.ready,
            starting: known.starting,
            leaving: known.leaving,
        },
        sized: sized(&decision.reasoning),
        kpa: kpa(&decision.reasoning),
        limits: limits.collect(),
        deeds: decision.deeds.iter().map(deed).collect(),
    }
}

fn sized(reasoning: &Reasoning) -> Option<Sized> {
    match reasoning {
        Reasoning::Ordered | Reasoning::Kpa { .. } => None,
        Reasoning::Sized { requests, target_milli, want, window_largest, asked } => Some(Sized {
            requests: *requests,
            target: *target_milli as f64 / 1e3,
            want: *want,
            window_largest: *window_largest,
            asked: *asked,
        }),
    }
}

fn kpa(reasoning: &Reasoning) -> Option<Kpa> {
    let Reasoning::Kpa { decision: Some(decision), bounds: (min, max) } = reasoning else { return None };
    Some(Kpa {
        stable: decision.averages.stable,
        panic: decision.averages.panic,
        target: decision.target,
        ready: decision.ready,
        want_stable: decision.want_stable,
        want_panic: decision.want_panic,
        held_by_panic: decision.in_panic.then_some(decision.panic_memory),
        most: decision.most,
        least: decision.least,
        desired: decision.desired,
        excess_burst_capacity: decision.excess_burst_capacity,
        rule: decision.rule.as_str().to_owned(),
        min: *min,
        max: *max,
    })
}

fn limit_name(kind: LimitKind) -> &'static str {
    match kind {
        LimitKind::MinReplicas => "minReplicas",
        LimitKind::MaxReplicas => "maxReplicas",
        LimitKind::InitialScale => "initialScale",
        LimitKind::BackOff => "backOff",
        LimitKind::Room => "room",
    }
}

fn deed(deed: &Deed) -> String {
    match deed {
        Deed::Start(id) => format!("start {id}"),
        Deed::Drain(id, why) => format!("drain {id}: {why}"),
        Deed::Resume(id) => format!("call off the drain of {id}"),
        Deed::Cut(id) => format!("cut what is left at {id}"),
        Deed::Stop(id, why) => format!("stop {id}: {why}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use sluice_core::{
        Core, Demand, Event, FleetSpec, LifeSpec, Micros, ModelSpec, Profile, ScaleSpec, Source,
    };

    use super::*;

    /// What a core decides when ten requests come for a model that may have two replicas.
    fn decisions() -> Vec<Arc<sluice_core::Decision>> {
        let scale = ScaleSpec {
            min_replicas: 0,
            max_replicas: 2,
            target_milli: 4_000,
            container_concurrency: 4,
            idle_after: Micros::from_secs(60),
            window: Micros::from_secs(60),
            preload: false,
            profile: Profile::Sized,
        };
        let life = LifeSpec {
            start_deadline: Micros::from_secs(60),
            drain_deadline: Micros::from_secs(60),
            stop_deadline: Micros::from_secs(10),
            start_attempts: 3,
            backoff_first: Micros::from_secs(1),
            backoff_max: Micros::from_secs(60),
        };
        let memory = sluice_core::Bytes(0);
        let spec =
            ModelSpec { generation: 1, source: Source::Launched, scale, life, memory, groups: Vec::new() };
        let (mut core, mut all) = (Core::new(), Vec::new());
        let demand = Demand {
            model: "m".into(),
            in_flight: 0,
            queued: 10,
            peak: 10,
            arrivals: 10,
            completions: 0,
            abandons: 0,
            in_flight_micros: 0,
            queued_micros: 0,
            idle_since: None,
            by_replica: std::collections::BTreeMap::new(),
        };
        let models = [("m".into(), spec)].into();
        for event in [Event::Configure(FleetSpec { models, memory: None }), Event::Demand(demand)] {
            core.step(Micros::from_secs(5), &event, &mut Vec::new());
            all.extend(core.decisions().iter().cloned().map(Arc::new));
        }
        all
    }

    #[test]
    fn a_record_is_told_with_what_was_known_wanted_limited_and_done() {
        let now = Moment { micros: Micros::from_secs(6), unix_ms: 1_000_000 };
        let list = last(&decisions(), 1, now);
        let decision = list.items.last().unwrap();
        assert_eq!((decision.before, decision.after, decision.rule.as_str()), (0, 2, "maxReplicas"));
        assert_eq!(decision.at, rfc3339(999_000));
        assert_eq!((decision.inputs.queued, decision.inputs.starting), (Some(10), 2));
        assert_eq!(decision.sized.as_ref().map(|sized| (sized.want, sized.target)), Some((Some(3), 4.0)));
        let limit = Limit { kind: "maxReplicas".into(), before: 3, after: 2, why: String::new() };
        assert_eq!(decision.limits, [limit]);
        assert_eq!(decision.deeds, ["start r0", "start r1"]);
    }
}
