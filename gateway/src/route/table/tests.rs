// SPDX-License-Identifier: Apache-2.0
//! Which models there are across reloads and routes, and what becomes of the requests of those that go.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use sluice_core::{Drained, ModelRoute};
use sluice_scaler::Input;
use tokio::sync::mpsc::UnboundedReceiver;

use super::*;
use crate::admission::testkit::{draining, ready, replica};
use crate::admission::{Admission, Ask, Permit, Reason, Waiter};
use crate::config::parse;

const LAUNCHED: &str = "{name: a, command: [sh], maxReplicas: 3}";
const FIXED: &str = "{name: b, url: \"http://127.0.0.1:9\"}";

fn settings(models: &[&str]) -> Settings {
    let list: String = models.iter().map(|model| format!("  - {model}\n")).collect();
    parse(&format!("models:\n{list}"), "sluice.yaml", &|_| None).unwrap_or_else(|e| panic!("{e}")).settings
}

fn table(models: &[&str]) -> (Arc<Table>, UnboundedReceiver<Input>) {
    let (handle, inputs) = Handle::new();
    let table = Table::new(handle);
    table.configure(&settings(models));
    (table, inputs)
}

fn routes(models: Vec<(&str, ModelRoute)>) -> Arc<Routes> {
    let models: BTreeMap<_, _> = models.into_iter().map(|(name, route)| (name.into(), route)).collect();
    Arc::new(Routes { version: 1, models })
}

fn ask() -> Ask {
    Ask { hold: true, ..Ask::default() }
}

#[track_caller]
fn slot(model: &Arc<Model>) -> Permit {
    match model.admit(ask()).unwrap() {
        Admission::Now(permit) => permit,
        Admission::Wait(_) => panic!("{model:?} has a free slot"),
    }
}

#[track_caller]
fn place(model: &Arc<Model>) -> Waiter {
    match model.admit(ask()).unwrap() {
        Admission::Now(_) => panic!("{model:?} has no free slot"),
        Admission::Wait(waiter) => waiter,
    }
}

fn demands(table: &Table, of: Option<&[&str]>) -> Vec<Demand> {
    let names = of.map(|of| of.iter().map(|&name| name.into()).collect::<Vec<ModelName>>());
    let mut out = Vec::new();
    table.demand(names.as_deref(), &mut out);
    out.sort_by(|a, b| a.model.cmp(&b.model));
    out
}

fn told(inputs: &mut UnboundedReceiver<Input>) -> Vec<Drained> {
    std::iter::from_fn(|| inputs.try_recv().ok())
        .filter_map(|input| if let Input::Drained(told) = input { Some(told) } else { None })
        .collect()
}

#[test]
fn models_are_found_by_their_whole_name_and_listed_in_order() {
    let (table, _inputs) =
        table(&["{name: z, command: [sh]}", "{name: \"org/gemma:2b\", command: [sh]}", FIXED]);
    assert_eq!(table.get("org/gemma:2b").unwrap().name().as_str(), "org/gemma:2b");
    for name in ["", "org", "gemma:2b", "ORG/gemma:2b", "org/gemma:2b ", "z/"] {
        assert!(table.get(name).is_none(), "{name:?}");
    }
    let names: Vec<_> = table.list().iter().map(|model| model.name().to_string()).collect();
    assert_eq!(names, ["b", "org/gemma:2b", "z"]);
}

#[test]
fn launched_and_fixed_models_are_routed_alike_and_apart() {
    let (table, _inputs) = table(&[LAUNCHED, FIXED]);
    let waits = place(&table.get("a").unwrap());
    table.publish(&routes(vec![
        ("a", ModelRoute { replicas: vec![], ..ready(&[]) }),
        ("b", ready(&[replica(2, 1)])),
    ]));
    let sent = slot(&table.get("b").unwrap());
    assert_eq!(sent.endpoint().id, ReplicaId(2));
    let next = place(&table.get("b").unwrap());
    assert_eq!(table.in_flight_total(), (1, 2));
    let demands = demands(&table, Some(&["b", "nobody"]));
    assert_eq!(demands.len(), 1, "who is not there has no demand");
    assert_eq!((demands[0].in_flight, demands[0].queued), (1, 1));
    drop((waits, next));
}

#[test]
fn a_reload_changes_a_model_in_place_and_keeps_its_requests_and_counts() {
    let (table, _inputs) = table(&[LAUNCHED, FIXED]);
    table.publish(&routes(vec![("a", ready(&[replica(1, 4)])), ("b", ready(&[]))]));
    let before = table.get("a").unwrap();
    drop(slot(&before));
    let sent = slot(&before);
    table.configure(&settings(&["{name: a, command: [sh], bodyLimit: 7Ki}", FIXED]));
    let after = table.get("a").unwrap();
    assert!(Arc::ptr_eq(&before, &after));
    assert_eq!(after.settings().body_limit, 7 << 10);
    let demand = demands(&table, Some(&["a"])).remove(0);
    assert_eq!((demand.arrivals, demand.completions, demand.in_flight), (2, 1, 1));
    drop(sent);
    assert_eq!(demands(&table, Some(&["a"])).remove(0).completions, 2);
}

#[test]
fn a_fixed_model_that_becomes_a_launched_one_is_the_same_model() {
    let (table, mut inputs) = table(&[FIXED]);
    table.publish(&routes(vec![("b", ready(&[replica(1, 4)]))]));
    let model = table.get("b").unwrap();
    let sent = slot(&model);
    table.configure(&settings(&["{name: b, command: [sh]}"]));
    table.publish(&routes(vec![("b", ready(&[draining(1, 4), replica(2, 4)]))]));
    assert_eq!(slot(&model).endpoint().id, ReplicaId(2));
    assert!(told(&mut inputs).is_empty());
    drop(sent);
    assert_eq!(told(&mut inputs), [Drained { replica: ReplicaId(1), drain: 1 }]);
}

#[tokio::test]
async fn a_model_that_is_gone_refuses_who_waits_and_finishes_what_runs() {
    let (table, mut inputs) = table(&[LAUNCHED, FIXED]);
    table.publish(&routes(vec![("a", ready(&[replica(1, 1)])), ("b", ready(&[]))]));
    let model = table.get("a").unwrap();
    let (sent, waits) = (slot(&model), place(&model));
    table.configure(&settings(&[FIXED]));
    assert!(table.get("a").is_none());
    table.publish(&routes(vec![("a", ready(&[draining(1, 1)])), ("b", ready(&[]))]));
    assert_eq!(waits.await.unwrap_err().reason, Reason::ModelRemoved);
    assert_eq!(table.in_flight_total(), (1, 0));
    assert_eq!(demands(&table, None).len(), 2, "the scaler is told of it until it is empty");
    drop(sent);
    assert_eq!(told(&mut inputs), [Drained { replica: ReplicaId(1), drain: 1 }]);
    table.publish(&routes(vec![("b", ready(&[]))]));
    assert_eq!(demands(&table, None).len(), 1);
    assert_eq!(model.admit(ask()).unwrap_err().reason, Reason::ModelRemoved, "an old handle leads nowhere");
}

#[test]
fn a_model_that_comes_back_before_it_is_empty_goes_on_where_it_was() {
    let (table, _inputs) = table(&[LAUNCHED, FIXED]);
    table.publish(&routes(vec![("a", ready(&[replica(1, 4)])), ("b", ready(&[]))]));
    let model = table.get("a").unwrap();
    let _sent = slot(&model);
    table.configure(&settings(&[FIXED]));
    table.publish(&routes(vec![("a", ready(&[draining(1, 4)])), ("b", ready(&[]))]));
    table.configure(&settings(&[LAUNCHED, FIXED]));
    assert!(Arc::ptr_eq(&model, &table.get("a").unwrap()));
    table.publish(&routes(vec![("a", ready(&[replica(1, 4)])), ("b", ready(&[]))]));
    assert_eq!(slot(&model).endpoint().id, ReplicaId(1));
    assert_eq!(demands(&table, None)[0].arrivals, 2);
}

#[test]
fn a_model_that_comes_after_its_routes_is_served_at_once() {
    let (table, _inputs) = table(&[FIXED]);
    table.publish(&routes(vec![("a", ready(&[replica(1, 4)])), ("b", ready(&[]))]));
    table.configure(&settings(&[LAUNCHED, FIXED]));
    assert_eq!(slot(&table.get("a").unwrap()).endpoint().id, ReplicaId(1));
}

#[tokio::test]
async fn a_table_that_drains_refuses_everybody_new_also_at_models_that_come_later() {
    let (table, _inputs) = table(&[LAUNCHED]);
    let waits = place(&table.get("a").unwrap());
    table.begin_drain();
    assert_eq!(waits.await.unwrap_err().reason, Reason::Draining);
    table.configure(&settings(&[LAUNCHED, FIXED]));
    for name in ["a", "b"] {
        assert_eq!(table.get(name).unwrap().admit(ask()).unwrap_err().reason, Reason::Draining, "{name}");
    }
}

#[tokio::test]
async fn who_waits_past_the_budget_is_told_by_the_sweep() {
    let (table, _inputs) = table(&["{name: a, command: [sh], timeouts: {coldStart: 1s}}"]);
    let waits = place(&table.get("a").unwrap());
    table.sweep(clock::now().after(Micros::from_secs(2)));
    assert_eq!(waits.await.unwrap_err().reason, Reason::WaitedTooLong { by_client: false });
}
