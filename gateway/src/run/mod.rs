// SPDX-License-Identifier: Apache-2.0
//! `sluice run`: all roles in one process, from the first line of the configuration to the last child's end.
//!
//! Owns the order of start and stop, and the signals. Every step is elsewhere.

mod announce;
mod certificates;
mod files;
mod keep;
mod notify;
mod reload;
mod seams;
mod stop;
mod store;
mod tokens;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sluice_scaler::{Driver, Handle, Input, LocalBackend, LocalOptions, LogBook, clock};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use crate::admin::{Access, Admin, AdminState, EventLog, Readiness};
use crate::cli::{Exit, RunArgs};
use crate::config::{Loaded, Overlay};
use crate::exchange::transport;
use crate::front::Front;
use crate::gateway::Gateway;
use crate::logging;
use crate::route::Table;
use crate::telemetry;
use crate::trace::Tracer;

/// How often waiting requests are checked against their budgets.
const SWEEP: Duration = Duration::from_millis(20);

/// Why Sluice did not start.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error(transparent)]
    Front(#[from] crate::front::FrontError),
    #[error(transparent)]
    Admin(#[from] crate::admin::AdminError),
    #[error(transparent)]
    Tokens(#[from] crate::admin::auth::TokensError),
    #[error(transparent)]
    Backend(#[from] sluice_scaler::BackendError),
    #[error(transparent)]
    Journal(#[from] sluice_scaler::keep::KeepError),
    #[error(transparent)]
    Trace(#[from] crate::trace::TraceError),
    #[error("a thread or runtime could not be started: {0}")]
    Threads(#[from] io::Error),
}

/// What runs, for as long as it runs.
struct Running {
    handle: Handle,
    gateway: Arc<Gateway>,
    readiness: Arc<Readiness>,
    front: Front,
    _admin: Admin,
    reload: reload::Reload,
    /// File of the tokens, and what it says.
    tokens: Option<(PathBuf, Access)>,
}

/// Serves until told to stop.
pub fn run(args: RunArgs) -> Exit {
    let _logging = match logging::init() {
        Ok(logging) => logging,
        Err(error) => {
            eprintln!("error: {error}");
            return Exit::Usage;
        }
    };
    let store = store::Store::of(args.config());
    let loaded = match reload::load(args.config(), &store) {
        Ok(loaded) => loaded,
        Err(report) => {
            eprint!("{report}");
            return Exit::InvalidConfig;
        }
    };
    if !loaded.0.notes.is_empty() {
        let notes = loaded.0.notes.len();
        tracing::info!(notes, "config_notes: `sluice check` prints them");
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&StartError::Threads(error)),
    };
    let outcome = runtime.block_on(async {
        let running = start(args, loaded, store)?;
        Ok(serve(running).await)
    });
    match outcome {
        Ok(exit) => exit,
        Err(error) => failed(&error),
    }
}

fn failed(error: &StartError) -> Exit {
    tracing::error!(%error, "start_failed");
    eprintln!("error: {error}");
    Exit::Failed
}

/// Starts every part; what the next needs is there before it.
fn start(args: RunArgs, loaded: (Loaded, Overlay), store: store::Store) -> Result<Running, StartError> {
    let events = Arc::new(EventLog::new());
    let reload = reload::Reload::new(args.config().to_owned(), loaded, store, events.clone());
    let loaded = reload.loaded();
    let open_files = files::raise_limit(&loaded.settings.limits);
    telemetry::install();
    telemetry::configured();
    let settings = &loaded.settings;
    let (handle, inputs) = Handle::new();
    let table = Table::new(handle.clone());
    table.configure(settings);
    let gateway = Gateway::new(table.clone(), settings);

    if let Some(tracing) = &settings.tracing {
        // Nobody else sets it.
        let _ = gateway.tracer.set(Tracer::start(tracing)?);
    }

    let logs = start_scaler(&reload, &table, (&handle, inputs), open_files)?;
    let readiness = Arc::new(Readiness::new());
    let log = events.clone();
    handle.observe(Box::new(move |former, new| log.compare(former, new)));
    let metrics =
        seams::Metrics { gateway: gateway.clone(), handle: handle.clone(), readiness: readiness.clone() };
    let access = tokens::access(settings.admin_tokens.as_deref())?;
    let admin = Admin::start(
        settings.admin,
        AdminState {
            handle: handle.clone(),
            readiness: readiness.clone(),
            metrics: Arc::new(move |format| metrics.render(format)),
            logs: Arc::new(seams::Logs(logs)),
            loaded: reload.shown(),
            settings: reload.shown(),
            model_load: Arc::new(seams::Loads(table)),
            events,
            access: access.clone(),
        },
    )?;
    let front = Front::start(settings, gateway.clone())?;
    front.certificates.clone().into_iter().for_each(|pair| reload.serve_with(pair));
    readiness.ready();
    announce::started(loaded, &front, admin.address());
    notify::ready(settings.models.len());
    let tokens = settings.admin_tokens.clone().map(|file| (file, access));
    Ok(Running { handle, gateway, readiness, front, _admin: admin, reload, tokens })
}

/// Starts the scaler; it continues from the last run if that was a moment ago. Returns what replicas print.
fn start_scaler(
    reload: &reload::Reload,
    table: &Arc<Table>,
    (handle, inputs): (&Handle, mpsc::UnboundedReceiver<Input>),
    open_files: Option<u64>,
) -> Result<Arc<LogBook>, StartError> {
    let settings = &reload.loaded().settings;
    let backend = LocalBackend::open(LocalOptions {
        state_directory: settings.state_directory.clone(),
        open_files,
        tls: transport::trusted_roots(),
    })?;
    let logs = backend.logs();
    let mut driver = Driver::new(backend, table.clone(), inputs, handle);
    if let Some((keeper, former)) = keep::open(settings.state_directory.as_deref(), reload.path())? {
        driver = driver.keep(keeper, former);
    }
    driver.spawn()?;
    handle.send(Input::Configure(settings.plan.clone()));
    Ok(logs)
}

/// Handles signals, reloads and periodic work until a signal ends it.
async fn serve(mut running: Running) -> Exit {
    let signals =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()), signal(SignalKind::hangup()));
    let (Ok(mut terminate), Ok(mut interrupt), Ok(mut hangup)) = signals else {
        return Exit::Failed;
    };
    let mut sweep = tokio::time::interval(SWEEP);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut changes = running.reload.watch();
    let mut heartbeat = notify::Heartbeat::new();
    let Some(mut requests) = running.reload.requests() else { return Exit::Failed };
    if let Some(certificates) = running.front.certificates.clone() {
        tokio::spawn(certificates::keep_fresh(certificates));
    }
    if let Some((file, access)) = running.tokens.take() {
        tokio::spawn(tokens::keep_fresh(file, access));
    }
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => running.reload.now(&running.gateway, &running.handle),
            Some(()) = changes.recv() => running.reload.now(&running.gateway, &running.handle),
            () = heartbeat.due() => notify::Heartbeat::beat(&running.handle),
            Some(request) = requests.recv() => running.reload.change(request, &running.gateway, &running.handle),
            _ = sweep.tick() => running.gateway.table.sweep(clock::now()),
        }
    }
    // No change is taken any more.
    drop(requests);
    tokio::select! {
        exit = stop::stop(&mut running) => exit,
        _ = terminate.recv() => stop::at_once(),
        _ = interrupt.recv() => stop::at_once(),
    }
}
