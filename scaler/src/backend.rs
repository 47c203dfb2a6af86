// SPDX-License-Identifier: Apache-2.0
//! Who carries out the core's actions: the interface, and the backend of one machine.
//!
//! Owns the assignment of replicas to tasks. Must not know decisions; orders return at once and outcomes come as events.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use sluice_core::{ModelName, ReplicaEvent, ReplicaId};
use tokio::sync::{mpsc, oneshot};

use crate::fixed;
use crate::launch::Launch;
use crate::logs::LogBook;
use crate::process::{self, Nursery, Order, StateError};

/// What happened to which replica, in order per replica; after `Gone` nothing more comes for it.
pub type BackendEvent = (ReplicaId, ReplicaEvent);

/// Starts and stops replicas. No call blocks.
pub trait Backend: Send + 'static {
    /// The channel of events. Called once, by the driver.
    fn events(&mut self) -> mpsc::UnboundedReceiver<BackendEvent>;

    /// How replicas are started from now on. Running ones are not touched.
    fn configure(&mut self, launches: &BTreeMap<ModelName, Arc<Launch>>);

    /// Starts a replica, or attaches the model's fixed address number `ordinal`. A replica that is there already stays.
    fn start(&mut self, replica: ReplicaId, model: &ModelName, ordinal: u32);

    /// Stops a replica; `Gone` follows in any case.
    fn stop(&mut self, replica: ReplicaId);
}

/// What the machine's backend needs to know.
#[derive(Clone, Default)]
pub struct LocalOptions {
    /// Where records of running children are kept; the first usable of [`process::default_directories`] if `None`.
    pub state_directory: Option<PathBuf>,
    /// Soft limit of open files for children: what Sluice had before it raised its own. `None` leaves them ours.
    pub open_files: Option<u64>,
    /// For probes of `https` addresses; the roots that browsers trust if `None`.
    pub tls: Option<Arc<rustls::ClientConfig>>,
}

/// Why the backend cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The state directory that was asked for is unusable.
    #[error(transparent)]
    State(#[from] StateError),
    /// No threads.
    #[error("cannot start the backend's threads: {0}")]
    Threads(#[from] std::io::Error),
}

/// Child processes and fixed addresses on this machine.
pub struct LocalBackend {
    shared: Arc<Shared>,
    launches: BTreeMap<ModelName, Arc<Launch>>,
    live: BTreeMap<ReplicaId, oneshot::Sender<()>>,
    receiver: Option<mpsc::UnboundedReceiver<BackendEvent>>,
    runtime: Option<tokio::runtime::Runtime>,
}

struct Shared {
    nursery: Nursery,
    tls: Arc<rustls::ClientConfig>,
    events: mpsc::UnboundedSender<BackendEvent>,
}

impl LocalBackend {
    /// Ends what a dead Sluice left on this machine, then is ready. Blocks for as long as that takes, milliseconds
    /// usually.
    pub fn open(options: LocalOptions) -> Result<Self, BackendError> {
        let instance = uuid::Uuid::now_v7().simple().to_string();
        let state = match &options.state_directory {
            Some(root) => Some(process::open_state(root, &instance)?),
            None => first_usable(&instance),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("sluice-backend")
            .enable_all()
            .build()?;
        let (events, receiver) = mpsc::unbounded_channel();
        let nursery = Nursery { instance, state, logs: Arc::default(), open_files: options.open_files };
        let tls = options.tls.unwrap_or_else(|| Arc::new(public_roots()));
        Ok(LocalBackend {
            shared: Arc::new(Shared { nursery, tls, events }),
            launches: BTreeMap::new(),
            live: BTreeMap::new(),
            receiver: Some(receiver),
            runtime: Some(runtime),
        })
    }

    /// What replicas write.
    pub fn logs(&self) -> Arc<LogBook> {
        self.shared.nursery.logs.clone()
    }
}

impl Backend for LocalBackend {
    fn events(&mut self) -> mpsc::UnboundedReceiver<BackendEvent> {
        self.receiver.take().unwrap_or_else(|| mpsc::unbounded_channel().1)
    }

    fn configure(&mut self, launches: &BTreeMap<ModelName, Arc<Launch>>) {
        self.launches = launches.clone();
        self.shared.nursery.logs.retain(|model| launches.contains_key(model));
    }

    fn start(&mut self, replica: ReplicaId, model: &ModelName, ordinal: u32) {
        self.live.retain(|_, stop| !stop.is_closed());
        if self.live.contains_key(&replica) {
            return;
        }
        let (Some(launch), Some(runtime)) = (self.launches.get(model), &self.runtime) else {
            self.shared.gone(replica, format!("model {model} is not configured"));
            return;
        };
        let (stop, stopped) = oneshot::channel();
        self.live.insert(replica, stop);
        let order = Order { replica, model: model.clone(), launch: launch.clone(), stop: stopped };
        runtime.spawn(attend(self.shared.clone(), order, ordinal));
    }

    fn stop(&mut self, replica: ReplicaId) {
        match self.live.remove(&replica) {
            // If it has ended meanwhile, its end was told.
            Some(stop) => drop(stop.send(())),
            None => tracing::debug!(%replica, "stop_of_absent_replica"),
        }
    }
}

impl Drop for LocalBackend {
    /// Without an orderly end, nothing started here stays.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        process::abandon(&self.shared.nursery.instance);
    }
}

impl Shared {
    fn gone(&self, replica: ReplicaId, cause: String) {
        self.emit(replica, ReplicaEvent::Gone { cause });
    }

    fn emit(&self, replica: ReplicaId, event: ReplicaEvent) {
        // Without a driver nobody wants to know.
        let _ = self.events.send((replica, event));
    }
}

/// Sees to it that the end is told even if a task of ours breaks.
async fn attend(shared: Arc<Shared>, order: Order, ordinal: u32) {
    let replica = order.replica;
    let cause = tokio::spawn(attend_to_end(shared.clone(), order, ordinal)).await;
    let cause = cause.unwrap_or_else(|error| {
        tracing::error!(%replica, %error, "replica_task_failed");
        process::abandon_one(&shared.nursery.instance, replica);
        "sluice lost track of it through a fault of its own".to_owned()
    });
    shared.gone(replica, cause);
}

async fn attend_to_end(shared: Arc<Shared>, order: Order, ordinal: u32) -> String {
    let replica = order.replica;
    let launch = order.launch.clone();
    let emit = |event| shared.emit(replica, event);
    match &*launch {
        Launch::Process(process) => process::attend(&shared.nursery, process, order, emit).await,
        Launch::Fixed(fixed) => fixed::attend(fixed, ordinal, shared.tls.clone(), order.stop, emit).await,
    }
}

fn first_usable(instance: &str) -> Option<process::State> {
    for root in process::default_directories() {
        match process::open_state(&root, instance) {
            Ok(state) => return Some(state),
            Err(error) => tracing::warn!(%error, "state_directory_unusable"),
        }
    }
    None
}

fn public_roots() -> rustls::ClientConfig {
    let roots = rustls::RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.into() };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    #[expect(clippy::expect_used, reason = "ring supports every version that is compiled in")]
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has the default protocol versions")
        .with_root_certificates(roots)
        .with_no_client_auth()
}
