// SPDX-License-Identifier: Apache-2.0
//! An HTTP/2 client's request body that is sent on to an HTTP/1 replica as it comes, because it does not fit the budget.
//!
//! Owns its framing towards the replica and its limit. What was read is written before more is read.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::exchange::body::{chunk, last_chunk, trailer_lines};
use crate::exchange::dispatch;
use crate::exchange::error::Failure;
use crate::exchange::watch::{Tick, Watch};
use crate::http1::replica::Up;
use http_body::Body;
use hyper::body::Incoming;

/// One such body.
pub struct Upload {
    body: Incoming,
    /// Its length was not announced.
    chunks: bool,
    /// Lines to follow the last chunk.
    trailers: Vec<u8>,
    /// Read and framed, not written yet.
    pending: Vec<u8>,
    written: usize,
    /// Bytes that may still come.
    room: usize,
    complete: bool,
}

impl Upload {
    /// Begins with the request head and what was read of the body before.
    pub fn new(head: &[u8], begun: &[u8], body: Incoming, chunks: bool, limit: usize) -> Upload {
        let room = limit.saturating_sub(begun.len());
        let (trailers, pending) = (Vec::new(), head.to_vec());
        let mut upload = Upload { body, chunks, trailers, pending, written: 0, room, complete: false };
        upload.frame(begun);
        upload
    }

    /// Everything is with the replica.
    pub fn is_done(&self) -> bool {
        self.complete && self.written == self.pending.len()
    }

    fn frame(&mut self, data: &[u8]) {
        match self.chunks {
            true => chunk(&mut self.pending, data),
            false => self.pending.extend_from_slice(data),
        }
    }

    /// Moves what can be moved. Ready when everything is with the replica, or cannot be.
    pub fn poll(&mut self, up: &mut Up, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        loop {
            while let Some(rest) = self.pending.get(self.written..)
                && !rest.is_empty()
            {
                match ready!(up.poll_write(rest, cx)) {
                    Ok(n) => self.written += n,
                    // The replica may have answered before it closed: its head decides.
                    Err(_) => return Poll::Pending,
                }
            }
            self.pending.clear();
            self.written = 0;
            if self.complete {
                return Poll::Ready(Ok(()));
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                None => {
                    self.complete = true;
                    if self.chunks {
                        last_chunk(&mut self.pending, &self.trailers);
                    }
                }
                Some(Err(_)) => return Poll::Ready(Err(Failure::Body("it broke off"))),
                Some(Ok(frame)) => {
                    if let Some(trailers) = frame.trailers_ref() {
                        self.trailers = trailer_lines(trailers);
                    }
                    let data = frame.into_data().unwrap_or_default();
                    self.room = self.room.checked_sub(data.len()).ok_or(Failure::TooLarge(self.room))?;
                    self.frame(&data);
                }
            }
        }
    }

    /// Sends on until the replica's next response head is there.
    pub async fn until_head(
        &mut self,
        up: &mut Up,
        watch: &Watch,
        total: Option<Tick>,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        poll_fn(|cx| {
            if !self.is_done()
                && let Poll::Ready(Err(failure)) = self.poll(up, cx)
            {
                return Poll::Ready(Err(failure));
            }
            up.poll_head(cx, out, watch).map_err(|broken| dispatch::failure(broken, total))
        })
        .await?;
        if !up.is_interim() {
            up.begin_body(self.is_done());
        }
        Ok(())
    }
}
