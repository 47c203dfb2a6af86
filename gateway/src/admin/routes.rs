// SPDX-License-Identifier: Apache-2.0
//! The admin listener's paths, who may use them, and the limits of all.
//!
//! `/livez` and `/readyz` are outside every limit and free: a probe is answered however many API requests there are.
//! What each path answers is in the modules beside this one; what it promises is in [`super::openapi`].

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, RawQuery, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use sluice_core::{FleetStatus, ModelStatus};
use sluice_scaler::Input;
use tokio::sync::{Semaphore, oneshot, watch};

use super::auth::Role;
use super::guard::{self, Reach};
use super::idempotency::{self, Remembered};
use super::problem::{Kind, Problem};
use super::{api, decisions, openapi, orders, read, settings, state::AdminState, watch as follow};
use crate::telemetry::Format;

/// API requests at once; a further one is refused at once.
const CONCURRENCY: usize = 64;

/// Longest time until an API answer's head, waiting that was asked for aside.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);

/// Clients at once that follow logs or events, or wait for the end of an order.
const FOLLOWERS: usize = 32;

pub(super) const MODELS: &str = "/api/v1/models/";

pub(super) type Answer<T> = Result<T, Problem>;

/// What every handler gets.
#[derive(Clone)]
pub(super) struct Shared {
    pub admin: AdminState,
    pub stopping: watch::Receiver<bool>,
    pub remembered: Arc<Remembered>,
    requests: Arc<Semaphore>,
    followers: Arc<Semaphore>,
}

impl Shared {
    /// A place among the clients that stay.
    pub fn follower(&self) -> Answer<tokio::sync::OwnedSemaphorePermit> {
        Arc::clone(&self.followers)
            .try_acquire_owned()
            .map_err(|_| Problem::new(Kind::Overloaded, format!("{FOLLOWERS} clients follow or wait")))
    }
}

/// The whole service. Answers without an end do end once `stopping` is true.
pub(super) fn router(admin: AdminState, reach: Reach, stopping: watch::Receiver<bool>) -> Router {
    let shared = Shared {
        admin,
        stopping,
        remembered: Arc::default(),
        requests: Arc::new(Semaphore::new(CONCURRENCY)),
        followers: Arc::new(Semaphore::new(FOLLOWERS)),
    };
    let below_models =
        get(read::below_models).post(orders::for_model).patch(settings::patch).delete(settings::reset);
    let api = Router::new()
        .route("/metrics", get(metrics))
        .route("/openapi.json", get(openapi::serve))
        .route("/api/v1/models", get(read::models))
        .route("/api/v1/models/{*rest}", below_models)
        .route("/api/v1/replicas", get(read::replicas))
        .route("/api/v1/replicas/{id}", get(read::replica).post(orders::for_replica))
        .route("/api/v1/decisions", get(decisions::list))
        .route("/api/v1/config", get(config))
        .route("/api/v1/journal", get(journal))
        .route("/api/v1/watch", get(follow::events))
        .route_layer(from_fn_with_state(shared.clone(), idempotency::once))
        .route_layer(from_fn_with_state(shared.clone(), limited))
        .route_layer(from_fn_with_state(shared.clone(), authorised))
        .route_layer(from_fn_with_state(reach, guard::guard));
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .merge(api)
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .with_state(shared)
}

/// Whoever reads needs to be viewer; whoever changes something, operator, and of some settings more.
async fn authorised(State(shared): State<Shared>, mut request: Request, next: Next) -> Answer<Response> {
    let caller = shared.admin.access.identify(request.headers())?;
    caller.require(if request.method().is_safe() { Role::Viewer } else { Role::Operator })?;
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}

async fn limited(State(shared): State<Shared>, request: Request, next: Next) -> Answer<Response> {
    let refused = || Problem::new(Kind::Overloaded, format!("{CONCURRENCY} API requests are being answered"));
    let _slot = shared.requests.try_acquire().map_err(|_| refused())?;
    let waits = request.uri().query().is_some_and(|query| query.contains("wait="));
    let limit = if waits { TIMEOUT + orders::LONGEST_WAIT } else { TIMEOUT };
    let late = |_| Problem::new(Kind::Timeout, format!("no answer within {} s", limit.as_secs()));
    tokio::time::timeout(limit, next.run(request)).await.map_err(late)
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

async fn metrics(State(shared): State<Shared>, headers: HeaderMap) -> Answer<Response> {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let format = Format::accepted(accept.unwrap_or_default());
    let render = shared.admin.metrics;
    let text = tokio::task::spawn_blocking(move || render(format))
        .await
        .map_err(|_| Problem::new(Kind::Internal, "the metrics could not be rendered"))?;
    Ok(typed(format.content_type(), Body::from(text)))
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

/// The model of this name.
pub(super) fn find<'a>(status: &'a FleetStatus, name: &str) -> Answer<&'a ModelStatus> {
    status.models.iter().find(|model| model.name.as_str() == name).ok_or_else(|| no_model(name))
}

pub(super) fn no_model(name: &str) -> Problem {
    Problem::new(Kind::UnknownModel, format!("model {name:?} is not configured"))
}

/// What follows `/api/v1/models/`, as it came.
pub(super) fn rest(uri: &Uri) -> &str {
    uri.path().strip_prefix(MODELS).unwrap_or_default()
}

/// The parameters, or what is wrong with them.
pub(super) fn parameters<T>(query: Result<Query<T>, QueryRejection>) -> Answer<T> {
    query.map(|Query(query)| query).map_err(|error| Problem::new(Kind::InvalidParameter, error.body_text()))
}

pub(super) fn typed(content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
