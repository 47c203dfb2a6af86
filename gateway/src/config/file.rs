// SPDX-License-Identifier: Apache-2.0
//! The whole file: its own keys, its models, and what must hold between them.
//!
//! Owns the checks across tables and puts [`Settings`] together. Must not know YAML.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use sluice_core::{Bytes, FleetSpec, ModelName};
use sluice_scaler::Plan;
use sluice_scaler::launch::Launch;

use super::autoscaler;
use super::keys;
use super::launch;
use super::model::{self, Draft};
use super::reader::{Reader, Set, Table, malformed, plain};
use super::report::{Code, Fault};
use super::settings::{Limits, Settings, Shutdown, Tls, Tracing};
use super::tree::{Node, Place, Value, shown};

const GIBI: u64 = 1 << 30;
/// Largest request body where there is no model: nothing can be sent to anybody.
const NO_BODY: usize = 1 << 20;

/// What the file says, and where the programs of its commands stand.
pub(super) struct Read {
    pub settings: Settings,
    pub programs: BTreeMap<ModelName, Place>,
}

/// Reads the file. With faults noted in the reader the result is not to be used; `None` is always a fault.
pub(super) fn read(reader: &Reader<'_>, root: &Node, created: u64) -> Option<Read> {
    if !matches!(root.value, Value::Map(_)) {
        let fault = Fault::new(Code::Shape, root.place, "the file must be a table of keys");
        reader.fault(fault.help("begin with `models:`").hidden());
        return None;
    }
    let top = Table::open(reader, root, &keys::TOP);
    let (listen, admin, tls) = listeners(&top);
    let admin_tokens = top.path("adminTokens").map(|set| set.value);
    let state_directory = top.path("stateDirectory").map(|set| set.value);
    let threads = top.integer("threads").map_or_else(cpus, |set| fit(set.value));
    let shutdown = shutdown(&top.table("shutdown"));
    let tracing = tracing(&top);
    let memory = top.size("memory");
    let kpa = plain(top.choice("compat")) == "kpa";
    let cluster = autoscaler::read(&top.table("configAutoscaler"), kpa);
    let mut drafts: Vec<Draft> =
        top.tables("models").iter().filter_map(|table| model::read(table, created, &cluster)).collect();
    refuse_taken_names(reader, &drafts);
    groups(&top, &mut drafts);
    check_memory(reader, memory, &drafts);
    let limits = limits(&top.table("limits"), &mut drafts);
    top.done();

    let (mut models, mut launches, mut programs) =
        (BTreeMap::new(), BTreeMap::<_, Arc<Launch>>::new(), BTreeMap::new());
    let mut fleet = FleetSpec { models: BTreeMap::new(), memory: memory.map(|set| Bytes(set.value)) };
    for draft in drafts {
        let name = draft.settings.name.clone();
        programs.extend(draft.program.map(|place| (name.clone(), place)));
        models.insert(name.clone(), Arc::new(draft.settings));
        fleet.models.insert(name.clone(), draft.spec);
        launches.insert(name, draft.launch);
    }
    let plan = Plan { fleet, launches };
    let settings = Settings {
        listen,
        tls,
        admin,
        admin_tokens,
        state_directory,
        tracing,
        threads,
        limits,
        shutdown,
        models,
        plan,
    };
    Some(Read { settings, programs })
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn fit(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn listeners(top: &Table<'_>) -> (Vec<SocketAddr>, SocketAddr, Option<Tls>) {
    let listen = top.addresses("listen");
    let admin = top.address("admin");
    let place = top.place_of("tls");
    let tls = top.table("tls");
    let secured = place.map(|_| {
        let paths = (plain(tls.path("certificate")), plain(tls.path("key")));
        let listen = tls.addresses("listen");
        tls.done();
        (listen, paths)
    });
    let all = listen.iter().chain(secured.iter().flat_map(|(listen, _)| listen)).chain(&admin);
    refuse_taken_addresses(top.reader, all.copied().collect());
    if listen.is_empty() && place.is_none() {
        let fault = Fault::new(
            Code::Malformed,
            top.place_of("listen").unwrap_or(top.place),
            "no address to listen on",
        );
        top.reader.fault(fault.help("without `tls`, `listen` needs at least one address"));
    }
    let addresses = |sets: &[Set<SocketAddr>]| sets.iter().map(|set| set.value).collect::<Vec<_>>();
    let tls =
        secured.map(|(listen, (certificate, key))| Tls { listen: addresses(&listen), certificate, key });
    let fallback = SocketAddr::from(([127, 0, 0, 1], 0));
    if let Some(set) = admin.filter(|set| !set.value.ip().is_loopback()) {
        refuse_exposed(top, set.place);
    }
    (addresses(&listen), admin.map_or(fallback, |set| set.value), tls)
}

/// An admin listener that other machines reach needs tokens, and these travel in the clear.
fn refuse_exposed(top: &Table<'_>, place: Place) {
    let message = "the admin listener can be reached from other machines";
    if top.place_of("adminTokens").is_some() {
        let fault = Fault::new(Code::Exposed, place, message);
        return top
            .reader
            .note(fault.help("its tokens travel in the clear; put TLS in front, or fence it off"));
    }
    let fault = Fault::new(Code::Missing, place, format!("`adminTokens` is missing: {message}"));
    let help = "name a file of tokens; `sluice token create` makes one; or keep the listener on 127.0.0.1";
    top.reader.fault(fault.help(help));
}

/// Two listeners on one port of overlapping addresses; port 0 is a free one each time.
fn refuse_taken_addresses(reader: &Reader<'_>, all: Vec<Set<SocketAddr>>) {
    let overlap = |a: &SocketAddr, b: &SocketAddr| {
        let anywhere = a.ip().is_unspecified() || b.ip().is_unspecified();
        a.port() != 0 && a.port() == b.port() && (a.ip() == b.ip() || anywhere)
    };
    for (at, set) in all.iter().enumerate() {
        let Some(other) = all[..at].iter().find(|other| overlap(&set.value, &other.value)) else { continue };
        let place = if set.given { set.place } else { other.place };
        let message = format!("the addresses {} and {} exclude each other", other.value, set.value);
        reader.fault(
            Fault::new(Code::DuplicateName, place, message).help("give each listener a port of its own"),
        );
    }
}

fn tracing(top: &Table<'_>) -> Option<Tracing> {
    let table = top.table("tracing");
    top.place_of("tracing")?;
    let endpoint = launch::endpoint(&table);
    let sample = plain(table.milli("sample"));
    let headers = launch::headers(&table);
    table.done();
    Some(Tracing { endpoint: endpoint?, sample_milli: u32::try_from(sample).unwrap_or(0), headers })
}

fn shutdown(table: &Table<'_>) -> Shutdown {
    let shutdown = Shutdown {
        drain_delay: plain(table.duration("drainDelay")),
        deadline: plain(table.duration("deadline")),
    };
    table.done();
    shutdown
}

fn limits(table: &Table<'_>, drafts: &mut [Draft]) -> Limits {
    let body_memory = table.size("bodyMemory");
    if let Some(whole) = body_memory {
        drafts.iter_mut().for_each(|draft| fit_into(table.reader, draft, whole));
    }
    let largest = drafts.iter().map(|draft| draft.body_memory.value).max().unwrap_or(0);
    let limits = Limits {
        connections: fit(plain(table.integer("connections"))),
        connections_per_source: fit(plain(table.integer("connectionsPerSource"))),
        head_timeout: plain(table.duration("headTimeout")),
        idle_timeout: plain(table.duration("idleTimeout")),
        body_timeout: plain(table.duration("bodyTimeout")),
        write_timeout: plain(table.duration("writeTimeout")),
        body_memory: fit(body_memory.map_or(largest.max(GIBI), |set| set.value)),
        body_limit: drafts.iter().map(|draft| draft.settings.body_limit).max().unwrap_or(NO_BODY),
        h2_streams: u32::try_from(plain(table.integer("streamsPerConnection"))).unwrap_or(u32::MAX),
    };
    table.done();
    limits
}

/// A model may not hold more of bodies than the whole process; what it left out follows the file's limit.
fn fit_into(reader: &Reader<'_>, draft: &mut Draft, whole: Set<u64>) {
    if !draft.body_memory.given {
        draft.body_memory.value = draft.body_memory.value.min(whole.value.max(draft.body_limit.value));
        draft.settings.body_memory = fit(draft.body_memory.value);
    }
    let (key, set) = match draft.body_memory {
        set if set.value <= whole.value => return,
        set if set.given => ("bodyMemory", set),
        _ => ("bodyLimit", draft.body_limit),
    };
    let place = if set.given { set.place } else { whole.place };
    let message = format!("`{key}` of `{}` is above `limits.bodyMemory`", shown(&draft.name.value));
    let help = format!("line {} says what the whole process may hold", whole.place.line);
    reader.fault(Fault::new(Code::Bounds, place, message).help(help));
}

fn refuse_taken_names(reader: &Reader<'_>, drafts: &[Draft]) {
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    for Draft { name, .. } in drafts {
        match lines.get(name.value.as_str()) {
            None => drop(lines.insert(&name.value, name.place.line)),
            Some(line) => {
                let message = format!("the model `{}` is on line {line} already", shown(&name.value));
                reader.fault(Fault::new(Code::DuplicateName, name.place, message));
            }
        }
    }
}

/// Brings both ways to name a group together and gives each model its groups.
fn groups(top: &Table<'_>, drafts: &mut [Draft]) {
    let reader = top.reader;
    let mut members: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut places: BTreeMap<String, Place> = BTreeMap::new();
    for table in top.tables("groups") {
        let name = model::name(&table);
        let listed = table.node("exclusive").and_then(|node| reader.texts("exclusive", node, false));
        table.done();
        let Some(name) = name else { continue };
        if let Some(place) = places.insert(name.value.clone(), name.place) {
            let message = format!("the group `{}` is on line {} already", shown(&name.value), place.line);
            reader.fault(Fault::new(Code::DuplicateName, name.place, message));
        }
        let group = members.entry(name.value).or_default();
        for (model, place) in listed.unwrap_or_default() {
            check_member(reader, &model, place, drafts);
            if !group.insert(model) {
                reader.fault(Fault::new(Code::DuplicateName, place, "this model is in the group already"));
            }
        }
    }
    for draft in drafts.iter() {
        for (group, place) in &draft.groups {
            places.entry(group.clone()).or_insert(*place);
            members.entry(group.clone()).or_default().insert(draft.name.value.clone());
        }
    }
    for (group, models) in &members {
        if models.len() < 2 {
            let message =
                format!("the group `{}` has fewer than two models, so it excludes nothing", shown(group));
            let near =
                keys::nearest(group, members.keys().filter(|other| *other != group).map(String::as_str));
            let fault = Fault::new(Code::NoEffect, places.get(group).copied().unwrap_or_default(), message);
            reader.note(match near {
                Some(near) => fault.help(format!("did you mean `{near}`?")),
                None => fault,
            });
        }
    }
    for draft in drafts {
        let own = members.iter().filter(|(_, models)| models.contains(&draft.name.value));
        draft.spec.groups = own.map(|(group, _)| group.clone()).collect();
    }
}

fn check_member(reader: &Reader<'_>, model: &str, place: Place, drafts: &[Draft]) {
    match drafts.iter().find(|draft| draft.name.value == model) {
        Some(draft) if matches!(*draft.launch, Launch::Fixed(_)) => {
            let message =
                format!("`{}` has fixed addresses; sluice cannot stop it for another model", shown(model));
            reader.fault(Fault::new(Code::NotHere, place, message));
        }
        Some(_) => {}
        None => {
            let fault = Fault::new(Code::UnknownName, place, format!("there is no model `{}`", shown(model)));
            reader.fault(match keys::nearest(model, drafts.iter().map(|draft| draft.name.value.as_str())) {
                Some(near) => fault.help(format!("did you mean `{near}`?")),
                None => fault,
            });
        }
    }
}

fn check_memory(reader: &Reader<'_>, budget: Option<Set<u64>>, drafts: &[Draft]) {
    let Some(budget) = budget else { return };
    let mut promised: u64 = 0;
    for draft in drafts.iter().filter(|draft| matches!(*draft.launch, Launch::Process(_))) {
        let need = draft.memory.map_or(0, |set| set.value);
        promised = promised.saturating_add(need.saturating_mul(draft.spec.scale.min_replicas.into()));
        if need > budget.value {
            let place = draft.memory.map_or(draft.name.place, |set| set.place);
            let message =
                format!("one replica of `{}` needs more than all may use", shown(&draft.name.value));
            let help = format!("`memory` on line {} is the budget", budget.place.line);
            reader.fault(Fault::new(Code::Bounds, place, message).help(help));
        }
        if need == 0 {
            let message = format!("`{}` counts nothing against the memory budget", shown(&draft.name.value));
            let fault = Fault::new(Code::NoEffect, draft.name.place, message);
            reader.note(fault.help("say with `memory` what one replica needs"));
        }
    }
    if promised > budget.value {
        let fault =
            Fault::new(Code::NoEffect, budget.place, "the models' `minReplicas` need more memory than this");
        reader.note(fault.help("some of them will not reach their least number of replicas"));
    }
}

impl Table<'_> {
    /// An IP address with a port.
    fn address(&self, name: &'static str) -> Option<Set<SocketAddr>> {
        self.read(name, |_, text| parse_address(name, text))
    }

    /// One such address or a list of them.
    fn addresses(&self, name: &'static str) -> Vec<Set<SocketAddr>> {
        self.read_all(name, |_, text| parse_address(name, text))
    }
}

fn parse_address(name: &str, text: &str) -> Result<SocketAddr, Fault> {
    text.parse().map_err(|_| {
        let port = text.rsplit(':').next().filter(|port| port.parse::<u16>().is_ok()).unwrap_or("8080");
        let help = format!("write an IP address and a port: `127.0.0.1:{port}`, or `0.0.0.0:{port}` for all");
        malformed(name, text, &help)
    })
}
