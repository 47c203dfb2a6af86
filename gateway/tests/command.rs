// SPDX-License-Identifier: Apache-2.0
//! The real binary's exit codes and streams, where only a process can show them.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn sluice(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.args(args).env_remove("SLUICE_ADMIN").env_remove("CLICOLOR_FORCE");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Reads a request's head.
fn head(stream: &TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let mut text = String::new();
    while !text.ends_with("\r\n\r\n") && reader.read_line(&mut text).unwrap() > 0 {}
    text
}

/// `sluice logs -f` towards a listener that has answered one line and keeps silent; its stdout after that line.
fn follower() -> (Child, BufReader<std::process::ChildStdout>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut child = sluice(&["logs", "m", "-f", "--admin", &address]).spawn().unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    assert!(head(&stream).starts_with("GET /api/v1/models/m/logs?tail=100&follow=true HTTP/1.1\r\n"));
    let line =
        "{\"at\":\"1970-01-01T00:00:01Z\",\"replica\":\"r1\",\"stream\":\"stdout\",\"text\":\"hello\"}\n";
    write!(stream, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{line}\r\n", line.len())
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut printed = String::new();
    out.read_line(&mut printed).unwrap();
    assert_eq!(printed, "r1 hello\n");
    (child, out, stream)
}

#[test]
fn without_arguments_it_prints_help_on_stdout() {
    let output = sluice(&[]).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    assert!(output.stdout.starts_with(b"Examples:\n"));
}

#[test]
fn wrong_usage_is_2_and_says_so_on_stderr() {
    let output = sluice(&["get", "modles"]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]));
    assert!(String::from_utf8_lossy(&output.stderr).contains("'models'"), "{output:?}");
}

#[test]
fn signals_end_a_follower_with_their_code_and_without_a_message() {
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let (mut child, _out, _stream) = follower();
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(code), ""));
    }
}

#[test]
fn a_follower_whose_sluice_stops_is_done_and_one_that_is_cut_off_is_not() {
    let (mut child, _out, mut stream) = follower();
    stream.write_all(b"0\r\n\r\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));

    let (mut child, _out, stream) = follower();
    drop(stream);
    assert_eq!(child.wait().unwrap().code(), Some(7));
}

#[test]
fn a_reader_that_leaves_ends_it_without_an_error() {
    let (mut child, out, mut stream) = follower();
    drop(out);
    let line =
        "{\"at\":\"1970-01-01T00:00:01Z\",\"replica\":\"r1\",\"stream\":\"stdout\",\"text\":\"more\"}\n";
    // A process that another test is just starting may hold the pipe open for a moment: only a later line finds it closed.
    while child.try_wait().unwrap().is_none() {
        let _ = write!(stream, "{:x}\r\n{line}\r\n", line.len());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(0), ""));
}

#[test]
fn tables_have_no_colour_in_a_pipe_unless_asked() {
    let coloured = |args: &[&str]| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            head(&stream);
            let wake = r#""wake":{"p50Ms":null,"p90Ms":null,"samples":0},"fault":null"#;
            let counts = r#""ready":1,"starting":0,"leaving":0,"wanted":1,"desired":1"#;
            let load = r#""inFlight":0,"queued":0,"idleMs":null"#;
            let model = format!(r#"{{"name":"m","state":"ready",{counts},"reason":"steady",{load},{wake}}}"#);
            let body = format!(r#"{{"items":[{model}]}}"#);
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
        });
        let output = sluice(&[args, &["get", "models", "--admin", &address]].concat()).output().unwrap();
        answering.join().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        output.stdout.contains(&0x1b)
    };
    assert!(!coloured(&[]));
    assert!(coloured(&["--color", "always"]));
}
