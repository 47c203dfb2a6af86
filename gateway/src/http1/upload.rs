// SPDX-License-Identifier: Apache-2.0
//! A request body that is sent on as it comes, because it does not fit the memory budget.
//!
//! Owns its framing on both sides and its limit. What is read is written before more is read.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use super::body::Progress;
use super::client::{Client, Left};
use super::exchange::Ended;
use super::replica::{Broken, Up};
use crate::exchange::body::{chunk, last_chunk};
use crate::exchange::dispatch;
use crate::exchange::error::Failure;
use crate::exchange::io::{Buf, Io, READ_MAX};
use crate::exchange::watch::{Tick, Watch};

/// One such body.
pub(super) struct Upload {
    progress: Progress,
    /// Read and framed, not written yet.
    pending: Vec<u8>,
    written: usize,
    /// Payload bytes that may still come.
    room: usize,
    complete: bool,
}

/// Why sending on ended early.
pub(super) enum UploadEnd {
    Gone,
    Failed(Failure),
    Broken(Broken),
}

impl UploadEnd {
    pub(super) fn ended(self, total: Option<Tick>) -> Ended {
        match self {
            UploadEnd::Gone => Ended::Left(Left::Abort),
            UploadEnd::Failed(failure) => Ended::Refuse(failure),
            UploadEnd::Broken(broken) => Ended::Refuse(dispatch::failure(broken, total)),
        }
    }
}

impl Upload {
    /// Begins with the request head and what was read of the body before.
    pub(super) fn new(head: &[u8], begun: Vec<u8>, progress: Progress, limit: usize) -> Upload {
        let mut upload = Upload {
            progress,
            pending: head.to_vec(),
            written: 0,
            room: limit.saturating_sub(begun.len()),
            complete: false,
        };
        upload.frame(&begun);
        upload
    }

    /// Everything is with the replica.
    pub(super) fn is_done(&self) -> bool {
        self.complete && self.written == self.pending.len()
    }

    fn frame(&mut self, data: &[u8]) {
        match self.progress {
            Progress::Length(_) => self.pending.extend_from_slice(data),
            Progress::Chunks(_) => chunk(&mut self.pending, data),
        }
    }

    /// Moves what can be moved. Ready when everything is with the replica, or cannot be.
    pub(super) fn poll<I: Io>(
        &mut self,
        io: &mut I,
        buf: &mut Buf,
        up: &mut Up,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), UploadEnd>> {
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
            if buf.is_empty() {
                match ready!(buf.poll_read(io, cx, READ_MAX)) {
                    Ok(n) if n > 0 => {}
                    _ => return Poll::Ready(Err(UploadEnd::Gone)),
                }
            }
            self.take(buf)?;
        }
    }

    fn take(&mut self, buf: &mut Buf) -> Result<(), UploadEnd> {
        let mut data = Vec::new();
        match &mut self.progress {
            Progress::Length(left) => {
                let n = buf.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                data.extend_from_slice(buf.unread().get(..n).unwrap_or_default());
                buf.consume(n);
                *left -= n as u64;
                self.complete = *left == 0;
            }
            Progress::Chunks(chunks) => {
                let fed = chunks
                    .feed(buf.unread(), |d| data.extend_from_slice(d))
                    .map_err(|_| UploadEnd::Failed(Failure::Body("a chunk is malformed")))?;
                buf.consume(fed.taken);
                self.complete = chunks.done();
            }
        }
        let Some(room) = self.room.checked_sub(data.len()) else {
            return Err(UploadEnd::Failed(Failure::TooLarge(self.room)));
        };
        self.room = room;
        self.frame(&data);
        if let Progress::Chunks(chunks) = &self.progress
            && self.complete
        {
            last_chunk(&mut self.pending, chunks.trailers());
        }
        Ok(())
    }

    /// Sends on until the replica's next response head is there.
    pub(super) async fn until_head<I: Io>(
        &mut self,
        client: &mut Client<I>,
        up: &mut Up,
        watch: &Watch,
        out: &mut Vec<u8>,
    ) -> Result<(), UploadEnd> {
        let Client { io, buf, .. } = client;
        poll_fn(|cx| {
            if !self.is_done()
                && let Poll::Ready(Err(end)) = self.poll(io, buf, up, cx)
            {
                return Poll::Ready(Err(end));
            }
            up.poll_head(cx, out, watch).map_err(UploadEnd::Broken)
        })
        .await?;
        if !up.is_interim() {
            up.begin_body(self.is_done());
        }
        Ok(())
    }
}
