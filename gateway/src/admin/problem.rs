// SPDX-License-Identifier: Apache-2.0
//! Errors of the admin API as RFC 9457 problem documents with stable types.

use std::borrow::Cow;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
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
    pub const ALL: [Kind; 11] = [
        Kind::UnknownRoute,
        Kind::MethodNotAllowed,
        Kind::UnknownModel,
        Kind::UnknownReplica,
        Kind::FixedModel,
        Kind::InvalidParameter,
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
            Kind::FixedModel => StatusCode::CONFLICT,
            Kind::InvalidParameter => StatusCode::BAD_REQUEST,
            Kind::ForeignOrigin => StatusCode::FORBIDDEN,
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
            Kind::ForeignOrigin => "Request from a foreign web page",
            Kind::Timeout => "Timed out",
            Kind::Overloaded => "Too many API requests",
            Kind::ScalerStopped => "Scaler stopped",
            Kind::Internal => "Internal error",
        }
    }
}

/// One problem document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
}

impl Problem {
    /// A problem of this kind.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Problem {
            kind: format!("{BASE}{}", kind.slug()).into(),
            title: kind.title().into(),
            status: kind.status().as_u16(),
            detail: detail.into(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (status, body).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
