// SPDX-License-Identifier: Apache-2.0
//! Answers from what the gateway knows: lists, readiness, health. None of them wakes a model or counts as use.
//!
//! Shapes: OpenAI's model list and KServe V1's in one; KServe V1 and V2 (Open Inference Protocol) readiness.

use serde_json::{Value, json};
use sluice_core::ModelState;

use super::answer::Answer;
use super::error::Failure;
use super::identify::shorten;
use crate::admission::Model;
use crate::gateway::Gateway;

/// `GET /v1/models`: every configured model, asleep or not.
pub fn model_list(gateway: &Gateway) -> Answer {
    let models = gateway.table.list();
    let names: Vec<&str> = models.iter().map(|m| m.name().as_str()).collect();
    let data: Vec<Value> = models.iter().map(|m| item(m)).collect();
    Answer::json(200, &json!({"object": "list", "data": data, "models": names}))
}

/// `GET /v1/models/{model}`: OpenAI's model object and KServe V1's readiness in one.
pub fn model_info(gateway: &Gateway, name: &str) -> Result<Answer, Failure> {
    known(gateway, name, |model| Answer::json(200, &item(model)))
}

fn item(model: &Model) -> Value {
    let state = model.route().state;
    json!({
        "id": model.name(),
        "object": "model",
        "created": model.settings().created,
        "owned_by": "sluice",
        "name": model.name(),
        "ready": is_ready(state),
        "state": state,
    })
}

/// `GET /v2`
pub fn v2_server() -> Answer {
    Answer::json(200, &json!({"name": "sluice", "version": env!("CARGO_PKG_VERSION"), "extensions": []}))
}

/// `GET /v2/health/live`
pub fn v2_live() -> Answer {
    Answer::json(200, &json!({"live": true}))
}

/// `GET /v2/health/ready`: the gateway's own readiness; sleeping models do not make it unready.
pub fn v2_ready(gateway: &Gateway) -> Answer {
    let ready = !gateway.is_draining();
    Answer::json(if ready { 200 } else { 503 }, &json!({"ready": ready}))
}

/// `GET /v2/models/{model}/ready`: 200 whenever a request would be served, now or after waking the model.
pub fn v2_model_ready(gateway: &Gateway, name: &str) -> Result<Answer, Failure> {
    known(gateway, name, |model| {
        let state = model.route().state;
        Answer::json(200, &json!({"name": name, "ready": is_ready(state)}))
    })
}

/// `GET /v2/models/{model}`: what is known without asking a replica.
pub fn v2_model_info(gateway: &Gateway, name: &str) -> Result<Answer, Failure> {
    known(gateway, name, |_| {
        Answer::json(200, &json!({"name": name, "platform": "", "inputs": [], "outputs": []}))
    })
}

/// `OPTIONS`: no model is needed to say what is allowed.
pub fn preflight() -> Answer {
    let mut answer = Answer::empty(204);
    answer.field("allow", "GET, HEAD, POST, PUT, PATCH, OPTIONS");
    answer
}

fn known(gateway: &Gateway, name: &str, answer: impl Fn(&Model) -> Answer) -> Result<Answer, Failure> {
    let Some(model) = gateway.table.get(name) else {
        return Err(Failure::UnknownModel(shorten(name)));
    };
    let mut answer = answer(&model);
    answer.field("x-sluice-model-state", model.route().state.as_str());
    Ok(answer)
}

/// A model at zero is held for, so a client need not wait for readiness before it sends.
fn is_ready(state: ModelState) -> bool {
    state == ModelState::Ready
}
