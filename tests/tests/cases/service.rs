// SPDX-License-Identifier: Apache-2.0
//! What a service manager is told, and whether it understands the unit that is shipped.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::Signal;
use sluice_tests::harness::{Cost, Gateway, eventually, turn};

use crate::support::{fleet, model, secs};

/// A service manager's end of the socket, and what came in.
struct Manager(Arc<Mutex<Vec<String>>>);

impl Manager {
    fn listen(at: &Path) -> Manager {
        let socket = UnixDatagram::bind(at).unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = told.clone();
        std::thread::spawn(move || {
            let mut message = [0; 4096];
            while let Ok(n) = socket.recv(&mut message) {
                heard.lock().unwrap().push(String::from_utf8_lossy(&message[..n]).into_owned());
            }
        });
        Manager(told)
    }

    /// Messages that hold the line.
    fn with(&self, line: &str) -> Vec<String> {
        let told = self.0.lock().unwrap();
        told.iter().filter(|message| message.lines().any(|l| l == line)).cloned().collect()
    }

    async fn told(&self, line: &str, times: usize) -> Vec<String> {
        eventually(&format!("{times} × {line}"), secs(10.0), async || {
            Some(self.with(line)).filter(|messages| messages.len() >= times)
        })
        .await
    }
}

#[tokio::test]
async fn a_service_manager_is_told_of_start_life_reload_and_stop() {
    let _turn = turn(Cost::Light).await;
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("notify");
    let manager = Manager::listen(&at);
    let env = [("NOTIFY_SOCKET", at.to_str().unwrap()), ("WATCHDOG_USEC", "200000")];
    let mut gw = Gateway::start_with(&fleet(&[model("m", "{}", &["minReplicas: 1"])]), &env).await;
    let ready = manager.told("READY=1", 1).await;
    assert!(ready[0].contains("STATUS=serving 1 models"), "{ready:?}");
    manager.told("WATCHDOG=1", 3).await;
    gw.settled("m", 1).await;
    let engine = &gw.offspring()[0];
    let environment = std::fs::read(format!("/proc/{}/environ", engine.pid)).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    assert!(!environment.contains("NOTIFY_SOCKET") && !environment.contains("WATCHDOG"), "{environment}");

    gw.signal(Signal::SIGHUP);
    let reloading = manager.told("RELOADING=1", 1).await;
    assert!(reloading[0].contains("MONOTONIC_USEC="), "{reloading:?}");
    manager.told("READY=1", 2).await;
    // A configuration that is refused is a reload that has ended, too.
    gw.rewrite("models: nonsense");
    manager.told("RELOADING=1", 2).await;
    manager.told("READY=1", 3).await;

    assert!(gw.end(Signal::SIGTERM).await.success());
    let stopping = manager.with("STOPPING=1");
    assert_eq!(stopping.len(), 1);
    let extended = stopping[0].lines().find_map(|line| line.strip_prefix("EXTEND_TIMEOUT_USEC=")).unwrap();
    assert!(Duration::from_micros(extended.parse().unwrap()) > secs(60.0), "{extended}");
}

#[tokio::test]
async fn a_service_manager_that_is_gone_changes_nothing() {
    let _turn = turn(Cost::Light).await;
    let env = [("NOTIFY_SOCKET", "/nonexistent/notify"), ("WATCHDOG_USEC", "200000")];
    let mut gw = Gateway::start_with(&fleet(&[model("m", "{}", &[])]), &env).await;
    gw.warm("m").await;
    assert!(gw.end(Signal::SIGTERM).await.success());
}

#[test]
fn systemd_understands_the_unit() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/systemd/sluice.service");
    let unit = std::fs::read_to_string(path).unwrap();
    assert!(unit.contains("\nType=notify\n") && unit.contains("\nWatchdogSec="));
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("systemd-analyze is not installed: the unit is not verified");
        return;
    }
    // The check wants the program to be there.
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("sluice.service");
    std::fs::write(&copy, unit.replace("/usr/local/bin/sluice", "/bin/true")).unwrap();
    let verified = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&copy).output().unwrap();
    let said = String::from_utf8_lossy(&verified.stderr);
    let about_it: Vec<&str> = said.lines().filter(|line| line.contains("sluice")).collect();
    assert!(verified.status.success() && about_it.is_empty(), "{said}");
}
