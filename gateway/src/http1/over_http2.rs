// SPDX-License-Identifier: Apache-2.0
//! An HTTP/1 client whose model's replicas speak HTTP/2.
//!
//! Owns the framing towards the client: frames become chunks, or plain bytes ended by closing for HTTP/1.0.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use hyper::body::Incoming;
use sluice_wire::head::{Forward, RequestHead};

use super::client::{Client, Left};
use super::exchange::Ended;
use super::replica::Asked;
use crate::admission::{Ask, Model};
use crate::exchange::body::{Whole, chunk, last_chunk, trailer_lines};
use crate::exchange::dispatch::{Job, earlier};
use crate::exchange::io::{Io, Pair, poll_gone};
use crate::exchange::record::{Outcome, Record};
use crate::exchange::watch::Tick;
use crate::http2::replica::{Sent, Upload, send};

type Received = Option<Result<Frame<Bytes>, hyper::Error>>;

/// An HTTP/1 client's request for a model whose replicas speak HTTP/2.
pub(super) async fn exchange<I: Io>(
    client: &mut Client<I>,
    request_head: &RequestHead,
    forward: &Forward,
    record: &mut Record,
    (model, ask, body): (Arc<Model>, Ask, Whole),
) -> Result<Left, Ended> {
    let asked = Asked { method: request_head.method, upgrade: false };
    let watch = client.watch.clone();
    let job = Job { model: &model, ask, asked, watch: &watch };
    let done = client.or_gone(pin!(send(&job, request_head, forward, Upload::whole(body), record))).await;
    let sent = match done {
        None => return Ok(Left::Abort),
        Some(Err(failure)) => return Err(Ended::Answer(failure)),
        Some(Ok(sent)) => sent,
    };
    let between = model.settings().timeouts.between_bytes;
    Ok(relay(client, request_head, sent, between, record).await)
}

/// Frames become chunks (or plain bytes for HTTP/1.0, ended by closing).
async fn relay<I: Io>(
    client: &mut Client<I>,
    request_head: &RequestHead,
    sent: Sent,
    between: Option<Duration>,
    record: &mut Record,
) -> Left {
    let (parts, mut body) = sent.response.into_parts();
    let _permit = sent.permit;
    let chunks = !request_head.http10 && !body.is_end_stream();
    let keep = request_head.keep_alive && chunks | body.is_end_stream() && !client.gateway.is_draining();
    let mut trailers = Vec::new();
    let mut out = head_for_http1(&parts, &record.request_id, (chunks, keep, body.is_end_stream()));
    loop {
        if client.write(Pair(&out, b"")).await.is_err() {
            return Left::Abort;
        }
        out.clear();
        client.watch.set_until(earlier(between.map(Tick::after), sent.total));
        match next_frame(client, &mut body).await {
            Ok(None) => break,
            Ok(Some(Ok(frame))) => {
                if let Some(fields) = frame.trailers_ref().filter(|_| request_head.te_trailers) {
                    trailers = trailer_lines(fields);
                }
                let Ok(data) = frame.into_data() else { continue };
                record.body(&data, None);
                match chunks {
                    true => chunk(&mut out, &data),
                    false => out.extend_from_slice(&data),
                }
            }
            Ok(Some(Err(_))) => {
                record.outcome = Outcome::UpstreamError;
                return Left::Abort;
            }
            Err(outcome) => {
                record.outcome = outcome;
                return Left::Abort;
            }
        }
    }
    if chunks {
        last_chunk(&mut out, &trailers);
    }
    if client.write(Pair(&out, b"")).await.is_err() {
        return Left::Abort;
    }
    record.outcome = Outcome::Served;
    if keep { Left::Open } else { Left::Close }
}

/// What the replica sends next; an error says how the exchange ended instead.
async fn next_frame<I: Io>(client: &mut Client<I>, body: &mut Incoming) -> Result<Received, Outcome> {
    let Client { io, buf, watch, .. } = client;
    poll_fn(|cx| {
        if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) {
            return Poll::Ready(Ok(frame));
        }
        if poll_gone(io, buf, cx).is_ready() {
            return Poll::Ready(Err(Outcome::ClientGone));
        }
        watch.poll_over(cx).map(|_| Err(Outcome::UpstreamError))
    })
    .await
}

fn head_for_http1(
    parts: &http::response::Parts,
    request_id: &str,
    (chunks, keep, empty): (bool, bool, bool),
) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let reason = parts.status.canonical_reason().unwrap_or("");
    out.extend_from_slice(format!("HTTP/1.1 {} {reason}\r\n", parts.status.as_u16()).as_bytes());
    for (name, value) in &parts.headers {
        if chunks && name == http::header::CONTENT_LENGTH {
            continue;
        }
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    if !parts.headers.contains_key("x-request-id") {
        out.extend_from_slice(format!("x-request-id: {request_id}\r\n").as_bytes());
    }
    let status = parts.status.as_u16();
    if chunks {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    } else if empty && status != 204 && status != 304 && !parts.headers.contains_key("content-length") {
        out.extend_from_slice(b"content-length: 0\r\n");
    }
    if !keep {
        out.extend_from_slice(b"connection: close\r\n");
    }
    out.extend_from_slice(b"\r\n");
    out
}
