// SPDX-License-Identifier: Apache-2.0
//! What Sluice knows of field names: which belong to one hop, which are ours, which nobody may strip.
//!
//! Owns every list of names. Must not know values, except how a list of tokens is cut.

/// Fields with this prefix are Sluice's own: removed from what clients and replicas send.
pub const INTERNAL_PREFIX: &str = "x-sluice-";

const FORWARDED_PREFIX: &str = "x-forwarded-";

/// No name that [`known`] compares as a whole is longer.
const LONGEST: usize = 32;

/// What a field name means to the gateway. Names without a meaning are [`Known::Other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Passed on as it came.
    Other,
    /// `host`.
    Host,
    /// `content-length`.
    ContentLength,
    /// `transfer-encoding`.
    TransferEncoding,
    /// `connection`.
    Connection,
    /// `upgrade`.
    Upgrade,
    /// `te`.
    Te,
    /// `trailer`.
    Trailer,
    /// `expect`.
    Expect,
    /// `max-forwards`.
    MaxForwards,
    /// Further fields that end at the next hop: `keep-alive`, `proxy-authorization`, …
    HopByHop,
    /// `authorization`, `x-api-key`, `api-key`.
    Credential,
    /// `forwarded`, `x-forwarded-*`, `x-real-ip`.
    Forwarding,
    /// `x-request-id`.
    RequestId,
    /// `traceparent`, `tracestate`.
    TraceContext,
    /// `via`.
    Via,
    /// `content-type`.
    ContentType,
    /// `content-encoding`.
    ContentEncoding,
    /// `cache-control`.
    CacheControl,
    /// `x-accel-buffering`.
    AccelBuffering,
    /// `sec-websocket-key`.
    WebSocketKey,
    /// `x-stainless-retry-count`.
    RetryCount,
    /// Other gateways' names for [`Known::Model`], passed on.
    ModelSynonym,
    /// `x-sluice-model`.
    Model,
    /// `x-sluice-deadline-ms`.
    Deadline,
    /// `x-sluice-hold`.
    Hold,
    /// `x-sluice-priority`.
    Priority,
    /// Any other name with [`INTERNAL_PREFIX`].
    Internal,
}

/// Looks a field name up, in any letter case.
pub fn known(name: &[u8]) -> Known {
    let mut room = [0; LONGEST];
    let Some(lower) = room.get_mut(..name.len()) else { return by_prefix(name) };
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    match &*lower {
        b"te" => Known::Te,
        b"via" => Known::Via,
        b"host" => Known::Host,
        b"expect" => Known::Expect,
        b"trailer" => Known::Trailer,
        b"upgrade" => Known::Upgrade,
        b"connection" => Known::Connection,
        b"content-type" => Known::ContentType,
        b"max-forwards" => Known::MaxForwards,
        b"x-request-id" => Known::RequestId,
        b"traceparent" | b"tracestate" => Known::TraceContext,
        b"cache-control" => Known::CacheControl,
        b"content-length" => Known::ContentLength,
        b"content-encoding" => Known::ContentEncoding,
        b"transfer-encoding" => Known::TransferEncoding,
        b"x-accel-buffering" => Known::AccelBuffering,
        b"sec-websocket-key" => Known::WebSocketKey,
        b"x-stainless-retry-count" => Known::RetryCount,
        b"authorization" | b"x-api-key" | b"api-key" => Known::Credential,
        b"forwarded" | b"x-real-ip" => Known::Forwarding,
        b"keep-alive"
        | b"proxy-connection"
        | b"http2-settings"
        | b"proxy-authorization"
        | b"proxy-authenticate"
        | b"proxy-authentication-info" => Known::HopByHop,
        b"x-gateway-model-name" | b"x-ai-eg-model" => Known::ModelSynonym,
        b"x-sluice-model" => Known::Model,
        b"x-sluice-deadline-ms" => Known::Deadline,
        b"x-sluice-hold" => Known::Hold,
        b"x-sluice-priority" => Known::Priority,
        _ => by_prefix(name),
    }
}

fn by_prefix(name: &[u8]) -> Known {
    if has_prefix(name, INTERNAL_PREFIX) {
        Known::Internal
    } else if has_prefix(name, FORWARDED_PREFIX) {
        Known::Forwarding
    } else {
        Known::Other
    }
}

/// Whether a name with `_` reads as a name that the gateway acts on once `_` is taken for `-`, as servers
/// behind CGI-like interfaces do. Such a name would smuggle past every rule here.
pub fn shadows_known(name: &[u8]) -> bool {
    if !name.contains(&b'_') {
        return false;
    }
    let mut room = [0; LONGEST];
    let seen = name.len().min(LONGEST);
    for (to, from) in room.iter_mut().zip(name) {
        *to = if *from == b'_' { b'-' } else { *from };
    }
    let Some(dashed) = room.get(..seen) else { return false };
    if name.len() > LONGEST { by_prefix(dashed) != Known::Other } else { known(dashed) != Known::Other }
}

/// Whether `Connection` may not name this field: the sender of such a line asks us to strip what the
/// message's far end, or our own decision, depends on (RFC 9110 §7.6.1).
pub fn is_end_to_end(name: &[u8]) -> bool {
    match known(name) {
        Known::Connection
        | Known::Upgrade
        | Known::Te
        | Known::Trailer
        | Known::Expect
        | Known::HopByHop
        | Known::AccelBuffering => false,
        Known::Other => {
            const NAMES: [&str; 9] = [
                "cookie",
                "set-cookie",
                "baggage",
                "origin",
                "range",
                "date",
                "location",
                "retry-after",
                "inference-header-content-length",
            ];
            const PREFIXES: [&str; 7] =
                ["content-", "accept", "if-", "sec-", "grpc-", "access-control-", "x-stainless-"];
            NAMES.iter().any(|n| name.eq_ignore_ascii_case(n.as_bytes()))
                || PREFIXES.iter().any(|p| has_prefix(name, p))
        }
        _ => true,
    }
}

/// Whether a trailer of this name may be passed on. Framing, routing, credentials, representation data and
/// whatever changes how the message is read may come in the head only (RFC 9110 §6.5.1).
pub fn is_allowed_trailer(name: &[u8]) -> bool {
    const NAMES: [&str; 16] = [
        "age",
        "cookie",
        "date",
        "expires",
        "last-modified",
        "location",
        "origin",
        "pragma",
        "range",
        "retry-after",
        "set-cookie",
        "status",
        "baggage",
        "vary",
        "warning",
        "www-authenticate",
    ];
    const PREFIXES: [&str; 6] = ["accept", "access-control-", "content-", "if-", "sec-", "inference-"];
    known(name) == Known::Other
        && !shadows_known(name)
        && !NAMES.iter().any(|n| name.eq_ignore_ascii_case(n.as_bytes()))
        && !PREFIXES.iter().any(|p| has_prefix(name, p))
}

/// The members of a comma-separated list, trimmed; empty members are left out (RFC 9110 §5.6.1.2).
pub fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|c| *c == b',').map(trim).filter(|m| !m.is_empty())
}

/// Without spaces and tabs at either end.
pub fn trim(value: &[u8]) -> &[u8] {
    let Some(from) = value.iter().position(|c| !is_space(*c)) else { return b"" };
    let to = value.iter().rposition(|c| !is_space(*c)).unwrap_or(from);
    value.get(from..=to).unwrap_or_default()
}

/// Whether this is a token (RFC 9110 §5.6.2).
pub fn is_token(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().all(|c| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(c))
}

/// The fields of lines `name: value CRLF`, without a request or status line before them. Reading ends at an
/// empty line or at the first that is not a field.
pub fn lines(block: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = block;
    std::iter::from_fn(move || {
        let end = memchr::memchr(b'\n', rest)?;
        let line = rest.get(..end)?.strip_suffix(b"\r")?;
        rest = rest.get(end + 1..)?;
        let colon = memchr::memchr(b':', line)?;
        Some((line.get(..colon)?, trim(line.get(colon + 1..)?)))
    })
}

fn is_space(c: u8) -> bool {
    c == b' ' || c == b'\t'
}

fn has_prefix(name: &[u8], prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
}
