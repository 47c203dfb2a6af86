// SPDX-License-Identifier: Apache-2.0
//! `sluice replay` on journals that a core wrote here.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;

use clap::Parser;
use serde_json::Value;
use sluice_core::journal::{self, Journal};
use sluice_core::{Address, Core, Demand, Event, Micros, ReplicaEvent, ReplicaId};

use super::super::{Cli, execute};
use super::*;

const YAML: &str = "models:\n- {name: a, command: [x], maxReplicas: 8, scaleTarget: 1, idleAfter: 1m}\n\
    - {name: k, command: [x], compat: kpa, maxReplicas: 8, scaleTarget: 1.7, window: 6s}\n";

fn demand(model: &str, load: u32, area: u64, idle_since: Option<Micros>) -> Event {
    Event::Demand(Demand {
        model: model.into(),
        in_flight: load,
        queued: 0,
        peak: load,
        arrivals: 6,
        completions: u64::from(6 - load),
        abandons: 0,
        in_flight_micros: area,
        queued_micros: 0,
        idle_since,
        by_replica: Default::default(),
    })
}

/// Six requests for ten seconds, then none, as segments of a journal.
fn journal_at(folder: &Path) {
    let fleet = crate::config::parse(YAML, "f", &|_| None).unwrap().settings.plan.fleet;
    let (mut core, mut journal, mut actions) = (Core::new(), Journal::new(1_000), Vec::new());
    let (start, mut text) = (Micros::from_secs(1_900_000_000), Vec::new());
    let mut feed = |second: u64, event: Event| {
        if second.is_multiple_of(20) && matches!(event, Event::Configure(_) | Event::Tick) {
            text.push(Vec::new());
            journal::write_snapshot(text.last_mut().unwrap(), &core, false);
        }
        let now = start.after(Micros::from_secs(second));
        let entry = journal.step(&mut core, now, event, &mut actions);
        journal::write_entry(text.last_mut().unwrap(), &entry);
    };
    feed(0, Event::Configure(fleet));
    for second in 1..50 {
        let (busy, idle) = (second.min(10) - 1, Some(start.after(Micros::from_secs(10))));
        let (load, idle) = if second < 10 { (6, None) } else { (0, idle) };
        for model in ["a", "k"] {
            feed(second, demand(model, load, 6_000_000 * busy, idle));
        }
        feed(second, Event::Tick);
        if second == 3 {
            // Replicas 0 to 6: the first one is the initial one of `k`.
            for id in 0..7 {
                let socket = ([127, 0, 0, 1], 9_000).into();
                let ready = ReplicaEvent::Ready(Address { socket, host: None, tls: false });
                feed(second, Event::Replica(ReplicaId(id), ready));
            }
        }
    }
    for (number, text) in text.iter().enumerate() {
        fs::write(folder.join(format!("{number:020}.jsonl")), text).unwrap();
    }
}

fn sluice(args: &[&str]) -> (Exit, String, String) {
    let cli = Cli::try_parse_from([&["sluice", "replay"], args].concat()).unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let exit = execute(cli, &mut Console { out: &mut out, err: &mut err, colour: false });
    (exit, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

fn journal() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    journal_at(folder.path());
    let name = folder.path().to_str().unwrap().to_owned();
    (folder, name)
}

#[test]
fn decisions_are_reproduced_over_all_segments() {
    let (folder, name) = journal();
    let (exit, out, err) = sluice(&[&name]);
    assert_eq!((exit, err.as_str()), (Exit::Ok, ""), "{out}");
    assert!(out.contains("files: 3\n") && out.contains("entries: 155,"), "{out}");
    assert!(out.contains("2030-03-17T17:46:40Z to 2030-03-17T17:47:29Z"), "{out}");
    let (exit, json, _) = sluice(&[&name, "-o", "json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((exit, &json["equal"], &json["runs"]), (Exit::Ok, &true.into(), &1.into()));
    assert_eq!((&json["recorded"], json["recorded"].as_str().unwrap().len()), (&json["replayed"], 64));
    let one = folder.path().join("00000000000000000001.jsonl");
    assert_eq!(sluice(&[one.to_str().unwrap()]).0, Exit::Ok, "each is whole in itself");
}

#[test]
fn another_outcome_is_found_and_fails() {
    let (folder, name) = journal();
    let file = folder.path().join("00000000000000000000.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replacen("\"after\":6", "\"after\":5", 1)).unwrap();
    let (exit, out, err) = sluice(&[&name]);
    assert_eq!(exit, Exit::Failed);
    assert!(out.contains("differs    at 2030-03-17T17:46:41Z, line 3 of "), "{out}");
    assert!(err.contains("not reproduced"), "{err}");
}

#[test]
fn what_cannot_be_read_is_left_out_and_fails_unless_a_crash_did_it() {
    let (folder, name) = journal();
    let file = |number: usize| folder.path().join(format!("{number:020}.jsonl"));
    let last = fs::read(file(2)).unwrap();
    fs::write(file(2), &last[..last.len() - 3]).unwrap();
    let (exit, _, err) = sluice(&[&name]);
    assert_eq!(exit, Exit::Ok);
    assert!(err.contains("was cut off"), "{err}");
    fs::write(file(1), "{}\n").unwrap();
    let (exit, out, err) = sluice(&[&name]);
    assert_eq!(exit, Exit::Failed);
    assert!(err.contains("left out") && err.contains("entries are missing before"), "{err}");
    assert!(out.contains("as recorded"), "{out}");
}

#[test]
fn other_settings_are_compared_in_words_and_numbers() {
    let (_folder, name) = journal();
    let (exit, out, err) = sluice(&[&name, "--set", "models.a.scaleTarget=3"]);
    assert_eq!(exit, Exit::Ok, "{err}");
    assert!(err.contains("made up"), "`k` was not ready after a second: {err}");
    let first =
        "first difference at 2030-03-17T17:46:41Z: for 48s, 2 of a would have been desired in place of 6";
    assert!(out.contains(first), "{out}");
    assert!(out.contains("wants     6 at 1 each") && out.contains("wants     2 at 3 each"), "{out}");
    let (_, json, _) = sluice(&[&name, "--set", "models.a.scaleTarget=3", "-o", "json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let a = &json["whatIf"]["models"][0];
    assert_eq!((&a["model"], &a["unchanged"]["replicaSeconds"]), (&"a".into(), &288.0.into()), "{json}");
    assert_eq!((&a["supposed"]["replicaSeconds"], &a["differences"]), (&96.0.into(), &1.into()));
    assert_eq!((&a["supposed"]["peak"], &a["differingReplicaSeconds"]), (&2.into(), &192.0.into()));
    let k = &json["whatIf"]["models"][1];
    assert_eq!((&k["model"], &k["differences"]), (&"k".into(), &0.into()));
    assert!(k["offRecordReplicaSeconds"].as_f64().unwrap() > 1.0 && a["offRecordReplicaSeconds"] == 0.0);
    let same = sluice(&[&name, "--set", "models.a.scaleTarget=1"]).1;
    assert!(same.contains("no difference"), "{same}");
}

#[test]
fn what_is_no_setting_and_no_journal_is_told() {
    let (folder, name) = journal();
    let (exit, _, err) = sluice(&[&name, "--set", "models.b.scaleTarget=3"]);
    assert_eq!(exit, Exit::Usage);
    assert!(err.contains("knows `a`, `k`"), "{err}");
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let (exit, _, err) = sluice(&[empty.to_str().unwrap()]);
    assert_eq!(exit, Exit::NotFound);
    assert!(err.contains("no journal"), "{err}");
    let (exit, _, err) = sluice(&[folder.path().join("none").to_str().unwrap()]);
    assert_eq!(exit, Exit::Failed);
    assert!(err.contains("none"), "{err}");
    let config = folder.path().join("sluice.yaml");
    fs::write(&config, format!("stateDirectory: s\n{YAML}")).unwrap();
    fs::create_dir_all(folder.path().join("s/journal")).unwrap();
    journal_at(&folder.path().join("s/journal"));
    assert_eq!(sluice(&["-c", config.to_str().unwrap()]).0, Exit::Ok);
    assert_eq!(sluice(&[folder.path().join("s").to_str().unwrap()]).0, Exit::Ok);
}
