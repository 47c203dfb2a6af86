// SPDX-License-Identifier: Apache-2.0
//! Server-sent events as they come from the admin API.
//!
//! Owns the framing only. Must not know what the events mean.

use http_body_util::BodyExt;
use hyper::body::Incoming;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// For `Last-Event-ID`; empty if it had none.
    pub id: String,
    /// Its type.
    pub event: String,
    /// What it says.
    pub data: String,
}

/// Bytes to events.
#[derive(Debug, Default)]
pub struct Parser {
    pending: Vec<u8>,
    /// Bytes of it that hold no end of an event: a snapshot comes in many pieces.
    searched: usize,
}

impl Parser {
    /// Takes what came.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// The next event that is whole; comments are passed over.
    pub fn next(&mut self) -> Option<Message> {
        loop {
            let from = self.searched.saturating_sub(1);
            let rest = self.pending.get(from..).unwrap_or_default();
            let Some(end) = memchr::memmem::find(rest, b"\n\n") else {
                self.searched = self.pending.len();
                return None;
            };
            self.searched = 0;
            let block: Vec<u8> = self.pending.drain(..from + end + 2).collect();
            let message = message(&String::from_utf8_lossy(&block));
            if !message.data.is_empty() {
                return Some(message);
            }
        }
    }
}

fn message(block: &str) -> Message {
    let mut message = Message::default();
    for line in block.lines() {
        let Some((field, value)) = line.split_once(':') else { continue };
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => message.id = value.to_owned(),
            "event" => message.event = value.to_owned(),
            "data" if message.data.is_empty() => message.data = value.to_owned(),
            "data" => message.data = format!("{}\n{value}", message.data),
            _ => {}
        }
    }
    message
}

/// A stream of events.
pub struct Events {
    body: Incoming,
    parser: Parser,
}

impl Events {
    /// The events of this answer.
    pub fn new(body: Incoming) -> Events {
        Events { body, parser: Parser::default() }
    }

    /// The next event; `None` when the stream has ended.
    pub async fn next(&mut self) -> Result<Option<Message>, hyper::Error> {
        loop {
            if let Some(message) = self.parser.next() {
                return Ok(Some(message));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => {
                    self.parser.feed(frame?.data_ref().map(|data| &**data).unwrap_or_default());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_whole_however_they_are_cut() {
        let text = "id: a-1\nevent: model\ndata: {\"x\":1}\n\n: keep-alive\n\nevent: reset\ndata: one\ndata: two\n\nid";
        let expected = [
            Message { id: "a-1".into(), event: "model".into(), data: "{\"x\":1}".into() },
            Message { id: String::new(), event: "reset".into(), data: "one\ntwo".into() },
        ];
        for size in [1, 7, text.len()] {
            let (mut parser, mut seen) = (Parser::default(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                parser.feed(piece);
                seen.extend(std::iter::from_fn(|| parser.next()));
            }
            assert_eq!(seen, expected, "{size}");
        }
    }
}
