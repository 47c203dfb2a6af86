// SPDX-License-Identifier: Apache-2.0
//! `compat: kpa` as the core runs it: its pace, orders, changes while it runs, rest and restart. What the KPA decides is
//! tested against the recorded decisions of the real one.

use crate::decision::Reasoning;
use crate::kpa::Settings;
use crate::testkit::{Rig, scale, spec};
use crate::{Core, Event, Micros, ModelSpec, Profile, ScaleSpec};

fn kpa(settings: Settings) -> ModelSpec {
    let scale = ScaleSpec {
        min_replicas: settings.min_scale,
        max_replicas: if settings.max_scale == 0 { 100 } else { settings.max_scale },
        container_concurrency: settings.container_concurrency,
        profile: Profile::Kpa(Box::new(settings)),
        ..scale()
    };
    ModelSpec { scale, ..spec() }
}

/// Ten requests for each replica, whole; replicas are not scraped.
fn ten() -> Settings {
    Settings {
        target: Some(10.0),
        target_utilization_percentage: Some(100.0),
        target_burst_capacity: -1.0,
        ..Settings::default()
    }
}

fn from_zero() -> Settings {
    Settings { initial_scale: 0, ..ten() }
}

fn rig(settings: Settings) -> Rig {
    Rig::new(&[("m", kpa(settings))])
}

fn desired(rig: &Rig) -> (u32, String) {
    let status = rig.status("m");
    (status.desired, status.reason)
}

/// Lets replicas get ready as soon as they are started.
fn obey(rig: &mut Rig) {
    for act in rig.acts() {
        let id = act.strip_prefix("start r").and_then(|rest| rest.split(' ').next());
        if let Some(id) = id.and_then(|id| id.parse().ok()) {
            rig.ready(id);
        }
    }
}

#[test]
fn a_new_model_starts_its_initial_scale_and_goes_to_zero_only_after_that_was_ready() {
    let mut rig = rig(Settings { initial_scale: 2, ..ten() });
    assert_eq!(rig.acts(), ["start r0 m#0", "start r1 m#1"]);
    rig.load("m", 0, 0);
    rig.ready(0);
    rig.pass(25_000);
    assert_eq!(desired(&rig), (2, "initial-scale".to_owned()));
    rig.ready(1);
    rig.pass(62_000);
    assert_eq!(rig.status("m").desired, 0, "{:?}", desired(&rig));
}

#[test]
fn an_initial_scale_of_zero_starts_nothing_and_nothing_has_to_be_looked_at() {
    let mut rig = rig(from_zero());
    rig.load("m", 0, 0);
    rig.pass(10_000);
    assert_eq!(rig.acts(), [""; 0]);
    assert_eq!(rig.core.next_deadline(), None);
    assert_eq!(rig.status("m").desired, 0);
}

#[test]
fn the_first_request_is_decided_about_at_once_and_more_of_them_at_the_next_even_second() {
    let mut rig = rig(from_zero());
    rig.load("m", 0, 0);
    rig.pass(60_700);
    rig.load("m", 0, 1);
    assert_eq!(rig.acts(), ["start r0 m#0"]);
    rig.load("m", 0, 25);
    assert_eq!(rig.acts(), [""; 0], "what was reported is one request");
    rig.pass(1_299);
    assert_eq!(rig.status("m").desired, 1);
    rig.pass(1);
    assert_eq!(rig.acts(), ["start r1 m#1"], "the seconds of 1 and of 24 requests");
    assert_eq!(desired(&rig).1, "stable window");
}

#[test]
fn the_last_replica_goes_between_sixty_and_sixty_two_seconds_after_the_last_request() {
    for offset in (0..2_000).step_by(125) {
        let mut rig = rig(from_zero());
        rig.load("m", 0, 0);
        rig.pass(100_000);
        rig.load("m", 0, 1);
        obey(&mut rig);
        rig.pass(70_000 + offset);
        rig.load("m", 0, 0);
        let end = rig.now;
        rig.pass(59_900);
        assert_eq!(rig.status("m").desired, 1, "{offset}");
        while rig.status("m").desired > 0 {
            rig.pass(100);
        }
        let after = rig.now.since(end).as_millis();
        assert!((60_000..=62_100).contains(&after), "{offset}: {after} ms");
    }
}

#[test]
fn a_retention_period_keeps_the_last_replica_for_longer() {
    let mut rig = rig(Settings { retention: Micros::from_secs(120), ..from_zero() });
    rig.pass(3_000);
    rig.load("m", 0, 1);
    obey(&mut rig);
    rig.load("m", 0, 0);
    rig.pass(170_000);
    assert_eq!(desired(&rig), (1, "retention period".to_owned()));
    rig.pass(15_000);
    assert_eq!(rig.status("m").desired, 0);
}

#[test]
fn bounds_apply_and_are_said() {
    let mut rig = rig(Settings { min_scale: 2, max_scale: 4, ..ten() });
    assert_eq!(rig.acts().len(), 2);
    rig.load("m", 0, 500);
    obey(&mut rig);
    rig.pass(4_000);
    assert_eq!(desired(&rig), (4, "max-scale".to_owned()));
    obey(&mut rig);
    rig.load("m", 0, 0);
    rig.pass(200_000);
    assert_eq!(desired(&rig), (2, "min-scale".to_owned()));
}

#[test]
fn a_sleep_order_ends_all_and_the_next_request_wakes_as_from_zero() {
    let mut rig = rig(Settings { min_scale: 1, ..ten() });
    obey(&mut rig);
    rig.load_at("m", &[(0, 5)], 0);
    rig.pass(10_000);
    rig.step(Event::Sleep("m".into()));
    assert_eq!(desired(&rig), (0, "sleep order".to_owned()));
    rig.load("m", 0, 0);
    rig.drained(0);
    rig.gone(0);
    rig.pass(300_000);
    assert_eq!(rig.status("m").desired, 0);
    assert_eq!(rig.core.next_deadline(), None);
    rig.acts();
    rig.load("m", 0, 1);
    assert_eq!(rig.acts(), ["start r1 m#0"]);
}

#[test]
fn a_request_that_waited_before_a_sleep_order_is_served_after_it() {
    let mut rig = rig(from_zero());
    rig.pass(3_000);
    rig.load("m", 0, 3);
    assert_eq!(rig.acts(), ["start r0 m#0"]);
    rig.step(Event::Sleep("m".into()));
    assert_eq!(rig.acts(), ["stop r0"]);
    rig.gone(0);
    rig.pass(4_000);
    assert_eq!(rig.acts(), ["start r1 m#0"]);
}

#[test]
fn a_wake_order_counts_as_a_request() {
    let mut rig = rig(from_zero());
    rig.load("m", 0, 0);
    rig.pass(100_000);
    rig.step(Event::Wake("m".into()));
    assert_eq!(rig.acts(), ["start r0 m#0"]);
    rig.ready(0);
    rig.pass(50_000);
    assert_eq!(rig.status("m").desired, 1);
    rig.pass(30_000);
    assert_eq!(rig.status("m").desired, 0);
}

#[test]
fn a_scale_order_holds_until_it_is_taken_back() {
    let mut rig = rig(from_zero());
    rig.load("m", 0, 1);
    obey(&mut rig);
    rig.step(Event::Scale("m".into(), Some(5)));
    assert_eq!(desired(&rig), (5, "scale order".to_owned()));
    obey(&mut rig);
    rig.pass(60_000);
    assert_eq!(rig.status("m").desired, 5);
    rig.step(Event::Scale("m".into(), None));
    assert_eq!(desired(&rig), (2, "max-scale-down-rate".to_owned()), "half of the five go");
}

#[test]
fn changed_settings_hold_from_the_next_decision_on_and_windows_stay() {
    let mut rig = rig(Settings { target: Some(20.0), ..from_zero() });
    rig.load("m", 0, 1);
    obey(&mut rig);
    rig.load_at("m", &[(0, 20)], 0);
    rig.pass(120_000);
    assert_eq!(desired(&rig), (1, "stable window".to_owned()));
    rig.configure(&[("m", kpa(Settings { target: Some(5.0), ..from_zero() }))], None);
    assert_eq!(rig.status("m").desired, 1);
    rig.pass(2_000);
    assert_eq!(rig.status("m").desired, 4);
}

#[test]
fn a_change_of_profile_begins_with_what_is_there_and_restarts_nothing() {
    let sized = || ModelSpec { scale: ScaleSpec { max_replicas: 100, ..scale() }, ..spec() };
    let mut rig = Rig::new(&[("m", sized())]);
    rig.load("m", 0, 3);
    obey(&mut rig);
    rig.load_at("m", &[(0, 1), (1, 1), (2, 1)], 0);
    rig.configure(&[("m", kpa(ten()))], None);
    rig.load_at("m", &[(0, 1), (1, 1), (2, 1)], 0);
    assert_eq!(rig.status("m").desired, 3);
    rig.pass(50_000);
    assert_eq!(rig.status("m").desired, 3, "as many as were ready are held for a window");
    rig.pass(70_000);
    assert_eq!(rig.status("m").desired, 1);
    rig.configure(&[("m", sized())], None);
    rig.load_at("m", &[(0, 1), (1, 1), (2, 1)], 0);
    assert_eq!(desired(&rig), (3, "demand".to_owned()));
}

#[test]
fn the_records_hold_the_arithmetic() {
    let mut rig = rig(from_zero());
    rig.pass(3_000);
    rig.load("m", 0, 1);
    let decision = rig.core.decisions().first().cloned().unwrap();
    let Reasoning::Kpa { decision: Some(kpa), bounds } = decision.reasoning else { panic!() };
    assert_eq!((kpa.averages.stable, kpa.want_stable, kpa.target, kpa.desired), (1.0, 1.0, 10.0, 1));
    assert_eq!(bounds, (0, 0));
    assert_eq!((decision.before, decision.after), (0, 1));
}

#[test]
fn a_restart_changes_desired_by_nothing_and_windows_go_on() {
    let mut rig = rig(from_zero());
    rig.load("m", 0, 30);
    rig.pass(2_000);
    obey(&mut rig);
    rig.load_at("m", &[(0, 10), (1, 10), (2, 10)], 0);
    rig.pass(120_000);
    assert_eq!(rig.status("m").desired, 3);
    let former: Core = serde_json::from_str(&serde_json::to_string(&rig.core).unwrap()).unwrap();
    let now = rig.now.after(Micros::from_secs(3));
    let mut rig = Rig::new(&[]);
    (rig.core, rig.now) = (Core::restored(former, now), now);
    rig.configure(&[("m", kpa(from_zero()))], None);
    assert_eq!(rig.actions.len(), 3);
    assert_eq!(rig.status("m").desired, 3);
    obey(&mut rig);
    rig.load("m", 30, 0);
    rig.pass(60_000);
    assert_eq!(rig.status("m").desired, 3);
    rig.load("m", 0, 0);
    rig.pass(70_000);
    assert_eq!(rig.status("m").desired, 0);
}
