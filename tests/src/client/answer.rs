// SPDX-License-Identifier: Apache-2.0
//! What came back for one request, with the time of every arrival.

use serde_json::Value;

use crate::clock;
use crate::engine::journal::Fields;
use crate::wire::{Ended, RawHead};

/// An answer, as far as it came.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status of the final head; 0 if there was none.
    pub status: u16,
    /// Version of the final head.
    pub version: String,
    /// Header of the final head.
    pub headers: Fields,
    /// Interim heads before it.
    pub interim: Vec<RawHead>,
    /// The body, decoded.
    pub body: Vec<u8>,
    /// After each piece: when, and how long the body was then.
    pub arrivals: Vec<(u64, usize)>,
    /// Trailer fields.
    pub trailers: Fields,
    /// How it ended.
    pub ended: Ended,
    /// When the request was begun, when the final head came, when the answer ended (shared clock, microseconds).
    pub begun: u64,
    /// See `begun`.
    pub head_at: u64,
    /// See `begun`.
    pub end_at: u64,
}

/// One server-sent event, without its blank line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// When its last byte came.
    pub at: u64,
    /// Its lines.
    pub text: String,
}

impl Answer {
    /// Nothing has come yet.
    pub fn begin() -> Answer {
        Answer {
            status: 0,
            version: String::new(),
            headers: Fields::new(),
            interim: Vec::new(),
            body: Vec::new(),
            arrivals: Vec::new(),
            trailers: Fields::new(),
            ended: Ended::TimedOut,
            begun: clock::now(),
            head_at: 0,
            end_at: 0,
        }
    }

    /// Adds a piece of the body that came now.
    pub fn piece(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.body.extend_from_slice(bytes);
            self.arrivals.push((clock::now(), self.body.len()));
        }
    }

    /// The first header field of that name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// How many header fields have that name.
    pub fn count(&self, name: &str) -> usize {
        self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).count()
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; null if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// `error.code` of an error answer; empty if there is none.
    pub fn error_code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    /// Complete, with this status.
    pub fn is(&self, status: u16) -> bool {
        self.status == status && self.ended == Ended::Whole
    }

    /// Seconds from the request's begin to the answer's end.
    pub fn took(&self) -> f64 {
        self.end_at.saturating_sub(self.begun) as f64 / 1e6
    }

    /// `retry-after` in seconds.
    pub fn retry_after(&self) -> Option<f64> {
        self.get("retry-after")?.parse().ok()
    }

    /// In one line, for messages.
    pub fn brief(&self) -> String {
        let text: String = self.text().chars().take(300).collect();
        format!(
            "{} {:?} after {:.3} s, {} bytes: {text}",
            self.status,
            self.ended,
            self.took(),
            self.body.len()
        )
    }

    /// Fails unless the answer is complete and has this status.
    #[track_caller]
    pub fn expect(&self, status: u16) -> &Answer {
        assert!(self.is(status), "expected a complete {status}, got {}", self.brief());
        self
    }

    /// The complete server-sent events of the body, comments included.
    pub fn events(&self) -> Vec<Arrived> {
        let (mut events, mut from) = (Vec::new(), 0);
        while let Some(length) = self.body[from..].windows(2).position(|w| w == b"\n\n") {
            let text = String::from_utf8_lossy(&self.body[from..from + length]).into_owned();
            from += length + 2;
            let at = self.arrivals.iter().find(|(_, total)| *total >= from).map_or(0, |(at, _)| *at);
            events.push(Arrived { at, text });
        }
        events
    }

    /// The engine's events of the body: number and delay between the engine's write and our read, in microseconds.
    pub fn engine_events(&self) -> Vec<(u64, u64)> {
        let stamp = |e: &Arrived| {
            let told: Value = serde_json::from_str(e.text.strip_prefix("data: ")?).ok()?;
            Some((told["n"].as_u64()?, e.at.saturating_sub(told["t"].as_u64()?)))
        };
        self.events().iter().filter_map(stamp).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_carry_the_time_of_their_last_byte() {
        let mut answer = Answer::begin();
        answer.piece(b"data: {\"n\":0,\"t\":1}\n\nda");
        answer.piece(b"ta: {\"n\":1,\"t\":2}\n");
        answer.piece(b"\n: comment\n\ndata: [DO");
        let events = answer.events();
        assert_eq!(
            events.iter().map(|e| e.text.as_str()).collect::<Vec<_>>(),
            ["data: {\"n\":0,\"t\":1}", "data: {\"n\":1,\"t\":2}", ": comment"]
        );
        assert_eq!(
            events.iter().map(|e| e.at).collect::<Vec<_>>(),
            [answer.arrivals[0].0, answer.arrivals[2].0, answer.arrivals[2].0]
        );
        assert_eq!(answer.engine_events().iter().map(|(n, _)| *n).collect::<Vec<_>>(), [0, 1]);
    }
}
