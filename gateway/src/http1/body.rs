// SPDX-License-Identifier: Apache-2.0
//! Reading a request body into memory, under its limits.
//!
//! Owns how much memory a body may take and when. No memory is reserved for a length that was only declared.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::task::Poll;

use sluice_wire::chunk::Chunked;
use sluice_wire::head::{RequestFraming, RequestHead};

use super::client::Client;
use crate::exchange::body::Whole;
use crate::exchange::budget::Hold;
use crate::exchange::error::Failure;
use crate::exchange::io::{Io, READ_MAX, poll_scratch};

/// Why a body is not in memory.
#[derive(Debug)]
pub enum Unread {
    /// The client is to be told.
    Failed(Failure),
    /// The client has left.
    Gone,
    /// The budget is full; nothing of the body was consumed since the bytes in `Gathered` so far.
    NoMemory(Vec<u8>, Progress),
}

/// How far into its framing a partly read body is.
#[derive(Debug)]
pub enum Progress {
    /// That many bytes are still to come.
    Length(u64),
    /// Inside chunks.
    Chunks(Box<Chunked>),
}

/// Reads the whole body. `hold` accounts for it; `None` reads without accounting (a short body to be forgotten).
pub async fn read<I: Io>(
    client: &mut Client<I>,
    head: &RequestHead,
    limit: usize,
    mut hold: Option<&mut Hold>,
) -> Result<Whole, Unread> {
    let mut progress = match head.framing {
        RequestFraming::None => return Ok(Whole::default()),
        RequestFraming::Length(n) if n > limit as u64 => {
            return Err(Unread::Failed(Failure::TooLarge(limit)));
        }
        RequestFraming::Length(n) => Progress::Length(n),
        RequestFraming::Chunked => Progress::Chunks(Box::default()),
    };
    client.invite_body(head).await.map_err(|_| Unread::Gone)?;
    let mut body = Vec::new();
    loop {
        if !hold.as_mut().is_none_or(|hold| hold.grow(client.buf.len())) {
            return Err(Unread::NoMemory(body, progress));
        }
        let complete = take(client, &mut progress, &mut body)?;
        if let Some(hold) = hold.as_mut() {
            hold.shrink_to(body.len());
        }
        if body.len() > limit {
            return Err(Unread::Failed(Failure::TooLarge(limit)));
        }
        if complete {
            let trailers = match progress {
                Progress::Length(_) => Vec::new(),
                Progress::Chunks(chunks) => chunks.trailers().to_vec(),
            };
            return Ok(Whole { data: body, trailers });
        }
        match &mut progress {
            Progress::Length(left) => fill_body(client, left, &mut body, hold.as_deref_mut()).await?,
            Progress::Chunks(_) => fill(client).await?,
        }
    }
}

/// Moves buffered bytes into the body. `true` when it is complete.
fn take<I: Io>(client: &mut Client<I>, progress: &mut Progress, body: &mut Vec<u8>) -> Result<bool, Unread> {
    match progress {
        Progress::Length(left) => {
            let n = client.buf.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
            body.extend_from_slice(client.buf.unread().get(..n).unwrap_or_default());
            client.buf.consume(n);
            *left -= n as u64;
            Ok(*left == 0)
        }
        Progress::Chunks(chunks) => {
            let fed = chunks
                .feed(client.buf.unread(), |data| body.extend_from_slice(data))
                .map_err(|_| Unread::Failed(Failure::Body("a chunk is malformed")))?;
            client.buf.consume(fed.taken);
            Ok(chunks.done())
        }
    }
}

/// Reads more of a body of known length straight into it. What there is no memory for stays with the client's bytes.
async fn fill_body<I: Io>(
    client: &mut Client<I>,
    left: &mut u64,
    body: &mut Vec<u8>,
    mut hold: Option<&mut Hold>,
) -> Result<(), Unread> {
    client.watch.set(Some(client.limits.body_timeout));
    let Client { io, buf, watch, .. } = client;
    let most = usize::try_from(*left).unwrap_or(usize::MAX);
    let mut store = |bytes: &[u8]| {
        if !hold.as_mut().is_none_or(|hold| hold.grow(bytes.len())) {
            return buf.push(bytes);
        }
        // Once a quarter is there the rest is believed, and nothing is moved again.
        let rest = most.saturating_sub(bytes.len());
        if rest / 3 <= body.len() + bytes.len() {
            body.reserve_exact(most);
        }
        body.extend_from_slice(bytes);
        *left -= bytes.len() as u64;
    };
    let read = poll_fn(|cx| {
        if let Poll::Ready(n) = poll_scratch(io, cx, most, &mut store) {
            return Poll::Ready(n);
        }
        watch.poll_over(cx).map(|_| Err(ErrorKind::TimedOut.into()))
    });
    told(read.await)
}

/// Reads more; silence has a deadline.
pub(super) async fn fill<I: Io>(client: &mut Client<I>) -> Result<(), Unread> {
    client.watch.set(Some(client.limits.body_timeout));
    let Client { io, buf, watch, .. } = client;
    told(buf.read(io, READ_MAX, watch).await)
}

/// What a read says.
fn told(read: std::io::Result<usize>) -> Result<(), Unread> {
    match read {
        Ok(n) if n > 0 => Ok(()),
        Ok(_) => Err(Unread::Failed(Failure::Body("it ended before its announced length"))),
        Err(e) if e.kind() == ErrorKind::TimedOut => Err(Unread::Failed(Failure::BodyLate)),
        Err(_) => Err(Unread::Gone),
    }
}
