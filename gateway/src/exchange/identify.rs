// SPDX-License-Identifier: Apache-2.0
//! Which model a request is for, or what the gateway answers itself.
//!
//! Owns the order: header, path, body. Must not know how a body is read.

use std::sync::Arc;

use sluice_wire::head::{Forward, Method};
use sluice_wire::model_id;
use sluice_wire::target::{self, Route};

use super::answer::Answer;
use super::error::Failure;
use super::local;
use crate::admission::Model;
use crate::gateway::Gateway;

/// What the head alone says.
pub enum Target {
    /// The model is named by header or path.
    Model(Arc<Model>),
    /// The model is named in the JSON body.
    InBody,
    /// Answered from what the gateway knows; wakes nothing.
    Local(Answer),
}

/// Looks at method, path and the model header.
pub fn by_head(gateway: &Gateway, method: Method, forward: &Forward) -> Result<Target, Failure> {
    let route = target::classify(method, forward.target());
    match &route {
        Route::Blocked => return Err(Failure::Blocked),
        Route::Bad(reason) => return Err(Failure::Head { status: 400, reason }),
        Route::Preflight => return Ok(Target::Local(local::preflight())),
        _ => {}
    }
    if let Some(name) = forward.model() {
        return named(gateway, name).map(Target::Model);
    }
    match route {
        Route::Path { model, .. } => named(gateway, &model).map(Target::Model),
        Route::Body => Ok(Target::InBody),
        Route::MethodNotAllowed { allow } => Err(Failure::Method(allow)),
        Route::ModelList => Ok(Target::Local(local::model_list(gateway))),
        Route::ModelInfo(name) => local::model_info(gateway, &name).map(Target::Local),
        Route::V2Server => Ok(Target::Local(local::v2_server())),
        Route::Live => Ok(Target::Local(local::v2_live())),
        Route::Ready => Ok(Target::Local(local::v2_ready(gateway))),
        Route::V2ModelReady(name) => local::v2_model_ready(gateway, &name).map(Target::Local),
        Route::V2ModelInfo(name) => local::v2_model_info(gateway, &name).map(Target::Local),
        _ => Err(Failure::UnknownRoute),
    }
}

/// Reads the model from a whole body.
pub fn by_body(gateway: &Gateway, forward: &Forward, body: &[u8]) -> Result<Arc<Model>, Failure> {
    if forward.content_encoding().is_some_and(|e| !e.eq_ignore_ascii_case(b"identity")) {
        return Err(Failure::Encoded);
    }
    let name = model_id::find_model(body).map_err(Failure::Model)?;
    named(gateway, &name)
}

/// The configured model of that name.
fn named(gateway: &Gateway, name: &str) -> Result<Arc<Model>, Failure> {
    gateway.table.get(name).ok_or_else(|| Failure::UnknownModel(shorten(name)))
}

/// Enough of an unknown name to recognise it.
pub fn shorten(name: &str) -> String {
    name.chars().take(100).collect()
}
