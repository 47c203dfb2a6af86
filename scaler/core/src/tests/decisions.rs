// SPDX-License-Identifier: Apache-2.0
//! What is recorded of decisions, and when.

use std::sync::Arc;

use crate::decision::{Decision, Deed, LimitKind, Reasoning};
use crate::history::History;
use crate::testkit::{Rig, life, scale, spec};
use crate::{Bytes, Event, LifeSpec, Micros, ModelSpec, ReplicaId, Rule, ScaleSpec};

fn one(rig: &Rig) -> Decision {
    let [decision] = rig.core.decisions() else { panic!("{:#?}", rig.core.decisions()) };
    decision.clone()
}

#[test]
fn a_decision_says_what_was_known_wanted_limited_and_done() {
    let mut rig = Rig::new(&[("m", spec())]);
    rig.load("m", 0, 5);
    let decision = one(&rig);
    assert_eq!((decision.number, decision.model.as_str(), decision.at), (2, "m", Micros::ZERO));
    assert_eq!((decision.inputs.in_flight, decision.inputs.queued), (Some(0), Some(5)));
    assert_eq!((decision.before, decision.after, decision.rule), (0, 3, Rule::MaxReplicas));
    let sized = Reasoning::Sized {
        requests: Some(5),
        target_milli: 1_000,
        want: Some(5),
        window_largest: 3,
        asked: 5,
    };
    assert_eq!(decision.reasoning, sized);
    let limits: Vec<_> = decision.limits.iter().map(|l| (l.kind, l.before, l.after)).collect();
    assert_eq!(limits, [(LimitKind::MaxReplicas, 5, 3)]);
    assert_eq!(decision.deeds, [0, 1, 2].map(|id| Deed::Start(ReplicaId(id))));
}

#[test]
fn what_changes_nothing_is_not_recorded() {
    let mut rig = Rig::new(&[("m", spec())]);
    rig.load("m", 0, 1);
    rig.ready(0);
    assert_eq!(rig.core.decisions(), []);
    rig.load("m", 1, 0);
    assert_eq!(rig.core.decisions(), []);
    rig.step(Event::Tick);
    assert_eq!(rig.core.decisions(), []);
}

#[test]
fn the_end_of_idling_and_the_drain_are_one_record_and_the_stop_after_it_none() {
    let mut rig = Rig::new(&[("m", spec())]);
    rig.load("m", 1, 0);
    rig.ready(0);
    rig.load("m", 0, 0);
    rig.pass(1_999);
    rig.now = Micros::from_secs(2);
    rig.step(Event::Tick);
    let decision = one(&rig);
    assert_eq!((decision.before, decision.after, decision.rule), (1, 0, Rule::Idle));
    assert_eq!(decision.deeds, [Deed::Drain(ReplicaId(0), "idle".into())]);
    rig.drained(0);
    assert_eq!(rig.acts().last().unwrap(), "stop r0");
    assert_eq!(rig.core.decisions(), []);
}

#[test]
fn failures_are_a_limit_with_their_cause_until_they_end() {
    let backoff_first = Micros::from_secs(1);
    let mut rig = Rig::new(&[("m", ModelSpec { life: LifeSpec { backoff_first, ..life() }, ..spec() })]);
    rig.load("m", 0, 1);
    rig.gone(0);
    let decision = one(&rig);
    let limit = &decision.limits[0];
    assert_eq!((limit.kind, limit.before, limit.after), (LimitKind::BackOff, 1, 0));
    assert_eq!(limit.why, "exit status 1");
    rig.now = Micros::from_secs(1);
    rig.step(Event::Tick);
    assert_eq!(one(&rig).deeds, [Deed::Start(ReplicaId(1))]);
    assert_eq!(one(&rig).limits, []);
}

#[test]
fn a_refusal_for_want_of_room_names_what_occupies_it() {
    let grouped = ModelSpec { groups: vec!["g".into()], ..spec() };
    let mut rig = Rig::new(&[("a", grouped.clone()), ("b", grouped)]);
    rig.load("a", 0, 1);
    rig.ready(0);
    rig.load("a", 1, 0);
    rig.load("b", 0, 1);
    let decision = one(&rig);
    assert_eq!((decision.after, decision.limits[0].kind), (1, LimitKind::Room));
    assert_eq!((decision.limits[0].before, decision.limits[0].after), (1, 0));
    assert_eq!(decision.limits[0].why, "a occupies the exclusive group g");

    let large = ModelSpec { memory: Bytes(6), ..spec() };
    rig.configure(&[("c", large.clone()), ("d", large)], Some(10));
    rig.load("c", 0, 1);
    rig.load("d", 0, 1);
    let decision = rig.core.decisions().iter().find(|d| d.model.as_str() == "d").unwrap();
    assert_eq!(decision.limits[0].why, "it needs 6 bytes of memory and 4 are free");
}

#[test]
fn the_load_being_unknown_is_said_and_a_raised_minimum_too() {
    let two = ScaleSpec { min_replicas: 2, ..scale() };
    let mut rig = Rig::new(&[("m", ModelSpec { scale: two, ..spec() })]);
    let decision = rig.core.decisions()[0].clone();
    assert_eq!((decision.rule, decision.after), (Rule::MinReplicas, 2));
    assert_eq!(decision.inputs.in_flight, None);
    let Reasoning::Sized { want: None, asked: 0, .. } = decision.reasoning else {
        panic!("{:?}", decision.reasoning)
    };
    rig.step(Event::Sleep("m".into()));
    assert_eq!(one(&rig).rule, Rule::SleepOrder);
    assert_eq!(one(&rig).reasoning, Reasoning::Ordered);
}

#[test]
fn a_history_is_bounded_and_keeps_changes_over_a_rule_that_goes_back_and_forth() {
    let mut rig = Rig::new(&[("m", spec()), ("n", spec())]);
    let mut history = History::new(4);
    let mut keep = |rig: &Rig| rig.core.decisions().iter().for_each(|d| history.push(d));
    rig.load("m", 1, 0);
    keep(&rig);
    rig.ready(0);
    for _ in 0..20 {
        rig.load("m", 0, 0);
        keep(&rig);
        rig.load("m", 1, 0);
        keep(&rig);
    }
    rig.load("n", 1, 0);
    keep(&rig);
    let rules = |kept: Vec<Arc<Decision>>| kept.iter().map(|d| (d.after, d.rule)).collect::<Vec<_>>();
    assert_eq!(rules(history.of(Some(&"m".into()))), [(1, Rule::Demand), (1, Rule::Demand)]);
    let all = history.of(None);
    assert!(all.is_sorted_by_key(|d| d.number));
    assert_eq!(all.last().unwrap().model.as_str(), "n");
    for load in [2, 3, 2, 3, 2, 3] {
        rig.load("m", load, 0);
        rig.core.decisions().iter().for_each(|d| history.push(d));
    }
    assert!(history.of(Some(&"m".into())).len() <= 4);
    history.retain(&["n".into()].into());
    assert_eq!(history.of(None).len(), 1);
}
