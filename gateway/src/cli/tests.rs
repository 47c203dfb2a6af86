// SPDX-License-Identifier: Apache-2.0
//! The command line against a Sluice whose scaler and data plane are stand-ins: output, messages and exit codes.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

use clap::{CommandFactory, Parser};
use sluice_core::{ModelName, ModelState, ModelStatus, ReplicaId};
use sluice_scaler::{Command, CommandError, Handle};
use socket2::{Domain, Socket, Type};

use super::console::Console;
use super::{Cli, Exit, execute};
use crate::admin::fakes::{Fake, broken, cold, line, replica, warm};
use crate::admin::{Admin, ModelLoad};

const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

pub(super) fn serve(fake: &Fake) -> Admin {
    Admin::start(LOOPBACK, fake.state()).unwrap()
}

/// Exit, stdout, stderr.
fn sluice(args: &[&str]) -> (Exit, String, String) {
    let cli = Cli::try_parse_from(std::iter::once(&"sluice").chain(args)).unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let exit = execute(cli, &mut Console { out: &mut out, err: &mut err, colour: false });
    (exit, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

/// As `sluice`, towards this listener.
pub(super) fn ask(admin: &Admin, args: &[&str]) -> (Exit, String, String) {
    let address = admin.address().to_string();
    sluice(&[args, &["--admin", &address]].concat())
}

fn fleet() -> Fake {
    let fake = Fake::new(vec![cold("org/gemma:2b"), warm("tiny")], vec![replica("tiny")]);
    let load = ModelLoad {
        in_flight: 3,
        queued: 2,
        idle_since: None,
        by_replica: BTreeMap::from([(ReplicaId(7), 3)]),
    };
    fake.loads.0.lock().unwrap().insert(ModelName::from("tiny"), load);
    fake
}

#[test]
fn models_are_a_table_with_stable_columns() {
    let fake = fleet();
    let (exit, out, err) = ask(&serve(&fake), &["get", "models"]);
    let expected = "\
MODEL         STATE  READY  DESIRED  INFLIGHT  QUEUE  WAKES-IN  IDLE  REASON
org/gemma:2b  cold   0      0        ?         ?      1.1s p90  -     idle for 5m
tiny          ready  1      1        3         2      -         -     steady
";
    assert_eq!((exit, out.as_str(), err.as_str()), (Exit::Ok, expected, ""));
}

#[test]
fn the_wide_table_has_every_number() {
    let fake = Fake::new(vec![broken("m", 2)], vec![]);
    let (exit, out, _) = ask(&serve(&fake), &["get", "models", "-o", "wide"]);
    let expected = "\
MODEL  STATE  READY  STARTING  LEAVING  WANTED  DESIRED  INFLIGHT  QUEUE  WAKE-P50  WAKE-P90  SAMPLES  \
IDLE  REASON                        FAULT
m      cold   0      0         0        0       0        ?         ?      800ms     1.1s      4        \
-     waiting after a failed start  failed 2 times, next try in 0ms: exit status 1: no such file: weights.gguf
";
    assert_eq!((exit, out.as_str()), (Exit::Ok, expected));
}

#[test]
fn a_fault_takes_the_place_of_the_reason() {
    let fake = Fake::new(vec![broken("m", 1)], vec![]);
    let (_, out, _) = ask(&serve(&fake), &["get", "models", "m"]);
    assert!(
        out.ends_with("failed once, next try in 0ms: exit status 1: no such file: weights.gguf\n"),
        "{out}"
    );
}

#[test]
fn one_model_is_json_without_a_list_around_it() {
    let admin = serve(&fleet());
    let (exit, out, err) = ask(&admin, &["get", "models", "org/gemma:2b", "-o", "json"]);
    assert_eq!((exit, err.as_str()), (Exit::Ok, ""));
    let item: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(item["name"], "org/gemma:2b");
    assert_eq!(item["wake"]["p90Ms"], 1100);
    let (_, out, _) = ask(&admin, &["get", "model", "-o", "json"]);
    let list: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(list["items"][1]["inFlight"], 3);
}

#[test]
fn yaml_has_the_fields_of_json() {
    let fake = Fake::new(vec![broken("org/gemma:2b", 2)], vec![]);
    let (exit, out, _) = ask(&serve(&fake), &["get", "models", "-o", "yaml"]);
    let expected = "\
items:
- name: org/gemma:2b
  state: cold
  ready: 0
  starting: 0
  leaving: 0
  wanted: 0
  desired: 0
  pinned: null
  reason: waiting after a failed start
  inFlight: null
  queued: null
  idleMs: null
  wake:
    p50Ms: 800
    p90Ms: 1100
    samples: 4
  fault:
    cause: \"exit status 1: no such file: weights.gguf\"
    failures: 2
    answersWaiters: true
    retryInMs: 0
  next: null
";
    assert_eq!((exit, out.as_str()), (Exit::Ok, expected));
}

#[test]
fn names_come_one_a_line() {
    let admin = serve(&fleet());
    assert_eq!(ask(&admin, &["get", "models", "-o", "name"]).1, "org/gemma:2b\ntiny\n");
    assert_eq!(ask(&admin, &["get", "replicas", "-o", "name"]).1, "r7\n");
}

#[test]
fn replicas_are_a_table_too() {
    let admin = serve(&fleet());
    let (exit, out, _) = ask(&admin, &["get", "replicas", "--model", "tiny"]);
    let lines: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(exit, Exit::Ok);
    assert_eq!(lines[0], ["REPLICA", "MODEL", "PHASE", "AGE", "INFLIGHT", "ADDRESS", "NOTE"]);
    assert_eq!(
        (&lines[1][..3], &lines[1][4..]),
        (&["r7", "tiny", "ready"][..], &["3", "127.0.0.1:41000", "-"][..])
    );
}

#[test]
fn an_empty_list_is_a_message_not_data() {
    let admin = serve(&Fake::new(vec![warm("m")], vec![]));
    assert_eq!(ask(&admin, &["get", "replicas"]), (Exit::Ok, String::new(), "none\n".to_owned()));
    assert_eq!(ask(&admin, &["get", "replicas", "-o", "json"]).1, "{\n  \"items\": []\n}\n");
}

#[test]
fn what_does_not_exist_is_exit_4() {
    let admin = serve(&fleet());
    let orders: [&[&str]; 6] = [
        &["get", "models", "nobody"],
        &["get", "replicas", "r99"],
        &["get", "replicas", "--model", "nobody"],
        &["wake", "nobody"],
        &["sleep", "nobody", "--wait"],
        &["logs", "nobody"],
    ];
    for args in orders {
        let (exit, out, err) = ask(&admin, args);
        assert_eq!((exit, out.as_str()), (Exit::NotFound, ""), "{args:?}");
        assert!(err.starts_with("error: ") && (err.contains("nobody") || err.contains("r99")), "{err}");
    }
}

#[test]
fn a_fixed_model_is_a_conflict() {
    let on = |command: &Command, _: &Handle| match command {
        Command::Wake(model) | Command::Sleep(model) => Err(CommandError::FixedModel(model.clone())),
        _ => Err(CommandError::Stopped),
    };
    let admin = serve(&Fake::with(vec![warm("m")], vec![], Box::new(on)));
    let (exit, _, err) = ask(&admin, &["sleep", "m"]);
    assert_eq!(exit, Exit::Conflict);
    assert!(err.contains("fixed addresses"), "{err}");
}

#[test]
fn nobody_listening_is_exit_7_with_advice() {
    let silent = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    silent.bind(&LOOPBACK.into()).unwrap();
    let address = silent.local_addr().unwrap().as_socket().unwrap().to_string();
    let (exit, out, err) = sluice(&["get", "models", "--admin", &address]);
    assert_eq!((exit, out.as_str()), (Exit::Unreachable, ""));
    assert!(err.starts_with(&format!("error: cannot connect to sluice at {address}: ")), "{err}");
    assert!(err.contains("is sluice running? start it with `sluice run`"), "{err}");
}

#[test]
fn an_answer_of_another_server_is_not_an_unknown_model() {
    let listener = TcpListener::bind(LOOPBACK).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let stranger = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = io::Read::read(&mut stream, &mut [0; 1024]);
        stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").unwrap();
    });
    let (exit, _, err) = sluice(&["get", "models", "m", "--admin", &address]);
    stranger.join().unwrap();
    assert_eq!(exit, Exit::Failed);
    assert!(err.contains("does not look like sluice's admin listener"), "{err}");
}

#[test]
fn a_wrong_address_is_a_usage_error() {
    let (exit, _, err) = sluice(&["get", "models", "--admin", "https://x"]);
    assert_eq!(exit, Exit::Usage);
    assert!(err.contains("\"https://x\" is not an admin address"), "{err}");
}

#[test]
fn an_order_returns_at_once_without_wait() {
    let admin = serve(&fleet());
    let expected = (Exit::Ok, "org/gemma:2b: wake ordered\n".to_owned(), String::new());
    assert_eq!(ask(&admin, &["wake", "org/gemma:2b"]), expected);
}

#[test]
fn wake_waits_until_a_replica_is_ready() {
    let on = |_: &Command, handle: &Handle| {
        let starting = ModelStatus { state: ModelState::Starting, starting: 1, desired: 1, ..cold("m") };
        Fake::set(handle, starting);
        let handle = handle.clone();
        std::thread::spawn(move || Fake::set(&handle, warm("m")));
        Ok(())
    };
    let admin = serve(&Fake::with(vec![cold("m")], vec![], Box::new(on)));
    let (exit, out, _) = ask(&admin, &["wake", "m", "--wait", "--timeout", "30s"]);
    assert_eq!((exit, out.as_str()), (Exit::Ok, "m: ready\n"));
}

#[test]
fn sleep_waits_until_the_last_replica_is_gone() {
    let on = |_: &Command, handle: &Handle| {
        let leaving = ModelStatus { state: ModelState::Draining, ready: 0, leaving: 1, ..warm("m") };
        Fake::set(handle, leaving);
        let handle = handle.clone();
        std::thread::spawn(move || Fake::set(&handle, cold("m")));
        Ok(())
    };
    let admin = serve(&Fake::with(vec![warm("m")], vec![], Box::new(on)));
    let (exit, out, _) = ask(&admin, &["sleep", "m", "--wait", "--timeout", "30s"]);
    assert_eq!((exit, out.as_str()), (Exit::Ok, "m: cold\n"));
}

#[test]
fn a_wait_that_is_too_long_is_exit_6_and_tells_the_progress() {
    let on = |_: &Command, handle: &Handle| {
        Fake::set(handle, ModelStatus { state: ModelState::Starting, starting: 1, ..cold("m") });
        Ok(())
    };
    let admin = serve(&Fake::with(vec![cold("m")], vec![], Box::new(on)));
    let (exit, out, err) = ask(&admin, &["wake", "m", "--wait", "--timeout", "250ms"]);
    let progress = "starting, 1 starting; nine of ten starts take up to 1.1s";
    let expected = format!("m: {progress}\nerror: m is not ready after 250ms: {progress}\n");
    assert_eq!((exit, out.as_str(), err), (Exit::TimedOut, "", expected));
}

#[test]
fn wake_gives_up_when_starts_fail_anew_but_not_for_an_old_failure() {
    let fail = |_: &Command, handle: &Handle| {
        Fake::set(handle, broken("m", 3));
        Ok(())
    };
    let admin = serve(&Fake::with(vec![broken("m", 2)], vec![], Box::new(fail)));
    let (exit, _, err) = ask(&admin, &["wake", "m", "--wait", "--timeout", "30s"]);
    assert_eq!(exit, Exit::Failed);
    assert_eq!(err, "error: m does not start: exit status 1: no such file: weights.gguf\n");

    let recover = |_: &Command, handle: &Handle| {
        let handle = handle.clone();
        std::thread::spawn(move || Fake::set(&handle, warm("m")));
        Ok(())
    };
    let admin = serve(&Fake::with(vec![broken("m", 2)], vec![], Box::new(recover)));
    assert_eq!(ask(&admin, &["wake", "m", "--wait", "--timeout", "30s"]).0, Exit::Ok);
}

#[test]
fn logs_print_the_tail_with_or_without_times() {
    let fake = fleet();
    *fake.logs.lines.lock().unwrap() = vec![line("one"), line("two"), line("three")];
    let admin = serve(&fake);
    assert_eq!(ask(&admin, &["logs", "tiny", "--tail", "2"]).1, "r7 two\nr7 three\n");
    let (_, out, _) = ask(&admin, &["logs", "tiny", "--tail", "1", "--timestamps"]);
    assert_eq!(out, "1970-01-01T00:00:01Z r7 three\n");
}

/// Passes each line on to the fake as soon as the one before was printed, then stops reading.
struct Reader<'a> {
    fake: &'a Fake,
    seen: String,
}

impl Write for Reader<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.seen.push_str(&String::from_utf8_lossy(bytes));
        match self.seen.as_str() {
            "r7 one\n" => {
                self.fake.logs.live.send(line("two")).unwrap();
                Ok(bytes.len())
            }
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn following_ends_without_an_error_when_the_reader_leaves() {
    let fake = fleet();
    *fake.logs.lines.lock().unwrap() = vec![line("one")];
    let admin = serve(&fake);
    let address = admin.address().to_string();
    let cli = Cli::try_parse_from(["sluice", "logs", "tiny", "-f", "--admin", &address]).unwrap();
    let mut reader = Reader { fake: &fake, seen: String::new() };
    let mut err = Vec::new();
    let exit = execute(cli, &mut Console { out: &mut reader, err: &mut err, colour: false });
    assert_eq!((exit, reader.seen.as_str(), err.as_slice()), (Exit::Ok, "r7 one\nr7 two\n", &b""[..]));
}

#[test]
fn without_a_command_the_help_is_printed() {
    let (exit, out, err) = sluice(&[]);
    assert_eq!((exit, err.as_str()), (Exit::Ok, ""));
    assert!(out.starts_with("Examples:\n") && out.contains("\n  get "), "{out}");
}

#[test]
fn every_help_begins_with_examples() {
    fn walk(command: &mut clap::Command, path: &str) {
        for help in [command.render_help(), command.render_long_help()] {
            let help = help.to_string();
            assert!(help.starts_with("Examples:\n  "), "{path}: {help}");
        }
        for inner in command.get_subcommands_mut().filter(|inner| inner.get_name() != "help") {
            let path = format!("{path} {}", inner.get_name());
            walk(inner, &path);
        }
    }
    let mut command = Cli::command();
    command.build();
    command.clone().debug_assert();
    walk(&mut command, "sluice");
}

#[test]
fn examples_can_be_parsed() {
    fn walk(command: &clap::Command, count: &mut u32) {
        let examples = command.get_before_help().map(ToString::to_string).unwrap_or_default();
        for example in examples.lines().filter_map(|line| line.trim().strip_prefix("sluice ")) {
            let words = example.split("   ").next().unwrap_or_default().split_whitespace();
            let words = words.take_while(|word| *word != ">");
            let parsed = Cli::try_parse_from(std::iter::once("sluice").chain(words));
            assert!(parsed.is_ok(), "{example}: {:?}", parsed.err());
            *count += 1;
        }
        command.get_subcommands().for_each(|inner| walk(inner, count));
    }
    let mut count = 0;
    walk(&Cli::command(), &mut count);
    assert!(count > 20, "{count}");
}

#[test]
fn the_version_is_the_packages() {
    assert!(sluice(&["version"]).1.starts_with(concat!("sluice ", env!("CARGO_PKG_VERSION"), " (")));
    let json: serde_json::Value = serde_json::from_str(&sluice(&["version", "--json"]).1).unwrap();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn wrong_usage_is_exit_2() {
    for args in [
        &["eat"][..],
        &["get"],
        &["get", "models", "-o", "xml"],
        &["wake"],
        &["wake", "m", "--timeout", "5s"],
    ] {
        let error = Cli::try_parse_from(std::iter::once(&"sluice").chain(args)).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{args:?}");
    }
}
