// SPDX-License-Identifier: Apache-2.0
//! `…/logs`: what replicas print, as JSON lines, now and for as long as the client stays.
//!
//! A follower costs one task and one slot of a small number. It waits for its client, not for the replicas: lines that
//! a slow client misses are counted and said, never queued without bound.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::Frame;
use serde::Deserialize;
use sluice_scaler::LogLine;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, broadcast, mpsc, watch};

use super::api::{self, Line};
use super::clock::{rfc3339, unix_ms};

/// Most lines that one answer gives of the past.
pub(super) const TAIL_LIMIT: usize = 10_000;

/// Query of `…/logs`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogQuery {
    /// Lines of the past, at most [`TAIL_LIMIT`].
    #[serde(default = "default_tail")]
    pub(super) tail: usize,
    /// Stay and send what comes.
    #[serde(default)]
    pub(super) follow: bool,
}

fn default_tail() -> usize {
    100
}

/// The lines of the past, complete.
pub(super) fn past(lines: &[LogLine]) -> Body {
    let mut text = Vec::new();
    lines.iter().for_each(|line| write(&api::line(line), &mut text));
    Body::from(text)
}

/// The lines of the past, then each line as it comes. Ends when the client leaves, the model goes or `stopping` is true.
pub(super) fn follow(
    past: &[LogLine],
    live: broadcast::Receiver<LogLine>,
    slot: OwnedSemaphorePermit,
    stopping: watch::Receiver<bool>,
) -> Body {
    let (out, lines) = mpsc::channel(16);
    let mut first = Vec::new();
    past.iter().for_each(|line| write(&api::line(line), &mut first));
    tokio::spawn(async move {
        feed(Bytes::from(first), live, out, stopping).await;
        drop(slot);
    });
    body(lines)
}

/// What comes out of the channel, until its sender is gone.
pub(super) fn body(pieces: mpsc::Receiver<Bytes>) -> Body {
    Body::new(Lines(pieces))
}

async fn feed(
    first: Bytes,
    mut live: broadcast::Receiver<LogLine>,
    out: mpsc::Sender<Bytes>,
    mut stopping: watch::Receiver<bool>,
) {
    let mut next = first;
    loop {
        if !next.is_empty() && out.send(next).await.is_err() {
            return;
        }
        let line = tokio::select! {
            () = out.closed() => return,
            _ = stopping.wait_for(|stop| *stop) => return,
            line = live.recv() => match line {
                Ok(line) => api::line(&line),
                Err(RecvError::Lagged(missed)) => remark(missed),
                Err(RecvError::Closed) => return,
            },
        };
        let mut text = Vec::new();
        write(&line, &mut text);
        next = Bytes::from(text);
    }
}

fn remark(missed: u64) -> Line {
    Line {
        at: rfc3339(unix_ms()),
        replica: String::new(),
        stream: "sluice".to_owned(),
        text: format!("{missed} lines are missing here: they came faster than they were read"),
    }
}

fn write(line: &Line, out: &mut Vec<u8>) {
    if serde_json::to_writer(&mut *out, line).is_ok() {
        out.push(b'\n');
    }
}

struct Lines(mpsc::Receiver<Bytes>);

impl http_body::Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}
