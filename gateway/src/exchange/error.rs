// SPDX-License-Identifier: Apache-2.0
//! Every way in which a request can fail, and what the client is told (one place for all of it).
//!
//! Owns statuses, error types and codes, and the shape of error bodies by API family. Must not know transports.

use std::time::Duration;

use sluice_wire::model_id::BadBody;
use sluice_wire::target::Family;

use super::answer::Answer;
use crate::admission::Refusal;

/// Why a request was not answered by a replica.
#[derive(Clone, Debug)]
pub enum Failure {
    /// Its head is refused.
    Head {
        /// 400, 405, 414, 417, 431 or 501.
        status: u16,
        /// In words.
        reason: &'static str,
    },
    /// Its body is broken: framing, or an end before the announced length.
    Body(&'static str),
    /// The model cannot be read from its body.
    Model(BadBody),
    /// The body is compressed, so the model in it cannot be read.
    Encoded,
    /// Its body is larger than the limit, in bytes.
    TooLarge(usize),
    /// Its body stopped coming.
    BodyLate,
    /// No memory for its body now.
    BodyMemory,
    /// No such path.
    UnknownRoute,
    /// The path exists and the method does not fit; what would.
    Method(&'static str),
    /// A path of the engine that clients must not reach.
    Blocked,
    /// No such model.
    UnknownModel(String),
    /// Not admitted, or waited too long.
    Refused(Refusal),
    /// Every attempt at reaching a replica failed.
    Unreachable,
    /// The replica broke off before its answer.
    Upstream(&'static str),
    /// The replica did not answer in time.
    FirstByte,
    /// The request took longer than it may.
    Total,
    /// The replica had to go.
    Cut,
}

/// Status, type, code.
struct Kind(u16, &'static str, &'static str);

const INVALID: &str = "invalid_request_error";

impl Failure {
    /// HTTP status.
    pub fn status(&self) -> u16 {
        self.kind().0
    }

    /// Stable word for metrics and logs.
    pub fn code(&self) -> &'static str {
        self.kind().2
    }

    /// It is the replica's fault, not the client's or ours.
    pub fn is_upstream(&self) -> bool {
        matches!(
            self,
            Failure::Unreachable | Failure::Upstream(_) | Failure::FirstByte | Failure::Total | Failure::Cut
        )
    }

    fn kind(&self) -> Kind {
        match self {
            Failure::Head { status, .. } => Kind(*status, INVALID, "bad_request"),
            Failure::Body(_) => Kind(400, INVALID, "bad_request"),
            Failure::Model(bad) => Kind(400, INVALID, bad.code()),
            Failure::Encoded => Kind(415, INVALID, "unsupported_encoding"),
            Failure::TooLarge(_) => Kind(413, INVALID, "request_too_large"),
            Failure::BodyLate => Kind(408, INVALID, "body_timeout"),
            Failure::BodyMemory => Kind(503, "overloaded", "body_memory_full"),
            Failure::UnknownRoute | Failure::Blocked => Kind(404, INVALID, "unknown_url"),
            Failure::Method(_) => Kind(405, INVALID, "method_not_allowed"),
            Failure::UnknownModel(_) => Kind(404, INVALID, "model_not_found"),
            Failure::Refused(refusal) => Kind(refusal.status(), refusal.kind(), refusal.code()),
            Failure::Unreachable | Failure::Upstream(_) => Kind(502, "server_error", "upstream_error"),
            Failure::FirstByte => Kind(504, "timeout", "upstream_timeout"),
            Failure::Total => Kind(504, "timeout", "deadline_exceeded"),
            Failure::Cut => Kind(503, "model_unavailable", "replica_stopped"),
        }
    }

    fn message(&self) -> String {
        match self {
            Failure::Head { reason, .. } => format!("the request was refused: {reason}"),
            Failure::Body(reason) => format!("the request body was refused: {reason}"),
            Failure::Model(bad) => bad.to_string(),
            Failure::Encoded => {
                "the request body is compressed: send it uncompressed, or name the model in the \
                                 path or in x-sluice-model"
                    .into()
            }
            Failure::TooLarge(limit) => format!("the request body is larger than {limit} bytes"),
            Failure::BodyLate => "the request body stopped coming".into(),
            Failure::BodyMemory => "no memory is left for request bodies now: try again".into(),
            Failure::UnknownRoute | Failure::Blocked => "no such path".into(),
            Failure::Method(allow) => format!("this path takes {allow}"),
            Failure::UnknownModel(name) => format!("the model {name:?} does not exist"),
            Failure::Refused(refusal) => refusal.to_string(),
            Failure::Unreachable => "no replica of the model could be reached".into(),
            Failure::Upstream(reason) => format!("the replica failed before its answer: {reason}"),
            Failure::FirstByte => "the replica did not answer in time".into(),
            Failure::Total => "the request took longer than it may".into(),
            Failure::Cut => "the replica was stopped before its answer".into(),
        }
    }

    /// When to come back; `None` where a retry cannot help or may be made at once.
    fn retry_after(&self) -> Option<Duration> {
        match self {
            Failure::Refused(refusal) => refusal.retry_after(),
            Failure::BodyMemory => Some(Duration::from_secs(1)),
            _ => None,
        }
    }

    /// The whole answer.
    pub fn answer(&self, family: Family) -> Answer {
        let Kind(status, kind, code) = self.kind();
        let message = self.message();
        let body = match family {
            Family::OpenAi => serde_json::json!({
                "error": {"message": message, "type": kind, "param": param(self), "code": code}
            }),
            Family::Kserve => serde_json::json!({ "error": message }),
            Family::Anthropic => serde_json::json!({
                "type": "error", "error": {"type": kind, "message": message}
            }),
        };
        let mut answer = Answer::json(status, &body);
        if let Some(wait) = self.retry_after() {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            answer.field("retry-after", seconds.max(1));
            answer.field("retry-after-ms", wait.as_millis().max(1));
        }
        match self {
            Failure::Method(allow) => answer.field("allow", allow),
            Failure::UnknownModel(_) | Failure::TooLarge(_) => answer.field("x-should-retry", "false"),
            Failure::Refused(refusal) => {
                answer.field("x-sluice-model-state", refusal.model_state().as_str());
                if let Some(eta) = refusal.eta() {
                    answer.field("x-sluice-eta-ms", eta.as_millis());
                }
                if refusal.is_final() {
                    answer.field("x-should-retry", "false");
                }
            }
            _ => {}
        }
        answer
    }
}

fn param(failure: &Failure) -> Option<&'static str> {
    match failure {
        Failure::Model(_) | Failure::UnknownModel(_) => Some("model"),
        _ => None,
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Failure::Refused(refusal)
    }
}
