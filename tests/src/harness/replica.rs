// SPDX-License-Identifier: Apache-2.0
//! A fake engine that the test itself runs, for fixed addresses and for tests of the engine.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use super::{Engines, binaries, eventually, ports};
use crate::engine::journal::{self, Event};

/// One engine process at an address of its own; killed on drop.
pub struct Replica {
    /// Where it listens.
    pub at: SocketAddr,
    name: String,
    child: Child,
    dir: TempDir,
    _port: ports::Lease,
}

impl Replica {
    /// Launches it and returns at once.
    pub fn launch(name: &str, script: &Value) -> Replica {
        let dir = tempfile::Builder::new().prefix("sluice-replica-").tempdir().expect("there is room");
        let port = ports::lease();
        let at = SocketAddr::from(([127, 0, 0, 1], port.port));
        let child = spawn(name, at, &dir.path().join("log"), script);
        Replica { at, name: name.to_owned(), child, dir, _port: port }
    }

    /// Launches it and waits until it listens.
    pub async fn start(name: &str, script: &Value) -> Replica {
        let replica = Replica::launch(name, script);
        replica.listening(1).await;
        replica
    }

    /// Launches it again at the same address, after its end.
    pub async fn again(&mut self, script: &Value) {
        self.kill();
        let before = self.log().times(|e| matches!(e, Event::Listening)).len();
        self.child = spawn(&self.name, self.at, &self.log_path(), script);
        self.listening(before + 1).await;
    }

    async fn listening(&self, times: usize) {
        self.wait(|e| e.times(|e| matches!(e, Event::Listening)).len() == times).await;
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// What it has written down.
    pub fn log(&self) -> Engines {
        Engines(journal::read(&self.log_path()))
    }

    /// Waits until its journal satisfies `holds`.
    pub async fn wait(&self, holds: impl Fn(&Engines) -> bool) {
        let ask = async || holds(&self.log()).then_some(());
        eventually("the engine's journal says so", Duration::from_secs(10), ask).await;
    }

    /// The process.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("the child is not reaped yet");
    }

    /// Kills it and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(name: &str, at: SocketAddr, log: &std::path::Path, script: &Value) -> Child {
    let mut command = Command::new(binaries::engine());
    command.args([
        "--name",
        name,
        "--port",
        &at.port().to_string(),
        "--script",
        &script.to_string(),
        "--log",
    ]);
    command.arg(log).spawn().expect("cargo built the engine with the tests")
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.kill();
    }
}
