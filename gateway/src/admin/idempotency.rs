// SPDX-License-Identifier: Apache-2.0
//! `Idempotency-Key`: whoever sends an order again because no answer came gets the first answer, and the order is
//! carried out once.
//!
//! Also reads the bodies of everything that changes something, within a limit. Keys are remembered for a time and up
//! to a number, the oldest are forgotten first. Answers that say that Sluice could not (5xx) are not remembered.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::auth::Caller;
use super::problem::{Kind, Problem};
use super::routes::{Answer, Shared};

/// Largest body of a request.
const BODY: usize = 1 << 20;

/// How long and how many answers are remembered.
const KEPT_FOR: Duration = Duration::from_secs(3600);
const KEPT: usize = 1000;

/// Longest key.
const KEY: usize = 255;

const HEADER: &str = "idempotency-key";
const REPLAYED: &str = "idempotency-replayed";

/// Answers to keys.
#[derive(Default)]
pub(super) struct Remembered(Mutex<Memory>);

#[derive(Default)]
struct Memory {
    /// By caller and key.
    entries: HashMap<(String, String), Entry>,
    /// In the order of their coming.
    order: VecDeque<(Instant, (String, String))>,
}

struct Entry {
    request: [u8; 32],
    /// `None` while the first request is being answered.
    answer: Option<(StatusCode, HeaderMap, Bytes)>,
}

/// Carries out a request with a key once.
pub(super) async fn once(State(shared): State<Shared>, request: Request, next: Next) -> Answer<Response> {
    if request.method().is_safe() {
        return Ok(next.run(request).await);
    }
    let (parts, body) = request.into_parts();
    let body = match Limited::new(body, BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            return Err(Problem::new(Kind::TooLarge, format!("at most {BODY} bytes")));
        }
        Err(error) => return Err(Problem::new(Kind::InvalidBody, format!("the body broke off: {error}"))),
    };
    let Some(key) = key(&parts.headers)? else {
        return Ok(next.run(Request::from_parts(parts, Body::from(body))).await);
    };
    let caller = parts.extensions.get::<Caller>().map(|caller| caller.name.to_string()).unwrap_or_default();
    let mut digest = Sha256::new_with_prefix(parts.method.as_str());
    digest.update(parts.uri.to_string());
    digest.update([0]);
    digest.update(&body);
    let id = (caller, key);
    if let Some(answer) = shared.remembered.begin(&id, digest.finalize().into())? {
        return Ok(answer);
    }
    // Whatever happens, the key does not stay in progress.
    let mut pending = Pending { remembered: &shared.remembered, id: Some(id) };
    let response = next.run(Request::from_parts(parts, Body::from(body))).await;
    if response.status().is_server_error() {
        return Ok(response);
    }
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    if let Some(id) = pending.id.take() {
        shared.remembered.end(&id, (head.status, head.headers.clone(), bytes.clone()));
    }
    Ok(Response::from_parts(head, Body::from(bytes)))
}

fn key(headers: &HeaderMap) -> Answer<Option<String>> {
    let Some(value) = headers.get(HEADER) else { return Ok(None) };
    let key = value.to_str().ok().filter(|key| (1..=KEY).contains(&key.len()));
    let wrong =
        || Problem::new(Kind::InvalidParameter, format!("Idempotency-Key: 1 to {KEY} visible characters"));
    key.map(|key| Some(key.to_owned())).ok_or_else(wrong)
}

struct Pending<'a> {
    remembered: &'a Remembered,
    id: Option<(String, String)>,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            let mut memory = self.remembered.lock();
            memory.entries.remove(&id);
            memory.order.retain(|(_, other)| *other != id);
        }
    }
}

impl Remembered {
    fn lock(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to the same request, or nothing and the key is in progress from now on.
    fn begin(&self, id: &(String, String), request: [u8; 32]) -> Answer<Option<Response>> {
        let mut memory = self.lock();
        memory.forget_old();
        if let Some(entry) = memory.entries.get(id) {
            if entry.request != request {
                let why = "this Idempotency-Key was used for another request; take a new one";
                return Err(Problem::new(Kind::IdempotencyReused, why));
            }
            let Some((status, headers, body)) = entry.answer.clone() else {
                let why = "the first request with this Idempotency-Key is still being answered";
                return Err(Problem::new(Kind::IdempotencyConflict, why));
            };
            let mut response = Response::new(Body::from(body));
            (*response.status_mut(), *response.headers_mut()) = (status, headers);
            response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
            return Ok(Some(response));
        }
        memory.entries.insert(id.clone(), Entry { request, answer: None });
        memory.order.push_back((Instant::now(), id.clone()));
        Ok(None)
    }

    fn end(&self, id: &(String, String), answer: (StatusCode, HeaderMap, Bytes)) {
        if let Some(entry) = self.lock().entries.get_mut(id) {
            entry.answer = Some(answer);
        }
    }
}

impl Memory {
    fn forget_old(&mut self) {
        while let Some((since, _)) = self.order.front() {
            if self.order.len() < KEPT && since.elapsed() < KEPT_FOR {
                return;
            }
            if let Some((_, id)) = self.order.pop_front() {
                self.entries.remove(&id);
            }
        }
    }
}
