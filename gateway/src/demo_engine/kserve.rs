// SPDX-License-Identifier: Apache-2.0
//! The KServe side of the demo engine: V1 and V2 over REST.
//!
//! V1 predicts one number per instance: the sum of all numbers in it. V2 is the identity: each output is the input of the
//! same place. Binary tensors are refused.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::engine::Engine;
use super::refusal::{Family, Refusal};

#[derive(Deserialize)]
struct Predict {
    instances: Vec<Value>,
}

#[derive(Deserialize)]
struct Infer {
    id: Option<String>,
    inputs: Vec<Tensor>,
}

#[derive(Deserialize)]
struct Tensor {
    name: String,
    shape: Vec<u64>,
    datatype: String,
    data: Vec<Value>,
}

/// What a path below `/v2/models/` asks for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Metadata,
    Ready,
    Infer,
}

pub(super) fn health_routes() -> Router<Arc<Engine>> {
    Router::new().route("/v2/health/live", get(live)).route("/v2/health/ready", get(ready))
}

pub(super) fn routes() -> Router<Arc<Engine>> {
    Router::new()
        .route("/v1/models/{*rest}", get(v1_model).post(v1_verb))
        .route("/v2", get(server))
        .route("/v2/", get(server))
        .route("/v2/models", get(v2_models))
        .route("/v2/models/{*rest}", get(v2_get))
        .route("/v2/models/{*rest}", post(v2_post))
}

async fn live() -> Response {
    Json(json!({"live": true})).into_response()
}

async fn ready(State(engine): State<Arc<Engine>>) -> Response {
    (ready_status(&engine), Json(json!({"ready": engine.is_ready()}))).into_response()
}

async fn server() -> Response {
    let version = env!("CARGO_PKG_VERSION");
    Json(json!({"name": "sluice-demo-engine", "version": version, "extensions": []})).into_response()
}

async fn v1_model(State(engine): State<Arc<Engine>>, Path(name): Path<String>) -> Response {
    match known(&engine, &name) {
        Ok(()) => named_ready(&engine, StatusCode::OK),
        Err(refusal) => refusal.to_response(Family::KServe),
    }
}

async fn v1_verb(State(engine): State<Arc<Engine>>, Path(rest): Path<String>, body: Bytes) -> Response {
    predict(&engine, &rest, &body).await.unwrap_or_else(|refusal| refusal.to_response(Family::KServe))
}

async fn predict(engine: &Arc<Engine>, rest: &str, body: &[u8]) -> Result<Response, Refusal> {
    let name = rest.strip_suffix(":predict").ok_or(Refusal::NoSuchPath)?;
    let request: Predict = parse(body)?;
    let turn = engine.turn(Some(name)).await?;
    turn.work(request.instances.len()).await;
    let predictions: Vec<f64> = request.instances.iter().map(sum).collect();
    Ok(Json(json!({"predictions": predictions})).into_response())
}

/// The sum of all numbers in a value, at any depth.
fn sum(value: &Value) -> f64 {
    match value {
        Value::Number(number) => number.as_f64().unwrap_or(0.0),
        Value::Array(items) => items.iter().map(sum).sum(),
        Value::Object(fields) => fields.values().map(sum).sum(),
        _ => 0.0,
    }
}

async fn v2_models(State(engine): State<Arc<Engine>>) -> Response {
    Json(json!({"models": [engine.model()]})).into_response()
}

async fn v2_get(State(engine): State<Arc<Engine>>, Path(rest): Path<String>) -> Response {
    let (name, asked) = split(&rest);
    match (known(&engine, name), asked) {
        (Err(refusal), _) => refusal.to_response(Family::KServe),
        (Ok(()), Asked::Ready) => named_ready(&engine, ready_status(&engine)),
        (Ok(()), Asked::Metadata) => Json(metadata(&engine)).into_response(),
        (Ok(()), Asked::Infer) => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
}

async fn v2_post(
    State(engine): State<Arc<Engine>>,
    Path(rest): Path<String>,
    h: HeaderMap,
    body: Bytes,
) -> Response {
    let binary = h.contains_key("inference-header-content-length");
    infer(&engine, &rest, binary, &body).await.unwrap_or_else(|refusal| refusal.to_response(Family::KServe))
}

async fn infer(engine: &Arc<Engine>, rest: &str, binary: bool, body: &[u8]) -> Result<Response, Refusal> {
    let (name, asked) = split(rest);
    if asked != Asked::Infer {
        return Err(Refusal::NoSuchPath);
    }
    if binary {
        return Err(Refusal::Invalid("binary tensors are not served here: send data as JSON".to_owned()));
    }
    let request: Infer = parse(body)?;
    request.inputs.iter().try_for_each(Tensor::check)?;
    let turn = engine.turn(Some(name)).await?;
    turn.work(request.inputs.len()).await;
    let outputs: Vec<Value> = request.inputs.into_iter().map(Tensor::into_output).collect();
    let mut answer = json!({"model_name": engine.model(), "model_version": "1", "outputs": outputs});
    if let Some(id) = request.id {
        answer["id"] = json!(id);
    }
    Ok(Json(answer).into_response())
}

impl Tensor {
    /// The data must fill the shape; it may be flat or nested.
    fn check(&self) -> Result<(), Refusal> {
        let wanted = self.shape.iter().try_fold(1_u64, |product, side| product.checked_mul(*side));
        let given = self.data.iter().map(leaves).sum::<u64>();
        match wanted == Some(given) {
            true => Ok(()),
            false => Err(Refusal::Invalid(format!(
                "input {}: shape {:?} does not fit the {given} value(s) in data",
                self.name, self.shape
            ))),
        }
    }

    fn into_output(self) -> Value {
        json!({"name": self.name, "shape": self.shape, "datatype": self.datatype, "data": self.data})
    }
}

fn leaves(value: &Value) -> u64 {
    match value {
        Value::Array(items) => items.iter().map(leaves).sum(),
        _ => 1,
    }
}

fn metadata(engine: &Engine) -> Value {
    let any = json!([{"name": "any", "datatype": "FP32", "shape": [-1]}]);
    json!({
        "name": engine.model(), "versions": ["1"], "platform": "sluice_demo_identity", "inputs": any, "outputs": any,
    })
}

/// Splits `NAME[/versions/1][/ready|/infer]`; a name may hold slashes.
fn split(rest: &str) -> (&str, Asked) {
    let (rest, asked) = match (rest.strip_suffix("/ready"), rest.strip_suffix("/infer")) {
        (Some(name), _) => (name, Asked::Ready),
        (_, Some(name)) => (name, Asked::Infer),
        _ => (rest, Asked::Metadata),
    };
    (rest.strip_suffix("/versions/1").unwrap_or(rest), asked)
}

fn known(engine: &Engine, name: &str) -> Result<(), Refusal> {
    match name == engine.model() {
        true => Ok(()),
        false => Err(Refusal::UnknownModel(name.to_owned())),
    }
}

fn named_ready(engine: &Engine, status: StatusCode) -> Response {
    (status, Json(json!({"name": engine.model(), "ready": engine.is_ready()}))).into_response()
}

fn ready_status(engine: &Engine) -> StatusCode {
    if engine.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

fn parse<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body)
        .map_err(|error| Refusal::Invalid(format!("the body is not what this path takes: {error}")))
}
