// SPDX-License-Identifier: Apache-2.0
//! What reading a request head gives: facts in [`RequestHead`], bytes to send on in [`Forward`].
//!
//! Must not know how a head is read.

use std::ops::Range;

use super::Method;

/// What is asked of request heads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Whether the peer is a proxy whose `forwarded` and `x-forwarded-*` are passed on; otherwise they are
    /// removed.
    pub trust_forwarded: bool,
    /// Bytes of a head at most, with its empty line and one tolerated before it; a longer one is 431.
    pub head_bytes_max: usize,
    /// Bytes of the request target at most; a longer one is 414.
    pub target_bytes_max: usize,
    /// Fields at most, up to [`super::FIELDS_MAX`]; more are 431.
    pub fields_max: usize,
    /// The `host` sent on for an HTTP/1.0 request that has none.
    pub default_host: String,
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            trust_forwarded: false,
            head_bytes_max: 64 << 10,
            target_bytes_max: 16 << 10,
            fields_max: 128,
            default_host: "localhost".to_owned(),
        }
    }
}

/// How a request body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFraming {
    /// There is no body and no field that speaks of one.
    None,
    /// After this many bytes; 0 was said, not assumed.
    Length(u64),
    /// With the last chunk.
    Chunked,
}

/// A request head that was read whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHead {
    /// Bytes of the input that are used up.
    pub len: usize,
    /// The method.
    pub method: Method,
    /// The client speaks HTTP/1.0: no chunks, no interim answers.
    pub http10: bool,
    /// The client wants the connection to stay open after the answer.
    pub keep_alive: bool,
    /// The client waits for `100 Continue` before it sends its body.
    pub expect_continue: bool,
    /// How the body ends.
    pub framing: RequestFraming,
    /// A whole WebSocket handshake; `upgrade` and `connection: upgrade` are in the forwarded head.
    pub websocket: bool,
    /// The client takes trailers (`te: trailers`).
    pub te_trailers: bool,
    /// A `trailer` field announces trailers behind the body.
    pub declares_trailers: bool,
    /// `max-forwards` of an `OPTIONS`; what is forwarded says one less. Zero: answer yourself.
    pub max_forwards: Option<u32>,
}

/// The request as it goes to a replica. Meant to be reused: reading a head into it clears it first.
///
/// `head`, `credentials` and `trace` are lines `name: value CRLF` whose name and value are the client's bytes.
#[derive(Debug, Default)]
pub struct Forward {
    /// Request line in origin-form and all fields to send on, without framing, credentials, trace context and
    /// last empty line.
    pub head: Vec<u8>,
    /// The client's credential lines.
    pub credentials: Vec<u8>,
    /// The client's `traceparent` and `tracestate` lines.
    pub trace: Vec<u8>,
    pub(super) target: Range<usize>,
    pub(super) values: Vec<u8>,
    pub(super) host: Range<usize>,
    pub(super) content_type: Option<Range<usize>>,
    pub(super) content_encoding: Option<Range<usize>>,
    pub(super) model: Option<Range<usize>>,
    pub(super) priority: Option<Range<usize>>,
    pub(super) request_id: Option<Range<usize>>,
    pub(super) deadline_ms: Option<u64>,
    pub(super) no_hold: bool,
    pub(super) retry_count: Option<u32>,
    pub(super) via: bool,
}

impl Forward {
    /// Path and query, or `*`.
    pub fn target(&self) -> &[u8] {
        self.head.get(self.target.clone()).unwrap_or_default()
    }

    /// The host sent on.
    pub fn host(&self) -> &str {
        self.text(Some(&self.host)).unwrap_or_default()
    }

    /// `content-type`, as sent.
    pub fn content_type(&self) -> Option<&[u8]> {
        self.values.get(self.content_type.clone()?)
    }

    /// `content-encoding`, as sent.
    pub fn content_encoding(&self) -> Option<&[u8]> {
        self.values.get(self.content_encoding.clone()?)
    }

    /// The model named by `x-sluice-model` or a synonym: 1 to 512 bytes without control characters.
    pub fn model(&self) -> Option<&str> {
        self.text(self.model.as_ref())
    }

    /// `x-sluice-priority`: a class name, 1 to 64 visible ASCII characters.
    pub fn priority(&self) -> Option<&str> {
        self.text(self.priority.as_ref())
    }

    /// The client's `x-request-id` when it is 1 to 128 visible ASCII characters.
    pub fn request_id(&self) -> Option<&str> {
        self.text(self.request_id.as_ref())
    }

    /// `x-sluice-deadline-ms`: milliseconds that the client still waits for an answer.
    pub fn deadline_ms(&self) -> Option<u64> {
        self.deadline_ms
    }

    /// Whether the request may be held; false only after `x-sluice-hold: 0`.
    pub fn hold(&self) -> bool {
        !self.no_hold
    }

    /// How often the client's library has tried before, when it says so.
    pub fn retry_count(&self) -> Option<u32> {
        self.retry_count
    }

    /// Whether a proxy before us has left a `via` line, which is in the head.
    pub fn via(&self) -> bool {
        self.via
    }

    pub(super) fn clear(&mut self) {
        let (mut head, mut credentials, mut trace, mut values) = (
            std::mem::take(&mut self.head),
            std::mem::take(&mut self.credentials),
            std::mem::take(&mut self.trace),
            std::mem::take(&mut self.values),
        );
        head.clear();
        credentials.clear();
        trace.clear();
        values.clear();
        *self = Forward { head, credentials, trace, values, ..Forward::default() };
    }

    /// Keeps a copy of `value`.
    pub(super) fn keep(&mut self, value: &[u8]) -> Range<usize> {
        let from = self.values.len();
        self.values.extend_from_slice(value);
        from..self.values.len()
    }

    fn text(&self, range: Option<&Range<usize>>) -> Option<&str> {
        std::str::from_utf8(self.values.get(range?.clone())?).ok()
    }
}
