// SPDX-License-Identifier: Apache-2.0
//! One HTTP/1 connection from a client, one exchange after the other, in one task.
//!
//! Owns the connection's deadlines and whether it may carry another request. Must not know how a replica is chosen.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use sluice_wire::head::{self, Forward, Method, RequestFraming, RequestHead, Rules};
use sluice_wire::target::Family;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::config::Limits;
use crate::exchange::answer::Answer;
use crate::exchange::error::Failure;
use crate::exchange::io::{Buf, Io, Pair, poll_gone, write_all};
use crate::exchange::peer::Peer;
use crate::exchange::watch::Watch;
use crate::gateway::Gateway;

/// First bytes of an HTTP/2 connection (RFC 9113 §3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// One byte more than a head may have, so that "too large" is an answer and not a closed connection.
const HEAD_READ_MAX: usize = (64 << 10) + 1;
/// How long a refused client may go on sending before the connection closes over its bytes.
const LINGER: Duration = Duration::from_secs(5);
/// How much a refused client may go on sending.
const LINGER_BYTES: usize = 64 << 20;

/// A client's connection.
pub struct Client<I> {
    pub(super) io: I,
    pub(super) buf: Buf,
    pub(super) watch: Arc<Watch>,
    pub(super) gateway: Arc<Gateway>,
    pub(super) limits: Arc<Limits>,
    pub(super) peer: Peer,
    pub(super) tls: bool,
}

/// What came after the last exchange.
enum Next {
    Request(RequestHead),
    Http2,
    Closed,
    Refused(Failure),
}

/// How an exchange left the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// It may carry another request.
    Open,
    /// Everything was said; close it in order.
    Close,
    /// Close it so that the other side can tell that something is missing.
    Abort,
}

impl<I: Io> Client<I> {
    /// A connection that has just been accepted.
    pub fn new(io: I, gateway: Arc<Gateway>, peer: Peer, tls: bool, watch: Arc<Watch>) -> Self {
        let limits = gateway.limits.load_full();
        Client { io, buf: Buf::default(), watch, gateway, limits, peer, tls }
    }

    /// Serves until the connection is done. Gives it back, with what was read, if the client speaks HTTP/2.
    pub async fn serve(mut self) -> Option<(I, Buf)> {
        let mut forward = Forward::default();
        let mut first = true;
        loop {
            match self.next_head(first, &mut forward).await {
                Next::Request(head) => {
                    self.buf.consume(head.len);
                    match self.exchange(&head, &mut forward).await {
                        Left::Open => {}
                        Left::Close => {
                            let _ = self.io.shutdown().await;
                            return None;
                        }
                        Left::Abort => return None,
                    }
                }
                Next::Http2 => return Some((self.io, self.buf)),
                Next::Closed => return None,
                Next::Refused(failure) => {
                    self.refuse(&failure.answer(Family::OpenAi), false).await;
                    return None;
                }
            }
            first = false;
            if self.gateway.is_draining() && self.buf.is_empty() {
                return None;
            }
        }
    }

    /// Reads one request head; the whole of it has one deadline.
    async fn next_head(&mut self, first: bool, forward: &mut Forward) -> Next {
        self.watch.uses(None);
        let begun = !self.buf.is_empty();
        let patience = if first || begun { self.limits.head_timeout } else { self.limits.idle_timeout };
        self.watch.set(Some(patience));
        let mut begun = begun || first;
        loop {
            let bytes = self.buf.unread();
            let preface = bytes.len().min(PREFACE.len());
            if first && preface > 0 && bytes.get(..preface) == PREFACE.get(..preface) {
                if preface == PREFACE.len() {
                    return Next::Http2;
                }
            } else if !bytes.is_empty() {
                match head::request(bytes, &Rules::default(), forward) {
                    Ok(Some(head)) => return Next::Request(head),
                    Ok(None) => {}
                    Err(bad) => {
                        return Next::Refused(Failure::Head { status: bad.status, reason: bad.reason });
                    }
                }
            }
            match self.read_or_drain(HEAD_READ_MAX).await {
                Ok(n) if n > 0 => {}
                Err(e) if e.kind() == std::io::ErrorKind::TimedOut && !self.buf.is_empty() => {
                    return Next::Refused(Failure::Head {
                        status: 408,
                        reason: "the head did not come in time",
                    });
                }
                _ => return Next::Closed,
            }
            if !begun {
                self.watch.set(Some(self.limits.head_timeout));
                begun = true;
            }
        }
    }

    /// Reads; an idle connection ends when Sluice stops.
    async fn read_or_drain(&mut self, limit: usize) -> std::io::Result<usize> {
        let Self { io, buf, watch, gateway, .. } = self;
        poll_fn(|cx| {
            if let Poll::Ready(n) = buf.poll_read(io, cx, limit) {
                return Poll::Ready(n);
            }
            if watch.poll_over(cx).is_ready() {
                return Poll::Ready(Err(std::io::ErrorKind::TimedOut.into()));
            }
            if buf.is_empty() && gateway.is_draining() {
                return Poll::Ready(Ok(0));
            }
            Poll::Pending
        })
        .await
    }

    /// Runs `work` until it is done or the client leaves (`None`). Pinned by the caller: a future that is passed on is
    /// copied, and its room is kept twice for as long as the connection lives.
    pub(super) async fn or_gone<F: Future>(&mut self, mut work: Pin<&mut F>) -> Option<F::Output> {
        let Self { io, buf, .. } = self;
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Some(done));
            }
            poll_gone(io, buf, cx).map(|()| None)
        })
        .await
    }

    /// Writes under the write deadline, which every progress renews.
    pub(super) async fn write(&mut self, what: Pair<'_>) -> std::io::Result<()> {
        let (watch, patience) = (&self.watch, Some(self.limits.write_timeout));
        watch.set(patience);
        write_all(&mut self.io, what, watch, || watch.set(patience)).await
    }

    /// Tells a client that waits for it to send its body.
    pub(super) async fn invite_body(&mut self, head: &RequestHead) -> std::io::Result<()> {
        if head.expect_continue && self.buf.is_empty() {
            self.write(Pair(CONTINUE, b"")).await?;
        }
        Ok(())
    }

    /// An answer of our own on a connection whose request was read to its end.
    pub(super) async fn answer(&mut self, answer: &Answer, head: &RequestHead) -> Left {
        let keep = head.keep_alive && !self.gateway.is_draining();
        let bytes = answer.to_http1(keep, head.http10, head.method == Method::Head);
        match self.write(Pair(&bytes, b"")).await {
            Ok(()) if keep => Left::Open,
            Ok(()) => Left::Close,
            Err(_) => Left::Abort,
        }
    }

    /// An answer of our own before the request was read to its end: the connection closes, in a way that lets the client
    /// read the answer although it is still sending (RFC 9112 §9.6).
    pub(super) async fn refuse(&mut self, answer: &Answer, head_only: bool) -> Left {
        let bytes = answer.to_http1(false, false, head_only);
        if self.write(Pair(&bytes, b"")).await.is_err() || self.io.shutdown().await.is_err() {
            return Left::Abort;
        }
        let mut sink = vec![0; 16 << 10];
        let drain = async {
            let mut left = LINGER_BYTES;
            while let Ok(n) = self.io.read(&mut sink).await {
                left = left.saturating_sub(n);
                if n == 0 || left == 0 {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(LINGER, drain).await;
        Left::Close
    }

    /// Reads and forgets a short body, so that the connection stays usable; `false` if it is too long for that.
    pub(super) async fn skip_body(&mut self, head: &RequestHead) -> bool {
        const SKIP_MAX: usize = 64 << 10;
        match head.framing {
            RequestFraming::None => true,
            RequestFraming::Length(n) if n > SKIP_MAX as u64 || head.expect_continue => false,
            _ => super::body::read(self, head, SKIP_MAX, None).await.is_ok(),
        }
    }
}
