// SPDX-License-Identifier: Apache-2.0
//! How a model's replicas are started and probed, as the backend needs it: validated, with every default filled in.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Where a model's replicas come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launch {
    /// A child process of ours per replica.
    Process(ProcessLaunch),
    /// Addresses that somebody else runs, one replica each.
    Fixed(FixedLaunch),
}

/// A child process, in a process group of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessLaunch {
    /// Program and arguments; `${PORT}` anywhere in an argument stands for the chosen port. Not empty.
    pub command: Vec<String>,
    /// Run before SIGTERM when a replica is to stop (a container outlives its client); `${PORT}` and `${PID}` are known.
    pub stop_command: Option<Vec<String>>,
    /// Added to Sluice's own environment; values may be secrets.
    pub env: BTreeMap<String, Secret>,
    /// Where it runs; Sluice's own directory by default.
    pub working_directory: Option<PathBuf>,
    /// From SIGTERM to SIGKILL.
    pub stop_deadline: Duration,
    /// How readiness is seen.
    pub probe: Probe,
}

/// Fixed addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedLaunch {
    /// Scheme, host and port; the host may be a name.
    pub urls: Vec<Origin>,
    /// How readiness is seen.
    pub probe: Probe,
}

/// Scheme, host and port of an HTTP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// `https` or `http`.
    pub tls: bool,
    /// Name or IP address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// A readiness probe: `GET path`, ready at status 200 to 299.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Path, with a leading slash.
    pub path: String,
    /// Pause between the end of one probe and the next while starting.
    pub period: Duration,
    /// Pause between probes once ready.
    pub ready_period: Duration,
    /// Longest time for one probe.
    pub timeout: Duration,
    /// Successes in a row that make it ready.
    pub successes: u32,
    /// Failures in a row that make a ready replica unready.
    pub failures: u32,
    /// Header fields to send, among them the backend's key.
    pub headers: Vec<(String, Secret)>,
}

/// Text that is never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}
