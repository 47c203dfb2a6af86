// SPDX-License-Identifier: Apache-2.0
//! Errors of the admin API as RFC 9457 problem documents with stable types.

use std::borrow::Cow;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Prefix of every `type`.
pub const BASE: &str = "https://sluice.dev/problems/";

/// Content type of a problem document.
pub const CONTENT_TYPE: &str = "application/problem+json";

/// The kinds of problems. Names and statuses are part of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No such path.
    UnknownRoute,
    /// The path exists, the method does not.
    MethodNotAllowed,
    /// No such model.
    UnknownModel,
    /// No such replica.
    UnknownReplica,
    /// The model's replicas are not Sluice's to start and stop.
    FixedModel,
    /// A query parameter is wrong.
    InvalidParameter,
    /// The body is not what the path takes.
    InvalidBody,
    /// No token, or none that is known.
    Unauthenticated,
    /// The token's role does not allow it.
    Forbidden,
    /// More replicas than `maxReplicas` allows.
    AboveMaximum,
    /// A request with the same `Idempotency-Key` is being answered.
    IdempotencyConflict,
    /// `If-Match` names another version than the present one.
    PreconditionFailed,
    /// The body is too large.
    TooLarge,
    /// The body's content type is not taken here.
    UnsupportedType,
    /// The configuration would not be valid.
    InvalidSettings,
    /// The `Idempotency-Key` was used for another request.
    IdempotencyReused,
    /// The awaited replica did not start.
    StartFailed,
    /// The request comes from a web page that is not Sluice's own.
    ForeignOrigin,
    /// The answer took too long.
    Timeout,
    /// Too many API requests at once.
    Overloaded,
    /// The scaler no longer takes orders.
    ScalerStopped,
    /// A fault of Sluice's own.
    Internal,
}

impl Kind {
    /// Every kind, in the order of the documentation.
    pub const ALL: [Kind; 22] = [
        Kind::UnknownRoute,
        Kind::MethodNotAllowed,
        Kind::UnknownModel,
        Kind::UnknownReplica,
        Kind::FixedModel,
        Kind::InvalidParameter,
        Kind::InvalidBody,
        Kind::Unauthenticated,
        Kind::Forbidden,
        Kind::AboveMaximum,
        Kind::IdempotencyConflict,
        Kind::PreconditionFailed,
        Kind::TooLarge,
        Kind::UnsupportedType,
        Kind::InvalidSettings,
        Kind::IdempotencyReused,
        Kind::StartFailed,
        Kind::ForeignOrigin,
        Kind::Timeout,
        Kind::Overloaded,
        Kind::ScalerStopped,
        Kind::Internal,
    ];

    /// Last segment of the `type` URI.
    pub fn slug(self) -> &'static str {
        match self {
            Kind::UnknownRoute => "unknown-route",
            Kind::MethodNotAllowed => "method-not-allowed",
            Kind::UnknownModel => "unknown-model",
            Kind::UnknownReplica => "unknown-replica",
            Kind::FixedModel => "fixed-model",
            Kind::InvalidParameter => "invalid-parameter",
            Kind::InvalidBody => "invalid-body",
            Kind::Unauthenticated => "unauthenticated",
            Kind::Forbidden => "forbidden",
            Kind::AboveMaximum => "above-maximum",
            Kind::IdempotencyConflict => "idempotency-conflict",
            Kind::PreconditionFailed => "precondition-failed",
            Kind::TooLarge => "too-large",
            Kind::UnsupportedType => "unsupported-media-type",
            Kind::InvalidSettings => "invalid-settings",
            Kind::IdempotencyReused => "idempotency-key-reused",
            Kind::StartFailed => "start-failed",
            Kind::ForeignOrigin => "foreign-origin",
            Kind::Timeout => "timeout",
            Kind::Overloaded => "overloaded",
            Kind::ScalerStopped => "scaler-stopped",
            Kind::Internal => "internal",
        }
    }

    /// HTTP status.
    pub fn status(self) -> StatusCode {
        match self {
            Kind::UnknownRoute | Kind::UnknownModel | Kind::UnknownReplica => StatusCode::NOT_FOUND,
            Kind::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Kind::FixedModel | Kind::AboveMaximum | Kind::IdempotencyConflict => StatusCode::CONFLICT,
            Kind::InvalidParameter | Kind::InvalidBody => StatusCode::BAD_REQUEST,
            Kind::Unauthenticated => StatusCode::UNAUTHORIZED,
            Kind::ForeignOrigin | Kind::Forbidden => StatusCode::FORBIDDEN,
            Kind::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
            Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Kind::UnsupportedType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Kind::InvalidSettings | Kind::IdempotencyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Kind::StartFailed => StatusCode::BAD_GATEWAY,
            Kind::Timeout => StatusCode::GATEWAY_TIMEOUT,
            Kind::Overloaded | Kind::ScalerStopped => StatusCode::SERVICE_UNAVAILABLE,
            Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn title(self) -> &'static str {
        match self {
            Kind::UnknownRoute => "No such path",
            Kind::MethodNotAllowed => "Method not allowed",
            Kind::UnknownModel => "No such model",
            Kind::UnknownReplica => "No such replica",
            Kind::FixedModel => "Model has fixed addresses",
            Kind::InvalidParameter => "Invalid query parameter",
            Kind::InvalidBody => "Invalid request body",
            Kind::Unauthenticated => "No valid token",
            Kind::Forbidden => "Role not sufficient",
            Kind::AboveMaximum => "More than maxReplicas",
            Kind::IdempotencyConflict => "Same Idempotency-Key in progress",
            Kind::PreconditionFailed => "Changed meanwhile",
            Kind::TooLarge => "Body too large",
            Kind::UnsupportedType => "Content type not taken",
            Kind::InvalidSettings => "Invalid settings",
            Kind::IdempotencyReused => "Idempotency-Key used for another request",
            Kind::StartFailed => "Replica did not start",
            Kind::ForeignOrigin => "Request from a foreign web page",
            Kind::Timeout => "Timed out",
            Kind::Overloaded => "Too many API requests",
            Kind::ScalerStopped => "Scaler stopped",
            Kind::Internal => "Internal error",
        }
    }
}

/// One problem document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// Stable URI of the kind.
    #[serde(rename = "type")]
    pub kind: Cow<'static, str>,
    /// The kind in words.
    pub title: Cow<'static, str>,
    /// HTTP status.
    pub status: u16,
    /// This occurrence in words, with what to do.
    pub detail: String,
    /// Of `invalid-settings`: everything that is wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Mistake>,
}

/// One thing that is wrong with settings, as `sluice check` says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Mistake {
    /// Stable code, such as `SLU0015`.
    pub code: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: Option<String>,
}

impl Problem {
    /// A problem of this kind.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Problem {
            kind: format!("{BASE}{}", kind.slug()).into(),
            title: kind.title().into(),
            status: kind.status().as_u16(),
            detail: detail.into(),
            errors: Vec::new(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (status, body).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
        if status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer realm=\"sluice\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
