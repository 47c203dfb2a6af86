// SPDX-License-Identifier: Apache-2.0
//! Decisions under other settings, from a recorded load.

use crate::journal::{Journal, Tape, read};
use crate::testkit::{nothing, scale, spec};
use crate::what_if::{partings, recorded, supposed};
use crate::{Core, Demand, Event, FleetSpec, Micros, ModelName, ModelSpec, ScaleSpec};

/// Six requests for ten seconds, then none, at one request per replica and up to eight replicas.
fn tape() -> (Tape, Core) {
    let (mut core, mut journal, mut actions) = (Core::new(), Journal::new(1_000), Vec::new());
    let long = Micros::from_secs(60);
    let eight = ModelSpec { scale: ScaleSpec { max_replicas: 8, idle_after: long, ..scale() }, ..spec() };
    let fleet = FleetSpec { models: [("m".into(), eight)].into(), memory: None };
    let mut feed = |seconds: u64, event: Event| {
        journal.step(&mut core, Micros::from_secs(seconds), event, &mut actions);
    };
    feed(0, Event::Configure(fleet));
    feed(0, Event::Demand(Demand { in_flight: 6, peak: 6, arrivals: 6, ..nothing("m") }));
    let idle_since = Some(Micros::from_secs(10));
    feed(10, Event::Demand(Demand { peak: 6, arrivals: 6, completions: 6, idle_since, ..nothing("m") }));
    (11..30).for_each(|second| feed(second, Event::Tick));
    (read(&journal.dump()).unwrap(), core)
}

fn with(tape: &Tape, change: impl Fn(&mut ScaleSpec)) -> (u128, u32, u32) {
    let course = supposed(tape, &|fleet| fleet.models.values_mut().for_each(|m| change(&mut m.scale)));
    let totals = course.totals(Micros::from_secs(30))[&ModelName::from("m")];
    (totals.replica_micros / 1_000_000, totals.peak, totals.changes)
}

#[test]
fn the_same_settings_decide_the_same_and_others_otherwise() {
    let (tape, _) = tape();
    let totals = recorded(&tape).totals(Micros::from_secs(30))[&ModelName::from("m")];
    assert_eq!((totals.replica_micros / 1_000_000, totals.peak, totals.changes), (6 * 16 + 14, 6, 2));
    assert_eq!(with(&tape, |_| {}), (6 * 16 + 14, 6, 2));
    assert_eq!(with(&tape, |scale| scale.target_milli = 3_000), (2 * 16 + 14, 2, 2));
    assert_eq!(with(&tape, |scale| scale.window = Micros::from_secs(10)), (6 * 20 + 10, 6, 2));
    assert_eq!(with(&tape, |scale| scale.min_replicas = 4), (6 * 16 + 4 * 14, 6, 3));
}

#[test]
fn a_tape_lived_through_again_ends_in_the_same_core() {
    let (tape, core) = tape();
    let again = tape.into_last();
    assert_eq!(serde_json::to_string(&again).unwrap(), serde_json::to_string(&core).unwrap());
}

#[test]
fn where_they_part_is_told_with_both_counts_and_reasons() {
    let (tape, _) = tape();
    let end = Micros::from_secs(30);
    let was = recorded(&tape);
    assert_eq!(partings(&was, &supposed(&tape, &|_| {}), end), []);
    let three = |fleet: &mut FleetSpec| {
        fleet.models.values_mut().for_each(|model| model.scale.target_milli = 3_000);
    };
    let found = partings(&was, &supposed(&tape, &three), end);
    let [parting] = &found[..] else { panic!("{found:?}") };
    assert_eq!((parting.from, parting.until), (Micros::ZERO, Micros::from_secs(16)));
    assert_eq!((parting.recorded, parting.supposed), (6, 2));
    let by = [&parting.recorded_by, &parting.supposed_by].map(|by| by.as_ref().map(|by| by.after));
    assert_eq!(by, [Some(6), Some(2)]);
}
