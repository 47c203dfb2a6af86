// SPDX-License-Identifier: Apache-2.0
//! The one table of metrics (pure): what each is called, what it means, its labels, and when it moves.
//!
//! Exposition and documentation are made of it: a sample can only be written under an entry of this table, with as
//! many label values as the entry has labels.

/// What a number does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only grows while the process lives.
    Counter,
    /// Goes both ways.
    Gauge,
    /// Counts of values by upper bound.
    Histogram,
    /// Always 1; what it says is in its labels.
    Info,
}

impl Kind {
    /// The word used in documentation.
    #[cfg(test)]
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Info => "info",
        }
    }
}

/// A label and the values that it can have.
#[derive(Debug)]
pub(crate) struct Label {
    pub name: &'static str,
    /// What bounds its values, for documentation.
    #[cfg_attr(not(test), expect(dead_code, reason = "for the generated documentation"))]
    pub values: &'static str,
}

/// One metric.
#[derive(Debug)]
pub(crate) struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [&'static Label],
    pub help: &'static str,
    /// When its value changes, for documentation.
    #[cfg_attr(not(test), expect(dead_code, reason = "for the generated documentation"))]
    pub moves: &'static str,
}

impl Metric {
    /// The base unit that the name ends in.
    pub(crate) fn unit(&self) -> Option<&'static str> {
        let stem = self.name.strip_suffix("_total").unwrap_or(self.name);
        ["seconds", "bytes", "ratio"].into_iter().find(|unit| stem.ends_with(unit))
    }
}

macro_rules! labels {
    ($($id:ident = $name:literal: $values:literal;)*) => {
        $(static $id: Label = Label { name: $name, values: $values };)*
        /// Every label, for documentation.
        #[cfg(test)]
        pub(crate) static LABELS: &[&Label] = &[$(&$id),*];
    };
}

labels! {
    MODEL = "model": "a configured model. Requests that name no configured model share `unknown`, however many names they \
                      make up";
    API = "api": "`openai`, `anthropic`, `kserve`";
    CODE = "code": "status code of the answer; the first 32 pairs of `api` and `code` of a model have a series each, later \
                    codes share `other`";
    REPLICA = "replica": "a living replica of the model, as in the admin API: at most those that `maxReplicas` and their \
                          successors make";
    CLASS = "class": "`standard`, `batch`";
    REASON = "reason": "see the tables of refusals and of rules below; words that a table does not have share `other`";
    RUNG = "rung": "`start`: a process was started. Other ways to wake a model will be values of their own";
    PHASE = "phase": "`waiting`, `in_flight`";
    KIND = "kind": "error code of the answer that the client got, or `cut_off` if the answer had begun";
    STATE = "state": "`starting`, `ready`, `draining`";
    OUTCOME = "outcome": "named with the metric";
    DIRECTION = "direction": "`input`: of prompts, `output`: of answers";
    QUANTILE = "quantile": "`0.5`, `0.9`";
    VERSION = "version": "of Sluice";
    OS = "os": "the operating system that it was built for";
    ARCH = "arch": "the processor family that it was built for";
}

macro_rules! metrics {
    ($($id:ident = $name:literal $kind:ident [$($label:ident),*] $help:literal, $moves:literal;)*) => {
        /// Every metric by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Name { $($id),* }

        /// Every metric, in the order of [`Name`].
        pub(crate) static METRICS: &[Metric] = &[$(Metric {
            name: $name, kind: Kind::$kind, labels: &[$(&$label),*], help: $help, moves: $moves,
        }),*];
    };
}

metrics! {
    Requests = "sluice_requests_total" Counter [MODEL, API, CODE]
        "Requests answered, by status code; 499 if the client left before its answer was complete.",
        "a request ends, however it ends; lists and readiness, which the gateway answers by itself, are not counted";
    Duration = "sluice_request_duration_seconds" Histogram [MODEL]
        "From a request's head to its last response byte.", "with `sluice_requests_total`";
    FirstByte = "sluice_time_to_first_byte_seconds" Histogram [MODEL]
        "From a request's head to the response head.", "a request ends that a replica has answered";
    FirstToken = "sluice_time_to_first_token_seconds" Histogram [MODEL]
        "From a request's head to the first event of its stream.", "a streamed answer ends";
    InterToken = "sluice_inter_token_seconds" Histogram [MODEL]
        "Mean time between two events of a stream, one value per stream.",
        "a streamed answer of at least two events ends";
    Events = "sluice_stream_events_total" Counter [MODEL]
        "Events of streams that were passed on.", "a streamed answer ends";
    Tokens = "sluice_tokens_total" Counter [MODEL, DIRECTION]
        "Tokens, as answers state them in `usage`; see below for those that state none.",
        "an answer ends that states its usage";
    BytesIn = "sluice_request_body_bytes_total" Counter [MODEL]
        "Bytes of request bodies.", "a request ends";
    BytesOut = "sluice_response_body_bytes_total" Counter [MODEL]
        "Bytes of response bodies that replicas sent.", "a request ends";
    InFlight = "sluice_inflight" Gauge [MODEL, REPLICA]
        "Requests sent to replicas and not finished.", "a request gets a replica, or leaves it";
    QueueDepth = "sluice_queue_depth" Gauge [MODEL, CLASS]
        "Requests waiting for a replica.", "a request begins or ends to wait";
    QueueWait = "sluice_queue_wait_seconds" Histogram [MODEL]
        "How long requests waited that had to wait and got a replica.", "a waiting request gets a replica";
    ColdStart = "sluice_cold_start_seconds" Histogram [MODEL, RUNG]
        "How long requests waited that waited for a replica to start.",
        "a request that came while no replica was ready gets one";
    EtaError = "sluice_eta_error_ratio" Histogram [MODEL]
        "Time until a model at zero was ready over the time that was first foretold; 1 is right, 2 took twice as long.",
        "a model that had no ready replica gets one, and there was a forecast (not at its very first start)";
    Refusals = "sluice_refusals_total" Counter [MODEL, REASON]
        "Requests not sent to a replica, by reason.", "a request is refused";
    UpstreamErrors = "sluice_upstream_errors_total" Counter [MODEL, KIND]
        "Requests that their replica failed, after all attempts.", "a request ends because of its replica";
    Cancels = "sluice_client_cancels_total" Counter [MODEL, PHASE]
        "Clients that left, while waiting or while in flight.", "a client closes or resets before the end";
    Retries = "sluice_retries_total" Counter [MODEL]
        "Attempts beyond a request's first one.", "a request ends that was sent more than once";
    Replicas = "sluice_replicas" Gauge [MODEL, STATE]
        "Replicas as the gateway knows them, by state.", "a replica changes its state";
    Desired = "sluice_desired_replicas" Gauge [MODEL]
        "Replicas wanted after all rules.", "the scaler decides";
    Decisions = "sluice_scale_decisions_total" Counter [MODEL, REASON]
        "Changes of the number of replicas wanted, by the rule that decided.", "`sluice_desired_replicas` changes";
    Starts = "sluice_replica_starts_total" Counter [MODEL, OUTCOME]
        "Starts of replicas that ended: `ready`, or `failed` before they were ready.",
        "a replica is ready for the first time, or ends before that";
    Deaths = "sluice_replica_deaths_total" Counter [MODEL]
        "Replicas that had been ready and ended without being told to.", "a replica's process ends by itself";
    WakeEstimate = "sluice_wake_estimate_seconds" Gauge [MODEL, QUANTILE]
        "Time from start to readiness, of the last measured starts; absent before the first.", "a start ends well";
    Connections = "sluice_connections" Gauge []
        "Open client connections.", "a client connects or leaves";
    ConnectionsRefused = "sluice_connections_refused_total" Counter []
        "Client connections closed at once because of `limits.connections` or `limits.connectionsPerSource`.",
        "a client connects beyond a limit";
    ConnectionsLimit = "sluice_connections_limit" Gauge []
        "Client connections that may be open: `limits.connections`.", "a configuration is taken over";
    BodyMemory = "sluice_body_memory_bytes" Gauge []
        "Request bodies held in memory.", "a body is read, or its request is answered";
    BodyMemoryLimit = "sluice_body_memory_limit_bytes" Gauge []
        "Request bodies that may be held in memory: `limits.bodyMemory`.", "a configuration is taken over";
    Ready = "sluice_ready" Gauge []
        "1 while the process wants traffic, as /readyz says.", "start and stop";
    StatusAge = "sluice_scaler_status_age_seconds" Gauge []
        "Time since the scaler last looked at all models; it does so four times a second.", "all the time";
    JournalInputs = "sluice_journal_inputs_total" Counter []
        "What the scaler was told and decided on; each is an entry of its journal.",
        "load changes, a replica changes its state, an order or a configuration comes; and four times a second";
    JournalWritten = "sluice_journal_written_bytes_total" Counter []
        "What was written of the journal on disk.", "the scaler is told something, and no less than each ten seconds";
    JournalLost = "sluice_journal_lost_inputs_total" Counter []
        "Entries that the journal on disk lacks because it could not be written, or not as fast.",
        "the disk is full, slow or read-only";
    Reloads = "sluice_config_reloads_total" Counter [OUTCOME]
        "Configurations read again: `ok`, or `error` if refused.", "the file changes, or SIGHUP comes";
    ReloadOk = "sluice_config_last_reload_successful" Gauge []
        "1 if the configuration last read is in force.", "a configuration is read";
    ReloadTime = "sluice_config_last_reload_success_timestamp_seconds" Gauge []
        "When the configuration in force was read, as Unix time.", "a configuration is taken over";
    LogLost = "sluice_log_lines_lost_total" Counter []
        "Log lines lost because standard error took them too slowly.", "a line is lost";
    Traced = "sluice_traced_requests_total" Counter [OUTCOME]
        "Requests recorded for traces: `exported`, `dropped` because the queue was full, `failed` at the collector.",
        "with `tracing`: a recorded request ends, or its export does";
    Build = "sluice_build_info" Info [VERSION, OS, ARCH]
        "Which Sluice this is.", "never";
    ProcessCpu = "process_cpu_seconds_total" Counter []
        "Processor time of Sluice itself, user and system; replicas are not in it.", "Sluice works";
    ProcessResident = "process_resident_memory_bytes" Gauge []
        "Resident memory of Sluice itself.", "memory is taken or given back";
    ProcessVirtual = "process_virtual_memory_bytes" Gauge []
        "Virtual memory of Sluice itself.", "memory is mapped";
    ProcessThreads = "process_threads" Gauge []
        "Threads of Sluice itself.", "start and stop";
    ProcessFds = "process_open_fds" Gauge []
        "Open file descriptors of Sluice itself.", "connections come and go";
    ProcessFdsMax = "process_max_fds" Gauge []
        "File descriptors that may be open.", "never";
    ProcessStart = "process_start_time_seconds" Gauge []
        "When Sluice started, as Unix time.", "never";
}

impl Name {
    /// Its entry in the table.
    pub(crate) fn metric(self) -> &'static Metric {
        // The table is made of the same list.
        &METRICS[self as usize]
    }
}
