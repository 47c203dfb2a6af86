// SPDX-License-Identifier: Apache-2.0
//! A whole request body and its trailers, and how they travel to a replica (pure).
//!
//! Trailers have a place only behind chunks (RFC 9112 §7.1.2) or frames: a body that has some is not sent with its
//! length.

use http::HeaderMap;
use sluice_wire::chunk::chunk_head;
use sluice_wire::fields;

use super::outgoing::Sent;

/// One such body.
#[derive(Debug, Default)]
pub struct Whole {
    /// Its content.
    pub data: Vec<u8>,
    /// Trailers that may be passed on, as lines `name: value CRLF`.
    pub trailers: Vec<u8>,
}

impl Whole {
    /// How it is announced to an HTTP/1 replica, `announced` being whether the client announced one at all.
    pub fn sent(&self, announced: bool) -> Sent {
        match announced {
            false => Sent::Nothing,
            true if self.trailers.is_empty() => Sent::Length(self.data.len() as u64),
            true => Sent::Chunks,
        }
    }

    /// The bytes behind the head towards an HTTP/1 replica.
    pub fn into_http1(self) -> Vec<u8> {
        let Whole { data, trailers } = self;
        if trailers.is_empty() {
            return data;
        }
        let mut out = Vec::with_capacity(data.len() + trailers.len() + 32);
        chunk(&mut out, &data);
        last_chunk(&mut out, &trailers);
        out
    }
}

/// Appends one chunk; nothing for no data, which would be the last chunk.
pub fn chunk(out: &mut Vec<u8>, data: &[u8]) {
    if !data.is_empty() {
        out.extend_from_slice(chunk_head(data.len() as u64, &mut [0; 18]));
        out.extend_from_slice(data);
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends the end of a chunked body.
pub fn last_chunk(out: &mut Vec<u8>, trailers: &[u8]) {
    for piece in [b"0\r\n", trailers, b"\r\n"] {
        out.extend_from_slice(piece);
    }
}

/// The trailers of an HTTP/2 stream that may be passed on, as lines.
pub fn trailer_lines(trailers: &HeaderMap) -> Vec<u8> {
    let mut lines = Vec::new();
    for (name, value) in trailers.iter().filter(|(name, _)| fields::is_allowed_trailer(name.as_ref())) {
        for piece in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            lines.extend_from_slice(piece);
        }
    }
    lines
}

/// Removes the trailers of an HTTP/2 stream that may not be passed on.
pub fn keep_allowed(trailers: HeaderMap) -> HeaderMap {
    let mut name = None;
    let mut kept = HeaderMap::new();
    for (next, value) in trailers {
        name = next.or(name);
        if let Some(name) = name.as_ref().filter(|name| fields::is_allowed_trailer(name.as_ref())) {
            kept.append(name.clone(), value);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn map(fields: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    #[test]
    fn a_body_goes_with_its_length_unless_trailers_follow_it() {
        let plain = Whole { data: b"abc".to_vec(), trailers: Vec::new() };
        assert_eq!(plain.sent(true), Sent::Length(3));
        assert_eq!(plain.sent(false), Sent::Nothing);
        assert_eq!(plain.into_http1(), b"abc");
        let with = Whole { data: b"abc".to_vec(), trailers: b"x-sum: 3\r\n".to_vec() };
        assert_eq!(with.sent(true), Sent::Chunks);
        assert_eq!(with.into_http1(), b"3\r\nabc\r\n0\r\nx-sum: 3\r\n\r\n");
        let empty = Whole { data: Vec::new(), trailers: b"x-sum: 0\r\n".to_vec() };
        assert_eq!(empty.into_http1(), b"0\r\nx-sum: 0\r\n\r\n");
    }

    #[test]
    fn what_belongs_into_the_head_is_no_trailer() {
        let trailers =
            map(&[("x-sum", "3"), ("content-length", "9"), ("x-sum", "4"), ("authorization", "k")]);
        assert_eq!(trailer_lines(&trailers), b"x-sum: 3\r\nx-sum: 4\r\n");
        assert_eq!(keep_allowed(trailers), map(&[("x-sum", "3"), ("x-sum", "4")]));
    }
}
