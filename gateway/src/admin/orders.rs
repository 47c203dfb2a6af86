// SPDX-License-Identifier: Apache-2.0
//! Orders: `:wake`, `:sleep`, `:scale`, `:drain`, tried or given, and waited for.
//!
//! An order is taken at once; what it leads to takes its time. Whoever wants to see it through says how long to wait.
//! Must not decide anything: the scaler takes or refuses.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::{Json, http};
use http::{HeaderMap, StatusCode, Uri, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sluice_core::{FleetStatus, ModelName, Phase, ReplicaId, ReplicaStatus};
use sluice_scaler::{Command, CommandError};
use tokio::time::Instant;

use super::api::{self, ScaleOrder};
use super::auth::Caller;
use super::clock::Moment;
use super::events::Event;
use super::path::{self, Verb};
use super::problem::{Kind, Problem};
use super::read;
use super::routes::{Answer, Shared, TIMEOUT, no_model, parameters, rest};

/// Longest wait for an order's end.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// Query of an order.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct OrderQuery {
    /// Only tell what it would change.
    #[serde(default)]
    dry_run: bool,
    /// Seconds to wait for its end.
    wait: Option<u64>,
}

/// An order and where it ends.
struct Order {
    verb: &'static str,
    model: ModelName,
    replica: Option<ReplicaStatus>,
    command: Command,
    goal: Goal,
}

/// What waiting waits for.
enum Goal {
    /// A replica takes requests.
    Awake,
    /// So many do, and none comes or goes.
    Count(u32),
    /// These replicas are gone, or all of the model.
    Gone(Option<BTreeSet<ReplicaId>>),
    /// Being taken.
    Taken,
}

pub(super) async fn for_model(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    query: Result<Query<OrderQuery>, QueryRejection>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer<Response> {
    let Some((name, verb)) = path::order(rest(&uri)) else {
        let problem = Problem::new(Kind::MethodNotAllowed, "a POST ends in :wake, :sleep, :scale or :drain");
        return Ok(([(header::ALLOW, "GET,HEAD,PATCH")], problem).into_response());
    };
    let query = parameters(query)?;
    let model = ModelName::from(name.as_str());
    let (verb, command, goal) = match verb {
        Verb::Wake => ("wake", Command::Wake(model.clone()), Goal::Awake),
        Verb::Sleep => ("sleep", Command::Sleep(model.clone()), Goal::Gone(None)),
        Verb::Scale => {
            let ScaleOrder { replicas } = json(&headers, &body, &["application/json"])?;
            let goal = match replicas {
                None => Goal::Taken,
                Some(0) => Goal::Gone(None),
                Some(count) => Goal::Count(count),
            };
            ("scale", Command::Scale(model.clone(), replicas), goal)
        }
        Verb::Drain => {
            let status = shared.admin.handle.status();
            let present = status.replicas.iter().filter(|one| one.model == model).map(|one| one.id);
            ("drain", Command::DrainModel(model.clone()), Goal::Gone(Some(present.collect())))
        }
    };
    carry_out(&shared, &caller, Order { verb, model, replica: None, command, goal }, &query).await
}

pub(super) async fn for_replica(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(rest): Path<String>,
    query: Result<Query<OrderQuery>, QueryRejection>,
) -> Answer<Response> {
    let Some(id) = rest.strip_suffix(":drain") else {
        let problem = Problem::new(Kind::MethodNotAllowed, "a POST ends in :drain");
        return Ok(([(header::ALLOW, "GET,HEAD")], problem).into_response());
    };
    let query = parameters(query)?;
    let replica = read::find_replica(&shared.admin.handle.status(), id)?.clone();
    let order = Order {
        verb: "drain",
        model: replica.model.clone(),
        command: Command::Drain(replica.id),
        goal: Goal::Gone(Some(BTreeSet::from([replica.id]))),
        replica: Some(replica),
    };
    carry_out(&shared, &caller, order, &query).await
}

async fn carry_out(shared: &Shared, caller: &Caller, order: Order, query: &OrderQuery) -> Answer<Response> {
    let wait = query.wait.map(Duration::from_secs);
    if wait.is_some_and(|wait| wait > LONGEST_WAIT) {
        let most = LONGEST_WAIT.as_secs();
        return Err(Problem::new(Kind::InvalidParameter, format!("wait: at most {most} seconds")));
    }
    if query.dry_run {
        return trial(shared, order).await;
    }
    let _place = wait.map(|_| shared.follower()).transpose()?;
    let failures = failures(&shared.admin.handle.status(), &order.model);
    tracing::info!(
        target: "sluice::admin", model = %order.model, order = order.verb, by = &*caller.name, "admin_order"
    );
    let taken = tokio::time::timeout(TIMEOUT, shared.admin.handle.command(order.command));
    let late = |_| Problem::new(Kind::Timeout, format!("no answer within {} s", TIMEOUT.as_secs()));
    taken.await.map_err(late)?.map_err(refused)?;
    let replica = order.replica.as_ref().map(|replica| replica.id.to_string());
    shared.admin.events.add(Event::order(order.verb, order.model.as_str(), replica, &caller.name));
    let reached = match wait {
        None => false,
        Some(wait) => see_through(shared, &order.model, &order.goal, failures, wait).await?,
    };
    let status = if reached { StatusCode::OK } else { StatusCode::ACCEPTED };
    match order.replica {
        None => Ok((status, Json(read::model(shared, order.model.as_str())?)).into_response()),
        Some(before) => Ok((status, Json(replica_now(shared, before))).into_response()),
    }
}

/// What the order would change.
async fn trial(shared: &Shared, order: Order) -> Answer<Response> {
    let trial = shared.admin.handle.try_command(order.command).await.map_err(refused)?;
    let before = shared.admin.handle.status();
    let effects = api::effects(&before, &trial, &order.model, Moment::now());
    let effects = effects.ok_or_else(|| no_model(order.model.as_str()))?;
    Ok(Json(effects).into_response())
}

/// Waits for the goal; `false` if time ran out.
async fn see_through(
    shared: &Shared,
    model: &ModelName,
    goal: &Goal,
    failures_before: u32,
    wait: Duration,
) -> Answer<bool> {
    let end = Instant::now() + wait;
    let (mut grown, mut stopping) = (shared.admin.events.grown(), shared.stopping.clone());
    loop {
        grown.mark_unchanged();
        let status = shared.admin.handle.status();
        if reached(&status, model, goal) {
            return Ok(true);
        }
        if matches!(goal, Goal::Awake | Goal::Count(_)) {
            started(&status, model, failures_before)?;
        }
        tokio::select! {
            () = tokio::time::sleep_until(end) => return Ok(false),
            _ = stopping.wait_for(|stop| *stop) => return Ok(false),
            // The log only grows with what is told; a look now and then misses nothing else.
            _ = tokio::time::timeout(Duration::from_millis(250), grown.changed()) => {}
        }
    }
}

fn reached(status: &FleetStatus, model: &ModelName, goal: &Goal) -> bool {
    let own = || status.replicas.iter().filter(|replica| replica.model == *model);
    let Some(now) = status.models.iter().find(|one| one.name == *model) else {
        return own().next().is_none();
    };
    match goal {
        Goal::Awake => now.ready > 0,
        Goal::Count(count) => now.ready == *count && now.starting + now.leaving == 0,
        Goal::Gone(None) => own().next().is_none(),
        Goal::Gone(Some(these)) => !own().any(|replica| these.contains(&replica.id)),
        Goal::Taken => true,
    }
}

/// Starts failed since the order until even waiting requests are told so: waiting on would be in vain.
fn started(status: &FleetStatus, model: &ModelName, failures_before: u32) -> Answer<()> {
    let fault = status.models.iter().find(|one| one.name == *model).and_then(|one| one.fault.as_ref());
    match fault.filter(|fault| fault.answer_waiters && fault.failures != failures_before) {
        Some(fault) => {
            Err(Problem::new(Kind::StartFailed, format!("{model} does not start: {}", fault.cause)))
        }
        None => Ok(()),
    }
}

fn failures(status: &FleetStatus, model: &ModelName) -> u32 {
    let fault = status.models.iter().find(|one| one.name == *model).and_then(|one| one.fault.as_ref());
    fault.map_or(0, |fault| fault.failures)
}

/// The replica as it is; of one that is gone meanwhile, its end.
fn replica_now(shared: &Shared, before: ReplicaStatus) -> api::Replica {
    let status = shared.admin.handle.status();
    let now = status.replicas.iter().find(|replica| replica.id == before.id);
    let load = shared.admin.model_load.load(&before.model);
    let ended = ReplicaStatus { phase: Phase::Stopping, note: "gone".to_owned(), ..before };
    api::replica(now.unwrap_or(&ended), load.as_ref(), Moment::now())
}

fn refused(error: CommandError) -> Problem {
    let kind = match &error {
        CommandError::UnknownModel(name) => return no_model(name.as_str()),
        CommandError::UnknownReplica(_) => Kind::UnknownReplica,
        CommandError::FixedModel(_) => Kind::FixedModel,
        CommandError::AboveMax { .. } => Kind::AboveMaximum,
        CommandError::Stopped => Kind::ScalerStopped,
    };
    Problem::new(kind, error.to_string())
}

/// The body as a document.
pub(super) fn json<T: DeserializeOwned>(headers: &HeaderMap, body: &[u8], expected: &[&str]) -> Answer<T> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = given.map(|given| given.split(';').next().unwrap_or_default().trim());
    if essence.is_some_and(|essence| !expected.iter().any(|one| one.eq_ignore_ascii_case(essence))) {
        return Err(Problem::new(
            Kind::UnsupportedType,
            format!("the body must be {}", expected.join(" or ")),
        ));
    }
    serde_json::from_slice(body)
        .map_err(|error| Problem::new(Kind::InvalidBody, format!("the body: {error}")))
}
