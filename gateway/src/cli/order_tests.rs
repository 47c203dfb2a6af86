// SPDX-License-Identifier: Apache-2.0
//! `scale`, `drain`, `describe` and `events` against a Sluice whose scaler is a stand-in.

#![allow(clippy::unwrap_used)]

use sluice_core::ModelStatus;
use sluice_scaler::{Command, Handle};

use super::Exit;
use super::tests::{ask, serve};
use crate::admin::fakes::{Fake, cold, replica, warm};

#[test]
fn scale_waits_until_so_many_are_ready() {
    let on = |command: &Command, handle: &Handle| {
        assert!(matches!(command, Command::Scale(_, Some(2))));
        let (handle, two) = (handle.clone(), ModelStatus { ready: 2, desired: 2, ..warm("m") });
        Fake::set(&handle, ModelStatus { starting: 1, ..warm("m") });
        std::thread::spawn(move || Fake::set(&handle, two));
        Ok(())
    };
    let admin = serve(&Fake::with(vec![warm("m")], vec![], Box::new(on)));
    let (exit, out, _) = ask(&admin, &["scale", "m", "2", "--wait", "--timeout", "30s"]);
    assert_eq!((exit, out.as_str()), (Exit::Ok, "m: ready\n"));
}

#[test]
fn scale_auto_gives_the_say_back() {
    let on = |command: &Command, _: &Handle| {
        assert!(matches!(command, Command::Scale(_, None)));
        Ok(())
    };
    let admin = serve(&Fake::with(vec![warm("m")], vec![], Box::new(on)));
    let expected = (Exit::Ok, "m: scale ordered\n".to_owned(), String::new());
    assert_eq!(ask(&admin, &["scale", "m", "auto"]), expected);
}

#[test]
fn drain_waits_for_the_replicas_of_that_moment() {
    let on = |_: &Command, handle: &Handle| {
        let mut status = sluice_core::FleetStatus::clone(&handle.status());
        status.replicas[0].id = sluice_core::ReplicaId(8);
        handle.set_status(status);
        Ok(())
    };
    let admin = serve(&Fake::with(vec![warm("m")], vec![replica("m")], Box::new(on)));
    let (exit, out, _) = ask(&admin, &["drain", "m", "--wait", "--timeout", "30s"]);
    assert_eq!((exit, out.as_str()), (Exit::Ok, "m: gone\n"));
    let (exit, out, _) = ask(&admin, &["drain", "--replica", "r8"]);
    assert_eq!((exit, out.as_str()), (Exit::Ok, "r8: drain ordered\n"));
    assert_eq!(ask(&admin, &["drain", "--replica", "r7"]).0, Exit::NotFound);
}

#[test]
fn a_dry_run_gives_no_order() {
    let on = |_: &Command, _: &Handle| panic!("ordered");
    let admin = serve(&Fake::with(vec![cold("m")], vec![], Box::new(on)));
    let (exit, out, _) = ask(&admin, &["wake", "m", "--dry-run"]);
    assert_eq!((exit, out.as_str()), (Exit::Ok, "m: would be cold, desired 0\n"));
}

#[test]
fn events_are_the_past_with_a_tail_and_a_filter() {
    let fake = Fake::new(vec![cold("a"), cold("b")], vec![]);
    let admin = serve(&fake);
    Fake::set(&fake.handle, ModelStatus { desired: 1, ..warm("a") });
    Fake::set(&fake.handle, ModelStatus { desired: 1, ..warm("b") });
    let (exit, out, err) = ask(&admin, &["events", "--model", "a"]);
    let texts: Vec<&str> =
        out.lines().filter_map(|line| line.split_once("  ")).map(|(_, text)| text).collect();
    assert_eq!((exit, err.as_str()), (Exit::Ok, ""));
    assert_eq!(texts.last(), Some(&"a: cold -> ready, desired 0 -> 1 (steady), ready 0 -> 1"));
    assert!(!out.contains("  b:"), "{out}");
    let (_, out, _) = ask(&admin, &["events", "--tail", "1", "-o", "json"]);
    let event: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(event["model"], "b");
    assert_eq!(ask(&admin, &["events", "--tail", "0"]).1, "");
}

#[test]
fn describe_shows_all_about_one() {
    let fake = Fake::new(vec![cold("a"), warm("b")], vec![replica("b")]);
    fake.settings.origins.lock().unwrap().insert("window".to_owned(), "api".to_owned());
    let admin = serve(&fake);
    let (exit, out, _) = ask(&admin, &["describe", "model", "a"]);
    assert_eq!(exit, Exit::Ok);
    for line in [
        "Model      a\n",
        "Next       starts on the next request, nine of ten starts take up to 1.1s\n",
        "Starts     half take up to 800ms, nine of ten up to 1.1s (4 measured)\n",
        "Replicas now:\n  none\n",
        "Last decision:\n  none\n",
        "Settings:\n  window  60s  (api)\n",
    ] {
        assert!(out.contains(line), "{line:?} is not in\n{out}");
    }
    let (_, out, _) = ask(&admin, &["describe", "replica", "r7"]);
    assert!(out.starts_with("Replica    r7\nModel      b\nPhase      ready for "), "{out}");
    let (_, out, _) = ask(&admin, &["describe", "model", "b", "-o", "json"]);
    let whole: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&whole["model"]["name"], &whole["replicas"][0]["id"]), (&"b".into(), &"r7".into()));
    assert!(ask(&admin, &["describe", "replica", "r7", "-o", "yaml"]).1.contains("replica:\n"));
    assert_eq!(ask(&admin, &["describe", "model", "nobody"]).0, Exit::NotFound);
    assert_eq!(ask(&admin, &["describe", "replica", "r99"]).0, Exit::NotFound);
}
