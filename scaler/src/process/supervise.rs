// SPDX-License-Identifier: Apache-2.0
//! One replica's life: port, fork, readiness, end, and the certainty that nothing is left.
//!
//! `Gone` is told when the leader is reaped, every other process of the family has vanished and the port is free again,
//! never before. Must not know why a replica is started or stopped.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use sluice_core::{Address, ModelName, ReplicaEvent, ReplicaId};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::children::{self, Born, Exit};
use super::family::Family;
use super::output::{Output, Readers};
use super::ports::Port;
use super::spawn::Program;
use super::state::{Record, State, StopRecord};
use super::table::{Identity, MARK};
use crate::launch::{Launch, ProcessLaunch};
use crate::logs::LogBook;
use crate::probe::{Change, Failure, Target, Watcher};
use crate::text::Redactor;

/// Between SIGTERM and SIGKILL at least, even if the stop command has used up the deadline.
const LEAST_GRACE: Duration = Duration::from_millis(500);

/// What is left of a family after its leader's death is usually gone within this; only if not is the replica called
/// unready before it is called gone.
const QUICK_END: Duration = Duration::from_millis(200);

/// How long a port may stay taken after the last process has gone.
const PORT_WAIT: Duration = Duration::from_secs(1);

/// What all replicas of one backend share.
pub(crate) struct Nursery {
    /// Names this run of Sluice; part of every child's mark.
    pub(crate) instance: String,
    /// `None` if no directory can be used.
    pub(crate) state: Option<State>,
    pub(crate) logs: Arc<LogBook>,
    /// Soft limit of open files for children.
    pub(crate) open_files: Option<u64>,
}

/// One replica to attend to.
pub(crate) struct Order {
    pub(crate) replica: ReplicaId,
    pub(crate) model: ModelName,
    pub(crate) launch: Arc<Launch>,
    pub(crate) stop: oneshot::Receiver<()>,
}

/// Starts a replica and stays with it until nothing of it is left. Returns the cause to give for its end.
pub(crate) async fn attend(
    nursery: &Nursery,
    launch: &ProcessLaunch,
    order: Order,
    emit: impl Fn(ReplicaEvent),
) -> String {
    match Replica::start(nursery, launch, &order).await {
        Ok(replica) => replica.live(order.stop, emit).await,
        Err(cause) => cause,
    }
}

/// Why a replica's life ends.
enum End {
    Exited(Exit),
    Stopped,
    Denied(String),
}

struct Replica<'a> {
    nursery: &'a Nursery,
    launch: &'a ProcessLaunch,
    record: Record,
    port: Port,
    family: Family,
    exit: watch::Receiver<Option<Exit>>,
    output: Arc<Output>,
    readers: Readers,
    ready: bool,
    ever_ready: bool,
}

impl<'a> Replica<'a> {
    async fn start(nursery: &'a Nursery, launch: &'a ProcessLaunch, order: &Order) -> Result<Self, String> {
        let port = Port::choose().map_err(|error| format!("cannot choose a port: {error}"))?;
        let mark = super::mark(&nursery.instance, order.replica);
        let program = program(nursery, launch, &port, &mark);
        let mut record = Record {
            replica: order.replica,
            model: order.model.clone(),
            port: port.number(),
            leader: None,
            members: Vec::new(),
            stop: None,
        };
        write_down(nursery, &record);
        let born = children::start(program).await;
        let Born { identity, exit, stdout, stderr } = born.map_err(|error| {
            forget(nursery, order.replica);
            error.to_string()
        })?;
        record.leader = Some(identity);
        record.stop = stop_record(launch, &port, identity);
        write_down(nursery, &record);
        let output = Output::new(order.replica, &order.model, &nursery.logs, redactor(launch, &port));
        let readers = output.read(stdout, stderr);
        let family = Family::new(identity, mark);
        let (ready, ever_ready) = (false, false);
        Ok(Replica { nursery, launch, record, port, family, exit, output, readers, ready, ever_ready })
    }

    async fn live(mut self, mut stop: oneshot::Receiver<()>, emit: impl Fn(ReplicaEvent)) -> String {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port.number()));
        let mut watcher = Watcher::new(Target::Local(address), self.launch.probe.clone());
        let mut exit = self.exit.clone();
        let mut told = String::new();
        let end = loop {
            let change = tokio::select! {
                biased;
                exit = ended(&mut exit) => break End::Exited(exit),
                // A dropped sender is an order too: the backend is going.
                _ = &mut stop => break End::Stopped,
                change = watcher.next() => change,
            };
            match change {
                Change::Ready(socket) => {
                    self.ready = true;
                    emit(ReplicaEvent::Ready(Address { socket, host: None, tls: false }));
                    self.first_ready().await;
                }
                Change::NotReady(why) => {
                    self.ready = false;
                    emit(ReplicaEvent::NotReady { why });
                }
                Change::NotYet(why) => {
                    let why = with_last_words(why, &self.output.last_words());
                    if why != told {
                        told.clone_from(&why);
                        emit(ReplicaEvent::NotReady { why });
                    }
                }
                Change::Denied(why) => break End::Denied(why),
            }
        };
        match &end {
            End::Exited(exit) => self.clean_up(*exit, emit).await,
            End::Stopped | End::Denied(_) => self.stop().await,
        }
        self.finish(&end, watcher.last_failure()).await
    }

    /// Remembers and writes down who is there, for the case that we are killed and they survive us.
    async fn first_ready(&mut self) {
        if std::mem::replace(&mut self.ever_ready, true) {
            return;
        }
        self.record.members = self.family.remember().await;
        write_down(self.nursery, &self.record);
    }

    /// The leader has ended by itself: nothing else of the family may stay.
    async fn clean_up(&mut self, exit: Exit, emit: impl Fn(ReplicaEvent)) {
        self.family.signal(&[Signal::KILL]).await;
        let quick =
            self.launch.stop_command.is_none() && self.family.gone(Some(Instant::now() + QUICK_END)).await;
        if quick {
            return;
        }
        if self.ready {
            emit(ReplicaEvent::NotReady { why: exit.to_string() });
        }
        self.run_stop_command().await;
        self.family.kill().await;
    }

    /// Stop command, SIGTERM, and SIGKILL at the deadline, each to the whole family.
    async fn stop(&mut self) {
        let deadline = Instant::now() + self.launch.stop_deadline;
        self.family.remember().await;
        self.run_stop_command().await;
        // A stopped process takes the first only when the second lets it run again.
        self.family.signal(&[Signal::TERM, Signal::CONT]).await;
        let limit = deadline.max(Instant::now() + LEAST_GRACE);
        let mut exit = self.exit.clone();
        let left = async {
            ended(&mut exit).await;
            self.family.gone(None).await;
        };
        if tokio::time::timeout_at(limit, left).await.is_ok() {
            return;
        }
        tracing::warn!(model = %self.record.model, replica = %self.record.replica, "replica_killed");
        self.family.kill().await;
        ended(&mut exit).await;
        self.family.kill().await;
    }

    async fn run_stop_command(&self) {
        let Some(stop) = &self.record.stop else { return };
        let mut program =
            program(self.nursery, self.launch, &self.port, &format!("{}/stop", self.family.mark));
        program.arguments.clone_from(&stop.arguments);
        run_to_end(program, self.launch.stop_deadline, Some(&self.output)).await;
    }

    async fn finish(self, end: &End, probe: Option<&Failure>) -> String {
        children::release(self.family.leader).await;
        let begun = Instant::now();
        while !self.port.is_free() {
            if begun.elapsed() > PORT_WAIT {
                tracing::warn!(port = self.port.number(), replica = %self.record.replica, "port_still_taken");
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.readers.finish().await;
        forget(self.nursery, self.record.replica);
        cause(end, self.ever_ready, probe, &self.output.last_words())
    }
}

/// In one line, for people: how it ended, what its probe last said if it was never ready, and its last words.
fn cause(end: &End, ever_ready: bool, probe: Option<&Failure>, last_words: &str) -> String {
    let mut cause = match end {
        End::Exited(exit) if ever_ready => exit.to_string(),
        End::Exited(exit) => format!("{exit} before it was ready"),
        End::Stopped if ever_ready => return "stopped".to_owned(),
        End::Stopped => "stopped before it was ready".to_owned(),
        End::Denied(why) => why.clone(),
    };
    let telling = match end {
        End::Exited(_) => probe.filter(|probe| probe.is_denial()),
        End::Stopped => probe,
        End::Denied(_) => None,
    };
    if let (false, Some(probe)) = (ever_ready, telling) {
        cause = format!("{cause}; {probe}");
    }
    with_last_words(cause, last_words)
}

fn with_last_words(what: String, last_words: &str) -> String {
    if last_words.is_empty() { what } else { format!("{what}: {last_words}") }
}

async fn ended(exit: &mut watch::Receiver<Option<Exit>>) -> Exit {
    let seen = exit.wait_for(Option::is_some).await.ok().and_then(|exit| *exit);
    // The sender goes only after it has told.
    seen.unwrap_or(Exit::Status(-1))
}

/// Runs a helper program until its end, or kills it and its family at the limit.
pub(super) async fn run_to_end(program: Program, limit: Duration, output: Option<&Arc<Output>>) {
    let name = program.arguments.first().cloned().unwrap_or_default();
    let mark = program.environment.get(MARK).cloned().unwrap_or_default();
    let mut born = match children::start(program).await {
        Ok(born) => born,
        Err(error) => {
            tracing::warn!(%error, "stop_command_failed");
            return;
        }
    };
    let family = Family::new(born.identity, mark);
    let readers = output.map(|output| output.read(born.stdout, born.stderr));
    match tokio::time::timeout(limit, ended(&mut born.exit)).await {
        Ok(Exit::Status(0)) => {}
        Ok(exit) => tracing::warn!(program = name, how = %exit, "stop_command_failed"),
        Err(_) => tracing::warn!(program = name, "stop_command_timed_out"),
    }
    family.kill().await;
    ended(&mut born.exit).await;
    children::release(born.identity).await;
    if let Some(readers) = readers {
        readers.finish().await;
    }
}

/// What must not be shown: the environment's values as the child has them, and the probe's header fields.
fn redactor(launch: &ProcessLaunch, port: &Port) -> Redactor {
    let environment = launch.env.values().map(|value| fill(&value.0, port));
    Redactor::new(environment.chain(launch.probe.headers.iter().map(|(_, value)| value.0.clone())))
}

fn fill(text: &str, port: &Port) -> String {
    text.replace("${PORT}", &port.number().to_string())
}

fn program(nursery: &Nursery, launch: &ProcessLaunch, port: &Port, mark: &str) -> Program {
    let mut environment: BTreeMap<String, String> =
        launch.env.iter().map(|(key, value)| (key.clone(), fill(&value.0, port))).collect();
    environment.entry("PORT".to_owned()).or_insert_with(|| port.number().to_string());
    environment.insert(MARK.to_owned(), mark.to_owned());
    Program {
        arguments: launch.command.iter().map(|argument| fill(argument, port)).collect(),
        environment,
        directory: launch.working_directory.clone(),
        open_files: nursery.open_files,
    }
}

fn stop_record(launch: &ProcessLaunch, port: &Port, leader: Identity) -> Option<StopRecord> {
    let pid = leader.pid.to_string();
    let filled = |text: &String| fill(text, port).replace("${PID}", &pid);
    Some(StopRecord {
        arguments: launch.stop_command.as_ref()?.iter().map(filled).collect(),
        directory: launch.working_directory.clone(),
        deadline_ms: u64::try_from(launch.stop_deadline.as_millis()).unwrap_or(u64::MAX),
    })
}

fn write_down(nursery: &Nursery, record: &Record) {
    let written = nursery.state.as_ref().map(|state| state.record(record));
    if let Some(Err(error)) = written {
        tracing::warn!(%error, replica = %record.replica, "state_not_written");
    }
}

fn forget(nursery: &Nursery, replica: ReplicaId) {
    if let Some(state) = &nursery.state {
        state.forget(replica);
    }
}
