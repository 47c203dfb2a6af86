// SPDX-License-Identifier: Apache-2.0
//! The last lines of a request head on its way to a replica: what the gateway adds (pure).
//!
//! The codec has already removed what must not travel on; here come the trace context, `Via`, the forwarding fields,
//! the request id, and the credentials that the model's settings ask for.

use sluice_wire::head::Forward;

use crate::config::ModelSettings;

/// The hop between client and gateway.
pub struct Hop<'a> {
    /// The client's address.
    pub peer: &'a str,
    /// The client used TLS.
    pub tls: bool,
    /// `1.1`, `1.0` or `2`, for `Via`.
    pub version: &'static str,
    /// Ours or the client's.
    pub request_id: &'a str,
}

/// How the body travels to the replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// None was announced.
    Nothing,
    /// With its length.
    Length(u64),
    /// In chunks, as it comes.
    Chunks,
}

/// Completes `forward.head`, empty line included.
pub fn complete(forward: &mut Forward, hop: &Hop<'_>, settings: &ModelSettings, sent: Sent) {
    let Forward { head, credentials, trace, .. } = forward;
    head.extend_from_slice(trace);
    if let Some(key) = &settings.backend_key {
        head.extend_from_slice(b"authorization: Bearer ");
        head.extend_from_slice(key.0.as_bytes());
        head.extend_from_slice(b"\r\n");
    } else if settings.pass_credentials {
        head.extend_from_slice(credentials);
    }
    let proto = if hop.tls { "https" } else { "http" };
    for piece in [
        "via: ",
        hop.version,
        " sluice\r\nx-forwarded-for: ",
        hop.peer,
        "\r\nx-forwarded-proto: ",
        proto,
        "\r\nx-request-id: ",
        hop.request_id,
        "\r\n",
    ] {
        head.extend_from_slice(piece.as_bytes());
    }
    match sent {
        Sent::Nothing => {}
        Sent::Length(n) => {
            head.extend_from_slice(b"content-length: ");
            head.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        Sent::Chunks => head.extend_from_slice(b"transfer-encoding: chunked\r\n"),
    }
    head.extend_from_slice(b"\r\n");
}

/// A copy of `head` (and whatever follows its empty line) that names another host.
pub fn with_host(head: &[u8], host: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(head.len() + host.len());
    let mut rest = head;
    while let Some(end) = memchr::memchr(b'\n', rest) {
        let (line, after) = rest.split_at(end + 1);
        let is_host = line.get(..5).is_some_and(|name| name.eq_ignore_ascii_case(b"host:"));
        if is_host {
            out.extend_from_slice(b"host: ");
            out.extend_from_slice(host.as_bytes());
            out.extend_from_slice(b"\r\n");
        } else {
            out.extend_from_slice(line);
        }
        rest = after;
        if is_host || line == b"\r\n" {
            break;
        }
    }
    out.extend_from_slice(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_host_is_named_in_the_head_and_the_body_is_left_alone() {
        let head = b"POST / HTTP/1.1\r\na: b\r\nHost: here\r\nc: d\r\n\r\nhost: body\r\n";
        let out = with_host(head, "there:81");
        assert_eq!(out, b"POST / HTTP/1.1\r\na: b\r\nhost: there:81\r\nc: d\r\n\r\nhost: body\r\n");
        let without = b"GET / HTTP/1.1\r\n\r\nhost: body\r\n";
        assert_eq!(with_host(without, "x"), without);
    }
}
