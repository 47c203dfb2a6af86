// SPDX-License-Identifier: Apache-2.0
//! One JSON object a line: `ts`, `level`, `target`, `msg`, then the event's own fields.

use std::cell::RefCell;
use std::fmt::Debug;

use serde::Serialize;
use serde::Serializer as _;
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
    line.extend_from_slice(b"{\"ts\":");
    value(&mut line, &rfc3339(unix_ms()));
    line.extend_from_slice(b",\"level\":");
    value(&mut line, level);
    line.extend_from_slice(b",\"target\":");
    value(&mut line, event.metadata().target());
    event.record(&mut Fields(&mut line));
    line.extend_from_slice(b"}\n");
    line
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
        self.0.push(b',');
        value(self.0, name);
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
        let start = self.0.len();
        let mut out = serde_json::Serializer::new(&mut *self.0);
        if out.collect_str(&format_args!("{shown:?}")).is_err() {
            self.0.truncate(start);
            self.0.extend_from_slice(b"null");
        }
    }

    fn record_str(&mut self, field: &Field, text: &str) {
        self.plain(field, text);
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
