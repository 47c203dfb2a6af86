// SPDX-License-Identifier: Apache-2.0
//! A model's settings: shown with their origins, changed by a merge patch, set back to the file's.
//!
//! Owns which role may change which key, preconditions, and the shape of the answers. Must not know how a configuration
//! is checked or comes into force: that is behind [`LiveSettings`].

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Uri, header};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;

use super::api;
use super::auth::{Caller, Role};
use super::orders::json;
use super::path::{self, Read};
use super::problem::{Kind, Problem};
use super::routes::{Answer, Shared, TIMEOUT, no_model, parameters, rest};
use super::state::{Change, ChangeError, Changed, SettingsView};

/// How a model scales, waits and ends. Every other key says what runs, with which secrets, or takes from others: for
/// admins only.
const OPERATOR_KEYS: &[&str] = &[
    "annotations",
    "backoff",
    "bodyLimit",
    "bodyMemory",
    "compat",
    "containerConcurrency",
    "drainDeadline",
    "idleAfter",
    "idleTimeoutSeconds",
    "maxReplicas",
    "minReplicas",
    "preload",
    "queue",
    "responseStartTimeoutSeconds",
    "retryStale",
    "scaleMetric",
    "scaleMetricType",
    "scaleTarget",
    "startAttempts",
    "startDeadline",
    "stopDeadline",
    "timeout",
    "timeoutSeconds",
    "timeouts",
    "window",
];

/// Content types of a merge patch.
const MERGE_PATCH: &[&str] = &["application/merge-patch+json", "application/json"];

/// Query of a change.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ChangeQuery {
    /// Only tell what it would come to.
    #[serde(default)]
    dry_run: bool,
}

/// `GET …/settings`.
pub(super) fn show(shared: &Shared, name: &str) -> Answer<Response> {
    let view = view(shared, name)?;
    let version = view.version.clone();
    tagged(&version, Json(api::settings(name, view)))
}

/// `PATCH` of a model.
pub(super) async fn patch(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    query: Result<Query<ChangeQuery>, QueryRejection>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer<Response> {
    let (Some(Read::Model(name)) | Some(Read::Settings(name))) = path::read(rest(&uri)) else {
        return Ok(not_here("GET,HEAD", "a PATCH is for a model or its settings"));
    };
    let query = parameters(query)?;
    let patch: Value = json(&headers, &body, MERGE_PATCH)?;
    let Some(keys) = patch.as_object() else {
        return Err(Problem::new(Kind::InvalidBody, "the body: a merge patch of a model is a JSON object"));
    };
    if keys.get("name").is_some_and(|to| *to != name) {
        return Err(Problem::new(Kind::InvalidBody, "the body: a model's `name` cannot be changed"));
    }
    allowed(&caller, keys.keys().map(String::as_str))?;
    change(&shared, &caller, name, Some(patch), &headers, query.dry_run).await
}

/// `DELETE …/settings`: back to what the file says.
pub(super) async fn reset(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    query: Result<Query<ChangeQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Answer<Response> {
    let Some(Read::Settings(name)) = path::read(rest(&uri)) else {
        return Ok(not_here("GET,HEAD,PATCH", "a DELETE is for the settings of a model"));
    };
    let query = parameters(query)?;
    let view = view(&shared, &name)?;
    let changed = view.origins.iter().filter(|(_, origin)| origin.as_str() == "api");
    allowed(&caller, changed.map(|(key, _)| key.split('.').next().unwrap_or(key)))?;
    change(&shared, &caller, name, None, &headers, query.dry_run).await
}

fn not_here(allow: &'static str, why: &str) -> Response {
    ([(header::ALLOW, allow)], Problem::new(Kind::MethodNotAllowed, why)).into_response()
}

/// Refuses keys that are for admins.
fn allowed<'a>(caller: &Caller, keys: impl Iterator<Item = &'a str>) -> Answer<()> {
    let reserved: Vec<&str> = keys.filter(|key| *key != "name" && !OPERATOR_KEYS.contains(key)).collect();
    if reserved.is_empty() {
        return Ok(());
    }
    caller.require(Role::Admin).map_err(|mut problem| {
        problem.detail = format!("{}: {}", reserved.join(", "), problem.detail);
        problem
    })
}

async fn change(
    shared: &Shared,
    caller: &Caller,
    model: String,
    patch: Option<Value>,
    headers: &HeaderMap,
    dry_run: bool,
) -> Answer<Response> {
    let if_match = versions(headers)?;
    let by = caller.name.to_string();
    let change = Change { model: model.clone(), patch, if_match, dry_run, by };
    let made = timeout(TIMEOUT, shared.admin.settings.change(change));
    let late = |_| Problem::new(Kind::Timeout, format!("no answer within {} s", TIMEOUT.as_secs()));
    let Changed { view, keys, restarts } =
        made.await.map_err(late)?.map_err(|error| refused(&model, error))?;
    let version = view.version.clone();
    let document =
        api::SettingsChange { settings: api::settings(&model, view), changed: keys, restarts, dry_run };
    tagged(&version, Json(document))
}

/// The versions of `If-Match`; `None` is any.
fn versions(headers: &HeaderMap) -> Answer<Option<Vec<String>>> {
    let mut all = Vec::new();
    for value in headers.get_all(header::IF_MATCH) {
        let wrong = || Problem::new(Kind::InvalidParameter, "If-Match: entity tags as `ETag` has them, or *");
        for tag in value.to_str().map_err(|_| wrong())?.split(',').map(str::trim) {
            if tag == "*" {
                return Ok(None);
            }
            let bare = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).ok_or_else(wrong)?;
            all.push(bare.to_owned());
        }
    }
    Ok(Some(all).filter(|_| headers.contains_key(header::IF_MATCH)))
}

fn refused(model: &str, error: ChangeError) -> Problem {
    match error {
        ChangeError::UnknownModel => no_model(model),
        ChangeError::OtherVersion(now) => {
            let detail = format!("the settings of {model:?} have changed meanwhile: they are \"{now}\" now");
            Problem::new(Kind::PreconditionFailed, detail)
        }
        ChangeError::Invalid(errors) => {
            let first = errors.first().map(|first| first.message.clone()).unwrap_or_default();
            Problem { errors, ..Problem::new(Kind::InvalidSettings, first) }
        }
        ChangeError::NotKept(why) => {
            Problem::new(Kind::Internal, format!("the change could not be kept: {why}"))
        }
        ChangeError::Stopping => Problem::new(Kind::ScalerStopped, "sluice is stopping"),
    }
}

fn view(shared: &Shared, name: &str) -> Answer<SettingsView> {
    shared.admin.settings.view(name).ok_or_else(|| no_model(name))
}

fn tagged(version: &str, answer: impl IntoResponse) -> Answer<Response> {
    let mut response = answer.into_response();
    if let Ok(tag) = HeaderValue::try_from(format!("\"{version}\"")) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    Ok(response)
}
