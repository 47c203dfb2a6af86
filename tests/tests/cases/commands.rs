// SPDX-License-Identifier: Apache-2.0
//! The command line against a running gateway, and `sluice top` in a pseudo-terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;
use sluice_tests::harness::{Gateway, sluice_binary};

use super::support::{fleet, model};

/// Runs a command of the binary; exit code, stdout, stderr.
async fn sluice(gw: &Gateway, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(sluice_binary());
    command.args(args).env("SLUICE_ADMIN", gw.admin.to_string());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn orders_are_seen_through_and_told() {
    let gw = Gateway::start(&fleet(&[model("m", "{}", &["maxReplicas: 2"])])).await;
    let (code, out, err) = sluice(&gw, &["wake", "m", "--wait"]).await;
    assert_eq!((code, out.as_str()), (0, "m: ready\n"), "{err}");
    let (code, out, err) = sluice(&gw, &["scale", "m", "2", "--wait"]).await;
    assert_eq!((code, out.as_str()), (0, "m: ready\n"), "{err}");
    assert_eq!(sluice(&gw, &["scale", "m", "3"]).await.0, 5, "above maxReplicas");
    let (_, out, _) = sluice(&gw, &["describe", "model", "m"]).await;
    assert!(out.contains("2 ready, 0 starting") && out.contains("m: scale ordered"), "{out}");
    let (_, out, _) = sluice(&gw, &["explain", "m", "-n", "50"]).await;
    assert!(out.contains("desired 0 -> 1: wake order") && out.contains("did       start r0"), "{out}");
    assert_eq!(sluice(&gw, &["explain", "nobody"]).await.0, 4);
    let (code, out, err) = sluice(&gw, &["sleep", "m", "--wait"]).await;
    assert_eq!(code, 0, "{out}{err}");
    let (_, out, _) = sluice(&gw, &["events", "--model", "m"]).await;
    assert!(out.contains("m: sleep ordered"), "{out}");
}

/// `sluice top` in a terminal of its own.
struct Screen {
    child: std::process::Child,
    master: File,
    /// Keeps the terminal and its settings.
    slave: OwnedFd,
    /// What a person would see.
    seen: Arc<Mutex<vt100::Parser>>,
}

fn cells(n: u16) -> NonZero<u16> {
    NonZero::new(n).unwrap()
}

impl Screen {
    fn open(gw: &Gateway) -> Screen {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).unwrap();
        let side = || Stdio::from(pty.slave.try_clone().unwrap());
        let child = Command::new("setsid")
            .arg("--ctty")
            .arg(sluice_binary())
            .args(["top", "--admin", &gw.admin.to_string()])
            .env("TERM", "xterm-256color")
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .unwrap();
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
        Screen { child, master, slave: pty.slave, seen }
    }

    /// Waits until the screen is as it should be.
    #[track_caller]
    fn wait(&self, what: &str, holds: impl Fn(&vt100::Screen) -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
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

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.slave).unwrap().local_flags.contains(LocalFlags::ICANON)
    }

    /// Waits for the end and for the terminal's being as before.
    fn ended(mut self) -> i32 {
        let status = self.child.wait().unwrap();
        assert!(!self.is_raw(), "the terminal is left raw");
        self.wait("the screen from before", |screen| !screen.alternate_screen());
        status.code().unwrap()
    }
}

/// A test that fails leaves no screen behind.
impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn top_shows_orders_and_gives_the_terminal_back() {
    let gw = Gateway::start(&fleet(&[model("gemma", "{}", &[])])).await;
    tokio::task::block_in_place(|| {
        let mut screen = Screen::open(&gw);
        screen.shows("gemma");
        assert!(screen.is_raw());
        screen.press("w");
        screen.shows("y orders it");
        screen.press("y");
        screen.shows("wake ordered");
        screen.press("q");
        assert_eq!(screen.ended(), 0);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn top_gives_the_terminal_back_on_sigterm() {
    let gw = Gateway::start(&fleet(&[model("gemma", "{}", &[])])).await;
    tokio::task::block_in_place(|| {
        let screen = Screen::open(&gw);
        screen.shows("gemma");
        let pid = Pid::from_raw(i32::try_from(screen.child.id()).unwrap());
        kill(pid, Signal::SIGTERM).unwrap();
        assert_eq!(screen.ended(), 143);
    });
}
