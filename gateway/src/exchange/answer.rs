// SPDX-License-Identifier: Apache-2.0
//! An answer that the gateway gives itself: status, a few fields, a short body.

use std::fmt::Display;
use std::io::Write;

/// Written by each protocol in its own way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Names in lower case; values without control characters.
    pub fields: Vec<(&'static str, String)>,
    /// May be empty.
    pub body: Vec<u8>,
}

impl Answer {
    /// Without a body.
    pub fn empty(status: u16) -> Answer {
        Answer { status, fields: Vec::new(), body: Vec::new() }
    }

    /// With a JSON body.
    pub fn json(status: u16, body: &serde_json::Value) -> Answer {
        let mut answer = Answer { status, fields: Vec::new(), body: body.to_string().into_bytes() };
        answer.field("content-type", "application/json");
        answer
    }

    /// Adds a field.
    pub fn field(&mut self, name: &'static str, value: impl Display) {
        self.fields.push((name, value.to_string()));
    }

    /// As HTTP/1.1. With `head_only` the body is announced and left out.
    pub fn to_http1(&self, keep_alive: bool, http10: bool, head_only: bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(256 + self.body.len());
        // Writing to a vector cannot fail.
        let _ = write!(out, "HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        for (name, value) in &self.fields {
            let _ = write!(out, "{name}: {value}\r\n");
        }
        if self.status != 204 {
            let _ = write!(out, "content-length: {}\r\n", self.body.len());
        }
        match (keep_alive, http10) {
            (false, _) => out.extend_from_slice(b"connection: close\r\n"),
            (true, true) => out.extend_from_slice(b"connection: keep-alive\r\n"),
            (true, false) => {}
        }
        out.extend_from_slice(b"\r\n");
        if !head_only {
            out.extend_from_slice(&self.body);
        }
        out
    }
}

fn reason(status: u16) -> &'static str {
    http::StatusCode::from_u16(status).ok().and_then(|s| s.canonical_reason()).unwrap_or("")
}
