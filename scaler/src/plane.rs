// SPDX-License-Identifier: Apache-2.0
//! The seam between the scaler and a gateway: what each asks of the other.
//!
//! In one process both sides are called directly; between roles the same types travel over a stream.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use sluice_core::{
    Action, Decision, Demand, Drained, FleetSpec, FleetStatus, History, ModelName, ReplicaId, Routes,
};
use tokio::sync::oneshot;

use crate::launch::Launch;
use crate::tally::{Counts, Tally};

/// A gateway, as the scaler sees it. Both calls are short, do not block and are made from the driver's thread.
pub trait Plane: Send + Sync + 'static {
    /// Appends the load of every model (`None`) or of the named ones.
    fn demand(&self, of: Option<&[ModelName]>, out: &mut Vec<Demand>);

    /// Takes over new routes. When this returns, no request is dispatched by older ones: a replica that is draining
    /// or absent in `routes` gets nothing new.
    fn publish(&self, routes: &Arc<Routes>);

    /// Ends every exchange in flight at the replica; its drain deadline has passed.
    fn cut(&self, replica: ReplicaId);
}

/// A message to the scaler's driver.
pub enum Input {
    /// Look at these models' demand now: the first request is waiting, the queue grew, or a contended model fell idle.
    Poke(ModelName),
    /// Nothing is in flight any more at a draining replica.
    Drained(Drained),
    /// New configuration.
    Configure(Plan),
    /// A person's order.
    Command(Command, oneshot::Sender<Result<(), CommandError>>),
    /// What the same order would change, without giving it.
    Try(Command, oneshot::Sender<Result<Trial, CommandError>>),
    /// Write the journal as JSON lines.
    DumpJournal(oneshot::Sender<Vec<u8>>),
    /// Sluice was told to end, and goes on serving what is there: the next run continues from this moment.
    Ending,
    /// Drain and stop everything; answered when no replica is left.
    Shutdown(oneshot::Sender<()>),
}

/// A configuration as the scaler needs it.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// For the core.
    pub fleet: FleetSpec,
    /// For the backend: one entry per model of `fleet`.
    pub launches: BTreeMap<ModelName, Arc<Launch>>,
}

/// Orders of the admin API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// At least one replica now.
    Wake(ModelName),
    /// Zero replicas now.
    Sleep(ModelName),
    /// So many replicas now, at most `maxReplicas`, until the model has idled; `None` gives the say back to demand.
    Scale(ModelName, Option<u32>),
    /// This replica takes nothing new, finishes and goes.
    Drain(ReplicaId),
    /// The same for every replica that the model has now.
    DrainModel(ModelName),
}

/// What an order would change at once.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The state right after it. Replicas that it would start have made-up ids.
    pub status: FleetStatus,
    /// What would be done.
    pub actions: Vec<Action>,
}

/// Why an order was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// No such model.
    #[error("model {0} is not configured")]
    UnknownModel(ModelName),
    /// No such replica, or no longer.
    #[error("there is no replica {0}")]
    UnknownReplica(ReplicaId),
    /// More replicas than the model may have.
    #[error("model {model} may have at most {most} replicas (maxReplicas), and {asked} were asked for")]
    AboveMax {
        /// The model.
        model: ModelName,
        /// What was asked for.
        asked: u32,
        /// Its `maxReplicas`.
        most: u32,
    },
    /// The model's replicas are fixed addresses.
    #[error("model {0} is served by fixed addresses that sluice does not start or stop")]
    FixedModel(ModelName),
    /// The driver is gone.
    #[error("the scaler has stopped")]
    Stopped,
}

/// The sending half towards a running driver; cheap to clone.
#[derive(Clone)]
pub struct Handle {
    pub(crate) inputs: tokio::sync::mpsc::UnboundedSender<Input>,
    pub(crate) board: Arc<Board>,
}

/// Where the driver puts up its status, and who looks over its shoulder.
#[derive(Default)]
pub(crate) struct Board {
    status: arc_swap::ArcSwap<FleetStatus>,
    observer: OnceLock<Box<Observer>>,
    pub(crate) tally: Arc<Tally>,
    decisions: Mutex<History>,
}

/// Is told the former status and the new one, from the thread that replaced it: short and without blocking.
pub type Observer = dyn Fn(&FleetStatus, &FleetStatus) + Send + Sync;

impl Board {
    fn history(&self) -> MutexGuard<'_, History> {
        self.decisions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what a step has decided.
    pub(crate) fn decided(&self, decisions: &[Decision]) {
        if !decisions.is_empty() {
            let mut history = self.history();
            decisions.iter().for_each(|decision| history.push(decision));
        }
    }

    /// Forgets the decisions about models that are not configured any more.
    pub(crate) fn configured(&self, models: &BTreeSet<ModelName>) {
        self.history().retain(models);
    }

    pub(crate) fn put_up(&self, status: FleetStatus) {
        self.tally.decided(&status.models);
        let status = Arc::new(status);
        let former = self.status.swap(status.clone());
        if let Some(observer) = self.observer.get() {
            observer(&former, &status);
        }
    }
}

impl Handle {
    /// A handle and the channel that a driver (or a test in its place) reads.
    pub fn new() -> (Handle, tokio::sync::mpsc::UnboundedReceiver<Input>) {
        let (inputs, receiver) = tokio::sync::mpsc::unbounded_channel();
        (Handle { inputs, board: Arc::default() }, receiver)
    }

    /// Sends without waiting; a stopped driver is nobody's fault on this path.
    pub fn send(&self, input: Input) {
        let _ = self.inputs.send(input);
    }

    /// The state after the driver's last step.
    pub fn status(&self) -> Arc<FleetStatus> {
        self.board.status.load_full()
    }

    /// The last decisions about one model or (`None`) all, the latest last.
    pub fn decisions(&self, model: Option<&ModelName>) -> Vec<Arc<Decision>> {
        self.board.history().of(model)
    }

    /// What became of starts and decisions so far, of every configured model that had any.
    pub fn counts(&self) -> BTreeMap<ModelName, Counts> {
        self.board.tally.counts()
    }

    /// Replaces what [`Handle::status`] returns; for the driver, or a test in its place.
    pub fn set_status(&self, status: FleetStatus) {
        self.board.put_up(status);
    }

    /// Has `observer` told of every new status. Only the first observer is.
    pub fn observe(&self, observer: Box<Observer>) {
        let _ = self.board.observer.set(observer);
    }

    /// Gives an order and waits until the core has taken it.
    pub async fn command(&self, command: Command) -> Result<(), CommandError> {
        let (answer, taken) = oneshot::channel();
        self.send(Input::Command(command, answer));
        taken.await.unwrap_or(Err(CommandError::Stopped))
    }

    /// What an order would change, without giving it.
    pub async fn try_command(&self, command: Command) -> Result<Trial, CommandError> {
        let (answer, tried) = oneshot::channel();
        self.send(Input::Try(command, answer));
        tried.await.unwrap_or(Err(CommandError::Stopped))
    }
}
