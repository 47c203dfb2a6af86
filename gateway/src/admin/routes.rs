// SPDX-License-Identifier: Apache-2.0
//! The admin listener's paths and what each answers.
//!
//! `/livez` and `/readyz` are outside every limit: a probe is answered however many API requests there are.

use std::sync::Arc;
use std::time::Duration;

use axum::BoxError;
use axum::body::Body;
use axum::error_handling::HandleErrorLayer;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router, middleware};
use http::{HeaderValue, Method, StatusCode, Uri, header};
use serde::Deserialize;
use sluice_core::{FleetStatus, ModelName, ModelStatus};
use sluice_scaler::{Command, CommandError, Input};
use tokio::sync::{Semaphore, oneshot, watch};
use tower::ServiceBuilder;
use tower::limit::GlobalConcurrencyLimitLayer;

use super::clock::Moment;
use super::guard::{self, Reach};
use super::logs::{self, LogQuery, TAIL_LIMIT};
use super::path::{self, Read, Verb};
use super::problem::{Kind, Problem};
use super::{api, state::AdminState};

/// API requests at once; a further one is refused at once.
const CONCURRENCY: usize = 64;

/// Longest time until an API answer's head.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Log followers at once.
const FOLLOWERS: usize = 32;

const MODELS: &str = "/api/v1/models/";

type Answer<T> = Result<T, Problem>;

#[derive(Clone)]
struct Shared {
    admin: AdminState,
    followers: Arc<Semaphore>,
    stopping: watch::Receiver<bool>,
}

/// The whole service. Answers without an end do end once `stopping` is true.
pub(super) fn router(admin: AdminState, reach: Reach, stopping: watch::Receiver<bool>) -> Router {
    let shared = Shared { admin, followers: Arc::new(Semaphore::new(FOLLOWERS)), stopping };
    let limits = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(limited))
        .load_shed()
        .layer(GlobalConcurrencyLimitLayer::new(CONCURRENCY))
        .timeout(TIMEOUT);
    let api = Router::new()
        .route("/metrics", get(metrics))
        .route("/api/v1/models", get(models))
        .route("/api/v1/models/{*rest}", get(read_model).post(order_model))
        .route("/api/v1/replicas", get(replicas))
        .route("/api/v1/replicas/{id}", get(replica))
        .route("/api/v1/config", get(config))
        .route("/api/v1/journal", get(journal))
        .route_layer(limits)
        .route_layer(middleware::from_fn_with_state(reach, guard::guard));
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .merge(api)
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .with_state(shared)
}

async fn limited(error: BoxError) -> Problem {
    if error.is::<tower::timeout::error::Elapsed>() {
        return Problem::new(Kind::Timeout, format!("no answer within {} s", TIMEOUT.as_secs()));
    }
    if error.is::<tower::load_shed::error::Overloaded>() {
        return Problem::new(Kind::Overloaded, format!("{CONCURRENCY} API requests are being answered"));
    }
    Problem::new(Kind::Internal, error.to_string())
}

async fn unknown_route(uri: Uri) -> Problem {
    Problem::new(Kind::UnknownRoute, format!("there is nothing at {}", uri.path()))
}

async fn wrong_method(method: Method, uri: Uri) -> Problem {
    Problem::new(Kind::MethodNotAllowed, format!("{method} is not possible at {}", uri.path()))
}

async fn readyz(State(shared): State<Shared>, RawQuery(query): RawQuery) -> Response {
    let verdict = shared.admin.readiness.verdict();
    let status = if verdict.passed() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let verbose = query.is_some_and(|query| query.split('&').any(|item| item.starts_with("verbose")));
    let text = if verbose { verdict.verbose() } else { verdict.summary() };
    (status, text + "\n").into_response()
}

async fn metrics(State(shared): State<Shared>) -> Answer<Response> {
    let render = shared.admin.metrics;
    let text = tokio::task::spawn_blocking(move || render())
        .await
        .map_err(|_| Problem::new(Kind::Internal, "the metrics could not be rendered"))?;
    Ok(typed("text/plain; version=0.0.4; charset=utf-8", Body::from(text)))
}

async fn models(State(shared): State<Shared>) -> Json<api::List<api::Model>> {
    let admin = &shared.admin;
    Json(api::models(&admin.handle.status(), &*admin.model_load, Moment::now()))
}

async fn read_model(
    State(shared): State<Shared>,
    uri: Uri,
    query: Result<Query<LogQuery>, QueryRejection>,
) -> Answer<Response> {
    match path::read(rest(&uri)) {
        None => Err(no_model(rest(&uri))),
        Some(Read::Model(name)) => {
            let status = shared.admin.handle.status();
            let model = find(&status, &name)?;
            let load = shared.admin.model_load.load(&model.name);
            Ok(Json(api::model(model, load.as_ref(), Moment::now())).into_response())
        }
        Some(Read::Logs(name)) => {
            let Query(query) =
                query.map_err(|error| Problem::new(Kind::InvalidParameter, error.body_text()))?;
            model_logs(&shared, &name, &query)
        }
    }
}

fn model_logs(shared: &Shared, name: &str, query: &LogQuery) -> Answer<Response> {
    if query.tail > TAIL_LIMIT {
        return Err(Problem::new(Kind::InvalidParameter, format!("tail: at most {TAIL_LIMIT}")));
    }
    let status = shared.admin.handle.status();
    let model = find(&status, name)?;
    let (past, live) = shared.admin.logs.tail(&model.name, query.tail);
    if !query.follow {
        return Ok(typed("application/x-ndjson", logs::past(&past)));
    }
    let slot = Arc::clone(&shared.followers).try_acquire_owned();
    let slot =
        slot.map_err(|_| Problem::new(Kind::Overloaded, format!("{FOLLOWERS} clients follow logs")))?;
    Ok(typed("application/x-ndjson", logs::follow(&past, live, slot, shared.stopping.clone())))
}

async fn order_model(State(shared): State<Shared>, uri: Uri) -> Answer<Response> {
    let Some((name, verb)) = path::order(rest(&uri)) else {
        let problem = Problem::new(Kind::MethodNotAllowed, "a POST ends in :wake or :sleep");
        return Ok(([(header::ALLOW, "GET,HEAD")], problem).into_response());
    };
    let model = ModelName::from(name.as_str());
    let command = match verb {
        Verb::Wake => Command::Wake(model),
        Verb::Sleep => Command::Sleep(model),
    };
    tracing::info!(target: "sluice::admin", model = name, order = ?verb, "admin_order");
    shared.admin.handle.command(command).await.map_err(|error| match error {
        CommandError::UnknownModel(_) => no_model(&name),
        CommandError::FixedModel(_) => Problem::new(Kind::FixedModel, error.to_string()),
        CommandError::Stopped => Problem::new(Kind::ScalerStopped, error.to_string()),
    })?;
    let status = shared.admin.handle.status();
    let model = find(&status, &name)?;
    let load = shared.admin.model_load.load(&model.name);
    Ok((StatusCode::ACCEPTED, Json(api::model(model, load.as_ref(), Moment::now()))).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplicaQuery {
    model: Option<String>,
}

async fn replicas(
    State(shared): State<Shared>,
    query: Result<Query<ReplicaQuery>, QueryRejection>,
) -> Answer<Json<api::List<api::Replica>>> {
    let Query(query) = query.map_err(|error| Problem::new(Kind::InvalidParameter, error.body_text()))?;
    let status = shared.admin.handle.status();
    let mut list = api::replicas(&status, &*shared.admin.model_load, Moment::now());
    if let Some(name) = query.model {
        find(&status, &name)?;
        list.items.retain(|replica| replica.model == name);
    }
    Ok(Json(list))
}

async fn replica(State(shared): State<Shared>, Path(id): Path<String>) -> Answer<Json<api::Replica>> {
    let status = shared.admin.handle.status();
    let found = status.replicas.iter().find(|replica| replica.id.to_string() == id);
    let replica =
        found.ok_or_else(|| Problem::new(Kind::UnknownReplica, format!("there is no replica {id}")))?;
    let load = shared.admin.model_load.load(&replica.model);
    Ok(Json(api::replica(replica, load.as_ref(), Moment::now())))
}

async fn config(State(shared): State<Shared>) -> Json<api::Config> {
    Json(api::config(shared.admin.loaded.report()))
}

async fn journal(State(shared): State<Shared>) -> Answer<Response> {
    let (answer, dumped) = oneshot::channel();
    shared.admin.handle.send(Input::DumpJournal(answer));
    let lines = dumped.await.map_err(|_| Problem::new(Kind::ScalerStopped, "the scaler has stopped"))?;
    Ok(typed("application/x-ndjson", Body::from(lines)))
}

fn find<'a>(status: &'a FleetStatus, name: &str) -> Answer<&'a ModelStatus> {
    status.models.iter().find(|model| model.name.as_str() == name).ok_or_else(|| no_model(name))
}

fn no_model(name: &str) -> Problem {
    Problem::new(Kind::UnknownModel, format!("model {name:?} is not configured"))
}

/// What follows `/api/v1/models/`, as it came.
fn rest(uri: &Uri) -> &str {
    uri.path().strip_prefix(MODELS).unwrap_or_default()
}

fn typed(content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
