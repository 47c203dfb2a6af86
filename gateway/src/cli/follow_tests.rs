// SPDX-License-Identifier: Apache-2.0
//! Lists of many pages and commands that stay, against a Sluice whose scaler is a stand-in.

#![allow(clippy::unwrap_used)]

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::Parser;
use sluice_core::{FleetStatus, Micros, ModelName, ModelState, ModelStatus, Phase, ReplicaStatus};

use super::console::Console;
use super::tests::{ask, serve};
use super::{Cli, Exit, execute};
use crate::admin::fakes::{Fake, cold, replica, warm};
use crate::admin::{Admin, ModelLoad};

/// Somebody who reads until they have had enough.
#[derive(Clone, Default)]
struct Reader(Arc<Mutex<(String, bool)>>);

impl Reader {
    fn seen(&self) -> String {
        self.0.lock().unwrap().0.clone()
    }

    #[track_caller]
    fn sees(&self, text: &str) {
        let end = Instant::now() + Duration::from_secs(20);
        while !self.seen().contains(text) {
            assert!(Instant::now() < end, "{text:?} is not in\n{}", self.seen());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn leave(&self) {
        self.0.lock().unwrap().1 = true;
    }
}

impl Write for Reader {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut read = self.0.lock().unwrap();
        if read.1 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        read.0.push_str(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A command at work, and its two streams.
fn start(admin: &Admin, args: &[&str]) -> (JoinHandle<Exit>, Reader, Reader) {
    let address = admin.address().to_string();
    let cli = Cli::try_parse_from([&["sluice"], args, &["--admin", &address]].concat()).unwrap();
    let (out, err) = (Reader::default(), Reader::default());
    let (mut to_out, mut to_err) = (out.clone(), err.clone());
    let work = move || execute(cli, &mut Console { out: &mut to_out, err: &mut to_err, colour: false });
    (std::thread::spawn(work), out, err)
}

fn change(fake: &Fake, change: impl FnOnce(&mut FleetStatus)) {
    let mut status = FleetStatus::clone(&fake.handle.status());
    change(&mut status);
    fake.handle.set_status(status);
}

#[test]
fn lists_do_not_end_with_their_first_page() {
    let names: Vec<String> = (0..2_500).map(|number| format!("m{number:04}")).collect();
    let admin = serve(&Fake::new(names.iter().map(|name| cold(name)).collect(), vec![]));
    let (exit, out, err) = ask(&admin, &["get", "models", "-o", "name"]);
    assert_eq!((exit, err.as_str()), (Exit::Ok, ""));
    assert!(out.lines().eq(names.iter()), "{} names", out.lines().count());
}

#[test]
fn watching_prints_each_change_with_the_load_of_that_moment() {
    let fake = Fake::new(vec![cold("a"), cold("b")], vec![]);
    let admin = serve(&fake);
    let (command, out, _) = start(&admin, &["get", "models", "-w"]);
    out.sees("\nb ");
    // What only passes time or changes the load is no change.
    let load = ModelLoad { in_flight: 3, idle_since: Some(Micros::ZERO), ..ModelLoad::default() };
    fake.loads.0.lock().unwrap().insert(ModelName::from("b"), load);
    change(&fake, |status| status.models[0].reason = "other".into());
    Fake::set(&fake.handle, ModelStatus { state: ModelState::Starting, starting: 1, ..warm("b") });
    Fake::set(&fake.handle, warm("b"));
    out.sees("\nb      ready ");
    out.leave();
    Fake::set(&fake.handle, cold("b"));
    assert_eq!(command.join().unwrap(), Exit::Ok);
    let rows: Vec<Vec<String>> =
        out.seen().lines().map(|line| line.split_whitespace().take(5).map(str::to_owned).collect()).collect();
    let expected = [
        "MODEL STATE READY DESIRED INFLIGHT",
        "a cold 0 0 ?",
        "b cold 0 0 ?",
        "b starting 1 1 3",
        "b ready 1 1 3",
    ];
    assert!(rows.iter().map(|row| row.join(" ")).eq(expected), "{}", out.seen());
}

#[test]
fn watching_replicas_of_a_model_tells_of_those_that_go() {
    let fake = Fake::new(vec![warm("a"), warm("b")], vec![replica("a")]);
    let admin = serve(&fake);
    let (command, out, err) = start(&admin, &["get", "replicas", "--model", "a", "-o", "name", "-w"]);
    out.sees("r7\n");
    let other = |phase| ReplicaStatus { id: sluice_core::ReplicaId(8), phase, ..replica("b") };
    change(&fake, |status| status.replicas.push(other(Phase::Starting)));
    change(&fake, |status| status.replicas[0].phase = Phase::Draining);
    change(&fake, |status| drop(status.replicas.remove(0)));
    err.sees("r7 is gone\n");
    out.leave();
    change(&fake, |status| status.replicas.insert(0, replica("a")));
    assert_eq!((command.join().unwrap(), out.seen().as_str()), (Exit::Ok, "r7\nr7\n"));
}

#[test]
fn a_lost_connection_is_told_and_what_changed_meanwhile_is_seen() {
    let fake = Fake::new(vec![cold("m")], vec![]);
    let admin = serve(&fake);
    let address = admin.address();
    let (watch, out, err) = start(&admin, &["get", "models", "-o", "name", "-w"]);
    let (order, told, progress) = start(&admin, &["wake", "m", "--wait", "--timeout", "60s"]);
    out.sees("m\n");
    progress.sees("m: cold");
    drop(admin);
    err.sees("; trying again\n");
    Fake::set(&fake.handle, warm("m"));
    let _admin = Admin::start(address, fake.state()).unwrap();
    out.sees("m\nm\n");
    assert_eq!((order.join().unwrap(), told.seen().as_str()), (Exit::Ok, "m: ready\n"));
    out.leave();
    Fake::set(&fake.handle, cold("m"));
    assert_eq!(watch.join().unwrap(), Exit::Ok);
}
