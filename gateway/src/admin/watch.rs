// SPDX-License-Identifier: Apache-2.0
//! `GET /api/v1/watch`: what changes, as server-sent events.
//!
//! A client begins with a snapshot, or where it left off if the log still has that. Whoever falls behind the log is told
//! so by `reset` and gets a snapshot, so nothing is missed in silence and nothing is queued for anybody.

use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::api::{self, Config, Model, Replica};
use super::clock::{Moment, rfc3339};
use super::events::Event;
use super::logs;
use super::routes::{Answer, Shared, find, parameters, typed};

/// Silence after which a comment shows that the connection lives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Events taken from the log at once.
const BATCH: usize = 64;

/// Query of the watch.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WatchQuery {
    /// Only this model's events, and those that are nobody's alone.
    model: Option<String>,
}

/// All that events change, at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Snapshot {
    /// When, RFC 3339 in UTC.
    pub at: String,
    /// The models.
    pub models: Vec<Model>,
    /// The replicas.
    pub replicas: Vec<Replica>,
    /// The configuration in force.
    pub config: Config,
}

/// Why what a client knows may be incomplete; a snapshot follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reset {
    /// In words.
    pub reason: String,
}

pub(super) async fn events(
    State(shared): State<Shared>,
    query: Result<Query<WatchQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Answer<Response> {
    let only = parameters(query)?.model;
    if let Some(name) = &only {
        find(&shared.admin.handle.status(), name)?;
    }
    let slot = shared.follower()?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
    let (out, pieces) = mpsc::channel(16);
    tokio::spawn(async move {
        // The client leaving is no error.
        let _ = Follower { shared, only, out }.run(last).await;
        drop(slot);
    });
    let mut response = typed("text/event-stream", logs::body(pieces));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// The client is gone, or Sluice stops.
struct Over;

struct Follower {
    shared: Shared,
    only: Option<String>,
    out: mpsc::Sender<Bytes>,
}

impl Follower {
    async fn run(self, last: Option<String>) -> Result<(), Over> {
        let log = self.shared.admin.events.clone();
        let (mut grown, mut stopping) = (log.grown(), self.shared.stopping.clone());
        let known = last.as_deref().and_then(|id| log.number(id)).filter(|&at| log.since(at, 0).is_some());
        let mut at = match (known, last) {
            (Some(at), _) => at,
            (None, None) => self.snapshot().await?,
            (None, Some(_)) => self.reset("what came after this Last-Event-ID is no longer kept").await?,
        };
        loop {
            grown.mark_unchanged();
            let Some(events) = log.since(at, BATCH) else {
                at = self.reset("events came faster than they were read").await?;
                continue;
            };
            let none_new = events.is_empty();
            for (number, event) in events {
                at = number;
                if self.is_wanted(&event) {
                    self.send(Some(log.id(at)), &event.kind.clone(), &self.with_load(event)).await?;
                }
            }
            if !none_new {
                continue;
            }
            let silent = tokio::select! {
                () = self.out.closed() => return Err(Over),
                _ = stopping.wait_for(|stop| *stop) => return Err(Over),
                news = timeout(KEEP_ALIVE, grown.changed()) => news.is_err(),
            };
            if silent {
                self.write(Bytes::from_static(b": keep-alive\n\n")).await?;
            }
        }
    }

    fn is_wanted(&self, event: &Event) -> bool {
        match (&self.only, &event.model) {
            (Some(only), Some(model)) => only == model,
            _ => true,
        }
    }

    /// The log is older than the load, so the load comes with the sending.
    fn with_load(&self, mut event: Event) -> Event {
        let load =
            event.model.as_ref().and_then(|model| self.shared.admin.model_load.load(&model.as_str().into()));
        let now = Moment::now();
        event.model_now.iter_mut().for_each(|model| api::add_load(model, load.as_ref(), now));
        for replica in event.replica_now.iter_mut() {
            let id = super::read::replica_id(&replica.id);
            replica.in_flight = load.as_ref().zip(id).map(|(load, id)| load.on(id));
        }
        event
    }

    async fn reset(&self, reason: &str) -> Result<u64, Over> {
        self.send(None, "reset", &Reset { reason: reason.to_owned() }).await?;
        self.snapshot().await
    }

    /// Sends a snapshot. Returns the number of the last event before it; later ones may be in it already.
    async fn snapshot(&self) -> Result<u64, Over> {
        let admin = &self.shared.admin;
        let at = admin.events.last();
        let (status, now) = (admin.handle.status(), Moment::now());
        let mut models = api::models(&status, &*admin.model_load, now).items;
        let mut replicas = api::replicas(&status, &*admin.model_load, now).items;
        models.retain(|model| self.only.as_ref().is_none_or(|only| model.name == *only));
        replicas.retain(|replica| self.only.as_ref().is_none_or(|only| replica.model == *only));
        let config = api::config(admin.loaded.report());
        let snapshot = Snapshot { at: rfc3339(now.unix_ms), models, replicas, config };
        self.send(Some(admin.events.id(at)), "snapshot", &snapshot).await?;
        Ok(at)
    }

    async fn send(&self, id: Option<String>, kind: &str, data: &impl Serialize) -> Result<(), Over> {
        // JSON has no bare line ends, so it is one line of data.
        let Ok(data) = serde_json::to_string(data) else { return Ok(()) };
        let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
        self.write(Bytes::from(format!("{id}event: {kind}\ndata: {data}\n\n"))).await
    }

    async fn write(&self, bytes: Bytes) -> Result<(), Over> {
        let mut stopping = self.shared.stopping.clone();
        tokio::select! {
            sent = self.out.send(bytes) => sent.map_err(|_| Over),
            _ = stopping.wait_for(|stop| *stop) => Err(Over),
        }
    }
}
