// SPDX-License-Identifier: Apache-2.0
//! The configuration after validation: immutable, typed, every default filled in.
//!
//! Owns the types and the defaults that the data plane reads. Must not know YAML: `file.rs` turns a document
//! into this.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sluice_core::ModelName;
use sluice_scaler::Plan;
use sluice_scaler::launch::{Origin, Secret};

/// A whole validated configuration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Data listeners without TLS.
    pub listen: Vec<SocketAddr>,
    /// Data listeners with TLS.
    pub tls: Option<Tls>,
    /// Admin listener.
    pub admin: SocketAddr,
    /// File of the admin API's tokens.
    pub admin_tokens: Option<PathBuf>,
    /// Folder of what outlives Sluice, if one is named.
    pub state_directory: Option<PathBuf>,
    /// Where traces of requests go.
    pub tracing: Option<Tracing>,
    /// Worker threads of the data plane.
    pub threads: usize,
    /// Connection and body limits of the whole process.
    pub limits: Limits,
    /// How Sluice itself stops.
    pub shutdown: Shutdown,
    /// What the data plane knows of each model.
    pub models: BTreeMap<ModelName, Arc<ModelSettings>>,
    /// What the scaler knows.
    pub plan: Plan,
}

/// TLS towards clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Addresses.
    pub listen: Vec<SocketAddr>,
    /// PEM file with the certificate chain; reloaded when it changes.
    pub certificate: PathBuf,
    /// PEM file with the private key; reloaded when it changes.
    pub key: PathBuf,
}

/// Export of traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracing {
    /// The collector.
    pub endpoint: Origin,
    /// Thousandths of the traces that begin here.
    pub sample_milli: u32,
    /// Sent along.
    pub headers: Vec<(String, Secret)>,
}

/// Limits towards clients, before a model is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open client connections in all; a further one is closed at once.
    pub connections: usize,
    /// Open client connections from one address; 0 is unlimited.
    pub connections_per_source: usize,
    /// From the first byte awaited to the head's last; also the TLS handshake and the HTTP/2 preface.
    pub head_timeout: Duration,
    /// Between requests on a kept connection, and for an HTTP/2 connection without streams.
    pub idle_timeout: Duration,
    /// Longest silence inside a request body that is being read.
    pub body_timeout: Duration,
    /// Longest time that a write to a client may make no progress.
    pub write_timeout: Duration,
    /// Bytes of request bodies held in memory at once, all models together.
    pub body_memory: usize,
    /// Largest request body of a request whose model is not known yet: the largest `bodyLimit` of any model.
    pub body_limit: usize,
    /// HTTP/2 streams at once per connection.
    pub h2_streams: u32,
}

/// How Sluice itself stops after SIGTERM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// Readiness is red and requests are still taken, for load balancers to notice.
    pub drain_delay: Duration,
    /// From the end of the delay until what still runs is cut off.
    pub deadline: Duration,
}

/// One model as the data plane sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSettings {
    /// Its name.
    pub name: ModelName,
    /// Largest request body; a larger one is 413.
    pub body_limit: usize,
    /// Bytes of request bodies of this model held in memory at once.
    pub body_memory: usize,
    /// Waiting requests at most; a further one is 429.
    pub queue_length: usize,
    /// Bytes of the bodies of waiting requests at most; beyond it 429.
    pub queue_bytes: usize,
    /// Budgets of one request.
    pub timeouts: Timeouts,
    /// What replicas speak.
    pub protocol: Protocol,
    /// Sent to replicas as `authorization: Bearer …` in place of the client's credentials.
    pub backend_key: Option<Secret>,
    /// Send the client's own credentials on when there is no `backend_key`.
    pub pass_credentials: bool,
    /// Retry a request once that a reused connection swallowed without a response byte.
    pub retry_stale: bool,
    /// Unix seconds of the configuration's load, for `created` in model lists.
    pub created: u64,
}

/// What a model's replicas speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2: over TLS by ALPN, in the clear by prior knowledge. Needed for streams in both directions.
    Http2,
}

/// Budgets of one request, each its own; `None` is unlimited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Waiting while the model has no ready replica.
    pub cold_start: Duration,
    /// Waiting while it has one and all are busy.
    pub queue: Duration,
    /// Connecting to a replica.
    pub connect: Duration,
    /// From dispatch to the response head.
    pub first_byte: Option<Duration>,
    /// Between two reads of the response body.
    pub between_bytes: Option<Duration>,
    /// From dispatch to the last byte (KServe's `timeout`).
    pub total: Option<Duration>,
}
