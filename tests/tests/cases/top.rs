// SPDX-License-Identifier: Apache-2.0
//! `sluice top` in a pseudo-terminal: what it shows, and that it never outlives its terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::Command;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::Signal;
use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};
use sluice_tests::harness::{Gateway, sluice_binary};

use super::support::{fleet, model};
use super::terminal::{Program, Pty, Screen, cells, is_raw, pseudo_terminal, until};

fn open_top(gw: &Gateway) -> Screen {
    let arguments = ["top", "--admin", &gw.admin.to_string()];
    Screen::open(sluice_binary(), |command| {
        command.args(arguments);
    })
}

fn top_on(terminal: &OwnedFd, gw: &Gateway, controlled: bool) -> Program {
    let arguments = ["top", "--admin", &gw.admin.to_string()];
    let change = |command: &mut Command| {
        command.args(arguments);
    };
    Program::on(terminal, sluice_binary(), change, controlled)
}

#[tokio::test(flavor = "multi_thread")]
async fn top_shows_orders_and_gives_the_terminal_back() {
    let gw = Gateway::start(&fleet(&[model("gemma", "{}", &[])])).await;
    tokio::task::block_in_place(|| {
        let mut screen = open_top(&gw);
        screen.shows("gemma");
        assert!(is_raw(&screen.slave));
        screen.press("w");
        screen.shows("y orders it");
        screen.press("y");
        screen.shows("wake ordered");
        screen.shows("desired 0 -> 1: wake order");
        screen.shows("sleeps in");
        screen.press("q");
        assert_eq!(screen.ended(), Some(0));
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn top_gives_the_terminal_back_on_signals() {
    let gw = Gateway::start(&fleet(&[model("gemma", "{}", &[])])).await;
    tokio::task::block_in_place(|| {
        for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGHUP, 129), (Signal::SIGINT, 130)] {
            let screen = open_top(&gw);
            screen.shows("gemma");
            screen.program.signal(signal);
            assert_eq!(screen.ended(), Some(code));
        }
    });
}

/// With and without the signal that a session's leader gets.
#[tokio::test(flavor = "multi_thread")]
async fn top_ends_with_its_terminal() {
    let gw = Gateway::start(&fleet(&[model("gemma", "{}", &[])])).await;
    tokio::task::block_in_place(|| {
        for controlled in [true, false] {
            let pty = pseudo_terminal();
            let mut top = top_on(&pty.slave, &gw, controlled);
            drop(pty.slave);
            let (mut master, mut seen) =
                (File::from(pty.master), vt100::Parser::new(cells(24), cells(80), 0));
            let mut buffer = [0; 4096];
            while !seen.screen().contents().contains("gemma") {
                let count = master.read(&mut buffer).unwrap();
                seen.process(&buffer[..count]);
            }
            drop(master);
            assert_eq!(top.exit_code(), Some(129), "controlled: {controlled}");
        }
    });
}

/// Nobody reads it and it has no room left.
fn frozen_terminal() -> Pty {
    let pty = pseudo_terminal();
    // As typed by nobody: without translations every byte takes its place.
    let before = tcgetattr(&pty.slave).unwrap();
    let mut raw = before.clone();
    cfmakeraw(&mut raw);
    tcsetattr(&pty.slave, SetArg::TCSANOW, &raw).unwrap();
    fcntl(&pty.slave, FcntlArg::F_SETFL(OFlag::O_RDWR | OFlag::O_NONBLOCK)).unwrap();
    let mut filler = File::from(pty.slave.try_clone().unwrap());
    while filler.write(&[b'.'; 64]).is_ok() {}
    fcntl(&pty.slave, FcntlArg::F_SETFL(OFlag::O_RDWR)).unwrap();
    tcsetattr(&pty.slave, SetArg::TCSANOW, &before).unwrap();
    pty
}

#[tokio::test(flavor = "multi_thread")]
async fn top_ends_though_nobody_reads_its_terminal() {
    let gw = Gateway::start(&fleet(&[model("gemma", "{}", &[])])).await;
    tokio::task::block_in_place(|| {
        for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
            let pty = frozen_terminal();
            let mut top = top_on(&pty.slave, &gw, true);
            until("the screen is taken", || is_raw(&pty.slave));
            top.signal(signal);
            assert_eq!(top.exit_code(), Some(code));
            assert!(!is_raw(&pty.slave), "the terminal is left raw");
        }
        let pty = frozen_terminal();
        let mut top = top_on(&pty.slave, &gw, false);
        until("the screen is taken", || is_raw(&pty.slave));
        drop(pty);
        assert_eq!(top.exit_code(), Some(129));
    });
}
