// SPDX-License-Identifier: Apache-2.0
//! From a replica's response head to the last byte at an HTTP/1 client.
//!
//! Owns the framing towards the client, flushing per read, back-pressure (one buffer in flight), and what the client sees
//! when the replica breaks off: never a clean end.

use std::future::poll_fn;
use std::io::Write;
use std::task::Poll;

use sluice_scaler::clock;
use sluice_wire::chunk::chunk_head;
use sluice_wire::head::{self, Method, RequestHead, ResponseFraming};
use sluice_wire::sse::EventBoundary;
use tokio::io::AsyncWriteExt;

use super::client::{Client, Left};
use super::replica::Up;
use super::upload::Upload;
use crate::config::ModelSettings;
use crate::exchange::dispatch::earlier;
use crate::exchange::io::{Io, Pair, poll_gone};
use crate::exchange::record::{Outcome, Record};
use crate::exchange::watch::{Over, Tick};

/// What the relay needs of the request.
#[derive(Clone, Copy)]
pub struct Answering<'a> {
    /// Its head.
    pub head: &'a RequestHead,
    /// End of its total budget.
    pub total: Option<Tick>,
    /// Of its model.
    pub settings: &'a ModelSettings,
}

/// How the body reaches the client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// As the replica sends it.
    Same,
    /// The replica ends by closing; the client gets chunks.
    Chunk,
    /// The client cannot read chunks: plain bytes, ended by closing.
    Plain,
}

/// Why a relay stopped.
enum Stop {
    Client,
    Replica(&'static str),
}

/// Relays the answer whose cleaned head is in `out`. Returns how the client's connection is left.
pub(super) async fn relay<I: Io>(
    client: &mut Client<I>,
    mut up: Up,
    mut upload: Option<Upload>,
    answering: Answering<'_>,
    out: &mut Vec<u8>,
    record: &mut Record,
) -> Left {
    if up.head().status == 101 {
        return tunnel(client, up, out, record).await;
    }
    let uploaded = upload.is_none();
    let mut keep = answering.head.keep_alive && !client.gateway.is_draining() && uploaded;
    let framing = begin(&up, answering.head, &mut keep, out, &record.request_id);
    let mut events = up.head().event_stream.then(EventBoundary::default);
    loop {
        let mut step = pass(client, &mut up, framing, &answering, (out, &mut events), record).await;
        if step.is_ok() && !up.done() {
            step = fill(client, &mut up, &mut upload, &answering).await;
        } else if step.is_ok() {
            break;
        }
        if let Err(stop) = step {
            if matches!(stop, Stop::Replica(_)) {
                up.permit().endpoint().broke_off(clock::now());
            }
            // The slot is free while the client is still being told.
            drop(up);
            return broken(client, stop, framing, events, record).await;
        }
    }
    record.outcome = Outcome::Served;
    up.release();
    match keep {
        true => Left::Open,
        false => Left::Close,
    }
}

/// Completes the response head: framing and connection, and what makes proxies in between pass events on at once.
fn begin(up: &Up, request: &RequestHead, keep: &mut bool, out: &mut Vec<u8>, request_id: &str) -> Framing {
    let head = up.head();
    if head.event_stream {
        if !head.has_cache_control {
            out.extend_from_slice(b"cache-control: no-cache\r\n");
        }
        if !head.has_x_accel_buffering {
            out.extend_from_slice(b"x-accel-buffering: no\r\n");
        }
    }
    if !head::fields(out).any(|(name, _)| name.eq_ignore_ascii_case(b"x-request-id")) {
        // Writing to a vector cannot fail.
        let _ = write!(out, "x-request-id: {request_id}\r\n");
    }
    let framing = match head.framing {
        ResponseFraming::Length(n) => {
            let _ = write!(out, "content-length: {n}\r\n");
            Framing::Same
        }
        ResponseFraming::None => Framing::Same,
        ResponseFraming::Chunked | ResponseFraming::Close if request.http10 => {
            *keep = false;
            Framing::Plain
        }
        ResponseFraming::Chunked => {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
            Framing::Same
        }
        ResponseFraming::Close => {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
            Framing::Chunk
        }
    };
    let unknown_end = request.method == Method::Head && head.framing == ResponseFraming::Close;
    *keep &= !unknown_end;
    out.extend_from_slice(match (*keep, request.http10) {
        (false, _) => b"connection: close\r\n\r\n",
        (true, true) => b"connection: keep-alive\r\n\r\n",
        (true, false) => b"\r\n",
    });
    framing
}

/// Writes what `out` and the replica's buffer hold.
async fn pass<I: Io>(
    client: &mut Client<I>,
    up: &mut Up,
    framing: Framing,
    answering: &Answering<'_>,
    (out, events): (&mut Vec<u8>, &mut Option<EventBoundary>),
    record: &mut Record,
) -> Result<(), Stop> {
    let mut plain = Vec::new();
    let advanced = up.advance(|data| {
        record.body(data, events.as_mut());
        if framing == Framing::Plain {
            plain.extend_from_slice(data);
        }
    });
    let Ok(fed) = advanced else {
        // The answer has begun: the client is to see its head, and then that it is not whole.
        let _ = client.pass_on(out, b"").await;
        return Err(Stop::Replica("its chunks are malformed"));
    };
    let payload = up.unread().get(..fed.pass).unwrap_or_default();
    let tail = match up.trailers() {
        Some(trailers) if fed.crlf && framing == Framing::Same => {
            let kept = if answering.head.te_trailers { trailers } else { b"" };
            [kept, b"\r\n"].concat()
        }
        _ => Vec::new(),
    };
    let written = match framing {
        Framing::Plain => client.pass_on(out, &plain).await,
        Framing::Chunk => {
            if !payload.is_empty() {
                // The whole chunk at once: some clients wait for the line end behind the data.
                out.extend_from_slice(chunk_head(payload.len() as u64, &mut [0; 18]));
                out.extend_from_slice(payload);
                out.extend_from_slice(b"\r\n");
            }
            if up.done() {
                out.extend_from_slice(b"0\r\n\r\n");
            }
            client.pass_on(out, b"").await
        }
        Framing::Same if tail.is_empty() => client.pass_on(out, payload).await,
        Framing::Same => {
            out.extend_from_slice(payload);
            client.pass_on(out, &tail).await
        }
    };
    written.map_err(|_| Stop::Client)?;
    up.consume(fed.taken);
    up.finish_chunks();
    Ok(())
}

/// Waits for more of the body, while the client is watched (or its request is still being sent on).
async fn fill<I: Io>(
    client: &mut Client<I>,
    up: &mut Up,
    upload: &mut Option<Upload>,
    answering: &Answering<'_>,
) -> Result<(), Stop> {
    let between = answering.settings.timeouts.between_bytes.map(Tick::after);
    client.watch.set_until(earlier(between, answering.total));
    let Client { io, buf, watch, .. } = client;
    let read = poll_fn(|cx| {
        if let Poll::Ready(read) = up.poll_fill(cx) {
            return Poll::Ready(Ok(read));
        }
        let gone = match upload.as_mut() {
            Some(upload) if !upload.is_done() => upload.poll(io, buf, up, cx).map(|end| end.is_err()),
            _ => poll_gone(io, buf, cx).map(|()| true),
        };
        if let Poll::Ready(true) = gone {
            return Poll::Ready(Err(Stop::Client));
        }
        watch.poll_over(cx).map(|over| {
            Err(Stop::Replica(match over {
                Over::Cut => "it was stopped",
                Over::Late => "it took too long",
            }))
        })
    })
    .await?;
    match read {
        Ok(0) => up.ended().map_err(|_| Stop::Replica("it broke off")),
        Ok(_) => Ok(()),
        Err(_) => Err(Stop::Replica("its connection failed")),
    }
}

/// The answer has begun and cannot be completed: the client must be able to tell.
async fn broken<I: Io>(
    client: &mut Client<I>,
    stop: Stop,
    framing: Framing,
    events: Option<EventBoundary>,
    record: &mut Record,
) -> Left {
    let Stop::Replica(reason) = stop else { return Left::Abort };
    record.outcome = Outcome::UpstreamError;
    record.code = "upstream_broke_off";
    tracing::debug!(request_id = record.request_id, reason, "replica_broke_off");
    if events.is_some_and(|e| e.at_boundary()) {
        let event = error_event(reason);
        let mut last = Vec::with_capacity(event.len() + 20);
        if framing != Framing::Plain {
            last.extend_from_slice(chunk_head(event.len() as u64, &mut [0; 18]));
        }
        last.extend_from_slice(event.as_bytes());
        if framing != Framing::Plain {
            last.extend_from_slice(b"\r\n");
        }
        let _ = client.write(Pair(&last, b"")).await;
    }
    Left::Abort
}

/// One event that OpenAI's clients raise as an error.
pub fn error_event(reason: &str) -> String {
    let message = format!("the replica broke off: {reason}");
    let error = serde_json::json!({
        "error": {"message": message, "type": "server_error", "param": null, "code": "upstream_error"}
    });
    format!("data: {error}\n\n")
}

/// A switched protocol: bytes both ways until either side ends; it counts as one request in flight.
async fn tunnel<I: Io>(client: &mut Client<I>, up: Up, out: &mut Vec<u8>, record: &mut Record) -> Left {
    out.extend_from_slice(b"\r\n");
    let (mut peer, ahead, _permit) = up.into_tunnel();
    let begun = client.write(Pair(out, ahead.unread())).await.is_ok()
        && peer.write_all(client.buf.unread()).await.is_ok();
    if begun {
        client.watch.set(None);
        let watch = client.watch.clone();
        let over = poll_fn(|cx| watch.poll_over(cx));
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut client.io, &mut peer) => record.outcome = Outcome::Served,
            _ = over => record.outcome = Outcome::UpstreamError,
        }
    }
    Left::Abort
}

impl<I: Io> Client<I> {
    /// Writes `out`, which is emptied, and `payload`; nothing if both are empty.
    async fn pass_on(&mut self, out: &mut Vec<u8>, payload: &[u8]) -> std::io::Result<()> {
        if !out.is_empty() || !payload.is_empty() {
            self.write(Pair(out, payload)).await?;
            out.clear();
        }
        Ok(())
    }
}
