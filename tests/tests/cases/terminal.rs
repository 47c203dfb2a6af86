// SPDX-License-Identifier: Apache-2.0
//! Programs in a pseudo-terminal, and what a person would see there.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::fcntl::{OFlag, open};
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;
use rustix::termios::{Winsize, tcsetwinsize};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(20);

pub fn cells(n: u16) -> NonZero<u16> {
    NonZero::new(n).unwrap()
}

/// A pseudo-terminal of a usual size.
pub struct Pty {
    pub master: OwnedFd,
    pub slave: OwnedFd,
}

/// Made so that no program that a test beside this one starts gets hold of it.
pub fn pseudo_terminal() -> Pty {
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let master = posix_openpt(flags).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let slave = open(ptsname_r(&master).unwrap().as_str(), flags, Mode::empty()).unwrap();
    tcsetwinsize(&slave, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    Pty { master: master.into(), slave }
}

pub fn is_raw(terminal: &OwnedFd) -> bool {
    !tcgetattr(terminal).unwrap().local_flags.contains(LocalFlags::ICANON)
}

#[track_caller]
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A program on a terminal.
pub struct Program(std::process::Child);

impl Program {
    /// Runs on `terminal`, which sends it a signal when it is closed only if `controlled`.
    pub fn on(
        terminal: &OwnedFd,
        program: &Path,
        change: impl FnOnce(&mut Command),
        controlled: bool,
    ) -> Program {
        let side = || Stdio::from(terminal.try_clone().unwrap());
        let mut command = Command::new("setsid");
        if controlled {
            command.arg("--ctty");
        }
        command.arg(program).env("TERM", "xterm-256color").stdin(side()).stdout(side()).stderr(side());
        change(&mut command);
        Program(command.spawn().unwrap())
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.0.id()).unwrap()), signal).unwrap();
    }

    #[track_caller]
    pub fn exit_code(&mut self) -> Option<i32> {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < end, "the program has stayed");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A test that fails leaves no screen behind.
impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program in a terminal of its own.
pub struct Screen {
    pub program: Program,
    master: File,
    /// Keeps the terminal and its settings.
    pub slave: OwnedFd,
    /// What a person would see.
    seen: Arc<Mutex<vt100::Parser>>,
}

impl Screen {
    pub fn open(program: &Path, change: impl FnOnce(&mut Command)) -> Screen {
        let pty = pseudo_terminal();
        let program = Program::on(&pty.slave, program, change, true);
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
        Screen { program, master, slave: pty.slave, seen }
    }

    /// Waits until the screen is as it should be.
    #[track_caller]
    pub fn wait(&self, what: &str, holds: impl Fn(&vt100::Screen) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !holds(self.seen.lock().unwrap().screen()) {
            let shown = self.seen.lock().unwrap().screen().contents();
            assert!(Instant::now() < end, "{what} is not seen in\n{shown}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until this stands on the screen.
    #[track_caller]
    pub fn shows(&self, text: &str) {
        self.wait(text, |screen| screen.contents().contains(text));
    }

    pub fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the end and for the terminal's being as before.
    pub fn ended(mut self) -> Option<i32> {
        let code = self.program.exit_code();
        assert!(!is_raw(&self.slave), "the terminal is left raw");
        self.wait("the screen from before", |screen| !screen.alternate_screen() && !screen.hide_cursor());
        code
    }
}
