// SPDX-License-Identifier: Apache-2.0
//! Why the demo engine does not answer a request, in the shape of the API that was asked.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::json;

/// Which API's error shape a client expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    OpenAi,
    KServe,
}

/// A refusal, before any byte of an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("model {0} is not ready: it is loading")]
    Loading(String),
    #[error("model {0} does not exist here")]
    UnknownModel(String),
    #[error("all slots are busy and the waiting line is full")]
    Busy,
    #[error("wrong or missing key: send authorization: Bearer KEY")]
    WrongKey,
    #[error("{0}")]
    Invalid(String),
    #[error("nothing is served under this path")]
    NoSuchPath,
}

impl Family {
    /// The family that a path belongs to.
    pub(super) fn of_path(path: &str) -> Self {
        let v1_model = path.starts_with("/v1/models/") && path.contains(':');
        if path.starts_with("/v2") || v1_model { Self::KServe } else { Self::OpenAi }
    }
}

impl Refusal {
    pub(super) fn to_response(&self, family: Family) -> Response {
        let (status, kind, code) = match self {
            Self::Loading(_) => (StatusCode::SERVICE_UNAVAILABLE, "model_unavailable", "model_loading"),
            Self::UnknownModel(_) => (StatusCode::NOT_FOUND, "invalid_request_error", "model_not_found"),
            Self::Busy => (StatusCode::SERVICE_UNAVAILABLE, "overloaded", "queue_full"),
            Self::WrongKey => (StatusCode::UNAUTHORIZED, "authentication_error", "invalid_api_key"),
            Self::Invalid(_) => (StatusCode::BAD_REQUEST, "invalid_request_error", "invalid_request"),
            Self::NoSuchPath => (StatusCode::NOT_FOUND, "invalid_request_error", "not_found"),
        };
        let message = self.to_string();
        let body = match family {
            Family::OpenAi => {
                json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
            }
            Family::KServe => json!({"error": message}),
        };
        (status, Json(body)).into_response()
    }
}
