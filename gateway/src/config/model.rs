// SPDX-License-Identifier: Apache-2.0
//! One model of the file.
//!
//! Owns what holds inside of one model. Must not know the other models nor the file's limits.

use std::sync::Arc;
use std::time::Duration;

use sluice_core::{Bytes, LifeSpec, Micros, ModelName, ModelSpec, Source};
use sluice_scaler::launch::Launch;

use super::autoscaler::Cluster;
use super::launch::{self, Launching};
use super::reader::{Set, Table, malformed, plain};
use super::report::{Code, Fault};
use super::scale;
use super::settings::{ModelSettings, Protocol, Timeouts};
use super::tree::Place;

/// Longest name of a model or group, in characters.
const LONGEST_NAME: usize = 253;
const MEBI: u64 = 1 << 20;

/// A model that was read, with what the checks between models need.
pub(super) struct Draft {
    pub name: Set<String>,
    pub settings: ModelSettings,
    pub spec: ModelSpec,
    pub launch: Arc<Launch>,
    pub program: Option<Place>,
    /// Names of groups, each with its place.
    pub groups: Vec<(String, Place)>,
    pub body_limit: Set<u64>,
    pub body_memory: Set<u64>,
    pub memory: Option<Set<u64>>,
}

/// Reads one model; `None` if its name or its source is not known, which is a fault already.
pub(super) fn read(model: &Table<'_>, created: u64, cluster: &Cluster) -> Option<Draft> {
    let name = name(model);
    let life = life(model);
    let launching = launch::read(model, life.stop_deadline.into());
    let scale = scale::read(model, cluster);
    let sizes = Sizes::read(model);
    let timeouts = timeouts(model);
    let protocol = match plain(model.choice("protocol")).as_str() {
        "http2" => Protocol::Http2,
        _ => Protocol::Http1,
    };
    let pass_credentials = model.switch("passCredentials");
    let retry_stale = plain(model.switch("retryStale"));
    let groups = model.node("groups").and_then(|node| model.reader.texts("groups", node, false));
    let memory = model.size("memory");
    model.done();

    let name = name?;
    let Launching { launch, backend_key, program } = launching?;
    if let Some(set) = pass_credentials.filter(|set| set.value && backend_key.is_some()) {
        let fault =
            Fault::new(Code::Conflict, set.place, "`passCredentials` and a backend key exclude each other");
        model.reader.fault(fault.help("with a key of its own the replica gets that; remove one of the two"));
    }
    let (source, scale) = source(&launch, scale);
    let settings = ModelSettings {
        name: ModelName::from(name.value.as_str()),
        body_limit: fit(sizes.body_limit.value),
        body_memory: fit(sizes.body_memory.value),
        queue_length: sizes.queue_length,
        queue_bytes: fit(sizes.queue_bytes),
        timeouts,
        protocol,
        backend_key,
        pass_credentials: plain(pass_credentials),
        retry_stale,
        created,
    };
    let spec = ModelSpec {
        generation: launch::generation(&launch),
        source,
        scale,
        life,
        memory: Bytes(plain(memory)),
        groups: Vec::new(),
    };
    let (launch, groups) = (Arc::new(launch), groups.unwrap_or_default());
    Some(Draft {
        name,
        settings,
        spec,
        launch,
        program,
        groups,
        body_limit: sizes.body_limit,
        body_memory: sizes.body_memory,
        memory,
    })
}

/// Where replicas come from; fixed addresses are all attached, whatever the scaling keys say.
fn source(launch: &Launch, scale: sluice_core::ScaleSpec) -> (Source, sluice_core::ScaleSpec) {
    match launch {
        Launch::Process(_) => (Source::Launched, scale),
        Launch::Fixed(fixed) => {
            let count = u32::try_from(fixed.urls.len()).unwrap_or(u32::MAX).max(1);
            let all = sluice_core::ScaleSpec { min_replicas: count, max_replicas: count, ..scale };
            (Source::Fixed(count), all)
        }
    }
}

/// A name that requests can carry.
pub(super) fn name(table: &Table<'_>) -> Option<Set<String>> {
    table.read("name", |_, text| {
        let length = text.chars().count();
        let visible = |c: char| !c.is_whitespace() && !c.is_control();
        match (1..=LONGEST_NAME).contains(&length) && text.chars().all(visible) {
            true => Ok(text.to_owned()),
            false => Err(malformed("name", text, "a name has 1 to 253 visible characters and no spaces")),
        }
    })
}

fn life(model: &Table<'_>) -> LifeSpec {
    let backoff = model.table("backoff");
    let (first, max) = (backoff.duration("first"), backoff.duration("max"));
    backoff.done();
    if let (Some(first), Some(max)) = (first, max)
        && first.value > max.value
    {
        let message = "`first` is above `max`".to_owned();
        let place = if first.given { first.place } else { max.place };
        model.reader.fault(Fault::new(Code::Bounds, place, message));
    }
    let micros = |set: Option<Set<Duration>>| Micros::from(plain(set));
    LifeSpec {
        start_deadline: micros(model.duration("startDeadline")),
        drain_deadline: micros(model.duration("drainDeadline")),
        stop_deadline: micros(model.duration("stopDeadline")),
        start_attempts: u32::try_from(plain(model.integer("startAttempts"))).unwrap_or(u32::MAX),
        backoff_first: micros(first),
        backoff_max: micros(max),
    }
}

fn timeouts(model: &Table<'_>) -> Timeouts {
    let table = model.table("timeouts");
    let short = agree(model, "timeout", model.limit("timeout"), seconds(model, "timeoutSeconds"));
    let total = agree(model, "timeouts.total", table.limit("total"), short.filter(|set| set.given));
    if let Some(set) = short.filter(|set| set.given && set.value.is_some()) {
        let fault =
            Fault::new(Code::Deviation, set.place, "`timeout` begins when a replica gets the request");
        let help = "under KServe it begins on arrival and counts waiting and cold starts; \
                    here `timeouts.coldStart` and `timeouts.queue` bound those";
        model.reader.note(fault.help(help));
    }
    let first_byte = seconds(model, "responseStartTimeoutSeconds");
    let between = seconds(model, "idleTimeoutSeconds");
    let timeouts = Timeouts {
        cold_start: plain(table.duration("coldStart")),
        queue: plain(table.duration("queue")),
        connect: plain(table.duration("connect")),
        first_byte: plain(agree(model, "timeouts.firstByte", table.limit("firstByte"), first_byte)),
        between_bytes: plain(agree(model, "timeouts.betweenBytes", table.limit("betweenBytes"), between)),
        total: plain(total),
    };
    table.done();
    timeouts
}

type Limit = Option<Set<Option<Duration>>>;

/// Knative's seconds; its 0 is as good as nothing.
fn seconds(model: &Table<'_>, name: &'static str) -> Limit {
    let set = model.integer(name).filter(|set| set.value > 0)?;
    Some(Set { value: Some(Duration::from_secs(set.value)), place: set.place, given: true })
}

/// A limit and its other name: either may be set, both must agree.
fn agree(model: &Table<'_>, name: &str, own: Limit, other: Limit) -> Limit {
    let (Some(own), Some(other)) = (own, other) else { return own.or(other) };
    if !own.given || !other.given {
        return Some(if own.given { own } else { other });
    }
    if own.value != other.value {
        let message = format!("`{name}` on line {} says something else", own.place.line);
        model.reader.fault(Fault::new(Code::Conflict, other.place, message).help("keep one of the two"));
    }
    Some(own)
}

/// How much of request bodies may be held; what is left out follows the largest body.
struct Sizes {
    body_limit: Set<u64>,
    body_memory: Set<u64>,
    queue_length: usize,
    queue_bytes: u64,
}

impl Sizes {
    fn read(model: &Table<'_>) -> Self {
        let nothing = Set { value: 0, place: model.place, given: false };
        let body_limit = model.size("bodyLimit").unwrap_or(nothing);
        let largest = body_limit.value;
        let queue = model.table("queue");
        let queue_bytes = queue.size("bytes");
        let queue_length = fit(plain(queue.integer("length")));
        queue.done();
        let body_memory = model.size("bodyMemory");
        for (name, set) in [("bodyMemory", body_memory), ("queue.bytes", queue_bytes)] {
            let Some(set) = set.filter(|set| set.value < largest) else { continue };
            let message = format!("`{name}` is smaller than the largest body, `bodyLimit`");
            let help = "one request of the allowed size must fit";
            model.reader.fault(Fault::new(Code::Bounds, set.place, message).help(help));
        }
        let fallback = Set { value: largest.max(512 * MEBI), ..nothing };
        Sizes {
            body_limit,
            body_memory: body_memory.unwrap_or(fallback),
            queue_length,
            queue_bytes: queue_bytes.map_or(largest.max(256 * MEBI), |set| set.value),
        }
    }
}

fn fit(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
