// SPDX-License-Identifier: Apache-2.0
//! Why a request gets no replica, and what its client is told.

use std::fmt;
use std::time::Duration;

use sluice_core::{ModelName, ModelState};

use super::outlook::Prospect;

/// A request that gets no replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The model asked for.
    pub model: ModelName,
    /// Why.
    pub reason: Reason,
    /// What could be foreseen at that moment.
    pub prospect: Prospect,
}

/// Why a request gets no replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// As many requests wait as may, or their bodies fill what they may.
    QueueFull {
        /// How many wait.
        waiting: usize,
    },
    /// It was known at once that no replica would be ready within its budget.
    NotInTime,
    /// It waited its whole budget.
    WaitedTooLong {
        /// The deadline was the client's own.
        by_client: bool,
    },
    /// No replica can be started.
    StartFailed {
        /// In one line.
        cause: String,
    },
    /// Sluice is stopping.
    Draining,
    /// The model is no longer configured.
    ModelRemoved,
    /// No slot was free and it did not want to wait.
    NotHeld,
}

impl Reason {
    /// The words used in metrics, in the order of `index`.
    pub const LABELS: [&'static str; 7] = [
        "queue_full",
        "not_in_time",
        "waited_too_long",
        "start_failed",
        "draining",
        "model_removed",
        "not_held",
    ];

    pub(crate) fn index(&self) -> usize {
        match self {
            Reason::QueueFull { .. } => 0,
            Reason::NotInTime => 1,
            Reason::WaitedTooLong { .. } => 2,
            Reason::StartFailed { .. } => 3,
            Reason::Draining => 4,
            Reason::ModelRemoved => 5,
            Reason::NotHeld => 6,
        }
    }
}

impl Refusal {
    /// HTTP status.
    pub fn status(&self) -> u16 {
        self.answer().0
    }

    /// Error `type`.
    pub fn kind(&self) -> &'static str {
        self.answer().1
    }

    /// Error `code`.
    pub fn code(&self) -> &'static str {
        self.answer().2
    }

    /// State of the model when the request was refused.
    pub fn model_state(&self) -> ModelState {
        self.prospect.state
    }

    /// How long until a request could be sent to a replica, if that can be told.
    pub fn eta(&self) -> Option<Duration> {
        self.prospect.eta.filter(|_| self.reason != Reason::ModelRemoved)
    }

    /// When to come back, 1 to 120 s; `None` if that cannot help.
    pub fn retry_after(&self) -> Option<Duration> {
        (!self.is_final()).then_some(self.prospect.retry_after)
    }

    /// A retry cannot help: the model is gone, or the client's own deadline has passed.
    pub fn is_final(&self) -> bool {
        matches!(self.reason, Reason::ModelRemoved | Reason::WaitedTooLong { by_client: true })
    }

    fn answer(&self) -> (u16, &'static str, &'static str) {
        let is_up = self.prospect.state == ModelState::Ready;
        match self.reason {
            Reason::QueueFull { .. } => (429, "overloaded", "queue_full"),
            Reason::NotHeld if is_up => (429, "overloaded", "no_free_slot"),
            Reason::NotInTime if is_up => (503, "overloaded", "not_in_time"),
            Reason::NotInTime | Reason::NotHeld => (503, "model_unavailable", "model_loading"),
            Reason::WaitedTooLong { .. } => (504, "timeout", "deadline_exceeded"),
            Reason::StartFailed { .. } => (503, "model_unavailable", "start_failed"),
            Reason::Draining => (503, "model_unavailable", "draining"),
            Reason::ModelRemoved => (404, "invalid_request_error", "model_not_found"),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { model, prospect, .. } = self;
        let state = prospect.state.as_str();
        match &self.reason {
            Reason::QueueFull { waiting } => {
                write!(f, "the queue of model {model} is full: {waiting} wait ({state})")
            }
            Reason::NotInTime => {
                write!(
                    f,
                    "model {model} is {state} and will not be ready within the time this request may wait"
                )
            }
            Reason::WaitedTooLong { by_client: true } => {
                write!(f, "the request's own deadline passed before model {model} could take it ({state})")
            }
            Reason::WaitedTooLong { by_client: false } => {
                write!(f, "the request waited as long as it may for model {model} ({state})")
            }
            Reason::StartFailed { cause } => write!(f, "model {model} could not be started: {cause}"),
            Reason::Draining => write!(f, "this gateway is stopping: send the request again"),
            Reason::ModelRemoved => write!(f, "the model {model} is no longer configured"),
            Reason::NotHeld => {
                write!(f, "model {model} is {state} with no free slot, and the request asked not to be held")
            }
        }
    }
}

impl std::error::Error for Refusal {}
