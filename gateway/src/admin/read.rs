// SPDX-License-Identifier: Apache-2.0
//! What is shown of models and replicas: lists in pages, single ones, and what replicas print.
//!
//! A page's cursor is the name that the next one begins after, so a list that changes meanwhile neither repeats nor
//! skips what stays.

use std::str::FromStr;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Uri;
use serde::Deserialize;
use sluice_core::{FleetStatus, ReplicaId, ReplicaStatus};

use super::api::{self, List};
use super::clock::Moment;
use super::logs::{self, LogQuery, TAIL_LIMIT};
use super::path::{self, Read};
use super::problem::{Kind, Problem};
use super::routes::{Answer, Shared, find, no_model, parameters, rest, typed};
use super::settings;

/// Most items of one page.
const PAGE: usize = 1000;

/// Query of the list of models.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ModelQuery {
    limit: Option<usize>,
    cursor: Option<String>,
    /// Only models in this state.
    state: Option<String>,
}

/// Query of the list of replicas.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplicaQuery {
    limit: Option<usize>,
    cursor: Option<String>,
    /// Only replicas of this model.
    model: Option<String>,
    /// Only replicas in this phase.
    phase: Option<String>,
}

pub(super) async fn models(
    State(shared): State<Shared>,
    query: Result<Query<ModelQuery>, QueryRejection>,
) -> Answer<Json<List<api::Model>>> {
    let query = parameters(query)?;
    one_of("state", query.state.as_deref(), &["cold", "starting", "slept", "ready", "draining"])?;
    let admin = &shared.admin;
    let mut list = api::models(&admin.handle.status(), &*admin.model_load, Moment::now());
    list.items.retain(|model| query.state.as_ref().is_none_or(|state| model.state == *state));
    page(list, query.limit, query.cursor, |model| model.name.clone()).map(Json)
}

pub(super) async fn replicas(
    State(shared): State<Shared>,
    query: Result<Query<ReplicaQuery>, QueryRejection>,
) -> Answer<Json<List<api::Replica>>> {
    let query = parameters(query)?;
    one_of("phase", query.phase.as_deref(), &["starting", "ready", "unready", "draining", "stopping"])?;
    let status = shared.admin.handle.status();
    let mut list = api::replicas(&status, &*shared.admin.model_load, Moment::now());
    if let Some(name) = &query.model {
        find(&status, name)?;
        list.items.retain(|replica| replica.model == *name);
    }
    list.items.retain(|replica| query.phase.as_ref().is_none_or(|phase| replica.phase == *phase));
    let number = |replica: &api::Replica| replica_id(&replica.id).map(|id| id.0).unwrap_or_default();
    page(list, query.limit, query.cursor, number).map(Json)
}

pub(super) async fn replica(
    State(shared): State<Shared>,
    Path(id): Path<String>,
) -> Answer<Json<api::Replica>> {
    let status = shared.admin.handle.status();
    let replica = find_replica(&status, &id)?;
    let load = shared.admin.model_load.load(&replica.model);
    Ok(Json(api::replica(replica, load.as_ref(), Moment::now())))
}

pub(super) async fn below_models(
    State(shared): State<Shared>,
    uri: Uri,
    query: Result<Query<LogQuery>, QueryRejection>,
) -> Answer<Response> {
    match path::read(rest(&uri)) {
        None => Err(no_model(rest(&uri))),
        Some(Read::Settings(name)) => settings::show(&shared, &name),
        Some(Read::Model(name)) => Ok(Json(model(&shared, &name)?).into_response()),
        Some(Read::Logs(name)) => model_logs(&shared, &name, &parameters(query)?),
    }
}

/// The model as it is now.
pub(super) fn model(shared: &Shared, name: &str) -> Answer<api::Model> {
    let status = shared.admin.handle.status();
    let model = find(&status, name)?;
    let load = shared.admin.model_load.load(&model.name);
    Ok(api::model(model, load.as_ref(), Moment::now()))
}

/// The replica of this id.
pub(super) fn find_replica<'a>(status: &'a FleetStatus, id: &str) -> Answer<&'a ReplicaStatus> {
    let wanted = replica_id(id);
    let found = status.replicas.iter().find(|replica| Some(replica.id) == wanted);
    found.ok_or_else(|| Problem::new(Kind::UnknownReplica, format!("there is no replica {id}")))
}

/// The id that is written like this.
pub(super) fn replica_id(text: &str) -> Option<ReplicaId> {
    text.strip_prefix('r')?.parse().ok().map(ReplicaId)
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
    let slot = shared.follower()?;
    Ok(typed("application/x-ndjson", logs::follow(&past, live, slot, shared.stopping.clone())))
}

fn one_of(name: &str, given: Option<&str>, words: &[&str]) -> Answer<()> {
    match given {
        Some(word) if !words.contains(&word) => {
            Err(Problem::new(Kind::InvalidParameter, format!("{name}: one of {}", words.join(", "))))
        }
        _ => Ok(()),
    }
}

/// The page after the cursor. Items are in the order of their keys.
fn page<T, K: Ord + ToString + FromStr>(
    list: List<T>,
    limit: Option<usize>,
    cursor: Option<String>,
    key: impl Fn(&T) -> K,
) -> Answer<List<T>> {
    let wrong = |what: String| Problem::new(Kind::InvalidParameter, what);
    let limit = match limit {
        None => PAGE,
        Some(limit) if (1..=PAGE).contains(&limit) => limit,
        Some(_) => return Err(wrong(format!("limit: 1 to {PAGE}"))),
    };
    let after = match cursor {
        None => None,
        Some(cursor) => {
            let text = URL_SAFE_NO_PAD.decode(&cursor).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            let key = text.and_then(|text| text.parse::<K>().ok());
            Some(key.ok_or_else(|| wrong("cursor: only what `nextCursor` has said".to_owned()))?)
        }
    };
    let mut items: Vec<T> =
        list.items.into_iter().filter(|item| after.as_ref().is_none_or(|after| key(item) > *after)).collect();
    let more = items.len() > limit;
    items.truncate(limit);
    let last = items.last().filter(|_| more).map(|item| URL_SAFE_NO_PAD.encode(key(item).to_string()));
    Ok(List { items, next_cursor: last })
}
