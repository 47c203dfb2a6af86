// SPDX-License-Identifier: Apache-2.0
//! Every key there is: its kind, range, default and meaning.
//!
//! The one table from which reading, suggestions and documentation come. Must not know how a value is used.

use super::autoscaler::CLUSTER;

/// A table of the file.
#[derive(Debug)]
pub(super) struct Section {
    /// Where it stands, for messages and documentation; empty for the file itself.
    pub path: &'static str,
    pub keys: &'static [Key],
}

/// A key of a table.
#[derive(Debug)]
pub(super) struct Key {
    pub name: &'static str,
    pub kind: Kind,
    pub default: Omitted,
    pub about: &'static str,
}

/// What a value may be. Bounds are written as in the file and are inclusive.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Integer(u64, u64),
    /// A number with up to three decimals.
    Decimal(&'static str, &'static str),
    /// A number as Go and Rust read one, such as `0.7` or `1e2`.
    Float(&'static str, &'static str),
    Duration(&'static str, &'static str),
    /// A duration, or `none`.
    Limit(&'static str, &'static str),
    /// As `Limit`; a bare number is seconds.
    Seconds(&'static str, &'static str),
    Size(&'static str, &'static str),
    Switch,
    /// One of these words; the second ones are known and not supported yet.
    Choice(&'static [&'static str], &'static [&'static str]),
    Text,
    Path,
    Secret,
    /// An IP address with a port.
    Address,
    /// One such address or a list of them.
    Addresses,
    Url,
    Urls,
    /// A program with its arguments.
    Words,
    /// Names of other things in the file.
    Names,
    /// Free names with texts that may be secret.
    Pairs,
    Annotations,
    Table(&'static Section),
    Tables(&'static Section),
    /// Known, not supported yet, and why or what instead.
    Later(&'static str),
}

/// What holds when the key is left out.
#[derive(Clone, Copy, Debug)]
pub(super) enum Omitted {
    /// This value, written as in the file.
    Value(&'static str),
    /// What the words say.
    Words(&'static str),
    /// It must be there.
    Required,
}

use Omitted::{Required, Value, Words};

/// Writes a table down: the meaning as comment, then `name: kind => default;`.
macro_rules! section {
    ($vis:vis $table:ident, $path:literal;
     $($(#[doc = $about:literal])* $name:ident: $kind:expr => $default:expr;)*) => {
        $vis static $table: Section = Section {
            path: $path,
            keys: &[$(Key {
                name: stringify!($name),
                kind: $kind,
                default: $default,
                about: concat!("", $($about),*),
            },)*],
        };
    };
}

/// What replicas can be scaled by.
pub(super) const METRIC: Kind = Kind::Choice(&["concurrency", "rps"], &["cpu", "memory"]);

/// Whose rules say how many replicas.
const COMPAT: Kind = Kind::Choice(&["none", "kpa"], &["hpa", "keda", "ray"]);

// The file.
section! { pub(super) TOP, "";
    /// Where requests are taken, without TLS. Loopback, so that nothing is exposed by accident.
    listen: Kind::Addresses => Value("127.0.0.1:8080");
    /// Where the admin API, health and metrics answer. Without tokens, whoever reaches it can start and stop models.
    admin: Kind::Address => Value("127.0.0.1:8081");
    /// File of the admin API's tokens, a line each: `name role sha256`. Without it whoever reaches the listener is
    /// operator; an address that other machines reach needs it. Read again when it changes.
    adminTokens: Kind::Path => Words("none");
    /// Folder of what outlives Sluice: the journal of decisions, from which the next start continues, and which
    /// processes are ours. One that cannot be used keeps Sluice from starting.
    stateDirectory: Kind::Path =>
        Words("systemd's state directory, `$XDG_STATE_HOME/sluice` or `~/.local/state/sluice`, if it can be used");
    /// Where requests are taken with TLS.
    tls: Kind::Table(&TLS) => Words("no TLS");
    /// Threads that carry requests.
    threads: Kind::Integer(1, 1024) => Words("one per CPU");
    /// Limits towards clients, before a model is known.
    limits: Kind::Table(&LIMITS) => Words("see below");
    /// How Sluice itself stops.
    shutdown: Kind::Table(&SHUTDOWN) => Words("see below");
    /// Where traces of requests go. Left out, Sluice takes no part in traces and passes their fields on.
    tracing: Kind::Table(&TRACING) => Words("no traces");
    /// Memory that all replicas Sluice has started may use together, by their models' `memory`.
    memory: Kind::Size("1Mi", "1024Ti") => Words("unlimited");
    /// Whose rules say how many replicas models have: `kpa` are those of Knative's pod autoscaler, `none` Sluice's own,
    /// the profile `sized`. A model may say otherwise.
    compat: COMPAT => Value("none");
    /// Knative's cluster-wide settings for models under `compat: kpa`, as in the ConfigMap `config-autoscaler`.
    configAutoscaler: Kind::Table(&CLUSTER) => Words("see below");
    /// Models that must not run at the same time.
    groups: Kind::Tables(&GROUP) => Words("none");
    /// The models. `[]` serves none.
    models: Kind::Tables(&MODEL) => Required;
    gpus: Kind::Later("this version places replicas by `memory` only") => Words("-");
    projects: Kind::Later("this version has no tenants") => Words("-");
    profile: Kind::Later("`compat` says whose rules decide; without it the profile `sized` does") => Words("-");
    keys: Kind::Later("this version takes requests from whoever reaches the listener") => Words("-");
    priorities: Kind::Later("this version serves requests in the order of their arrival") => Words("-");
}

section! { TLS, "tls";
    /// Addresses.
    listen: Kind::Addresses => Required;
    /// PEM file with the certificate chain. Read again when it changes.
    certificate: Kind::Path => Required;
    /// PEM file with the private key. Read again when it changes.
    key: Kind::Path => Required;
}

section! { TRACING, "tracing";
    /// An OpenTelemetry collector that takes OTLP over HTTP, mostly on port 4318. Spans go to its `/v1/traces`.
    endpoint: Kind::Url => Required;
    /// Share of the traces that begin here which are recorded. A trace that a client has begun is recorded if the
    /// client records it.
    sample: Kind::Decimal("0", "1") => Value("1");
    /// Sent along, for a collector that wants a key.
    headers: Kind::Pairs => Words("none");
}

section! { LIMITS, "limits";
    /// Open client connections in all; a further one is closed at once. Each may need a second descriptor
    /// towards a replica.
    connections: Kind::Integer(1, 1_000_000) => Value("20000");
    /// Open client connections from one address; 0 is unlimited, because many clients often share a proxy's
    /// address.
    connectionsPerSource: Kind::Integer(0, 1_000_000) => Value("0");
    /// From the first byte awaited to the end of a request's head; also the TLS handshake and the HTTP/2
    /// preface.
    headTimeout: Kind::Duration("1ms", "1h") => Value("10s");
    /// Between requests on a kept connection. Longer than the 60 s of common load balancers, so that they
    /// close first.
    idleTimeout: Kind::Duration("1ms", "24h") => Value("75s");
    /// Longest silence inside of a request body.
    bodyTimeout: Kind::Duration("1ms", "24h") => Value("30s");
    /// Longest time that a client may take nothing of its answer.
    writeTimeout: Kind::Duration("1ms", "24h") => Value("30s");
    /// Bytes of request bodies in memory at once, all models together.
    bodyMemory: Kind::Size("64Ki", "1024Ti") => Words("`1Gi`, or the largest of a model if more");
    /// HTTP/2 requests at once on one connection; RFC 9113 advises no less than 100.
    streamsPerConnection: Kind::Integer(1, 100_000) => Value("100");
}

section! { SHUTDOWN, "shutdown";
    /// Readiness is red and requests are still taken, for load balancers to notice. On one machine nobody
    /// needs to notice.
    drainDelay: Kind::Duration("0", "1h") => Value("0s");
    /// From the end of the delay until what still runs is cut off; the usual grace period of service
    /// managers.
    deadline: Kind::Duration("0", "24h") => Value("30s");
}

section! { GROUP, "groups[]";
    /// Its name: 1 to 253 visible characters.
    name: Kind::Text => Required;
    /// Names of models; of these at most one has running replicas at a time.
    exclusive: Kind::Names => Required;
}

// One model.
section! { pub(super) MODEL, "models[]";
    /// The name that requests carry: 1 to 253 visible characters, no spaces.
    name: Kind::Text => Required;
    /// Program and arguments of one replica, as a list. `${PORT}` stands for the port it must listen on. No
    /// shell is run.
    command: Kind::Words => Words("required without `url`");
    /// Address of a server that somebody else runs, in place of `command`: `http://host:port`. It is
    /// probed, never started or stopped.
    url: Kind::Url => Words("none");
    /// Several such addresses, one replica each.
    urls: Kind::Urls => Words("none");
    /// Variables added to Sluice's own environment. Values are never shown.
    env: Kind::Pairs => Words("none");
    /// Where `command` runs.
    workingDirectory: Kind::Path => Words("where Sluice was started");
    /// Run before SIGTERM, for replicas that outlive their process such as containers. `${PORT}` and
    /// `${PID}` are known.
    stopCommand: Kind::Words => Words("none");
    /// How Sluice sees that a replica can serve.
    readiness: Kind::Table(&READINESS) => Words("see below");
    /// Sent to replicas as `authorization: Bearer …` in place of the client's credentials, by requests and
    /// probes.
    backendKey: Kind::Secret => Words("none");
    /// File that holds `backendKey`; space around it is dropped.
    backendKeyFile: Kind::Path => Words("none");
    /// Send the client's own credentials on to replicas. Off, because a replica has no business with them.
    passCredentials: Kind::Switch => Value("false");
    /// What replicas speak. `http2` is for servers with streams in both directions.
    protocol: Kind::Choice(&["http1", "http2"], &["http3"]) => Value("http1");
    /// Whose rules say how many replicas: `kpa` are those of Knative's pod autoscaler, `none` Sluice's own.
    compat: COMPAT => Words("the file's `compat`");
    /// Never fewer replicas; 0 lets the model go to zero.
    minReplicas: Kind::Integer(0, 10_000) => Value("0");
    /// Never more replicas. One if left out, because a machine is easily full. 0 is unlimited under `compat: kpa`, and
    /// refused otherwise.
    maxReplicas: Kind::Integer(0, 10_000) => Words("`minReplicas`, and at least 1");
    /// Requests in flight or waiting per replica that are aimed at.
    scaleTarget: Kind::Decimal("0.01", "1000000") => Words("`containerConcurrency` if above 0, else 100");
    /// What `scaleTarget` counts.
    /// `rps`, requests that arrive per second, only under `compat: kpa`.
    scaleMetric: METRIC => Value("concurrency");
    /// Requests in flight at one replica at most; 0 is unlimited, and the default under `compat: kpa`.
    containerConcurrency: Kind::Integer(0, 1_000_000) => Words("`scaleTarget` rounded up if set, else 0");
    /// From dispatch to the last byte of the answer; a bare number is seconds. Same as `timeouts.total`.
    timeout: Kind::Seconds("1ms", "30d") => Value("none");
    /// Time budgets of a request, each its own.
    timeouts: Kind::Table(&TIMEOUTS) => Words("see below");
    /// With nothing in flight or waiting for so long a model with `minReplicas: 0` goes to zero. Longer
    /// than a person's pause between two questions. Under `compat: kpa` it ends orders only.
    idleAfter: Kind::Duration("0", "30d") => Value("5m");
    /// Replicas are given up when so long none of them was wanted. Knative's stable window; under `compat: kpa` from 6 s
    /// on, in whole seconds.
    window: Kind::Duration("100ms", "1h") => Value("60s");
    /// From the start of a replica to its readiness; later the start has failed. Room for reading a large
    /// model from a disk.
    startDeadline: Kind::Duration("100ms", "24h") => Value("5m");
    /// From SIGTERM to SIGKILL.
    stopDeadline: Kind::Duration("0", "1h") => Value("10s");
    /// What is still in flight so long after a replica began to drain is cut off.
    drainDeadline: Kind::Duration("0", "24h") => Value("5m");
    /// From so many failed starts in a row on, waiting requests are told the cause. One or two may be
    /// chance.
    startAttempts: Kind::Integer(1, 1000) => Value("3");
    /// Pauses after failed starts.
    backoff: Kind::Table(&BACKOFF) => Words("see below");
    /// Largest request body; a larger one is 413. A few images in base64 fit.
    bodyLimit: Kind::Size("1Ki", "64Gi") => Value("32Mi");
    /// Bytes of request bodies of this model in memory at once.
    bodyMemory: Kind::Size("1Ki", "1024Ti") =>
        Words("`512Mi`, at least `bodyLimit`, at most `limits.bodyMemory`");
    /// How much may wait.
    queue: Kind::Table(&QUEUE) => Words("see below");
    /// Memory that one replica needs, counted against the file's `memory`.
    memory: Kind::Size("0", "1024Ti") => Value("0");
    /// Exclusive groups that it belongs to; the same as standing in `groups[].exclusive`.
    groups: Kind::Names => Words("none");
    /// Start one replica at once although nothing asked for it yet. Under `compat: kpa` initial-scale says that.
    preload: Kind::Switch => Value("false");
    /// Send a request a second time when a kept connection broke before a byte of the answer. The replica
    /// cannot have taken it in the usual case.
    retryStale: Kind::Switch => Value("true");
    /// Accepted, as KServe does; nothing reads it.
    scaleMetricType: Kind::Text => Words("none");
    /// Knative's name of `timeout`; 0 leaves it out.
    timeoutSeconds: Kind::Integer(0, 2_592_000) => Words("none");
    /// Knative's name of `timeouts.firstByte`; 0 leaves it out.
    responseStartTimeoutSeconds: Kind::Integer(0, 2_592_000) => Words("none");
    /// Knative's name of `timeouts.betweenBytes`; 0 leaves it out.
    idleTimeoutSeconds: Kind::Integer(0, 2_592_000) => Words("none");
    /// Knative's names for some of these keys, and its further settings, see below.
    annotations: Kind::Annotations => Words("none");
    gpu: Kind::Later("this version places replicas by `memory` only") => Words("-");
    profile: Kind::Later("`compat` says whose rules decide; without it the profile `sized` does") => Words("-");
    aliases: Kind::Later("a model answers to its `name` only") => Words("-");
    priority: Kind::Later("this version serves requests in the order of their arrival") => Words("-");
    project: Kind::Later("this version has no tenants") => Words("-");
    sleep: Kind::Later("this version keeps replicas running or stops them") => Words("-");
    canaryTrafficPercent: Kind::Later("this version has one revision per model") => Words("-");
    autoScaling: Kind::Later("`scaleTarget` counts requests") => Words("-");
}

section! { READINESS, "models[].readiness";
    /// Path of a `GET`; an answer of 200 to 299 is ready. vLLM's, SGLang's and llama.cpp's.
    path: Kind::Text => Value("/health");
    /// Pause between two probes while starting; it adds up to this much to a cold start.
    period: Kind::Duration("10ms", "1m") => Value("100ms");
    /// Pause between two probes once ready.
    readyPeriod: Kind::Duration("10ms", "1h") => Value("5s");
    /// Longest time of one probe.
    timeout: Kind::Duration("10ms", "1m") => Value("2s");
    /// Successes in a row that make a replica ready.
    successes: Kind::Integer(1, 100) => Value("1");
    /// Failures in a row that make a ready replica unready; one may be a long garbage collection.
    failures: Kind::Integer(1, 1000) => Value("3");
    /// Header fields to send; an `authorization` here takes the place of the key's. Values are never shown.
    headers: Kind::Pairs => Words("`authorization` with `backendKey`");
}

section! { TIMEOUTS, "models[].timeouts";
    /// Waiting while the model has no ready replica. Two of the longest starts.
    coldStart: Kind::Duration("1ms", "24h") => Value("10m");
    /// Waiting while it has one and all are busy.
    queue: Kind::Duration("1ms", "24h") => Value("5m");
    /// Connecting to a replica that is known to be ready.
    connect: Kind::Duration("1ms", "5m") => Value("1s");
    /// From dispatch to the head of the answer, which for answers in one piece is the whole computation;
    /// `none` is unlimited.
    firstByte: Kind::Limit("1ms", "24h") => Value("10m");
    /// Between two pieces of an answer; a thinking model may pause for a minute. `none` is unlimited.
    betweenBytes: Kind::Limit("1ms", "24h") => Value("5m");
    /// From dispatch to the last byte. None, because a long answer that still flows is healthy.
    total: Kind::Limit("1ms", "30d") => Value("none");
}

section! { BACKOFF, "models[].backoff";
    /// Pause after the first failed start; doubles with each further one.
    first: Kind::Duration("1ms", "1h") => Value("500ms");
    /// Longest such pause; whoever mends the cause waits no longer than this.
    max: Kind::Duration("1ms", "24h") => Value("30s");
}

section! { QUEUE, "models[].queue";
    /// Waiting requests at most; a further one is 429.
    length: Kind::Integer(1, 1_000_000) => Value("1000");
    /// Bytes of the bodies of waiting requests at most; beyond it 429.
    bytes: Kind::Size("1Ki", "1024Ti") => Words("`256Mi`, or `bodyLimit` if that is more");
}

/// The tables in the order of the documentation.
pub(super) static SECTIONS: &[&Section] = &[
    &TOP, &TLS, &LIMITS, &SHUTDOWN, &TRACING, &CLUSTER, &GROUP, &MODEL, &READINESS, &TIMEOUTS, &BACKOFF,
    &QUEUE,
];

impl Section {
    pub fn find(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}

impl Kind {
    /// What is allowed, in words.
    pub fn range(&self) -> String {
        match self {
            Kind::Integer(min, max) => format!("{min} to {max}"),
            Kind::Decimal(min, max)
            | Kind::Float(min, max)
            | Kind::Duration(min, max)
            | Kind::Size(min, max) => format!("{min} to {max}"),
            Kind::Limit(min, max) | Kind::Seconds(min, max) => format!("{min} to {max}, or `none`"),
            Kind::Switch => "`true` or `false`".to_owned(),
            Kind::Choice(words, _) => {
                words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or ")
            }
            Kind::Text | Kind::Secret => "text".to_owned(),
            Kind::Path => "a path; a relative one starts at the file's directory".to_owned(),
            Kind::Address => "`IP:port`".to_owned(),
            Kind::Addresses => "`IP:port`, or a list of them".to_owned(),
            Kind::Url => "`http://host:port` or `https://…`".to_owned(),
            Kind::Urls => "a list of such addresses".to_owned(),
            Kind::Words => "a list of texts".to_owned(),
            Kind::Names => "a list of names".to_owned(),
            Kind::Pairs | Kind::Annotations => "a table of texts".to_owned(),
            Kind::Table(_) => "a table".to_owned(),
            Kind::Tables(_) => "a list of tables".to_owned(),
            Kind::Later(_) => "-".to_owned(),
        }
    }
}

/// Whether any table has a key of this name.
pub(super) fn is_known(name: &str) -> bool {
    SECTIONS.iter().any(|section| section.find(name).is_some())
}

/// The candidate most like `name`, if one is near enough to be meant.
pub(super) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const ENOUGH: f64 = 0.75;
    let plain = |text: &str| text.to_lowercase().replace(['-', '_'], "");
    let wanted = plain(name);
    let score =
        |candidate: &'a str| (strsim::normalized_damerau_levenshtein(&wanted, &plain(candidate)), candidate);
    let best =
        candidates.into_iter().map(score).reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.filter(|(score, _)| *score >= ENOUGH).map(|(_, candidate)| candidate)
}
