// SPDX-License-Identifier: Apache-2.0
//! A request to be sent, over either version of HTTP.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Answer, Conn};
use crate::engine::journal::Fields;

/// One request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Method.
    pub method: String,
    /// Target as it goes on the wire.
    pub target: String,
    /// Header without framing and `Host`.
    pub fields: Fields,
    /// Body.
    pub body: Vec<u8>,
    /// Sent chunked, in pieces of so many bytes.
    pub chunk: Option<usize>,
    /// Longest time until the end of the answer.
    pub limit: Duration,
}

impl Request {
    /// Without a body.
    pub fn new(method: &str, target: &str) -> Request {
        Request {
            method: method.into(),
            target: target.into(),
            fields: Fields::new(),
            body: Vec::new(),
            chunk: None,
            limit: Duration::from_secs(30),
        }
    }

    /// `GET target`.
    pub fn get(target: &str) -> Request {
        Request::new("GET", target)
    }

    /// `POST target` with a JSON body, given as bytes.
    pub fn post(target: &str, body: impl Into<Vec<u8>>) -> Request {
        let mut request = Request::new("POST", target).field("content-type", "application/json");
        request.body = body.into();
        request
    }

    /// A short chat request for a model.
    pub fn chat(model: &str) -> Request {
        let body = json!({"model": model, "messages": [{"role": "user", "content": "hello"}]});
        Request::post("/v1/chat/completions", body.to_string())
    }

    /// Tells the fake engine what to do (`engine::script::Act`).
    pub fn act(self, act: Value) -> Request {
        self.field("x-engine", &act.to_string())
    }

    /// Adds a header field.
    pub fn field(mut self, name: &str, value: &str) -> Request {
        self.fields.push((name.into(), value.into()));
        self
    }

    /// Takes all fields of that name away.
    pub fn without(mut self, name: &str) -> Request {
        self.fields.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        self
    }

    /// Another body.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Request {
        self.body = body.into();
        self
    }

    /// Sends the body in chunks of that size.
    pub fn chunked(mut self, size: usize) -> Request {
        self.chunk = Some(size);
        self
    }

    /// Gives up after so long.
    pub fn limit(mut self, limit: Duration) -> Request {
        self.limit = limit;
        self
    }

    /// The head on the HTTP/1 wire.
    pub fn head_bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        if !self.fields.iter().any(|(n, _)| n.eq_ignore_ascii_case("host")) {
            head += "host: 127.0.0.1\r\n";
        }
        for (name, value) in &self.fields {
            head += &format!("{name}: {value}\r\n");
        }
        match self.chunk {
            Some(_) => head += "transfer-encoding: chunked\r\n",
            None if self.body.is_empty() && self.method != "POST" => {}
            None => head += &format!("content-length: {}\r\n", self.body.len()),
        }
        (head + "\r\n").into_bytes()
    }

    /// The body on the HTTP/1 wire.
    pub fn body_bytes(&self) -> Vec<u8> {
        let Some(size) = self.chunk else { return self.body.clone() };
        let mut out = Vec::new();
        for piece in self.body.chunks(size) {
            out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            out.extend_from_slice(piece);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"0\r\n\r\n");
        out
    }

    /// Both.
    pub fn bytes(&self) -> Vec<u8> {
        [self.head_bytes(), self.body_bytes()].concat()
    }

    /// Sends it on a connection of its own.
    pub async fn send(self, to: SocketAddr) -> Answer {
        let begun = Answer::begin();
        match Conn::open(to).await {
            Ok(mut conn) => conn.exchange(&self.field("connection", "close")).await,
            Err(e) => Answer { ended: e.into(), ..begun },
        }
    }
}
