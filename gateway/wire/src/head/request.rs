// SPDX-License-Identifier: Apache-2.0
//! Reads a request head and writes the one to send on.
//!
//! Owns every rule about requests that the head alone decides. Must not know which routes exist.

use std::mem::MaybeUninit;

use super::target::{self, Target};
use super::{
    Connection, End, FIELDS_MAX, FieldRoom, Forward, Method, Refused, RequestFraming, RequestHead, Rules,
};
use super::{end_of_head, number, write_field};
use crate::fields::{self, Known};
use crate::model_name;

/// Bytes of a request line beside its target, with room to spare.
const AROUND_TARGET: usize = 32;

/// Reads one request head from the start of `input`. `Ok(None)`: more bytes are needed.
///
/// On success `out` holds what to send on. Every error ends the connection; `out` is of no use then.
pub fn request(input: &[u8], rules: &Rules, out: &mut Forward) -> Result<Option<RequestHead>, Refused> {
    let Some((lead, head)) = whole_head(input, rules)? else { return Ok(None) };
    let mut room: FieldRoom<'_> = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let line = parse(head, rules, &mut room)?;
    let mut meanings = [Known::Other; FIELDS_MAX];
    let mut seen = Seen::default();
    for (field, meaning) in line.fields.iter().zip(&mut meanings) {
        *meaning = fields::known(field.name.as_bytes());
        if fields::shadows_known(field.name.as_bytes()) {
            return Err(Refused::bad("field name with an underscore in place of a known field's hyphen"));
        }
        seen.note(*meaning, field.value)?;
    }
    let facts = RequestHead { len: lead + head.len(), ..facts(&line, &seen)? };
    let target = target::target(line.method, line.target)?;
    let host = host(&line, &seen, &target, rules)?;
    out.clear();
    seen.keep_values(out)?;
    out.host = out.keep(host.as_bytes());
    write_line(&facts, &target, out);
    if seen.host.is_none() {
        write_field(&mut out.head, b"host", host.as_bytes());
    }
    let sieve = Sieve { facts: &facts, connection: &seen.connection, trust_forwarded: rules.trust_forwarded };
    for (field, meaning) in line.fields.iter().zip(&meanings) {
        sieve.write(field, *meaning, out);
    }
    if facts.websocket {
        write_field(&mut out.head, b"connection", b"upgrade");
    }
    Ok(Some(facts))
}

/// The head's bytes and how many were skipped before it, once its empty line is there. Refuses as early as
/// the bytes allow, and with the same words however they were cut.
fn whole_head<'a>(input: &'a [u8], rules: &Rules) -> Result<Option<(usize, &'a [u8])>, Refused> {
    // One empty line before a request is tolerated (RFC 9112 §2.2), a second is not.
    let lead = if input.starts_with(b"\r\n") { 2 } else { 0 };
    let Some(rest) = input.get(lead..) else { return Ok(None) };
    match rest {
        [] => return Ok(None),
        [b'\r'] if lead == 0 => return Ok(None),
        [first, ..] if !first.is_ascii_alphabetic() => return Err(Refused::bad("not an HTTP request")),
        _ => {}
    }
    let most = rules.head_bytes_max.saturating_sub(lead);
    let line_most = most.min(rules.target_bytes_max.saturating_add(AROUND_TARGET));
    if rest.get(..line_most).is_some_and(|line| memchr::memchr(b'\n', line).is_none()) {
        return Err(Refused { status: 414, reason: "request target is too long" });
    }
    match end_of_head(rest.get(..most).unwrap_or(rest)) {
        End::At(end) => Ok(rest.get(..end).map(|head| (lead, head))),
        End::BareLf => Err(Refused::bad("line feed without carriage return in the head")),
        End::Unfinished if rest.len() >= most => Err(Refused { status: 431, reason: "head is too large" }),
        End::Unfinished => Ok(None),
    }
}

struct Line<'r, 'b> {
    method: Method,
    target: &'b str,
    http10: bool,
    fields: &'r [httparse::Header<'b>],
}

fn parse<'r, 'b>(
    head: &'b [u8],
    rules: &Rules,
    room: &'r mut FieldRoom<'b>,
) -> Result<Line<'r, 'b>, Refused> {
    let room = room.get_mut(..rules.fields_max.min(FIELDS_MAX)).unwrap_or_default();
    let mut parsed = httparse::Request::new(&mut []);
    match parsed.parse_with_uninit_headers(head, room) {
        Ok(httparse::Status::Complete(taken)) if taken == head.len() => {}
        Ok(_) => return Err(Refused::bad("malformed head")),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(Refused { status: 431, reason: "too many fields" });
        }
        Err(httparse::Error::Version) => return Err(bad_version(head)),
        Err(httparse::Error::HeaderName) => return Err(Refused::bad("malformed field name")),
        Err(httparse::Error::HeaderValue) => return Err(Refused::bad("malformed field value")),
        Err(_) => return Err(Refused::bad("malformed request line")),
    }
    let (Some(method), Some(target), Some(version)) = (parsed.method, parsed.path, parsed.version) else {
        return Err(Refused::bad("malformed request line"));
    };
    let method = match method {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "PATCH" => Method::Patch,
        "DELETE" => Method::Delete,
        "OPTIONS" => Method::Options,
        "TRACE" | "CONNECT" => return Err(Refused { status: 405, reason: "method is not allowed here" }),
        _ => return Err(Refused { status: 501, reason: "unknown method" }),
    };
    if target.len() > rules.target_bytes_max {
        return Err(Refused { status: 414, reason: "request target is too long" });
    }
    if !target.is_ascii() {
        return Err(Refused::bad("byte in the request target that must be percent-encoded"));
    }
    Ok(Line { method, target, http10: version == 0, fields: parsed.headers })
}

/// A space in the target moves the version out of its place; it is not a wrong version.
fn bad_version(head: &[u8]) -> Refused {
    let line = head.split(|c| *c == b'\n').next().unwrap_or_default();
    if line.iter().filter(|c| **c == b' ').count() == 2 {
        Refused { status: 505, reason: "HTTP version is neither 1.1 nor 1.0" }
    } else {
        Refused::bad("space in the request target")
    }
}

/// The values of one head that the gateway acts on.
#[derive(Default)]
struct Seen<'a> {
    host: Option<&'a [u8]>,
    length: Option<u64>,
    coding: Option<&'a [u8]>,
    connection: Connection<'a>,
    expect: bool,
    upgrade: Option<&'a [u8]>,
    websocket_key: Option<&'a [u8]>,
    te_trailers: bool,
    trailer: bool,
    max_forwards: Option<&'a [u8]>,
    via: bool,
    content_type: Option<&'a [u8]>,
    content_encoding: Option<&'a [u8]>,
    request_id: Option<&'a [u8]>,
    retry_count: Option<&'a [u8]>,
    model: Option<&'a [u8]>,
    deadline: Option<&'a [u8]>,
    hold: Option<&'a [u8]>,
    priority: Option<&'a [u8]>,
}

fn once<T>(slot: &mut Option<T>, value: T, reason: &'static str) -> Result<(), Refused> {
    if slot.replace(value).is_some() { Err(Refused::bad(reason)) } else { Ok(()) }
}

impl<'a> Seen<'a> {
    fn note(&mut self, meaning: Known, value: &'a [u8]) -> Result<(), Refused> {
        match meaning {
            Known::Host => once(&mut self.host, value, "more than one host")?,
            Known::ContentLength => {
                let length = number(value).ok_or(Refused::bad("content-length is not a number"))?;
                once(&mut self.length, length, "more than one content-length")?;
            }
            Known::TransferEncoding => once(&mut self.coding, value, "more than one transfer-encoding")?,
            Known::Connection => self.connection.add(value).map_err(Refused::bad)?,
            Known::Expect if value.eq_ignore_ascii_case(b"100-continue") => self.expect = true,
            Known::Expect => return Err(Refused { status: 417, reason: "expectation is not 100-continue" }),
            Known::Upgrade => once(&mut self.upgrade, value, "more than one upgrade")?,
            Known::WebSocketKey => once(&mut self.websocket_key, value, "more than one sec-websocket-key")?,
            Known::Te => {
                self.te_trailers |= fields::members(value).any(|m| m.eq_ignore_ascii_case(b"trailers"));
            }
            Known::Trailer => self.trailer = true,
            Known::MaxForwards => once(&mut self.max_forwards, value, "more than one max-forwards")?,
            Known::Via => self.via = true,
            Known::ContentType => once(&mut self.content_type, value, "more than one content-type")?,
            Known::ContentEncoding => {
                once(&mut self.content_encoding, value, "more than one content-encoding")?
            }
            Known::RequestId => self.request_id = self.request_id.or(Some(value)),
            Known::RetryCount => self.retry_count = Some(value),
            Known::Model | Known::ModelSynonym => match self.model.replace(value) {
                Some(before) if before != value => {
                    return Err(Refused::bad("fields name more than one model"));
                }
                _ => {}
            },
            Known::Deadline => once(&mut self.deadline, value, "more than one x-sluice-deadline-ms")?,
            Known::Hold => once(&mut self.hold, value, "more than one x-sluice-hold")?,
            Known::Priority => once(&mut self.priority, value, "more than one x-sluice-priority")?,
            _ => {}
        }
        Ok(())
    }

    /// Checks what is meant for the gateway and copies it to `out`.
    fn keep_values(&self, out: &mut Forward) -> Result<(), Refused> {
        out.content_type = self.content_type.map(|v| out.keep(v));
        out.content_encoding = self.content_encoding.map(|v| out.keep(v));
        out.request_id = self.request_id.filter(|v| is_visible(v, 128)).map(|v| out.keep(v));
        out.retry_count = self.retry_count.and_then(number).and_then(|n| u32::try_from(n).ok());
        out.via = self.via;
        if let Some(value) = self.model {
            if !std::str::from_utf8(value).is_ok_and(model_name::is_sound) {
                return Err(Refused::bad("field names a model with an empty, overlong or malformed name"));
            }
            out.model = Some(out.keep(value));
        }
        if let Some(value) = self.deadline {
            let bad = Refused::bad("x-sluice-deadline-ms is not a number of milliseconds");
            out.deadline_ms = Some(number(value).ok_or(bad)?);
        }
        if let Some(value) = self.priority {
            if !is_visible(value, 64) {
                return Err(Refused::bad("x-sluice-priority is not the name of a class"));
            }
            out.priority = Some(out.keep(value));
        }
        out.no_hold = match self.hold {
            None | Some(b"1") => false,
            Some(b"0") => true,
            Some(_) => return Err(Refused::bad("x-sluice-hold is neither 0 nor 1")),
        };
        Ok(())
    }
}

fn is_visible(value: &[u8], most: usize) -> bool {
    (1..=most).contains(&value.len()) && value.iter().all(u8::is_ascii_graphic)
}

fn facts(line: &Line<'_, '_>, seen: &Seen<'_>) -> Result<RequestHead, Refused> {
    if seen.connection.named().iter().any(|name| fields::is_end_to_end(name)) {
        return Err(Refused::bad("connection names a field that is not its to remove"));
    }
    let framing = framing(line, seen)?;
    let max_forwards = match seen.max_forwards {
        Some(value) if line.method == Method::Options => {
            let count = number(value).and_then(|n| u32::try_from(n).ok());
            Some(count.ok_or(Refused::bad("max-forwards is not a number"))?)
        }
        _ => None,
    };
    Ok(RequestHead {
        len: 0,
        method: line.method,
        http10: line.http10,
        keep_alive: seen.connection.persists(line.http10),
        expect_continue: seen.expect
            && !line.http10
            && !matches!(framing, RequestFraming::None | RequestFraming::Length(0)),
        framing,
        websocket: is_websocket(line, seen, framing)?,
        te_trailers: seen.te_trailers,
        declares_trailers: seen.trailer,
        max_forwards,
    })
}

fn framing(line: &Line<'_, '_>, seen: &Seen<'_>) -> Result<RequestFraming, Refused> {
    let Some(coding) = seen.coding else {
        return Ok(seen.length.map_or(RequestFraming::None, RequestFraming::Length));
    };
    if seen.length.is_some() {
        return Err(Refused::bad("content-length together with transfer-encoding"));
    }
    if line.http10 {
        return Err(Refused::bad("transfer-encoding in an HTTP/1.0 request"));
    }
    if coding.eq_ignore_ascii_case(b"chunked") {
        return Ok(RequestFraming::Chunked);
    }
    let is_chunked = |m: &[u8]| m.eq_ignore_ascii_case(b"chunked");
    let members = || coding.split(|c| *c == b',').map(fields::trim);
    let sound = members().all(fields::is_token)
        && members().next_back().is_some_and(is_chunked)
        && members().filter(|m| is_chunked(m)).count() == 1;
    if sound {
        return Err(Refused { status: 501, reason: "transfer coding other than chunked" });
    }
    Err(Refused::bad("transfer-encoding is not chunked"))
}

/// A handshake that asks for a WebSocket in every respect but its key is malformed; any other upgrade is left
/// out.
fn is_websocket(line: &Line<'_, '_>, seen: &Seen<'_>, framing: RequestFraming) -> Result<bool, Refused> {
    let asked = line.method == Method::Get
        && !line.http10
        && seen.connection.upgrade
        && seen.upgrade.is_some_and(|v| v.eq_ignore_ascii_case(b"websocket"))
        && matches!(framing, RequestFraming::None | RequestFraming::Length(0));
    // A key is 16 bytes in base64 (RFC 6455 §4.1).
    let is_base64 = |c: &u8| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'/' | b'=');
    if asked && !seen.websocket_key.is_some_and(|key| key.len() == 24 && key.iter().all(is_base64)) {
        return Err(Refused::bad("websocket handshake without a valid sec-websocket-key"));
    }
    Ok(asked)
}

fn host<'a>(
    line: &Line<'_, 'a>,
    seen: &Seen<'a>,
    target: &Target<'a>,
    rules: &'a Rules,
) -> Result<&'a str, Refused> {
    let Some(host) = seen.host else {
        if !line.http10 {
            return Err(Refused::bad("host is missing"));
        }
        return Ok(target.authority.unwrap_or(&rules.default_host));
    };
    let host = std::str::from_utf8(host).ok().filter(|h| target::is_host(h.as_bytes()));
    let host = host.ok_or(Refused::bad("host is empty or malformed"))?;
    if target.authority.is_some_and(|a| !target::same_host(a, host, target.default_port)) {
        return Err(Refused::bad("host differs from the host in the request target"));
    }
    Ok(host)
}

fn write_line(facts: &RequestHead, target: &Target<'_>, out: &mut Forward) {
    let head = &mut out.head;
    head.extend_from_slice(facts.method.as_str().as_bytes());
    head.push(b' ');
    let from = head.len();
    head.extend_from_slice(target.slash.as_bytes());
    head.extend_from_slice(target.path.as_bytes());
    out.target = from..head.len();
    head.extend_from_slice(b" HTTP/1.1\r\n");
}

/// Decides which fields go on, and where.
struct Sieve<'s, 'b> {
    facts: &'s RequestHead,
    connection: &'s Connection<'b>,
    trust_forwarded: bool,
}

impl Sieve<'_, '_> {
    fn write(&self, field: &httparse::Header<'_>, meaning: Known, out: &mut Forward) {
        let name = field.name.as_bytes();
        match meaning {
            Known::ContentLength
            | Known::TransferEncoding
            | Known::Connection
            | Known::Te
            | Known::Trailer
            | Known::Expect
            | Known::HopByHop
            | Known::RequestId
            | Known::Model
            | Known::Deadline
            | Known::Hold
            | Known::Priority
            | Known::Internal => {}
            Known::Upgrade if !self.facts.websocket => {}
            Known::Forwarding if !self.trust_forwarded => {}
            Known::Credential => write_field(&mut out.credentials, name, field.value),
            Known::TraceContext => write_field(&mut out.trace, name, field.value),
            Known::MaxForwards if self.facts.max_forwards.is_some() => {
                // RFC 9110 §7.6.2: who forwards it counts it down.
                let less = self.facts.max_forwards.unwrap_or_default().saturating_sub(1);
                write_field(&mut out.head, name, itoa::Buffer::new().format(less).as_bytes());
            }
            Known::Other if self.connection.names(name) => {}
            _ => write_field(&mut out.head, name, field.value),
        }
    }
}
