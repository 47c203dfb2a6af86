// SPDX-License-Identifier: Apache-2.0
//! The request target and the host: which bytes they may have, and absolute-form brought to origin-form.
//!
//! Must not know routes.

use super::{Method, Refused};

/// A target in pieces. For origin-form `scheme` and `authority` are empty.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target<'a> {
    /// Port that the scheme of an absolute-form means when none is written.
    pub default_port: &'static str,
    /// Host and port of an absolute-form.
    pub authority: Option<&'a str>,
    /// What goes before `path` in origin-form: empty or a slash.
    pub slash: &'static str,
    /// Path and query, or `*`.
    pub path: &'a str,
}

/// Takes a request target apart and checks its bytes.
pub(super) fn target(method: Method, raw: &str) -> Result<Target<'_>, Refused> {
    if raw.contains('#') {
        return Err(Refused::bad("fragment in the request target"));
    }
    let origin = |path| Target { default_port: "", authority: None, slash: "", path };
    if raw == "*" {
        let fits = method == Method::Options;
        return if fits {
            Ok(origin(raw))
        } else {
            Err(Refused::bad("asterisk as the target of another method"))
        };
    }
    let found = if raw.starts_with('/') { origin(raw) } else { absolute(method, raw)? };
    let (path, query) = found.path.split_once('?').unwrap_or((found.path, ""));
    if !path.bytes().all(is_path_byte) || !query.bytes().all(is_query_byte) {
        return Err(Refused::bad("byte in the request target that must be percent-encoded"));
    }
    Ok(found)
}

fn absolute(method: Method, raw: &str) -> Result<Target<'_>, Refused> {
    let (scheme, rest) = raw.split_once("://").ok_or(Refused::bad("request target is not a path"))?;
    let default_port = match scheme {
        s if s.eq_ignore_ascii_case("http") => "80",
        s if s.eq_ignore_ascii_case("https") => "443",
        _ => return Err(Refused::bad("request target has a scheme other than http")),
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end).unwrap_or((rest, ""));
    if !is_host(authority.as_bytes()) {
        return Err(Refused::bad("host in the request target is malformed"));
    }
    let (slash, path) = match path.bytes().next() {
        Some(b'/') => ("", path),
        // An absolute OPTIONS without a path asks about the server itself (RFC 9112 §3.2.4).
        None if method == Method::Options => ("", "*"),
        _ => ("/", path),
    };
    Ok(Target { default_port, authority: Some(authority), slash, path })
}

/// Whether two hosts with optional ports are the same once the default port is left out.
pub(super) fn same_host(a: &str, b: &str, default_port: &str) -> bool {
    let bare = |host: &str| match host.rsplit_once(':') {
        Some((name, port)) if port == default_port || port.is_empty() => name.len(),
        _ => host.len(),
    };
    a.get(..bare(a)).unwrap_or(a).eq_ignore_ascii_case(b.get(..bare(b)).unwrap_or(b))
}

/// Whether `host` is a name or an address with an optional port. Stricter than RFC 3986: no user, no
/// sub-delimiters, which no host that routes here has and which lists of hosts would be cut at.
pub(super) fn is_host(host: &[u8]) -> bool {
    let (name, port) = match host {
        [b'[', ..] => {
            let Some(end) = host.iter().position(|c| *c == b']') else { return false };
            let (inside, after) =
                (host.get(1..end).unwrap_or_default(), host.get(end + 1..).unwrap_or_default());
            let text = std::str::from_utf8(inside).unwrap_or_default();
            if text.parse::<std::net::Ipv6Addr>().is_err() {
                return false;
            }
            (None, after)
        }
        _ => {
            let end = host.iter().position(|c| *c == b':').unwrap_or(host.len());
            (host.get(..end), host.get(end..).unwrap_or_default())
        }
    };
    let name_fits = name.is_none_or(|n| {
        !n.is_empty() && n.iter().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b'_' | b'~'))
    });
    let port_fits = match port {
        [] => true,
        [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    name_fits && port_fits
}

/// RFC 3986 and the few more that clients are known to send as they are. No backslash: some read it as a
/// slash.
fn is_path_byte(c: u8) -> bool {
    matches!(c, b'!' | b'"' | b'$'..=b';' | b'=' | b'@'..=b'[' | b']'..=b'_' | b'a'..=b'~')
}

/// Beside the path's bytes also those that browsers leave alone in a query.
fn is_query_byte(c: u8) -> bool {
    matches!(c, b'!' | b'$'..=b';' | b'=' | b'?'..=b'~')
}
