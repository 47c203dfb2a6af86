// SPDX-License-Identifier: Apache-2.0
//! One JSON object a line: `ts`, `level`, `target`, `msg`, then the event's own fields.

use std::cell::RefCell;
use std::fmt::Debug;
use std::io::Write;

use serde::Serialize;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::sink::Sink;
use crate::admin::clock::{rfc3339, unix_ms};

/// Writes every event to the sink.
pub(super) struct Json {
    sink: Sink,
}

impl Json {
    pub(super) fn new(sink: Sink) -> Json {
        Json { sink }
    }
}

impl<S: Subscriber> Layer<S> for Json {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        thread_local! {
            static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        LINE.with(|line| {
            // An event inside the formatting of an event gets a line of its own.
            let Ok(mut line) = line.try_borrow_mut() else {
                return self.sink.push(&whole(event, Vec::new()));
            };
            let written = whole(event, std::mem::take(&mut *line));
            self.sink.push(&written);
            *line = written;
        });
    }
}

/// That lines were lost, as a line.
pub(super) fn notice(lost: u64) -> String {
    let ts = rfc3339(unix_ms());
    format!(
        "{{\"ts\":\"{ts}\",\"level\":\"warn\",\"target\":\"sluice::log\",\"msg\":\"log_lines_lost\",\"lines\":{lost}}}\n"
    )
}

fn whole(event: &Event<'_>, mut line: Vec<u8>) -> Vec<u8> {
    line.clear();
    let level = match *event.metadata().level() {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    };
    line.extend_from_slice(b"{\"ts\":\"");
    timestamp(&mut line, unix_ms());
    line.extend_from_slice(b"\",\"level\":");
    text(&mut line, level);
    line.extend_from_slice(b",\"target\":");
    text(&mut line, event.metadata().target());
    event.record(&mut Fields(&mut line));
    line.extend_from_slice(b"}\n");
    line
}

/// Now, with milliseconds. The part before them is formatted once a second.
fn timestamp(line: &mut Vec<u8>, unix_ms: u64) {
    thread_local! {
        static SECOND: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
    }
    SECOND.with_borrow_mut(|(second, shown)| {
        if *second != unix_ms / 1_000 || shown.is_empty() {
            *second = unix_ms / 1_000;
            *shown = rfc3339(*second * 1_000);
        }
        line.extend_from_slice(shown.trim_end_matches('Z').as_bytes());
    });
    let digit = |unit: u64| b'0' + (unix_ms / unit % 10) as u8;
    line.extend_from_slice(&[b'.', digit(100), digit(10), digit(1), b'Z']);
}

/// A JSON text. Most need no escaping, which is seen far faster than done.
fn text(line: &mut Vec<u8>, text: &str) {
    if !is_plain(text.as_bytes()) {
        return value(line, text);
    }
    line.push(b'"');
    line.extend_from_slice(text.as_bytes());
    line.push(b'"');
}

/// Without an early end, so that many bytes are looked at at once.
fn is_plain(bytes: &[u8]) -> bool {
    bytes.iter().fold(true, |plain, &b| plain & (b >= 0x20) & (b != b'"') & (b != b'\\'))
}

fn value<T: Serialize + ?Sized>(line: &mut Vec<u8>, value: &T) {
    let start = line.len();
    if serde_json::to_writer(&mut *line, value).is_err() {
        line.truncate(start);
        line.extend_from_slice(b"null");
    }
}

struct Fields<'a>(&'a mut Vec<u8>);

impl Fields<'_> {
    fn name(&mut self, field: &Field) {
        let name = if field.name() == "message" { "msg" } else { field.name() };
        debug_assert!(is_plain(name.as_bytes()), "names of fields are written in this program");
        self.0.extend_from_slice(b",\"");
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(b'"');
        self.0.push(b':');
    }

    fn plain<T: Serialize + ?Sized>(&mut self, field: &Field, plain: &T) {
        self.name(field);
        value(self.0, plain);
    }
}

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, shown: &dyn Debug) {
        self.name(field);
        self.0.push(b'"');
        let start = self.0.len();
        // Writing to a vector cannot fail; a value that fails to show itself is shown as far as it came.
        let _ = write!(self.0, "{shown:?}");
        if self.0.get(start..).is_some_and(is_plain) {
            return self.0.push(b'"');
        }
        let raw = self.0.split_off(start);
        self.0.pop();
        value(self.0, &*String::from_utf8_lossy(&raw));
    }

    fn record_str(&mut self, field: &Field, shown: &str) {
        self.name(field);
        text(self.0, shown);
    }

    fn record_u64(&mut self, field: &Field, number: u64) {
        self.plain(field, &number);
    }

    fn record_i64(&mut self, field: &Field, number: i64) {
        self.plain(field, &number);
    }

    fn record_f64(&mut self, field: &Field, number: f64) {
        self.plain(field, &number);
    }

    fn record_bool(&mut self, field: &Field, truth: bool) {
        self.plain(field, &truth);
    }
}
