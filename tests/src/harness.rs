// SPDX-License-Identifier: Apache-2.0
//! Runs the real gateway with fake engines behind it, and finds what it leaves behind.
//!
//! Each gateway has a directory, ports and a mark in the environment of all its processes of its own, so that tests
//! run beside each other.

mod binaries;
mod config;
mod engines;
mod leaks;
pub mod metrics;
mod ports;
pub mod procs;
mod replica;

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::{Semaphore, SemaphorePermit};

pub use engines::{Engines, Seen};
use metrics::Metrics;
pub use replica::Replica;

use crate::client::{Answer, Request};
use crate::clock::ms;
use crate::engine::journal;

/// Longest time until a gateway is ready or gone.
const LIFE_LIMIT: Duration = Duration::from_secs(15);
/// The variable that marks a gateway and everything it starts.
const MARK: &str = "SLUICE_TEST_MARK";

static TURNS: Semaphore = Semaphore::const_new(Cost::Alone as usize);

/// How much of the machine a test takes.
#[derive(Clone, Copy, Debug)]
pub enum Cost {
    /// Mostly waits.
    Light = 1,
    /// Keeps a core busy.
    Heavy = 4,
    /// Measures times that neighbours would spoil.
    Alone = 8,
}

/// Waits until the machine has room; each test takes one turn at its beginning.
pub async fn turn(cost: Cost) -> SemaphorePermit<'static> {
    TURNS.acquire_many(cost as u32).await.expect("the semaphore is never closed")
}

/// The program under test, for its other commands.
pub fn sluice_binary() -> &'static Path {
    binaries::gateway()
}

/// A running gateway.
pub struct Gateway {
    /// The data listener.
    pub data: SocketAddr,
    /// The admin listener.
    pub admin: SocketAddr,
    dir: TempDir,
    child: Option<Child>,
    wrapper: Vec<String>,
    env: Vec<(String, String)>,
    yaml: String,
    descriptors: usize,
    _ports: [ports::Lease; 2],
}

impl Gateway {
    /// Starts a gateway and waits until it is ready. In the text, `@dir` is the gateway's directory, and
    /// `command: @engine NAME {SCRIPT}` starts the fake engine; listeners are added.
    pub async fn start(yaml: &str) -> Gateway {
        Gateway::start_with(yaml, &[]).await
    }

    /// As `start`, with more environment.
    pub async fn start_with(yaml: &str, env: &[(&str, &str)]) -> Gateway {
        let mut gateway = Gateway::prepare(yaml, env);
        gateway.launch();
        gateway.ready().await;
        gateway
    }

    /// Everything but the process.
    pub fn prepare(yaml: &str, env: &[(&str, &str)]) -> Gateway {
        let dir =
            tempfile::Builder::new().prefix("sluice-test-").tempdir().expect("there is room for a directory");
        let leases = [ports::lease(), ports::lease()];
        let address = |lease: &ports::Lease| SocketAddr::from(([127, 0, 0, 1], lease.port));
        let env = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let (data, admin) = (address(&leases[0]), address(&leases[1]));
        let gateway = Gateway {
            data,
            admin,
            dir,
            child: None,
            wrapper: Vec::new(),
            env,
            yaml: String::new(),
            descriptors: 0,
            _ports: leases,
        };
        let mut gateway = gateway;
        gateway.rewrite(yaml);
        gateway
    }

    /// The gateway's directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The configuration file.
    pub fn config_path(&self) -> PathBuf {
        self.dir().join("sluice.yaml")
    }

    /// The configuration text for this gateway.
    pub fn expand(&self, yaml: &str) -> String {
        config::expand(yaml, self.dir(), self.data, self.admin)
    }

    /// Replaces the configuration file by renaming a new one over it.
    pub fn rewrite(&mut self, yaml: &str) {
        yaml.clone_into(&mut self.yaml);
        let fresh = self.dir().join("sluice.yaml.new");
        std::fs::write(&fresh, self.expand(yaml)).expect("the directory is ours");
        std::fs::rename(&fresh, self.config_path()).expect("the directory is ours");
    }

    fn stderr_path(&self) -> PathBuf {
        self.dir().join("gateway.log")
    }

    fn journal_path(&self) -> PathBuf {
        self.dir().join("engines.log")
    }

    /// Starts the process and returns at once.
    pub fn launch(&mut self) {
        let appending = || File::options().append(true).create(true).open(self.stderr_path());
        let log = appending().expect("the directory is ours");
        let gateway = binaries::gateway().display().to_string();
        let words: Vec<_> = self.wrapper.iter().chain(std::iter::once(&gateway)).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg("run").arg("--config").arg(self.config_path());
        command.current_dir(self.dir()).envs(self.env.iter().map(|(k, v)| (k, v)));
        command.env(MARK, self.dir()).env("FAKE_ENGINE_LOG", self.journal_path());
        command.env("PATH", binaries::path_with_engine()).env("XDG_STATE_HOME", self.dir().join("state"));
        command.env("XDG_RUNTIME_DIR", self.dir().join("run"));
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("an open file can be cloned")).stderr(log);
        command.process_group(0);
        self.child = Some(command.spawn().expect("the gateway was just built"));
    }

    /// Waits until the gateway says that it is ready.
    pub async fn ready(&mut self) {
        let deadline = Instant::now() + LIFE_LIMIT;
        while !Request::get("/readyz").limit(ms(1000)).send(self.admin).await.is(200) {
            let exited = self.child.as_mut().and_then(|c| c.try_wait().ok().flatten());
            assert!(exited.is_none(), "the gateway ended at its start ({exited:?}):\n{}", self.log_tail());
            assert!(Instant::now() < deadline, "the gateway is not ready:\n{}", self.log_tail());
            tokio::time::sleep(ms(10)).await;
        }
        self.descriptors = settled_descriptors(self.pid()).await;
    }

    /// Runs the gateway as the child of another program, given with its arguments.
    pub fn wrap(&mut self, words: &[&str]) {
        self.wrapper = words.iter().map(|w| (*w).to_owned()).collect();
    }

    /// The gateway's process id; 0 without a process.
    pub fn pid(&self) -> u32 {
        let direct = self.child.as_ref().map_or(0, Child::id);
        if self.wrapper.is_empty() {
            return direct;
        }
        procs::children(direct).first().map_or(direct, |p| p.pid)
    }

    /// What the gateway wrote to its standard outputs.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.stderr_path()).unwrap_or_default()).into_owned()
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    /// Sends a signal to the gateway's process.
    pub fn signal(&self, signal: Signal) {
        assert_ne!(self.pid(), 0, "the gateway runs");
        kill(Pid::from_raw(self.pid() as i32), signal).expect("the child is not reaped yet");
    }

    /// Waits for the gateway's end.
    pub async fn exited(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            let child = self.child.as_mut()?;
            if let Some(status) = child.try_wait().expect("it is our child") {
                self.child = None;
                return Some(status);
            }
            if Instant::now() > deadline {
                return None;
            }
            tokio::time::sleep(ms(5)).await;
        }
    }

    /// Ends the gateway with a signal and waits until it is gone.
    pub async fn end(&mut self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        self.exited(LIFE_LIMIT)
            .await
            .unwrap_or_else(|| panic!("the gateway outlives {signal}:\n{}", self.log_tail()))
    }

    /// Starts it again after its end, with the same addresses and files.
    pub async fn again(&mut self) {
        self.launch();
        self.ready().await;
    }

    /// Sends a request to the data listener.
    pub async fn send(&self, request: Request) -> Answer {
        request.send(self.data).await
    }

    /// Fetches from the admin listener.
    pub async fn admin(&self, request: Request) -> Answer {
        request.send(self.admin).await
    }

    /// A model as the API lists it; null if it does not.
    pub async fn model(&self, name: &str) -> Value {
        let found = self.models().await.into_iter().find(|m| m["name"] == name);
        found.unwrap_or(Value::Null)
    }

    /// All models as the API lists them.
    pub async fn models(&self) -> Vec<Value> {
        self.list("/api/v1/models").await
    }

    /// All replicas as the API lists them, of one model.
    pub async fn replicas(&self, model: &str) -> Vec<Value> {
        let mut all = self.list("/api/v1/replicas").await;
        all.retain(|r| r["model"] == model);
        all
    }

    async fn list(&self, path: &str) -> Vec<Value> {
        let answer = self.admin(Request::get(path)).await;
        let json = answer.expect(200).json();
        let kind = path.rsplit('/').next().unwrap_or_default();
        let list = json.as_array().or_else(|| json[kind].as_array()).or_else(|| json["items"].as_array());
        list.unwrap_or_else(|| panic!("{path} is a list: {json}")).clone()
    }

    /// Scrapes and parses the metrics.
    pub async fn metrics(&self) -> Metrics {
        let answer = self.admin(Request::get("/metrics")).await;
        Metrics::parse(&answer.expect(200).text())
            .unwrap_or_else(|e| panic!("the exposition is invalid: {e}"))
    }

    /// What the engines have written down so far.
    pub fn engines(&self) -> Engines {
        Engines(journal::read(&self.journal_path()))
    }

    /// The same once every handler that began has ended: an engine writes that down after its last byte.
    pub async fn finished(&self) -> Engines {
        eventually("every handler has ended", Duration::from_secs(5), async || {
            let engines = self.engines();
            engines.requests().iter().all(|s| s.started.is_none() || s.ended.is_some()).then_some(engines)
        })
        .await
    }

    /// Waits until the model has that many ready replicas and no other.
    pub async fn settled(&self, model: &str, ready: u64) {
        let what = format!("{ready} ready replicas of {model}");
        eventually(&what, Duration::from_secs(15), async || {
            let m = self.model(model).await;
            let counts = ["ready", "starting", "leaving"].map(|k| m[k].as_u64().unwrap_or(u64::MAX));
            (counts == [ready, 0, 0]).then_some(())
        })
        .await;
    }

    /// Sends one request and expects success; the model is warm then.
    pub async fn warm(&self, model: &str) {
        self.send(Request::chat(model)).await.expect(200);
    }

    /// Everything that the gateway started and that is still there, grandchildren included.
    pub fn offspring(&self) -> Vec<procs::Process> {
        let own = [self.pid(), self.child.as_ref().map_or(0, Child::id)];
        procs::marked(&self.mark()).into_iter().filter(|p| !own.contains(&p.pid)).collect()
    }

    fn mark(&self) -> String {
        format!("{MARK}={}", self.dir().display())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let pid = Pid::from_raw(self.pid() as i32);
        if let Some(mut child) = self.child.take() {
            let _ = kill(pid, Signal::SIGTERM);
            let deadline = Instant::now() + Duration::from_secs(5);
            while Instant::now() < deadline && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(ms(10));
            }
            if matches!(child.try_wait(), Ok(None)) {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        let left = procs::gone_within(&self.mark(), ms(2000));
        for process in &left {
            let _ = kill(Pid::from_raw(process.pid as i32), Signal::SIGKILL);
        }
        if std::thread::panicking() {
            eprintln!("--- the gateway's log ends:\n{}\n---", self.log_tail());
            if std::env::var_os("SLUICE_KEEP").is_some() {
                self.dir.disable_cleanup(true);
                eprintln!("kept: {}", self.dir().display());
            }
        } else {
            assert!(left.is_empty(), "processes outlive the gateway: {left:?}");
        }
    }
}

/// The number of open descriptors, once the threads of the start have opened what they need.
async fn settled_descriptors(pid: u32) -> usize {
    let (mut count, mut same) = (procs::descriptors(pid), 0);
    while same < 5 {
        tokio::time::sleep(ms(20)).await;
        let now = procs::descriptors(pid);
        same = if now == count { same + 1 } else { 0 };
        count = now;
    }
    count
}

/// A further address that nobody else uses while the guard lives.
pub fn spare_address() -> (SocketAddr, impl Sized) {
    let lease = ports::lease();
    (SocketAddr::from(([127, 0, 0, 1], lease.port)), lease)
}

/// Asks again and again, every 10 ms, until there is something; fails after `limit`.
pub async fn eventually<T>(what: &str, limit: Duration, ask: impl AsyncFn() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        tokio::time::sleep(ms(10)).await;
    }
}
