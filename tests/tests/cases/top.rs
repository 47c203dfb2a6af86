// SPDX-License-Identifier: Apache-2.0
//! `sluice top` in a pseudo-terminal: what it shows, and that it never outlives its terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::sys::termios::{LocalFlags, SetArg, cfmakeraw, tcgetattr, tcsetattr};
use nix::unistd::Pid;
use rustix::termios::{Winsize, tcsetwinsize};
use sluice_tests::harness::{Gateway, sluice_binary};

use super::support::{fleet, model};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(20);

fn cells(n: u16) -> NonZero<u16> {
    NonZero::new(n).unwrap()
}

/// A pseudo-terminal of a usual size.
struct Pty {
    master: OwnedFd,
    slave: OwnedFd,
}

/// Made so that no program that a test beside this one starts gets hold of it.
fn pseudo_terminal() -> Pty {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let master = posix_openpt(flags).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let slave = open(ptsname_r(&master).unwrap().as_str(), flags, Mode::empty()).unwrap();
    tcsetwinsize(&slave, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    Pty { master: master.into(), slave }
}

fn is_raw(terminal: &OwnedFd) -> bool {
    !tcgetattr(terminal).unwrap().local_flags.contains(LocalFlags::ICANON)
}

#[track_caller]
fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// `sluice top` and what ends it.
struct Top(std::process::Child);

impl Top {
    /// Runs on `terminal`, which sends it a signal when it is closed only if `controlled`.
    fn on(terminal: &OwnedFd, gw: &Gateway, controlled: bool) -> Top {
        let side = || Stdio::from(terminal.try_clone().unwrap());
        let mut command = Command::new("setsid");
        if controlled {
            command.arg("--ctty");
        }
        command.arg(sluice_binary()).args(["top", "--admin", &gw.admin.to_string()]);
        command.env("TERM", "xterm-256color").stdin(side()).stdout(side()).stderr(side());
        Top(command.spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.0.id()).unwrap()), signal).unwrap();
    }

    #[track_caller]
    fn exit_code(&mut self) -> Option<i32> {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < end, "top has stayed");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A test that fails leaves no screen behind.
impl Drop for Top {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `sluice top` in a terminal of its own.
struct Screen {
    top: Top,
    master: File,
    /// Keeps the terminal and its settings.
    slave: OwnedFd,
    /// What a person would see.
    seen: Arc<Mutex<vt100::Parser>>,
}

impl Screen {
    fn open(gw: &Gateway) -> Screen {
        let pty = pseudo_terminal();
        let top = Top::on(&pty.slave, gw, true);
        let master = File::from(pty.master);
        let (mut reader, seen) =
            (master.try_clone().unwrap(), Arc::new(Mutex::new(vt100::Parser::new(cells(24), cells(80), 0))));
        let all = seen.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                all.lock().unwrap().process(&buffer[..count]);
            }
        });
        Screen { top, master, slave: pty.slave, seen }
    }

    /// Waits until the screen is as it should be.
    #[track_caller]
    fn wait(&self, what: &str, holds: impl Fn(&vt100::Screen) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !holds(self.seen.lock().unwrap().screen()) {
            let shown = self.seen.lock().unwrap().screen().contents();
            assert!(Instant::now() < end, "{what} is not seen in\n{shown}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until this stands on the screen.
    #[track_caller]
    fn shows(&self, text: &str) {
        self.wait(text, |screen| screen.contents().contains(text));
    }

    fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the end and for the terminal's being as before.
    fn ended(mut self) -> Option<i32> {
        let code = self.top.exit_code();
        assert!(!is_raw(&self.slave), "the terminal is left raw");
        self.wait("the screen from before", |screen| !screen.alternate_screen() && !screen.hide_cursor());
        code
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn top_shows_orders_and_gives_the_terminal_back() {
    let gw = Gateway::start(&fleet(&[model("gemma", "{}", &[])])).await;
    tokio::task::block_in_place(|| {
        let mut screen = Screen::open(&gw);
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
            let screen = Screen::open(&gw);
            screen.shows("gemma");
            screen.top.signal(signal);
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
            let mut top = Top::on(&pty.slave, &gw, controlled);
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
            let mut top = Top::on(&pty.slave, &gw, true);
            until("the screen is taken", || is_raw(&pty.slave));
            top.signal(signal);
            assert_eq!(top.exit_code(), Some(code));
            assert!(!is_raw(&pty.slave), "the terminal is left raw");
        }
        let pty = frozen_terminal();
        let mut top = Top::on(&pty.slave, &gw, false);
        until("the screen is taken", || is_raw(&pty.slave));
        drop(pty);
        assert_eq!(top.exit_code(), Some(129));
    });
}
