// SPDX-License-Identifier: Apache-2.0
//! What is kept of a recorded request until it is exported: plain data, taken when the request ends.
#![cfg_attr(not(feature = "otel"), allow(dead_code, reason = "only the exporter reads it"))]

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use sluice_core::ReplicaId;

use super::{Spans, TraceId};

/// One request. Durations count from its head.
#[derive(Clone, Debug)]
pub(crate) struct Finished {
    pub trace: TraceId,
    pub spans: Spans,
    /// When its head was complete.
    pub started: SystemTime,
    pub took: Duration,
    pub request_id: String,
    pub method: &'static str,
    /// Without its query.
    pub path: String,
    /// `http/1.1` or `h2`.
    pub protocol: &'static str,
    pub client: IpAddr,
    pub model: Option<String>,
    pub status: u16,
    pub outcome: &'static str,
    /// Error code; empty if there was none.
    pub code: &'static str,
    /// Time spent waiting for a replica.
    pub queued: Duration,
    pub cold: bool,
    /// When it first had a replica.
    pub dispatched: Option<Duration>,
    pub first_byte: Option<Duration>,
    pub first_event: Option<Duration>,
    pub replica: Option<ReplicaId>,
    pub attempts: u32,
}
