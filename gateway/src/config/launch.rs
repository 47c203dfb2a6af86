// SPDX-License-Identifier: Apache-2.0
//! The keys of a model that say where its replicas come from and how they are probed.
//!
//! Owns `command`, `url`, the environment, the probe and the backend's key. Must not know scaling.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri, uri::PathAndQuery};
use sha2::{Digest, Sha256};
use sluice_scaler::launch::{FixedLaunch, Launch, Origin, Probe, ProcessLaunch, Secret};

use super::reader::{Set, Table, malformed, plain};
use super::report::{Code, Fault};
use super::tree::{Node, Place, Value, shown};

/// Keys that mean nothing where Sluice neither starts nor scales the replicas.
const FOR_PROCESSES: &[&str] = &[
    "env",
    "workingDirectory",
    "stopCommand",
    "minReplicas",
    "maxReplicas",
    "scaleTarget",
    "scaleMetric",
    "idleAfter",
    "window",
    "startDeadline",
    "stopDeadline",
    "startAttempts",
    "backoff",
    "memory",
    "groups",
    "preload",
    "annotations",
];

/// What launching needs, and the key that goes with it.
pub(super) struct Launching {
    pub launch: Launch,
    pub backend_key: Option<Secret>,
    /// The program's name in the file, for a look whether it exists.
    pub program: Option<Place>,
}

/// Reads where the replicas come from; `None` if that is not known, which is a fault already.
pub(super) fn read(model: &Table<'_>, stop_deadline: Duration) -> Option<Launching> {
    let backend_key = backend_key(model);
    let probe = probe(&model.table("readiness"), backend_key.as_ref());
    let (command, program) = words(model, "command");
    let (stop_command, _) = words(model, "stopCommand");
    let env = pairs(model, "env", is_variable);
    let directory = model.path("workingDirectory");
    let urls = urls(model);
    match source(model)? {
        Source::Fixed => {
            refuse_process_keys(model);
            let launch = Launch::Fixed(FixedLaunch { urls, probe });
            Some(Launching { launch, backend_key, program: None })
        }
        Source::Process => {
            let process = ProcessLaunch {
                command,
                stop_command: (!stop_command.is_empty()).then_some(stop_command),
                env: env.into_iter().collect(),
                working_directory: directory.map(|set| set.value),
                stop_deadline,
                probe,
            };
            Some(Launching { launch: Launch::Process(process), backend_key, program })
        }
    }
}

/// A number that changes exactly when running replicas no longer fit: command, environment, directory or
/// addresses.
pub(super) fn generation(launch: &Launch) -> u64 {
    let mut hash = Sha256::new();
    let mut add = |part: &[u8]| {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    };
    match launch {
        Launch::Process(process) => {
            add(b"process");
            add(&process.command.len().to_le_bytes());
            process.command.iter().for_each(|word| add(word.as_bytes()));
            for (name, value) in &process.env {
                add(name.as_bytes());
                add(value.0.as_bytes());
            }
            if let Some(directory) = &process.working_directory {
                add(directory.as_os_str().as_encoded_bytes());
            }
        }
        Launch::Fixed(fixed) => {
            add(b"fixed");
            for url in &fixed.urls {
                add(&[u8::from(url.tls)]);
                add(url.host.as_bytes());
                add(&url.port.to_le_bytes());
            }
        }
    }
    let digest = hash.finalize();
    digest.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

enum Source {
    Process,
    Fixed,
}

/// Exactly one of `command`, `url` and `urls`.
fn source(model: &Table<'_>) -> Option<Source> {
    let given: Vec<(&str, Place)> = ["command", "url", "urls"]
        .into_iter()
        .filter_map(|name| model.place_of(name).map(|place| (name, place)))
        .collect();
    if let [(first, at), (second, place), ..] = given.as_slice() {
        let message = format!("`{second}` and `{first}` on line {} exclude each other", at.line);
        model.reader.fault(Fault::new(Code::Conflict, *place, message));
    }
    match given.first() {
        Some(("command", _)) => Some(Source::Process),
        Some(_) => Some(Source::Fixed),
        None if ["command", "url", "urls"].iter().any(|name| model.is_misspelt(name)) => None,
        None => {
            let fault = Fault::new(Code::Missing, model.place, "a model needs a `command` or a `url`");
            let help = "`command` starts replicas, `url` names a server that somebody else runs";
            model.reader.fault(fault.help(help));
            None
        }
    }
}

fn refuse_process_keys(model: &Table<'_>) {
    for name in FOR_PROCESSES {
        if let Some(place) = model.place_of(name) {
            let message = format!(
                "`{name}` has no meaning for fixed addresses: they are not started, stopped or scaled"
            );
            model.reader.fault(Fault::new(Code::NotHere, place, message));
        }
    }
}

/// A program with its arguments, and where the program's name stands; empty if there is none.
fn words(model: &Table<'_>, name: &'static str) -> (Vec<String>, Option<Place>) {
    let Some(node) = model.node(name) else { return (Vec::new(), None) };
    if matches!(node.value, Value::Scalar { .. }) {
        let fault = Fault::new(
            Code::WrongType,
            node.place,
            format!("`{name}` must be a list, and is a single value"),
        );
        let help = "no shell is run; write each argument apart: `[\"program\", \"--flag\", \"value\"]`";
        model.reader.fault(fault.help(help).hidden());
        return (Vec::new(), None);
    }
    let Some(texts) = model.reader.texts(name, node, true) else { return (Vec::new(), None) };
    let Some((program, place)) = texts.first() else {
        model.reader.fault(Fault::new(Code::Malformed, node.place, format!("`{name}` is empty")));
        return (Vec::new(), None);
    };
    model.reader.show(*place);
    if program.is_empty() {
        model.reader.fault(Fault::new(Code::Malformed, *place, format!("the program of `{name}` is empty")));
    }
    for (_, at) in texts.iter().filter(|(text, _)| text.contains('\0')) {
        let message = format!("an argument of `{name}` holds a NUL character");
        model.reader.fault(Fault::new(Code::Malformed, *at, message).hidden());
    }
    let place = *place;
    (texts.into_iter().map(|(text, _)| text).collect(), Some(place))
}

/// Free names with texts that may be secret, in the file's order.
fn pairs(table: &Table<'_>, name: &'static str, proper: fn(&str, &str) -> bool) -> Vec<(String, Secret)> {
    let Some(node) = table.node(name) else { return Vec::new() };
    let Value::Map(entries) = &node.value else {
        table.reader.wrong_type(name, node, "a table of texts");
        return Vec::new();
    };
    let mut pairs = Vec::with_capacity(entries.len());
    for (word, item) in entries {
        table.reader.show(word.place);
        let Some(text) = table.reader.text(&word.text, item, true) else { continue };
        if !proper(&word.text, &text) {
            let message =
                format!("`{}` or its value holds characters that `{name}` cannot carry", shown(&word.text));
            table.reader.fault(Fault::new(Code::Malformed, word.place, message));
        }
        pairs.push((word.text.clone(), Secret(text)));
    }
    pairs
}

/// The header fields under `headers`.
pub(super) fn headers(table: &Table<'_>) -> Vec<(String, Secret)> {
    pairs(table, "headers", is_header)
}

fn is_variable(name: &str, value: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
}

fn is_header(name: &str, value: &str) -> bool {
    HeaderName::from_bytes(name.as_bytes()).is_ok() && HeaderValue::from_str(value).is_ok()
}

fn backend_key(model: &Table<'_>) -> Option<Secret> {
    let direct = model.string("backendKey");
    let file = model.path("backendKeyFile");
    if let (Some(at), Some(place)) = (model.place_of("backendKey"), model.place_of("backendKeyFile")) {
        let message = format!("`backendKeyFile` and `backendKey` on line {} exclude each other", at.line);
        model.reader.fault(Fault::new(Code::Conflict, place, message));
    }
    let from_file = file.and_then(|file| match std::fs::read_to_string(&file.value) {
        Ok(text) => Some(Set { value: text.trim().to_owned(), place: file.place, given: true }),
        Err(error) => {
            let message = format!("the file that `backendKeyFile` names cannot be read: {error}");
            let help = "without its key the model would refuse every request; mend the path or remove it";
            model.reader.fault(Fault::new(Code::SecretFile, file.place, message).help(help).hidden());
            None
        }
    });
    let key = direct.or(from_file)?;
    if key.value.is_empty() || !key.value.bytes().all(|byte| byte.is_ascii_graphic()) {
        let fault = Fault::new(Code::Malformed, key.place, "the backend's key is empty or not visible ASCII");
        model.reader.fault(fault.hidden());
        return None;
    }
    Some(Secret(key.value))
}

fn probe(table: &Table<'_>, backend_key: Option<&Secret>) -> Probe {
    let path =
        table.read("path", |_, text| match text.starts_with('/') && text.parse::<PathAndQuery>().is_ok() {
            true => Ok(text.to_owned()),
            false => Err(malformed("path", text, "write a path that begins with `/`")),
        });
    let mut headers = headers(table);
    let own = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
    if let Some(key) = backend_key.filter(|_| !own) {
        headers.push(("authorization".to_owned(), Secret(format!("Bearer {}", key.0))));
    }
    let count = |name| u32::try_from(plain(table.integer(name))).unwrap_or(u32::MAX);
    let probe = Probe {
        path: plain(path),
        period: plain(table.duration("period")),
        ready_period: plain(table.duration("readyPeriod")),
        timeout: plain(table.duration("timeout")),
        successes: count("successes"),
        failures: count("failures"),
        headers,
    };
    table.done();
    probe
}

/// The address under `endpoint`.
pub(super) fn endpoint(table: &Table<'_>) -> Option<Origin> {
    let node = table.node("endpoint")?;
    let text = table.reader.text("endpoint", node, true)?;
    match origin(&text) {
        Ok(origin) => {
            table.reader.show(node.place);
            Some(origin)
        }
        Err(why) => {
            table.reader.fault(Fault::new(Code::Malformed, node.place, why).hidden());
            None
        }
    }
}

/// The addresses under `url` and `urls`.
fn urls(model: &Table<'_>) -> Vec<Origin> {
    let mut origins: BTreeMap<(bool, String, u16), usize> = BTreeMap::new();
    let mut found = Vec::new();
    for (text, place) in url_texts(model) {
        let origin = match origin(&text) {
            Ok(origin) => origin,
            Err(why) => {
                model.reader.fault(Fault::new(Code::Malformed, place, why).hidden());
                continue;
            }
        };
        model.reader.show(place);
        let same = (origin.tls, origin.host.to_ascii_lowercase(), origin.port);
        if let Some(line) = origins.insert(same, place.line) {
            let message = format!("this address is listed on line {line} already");
            model.reader.fault(Fault::new(Code::DuplicateName, place, message));
        }
        found.push(origin);
    }
    found
}

fn url_texts(model: &Table<'_>) -> Vec<(String, Place)> {
    let single = |node: &Node| model.reader.text("url", node, true).map(|text| (text, node.place));
    let mut texts: Vec<_> = model.node("url").and_then(single).into_iter().collect();
    if let Some(node) = model.node("urls") {
        let list = model.reader.texts("urls", node, true);
        if list.as_ref().is_some_and(Vec::is_empty) {
            model.reader.fault(Fault::new(Code::Malformed, node.place, "`urls` is empty"));
        }
        texts.extend(list.unwrap_or_default());
    }
    texts
}

/// Scheme, host and port. The error does not repeat the text: it may hold credentials.
fn origin(text: &str) -> Result<Origin, &'static str> {
    const SHAPE: &str = "not an address; write `http://host:port` or `https://host:port`";
    let uri: Uri = text.parse().map_err(|_| SHAPE)?;
    let tls = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err(SHAPE),
    };
    let authority = uri.authority().ok_or(SHAPE)?;
    if authority.as_str().contains('@') {
        return Err("an address with credentials; give them as `backendKey`");
    }
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return Err("an address with a path; requests keep their own, so write scheme, host and port only");
    }
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if bare.is_some_and(|address| address.parse::<IpAddr>().is_err()) || host.is_empty() {
        return Err(SHAPE);
    }
    let port = match authority.port_u16() {
        Some(0) => return Err("an address with port 0"),
        Some(port) => port,
        None if authority.as_str().len() > host.len() => return Err("an address whose port cannot be read"),
        None if tls => 443,
        None => 80,
    };
    Ok(Origin { tls, host: bare.unwrap_or(host).to_owned(), port })
}
