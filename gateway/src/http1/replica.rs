// SPDX-License-Identifier: Apache-2.0
//! The replica's side of one HTTP/1 exchange: send the request, read heads, take the body.
//!
//! Owns the state of one upstream connection while a request uses it, and the permit that goes with it. Must not know
//! who the client is or what it speaks.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use sluice_wire::chunk::{Chunked, Fed};
use sluice_wire::head::{self, Method, ResponseFraming, ResponseHead};
use tokio::io::AsyncWrite;

use crate::admission::Permit;
use crate::exchange::io::{Buf, Pair, READ_MAX};
use crate::exchange::pool;
use crate::exchange::transport::Transport;
use crate::exchange::watch::{Over, Watch};

/// Most bytes of one response head; one more is read so that "too large" can be told from "not whole yet".
const HEAD_MAX: usize = (64 << 10) + 1;

/// Before the first head: nothing to pass on, nothing to keep.
const NO_HEAD: ResponseHead = ResponseHead {
    len: 0,
    status: 0,
    framing: ResponseFraming::None,
    reusable: false,
    event_stream: false,
    has_cache_control: false,
    has_x_accel_buffering: false,
    declares_trailers: false,
};

/// What the replica is told about the request, beside its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Decides whether the answer has a body.
    pub method: Method,
    /// A switch of protocols is allowed.
    pub upgrade: bool,
}

/// One exchange with a replica.
pub struct Up {
    io: Transport,
    buf: Buf,
    permit: Permit,
    reused: bool,
    asked: Asked,
    /// Bytes of the request written so far.
    sent: usize,
    write_failed: bool,
    /// At least one byte has come back.
    responded: bool,
    head: ResponseHead,
    body: Inbound,
}

enum Inbound {
    None,
    Length(u64),
    Chunked(Box<Chunked>),
    Close,
}

/// Why no (further) response head came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The connection ended or failed.
    Closed,
    /// What came is not an HTTP/1 response that we would pass on.
    Malformed(&'static str),
    /// The watch ended the wait.
    Over(Over),
}

impl Up {
    /// A connection with nothing sent on it yet.
    pub fn new(io: Transport, reused: bool, permit: Permit, asked: Asked) -> Up {
        Up {
            io,
            buf: Buf::default(),
            permit,
            reused,
            asked,
            sent: 0,
            write_failed: false,
            responded: false,
            head: NO_HEAD,
            body: Inbound::None,
        }
    }

    /// Writes what is left of the request and reads the next response head, both at the same time: an early answer
    /// ends the writing. Interim heads (1xx) are returned like the final one. `out` gets the cleaned head.
    pub async fn next_head(
        &mut self,
        request: Pair<'_>,
        watch: &Watch,
        out: &mut Vec<u8>,
    ) -> Result<(), Broken> {
        poll_fn(|cx| {
            self.poll_send(request, cx);
            self.poll_head(cx, out, watch)
        })
        .await?;
        if !self.is_interim() {
            self.begin_body(self.sent == request.size());
        }
        Ok(())
    }

    /// As far as the connection takes it. A failed write ends the writing only: the replica may have answered first.
    fn poll_send(&mut self, request: Pair<'_>, cx: &mut Context<'_>) {
        while self.sent < request.size() && !self.write_failed {
            match request.poll_write(&mut self.io, self.sent, cx) {
                Poll::Ready(Ok(n)) => self.sent += n,
                Poll::Ready(Err(_)) => self.write_failed = true,
                Poll::Pending => break,
            }
        }
        if let Poll::Ready(Err(_)) = Pin::new(&mut self.io).poll_flush(cx) {
            self.write_failed = true;
        }
    }

    /// Reads until a head is whole.
    pub(crate) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        watch: &Watch,
    ) -> Poll<Result<(), Broken>> {
        loop {
            if !self.buf.is_empty() {
                match head::response(self.buf.unread(), self.asked.method, self.asked.upgrade, out) {
                    Ok(Some(head)) => {
                        self.buf.consume(head.len);
                        self.head = head;
                        return Poll::Ready(Ok(()));
                    }
                    Ok(None) => {}
                    Err(bad) => return Poll::Ready(Err(Broken::Malformed(bad.reason))),
                }
            }
            match self.buf.poll_read(&mut self.io, cx, HEAD_MAX) {
                Poll::Ready(Ok(n)) if n > 0 => self.responded = true,
                Poll::Ready(_) => return Poll::Ready(Err(Broken::Closed)),
                Poll::Pending => return watch.poll_over(cx).map(|over| Err(Broken::Over(over))),
            }
        }
    }

    /// The final head is there: what follows is its body.
    pub(crate) fn begin_body(&mut self, request_complete: bool) {
        self.head.reusable &= request_complete && !self.write_failed;
        self.body = match self.head.framing {
            ResponseFraming::None | ResponseFraming::Length(0) => Inbound::None,
            ResponseFraming::Length(n) => Inbound::Length(n),
            ResponseFraming::Chunked => Inbound::Chunked(Box::default()),
            ResponseFraming::Close => Inbound::Close,
        };
    }

    /// The last head read.
    pub fn head(&self) -> &ResponseHead {
        &self.head
    }

    /// The last head read is not the final one.
    pub fn is_interim(&self) -> bool {
        (100..200).contains(&self.head.status) && self.head.status != 101
    }

    /// The connection came from the pool.
    pub fn reused(&self) -> bool {
        self.reused
    }

    /// At least one byte has come back.
    pub fn responded(&self) -> bool {
        self.responded
    }

    /// The reservation.
    pub fn permit(&self) -> &Permit {
        &self.permit
    }

    /// Gives up the connection and keeps the reservation, for another attempt.
    pub fn into_permit(self) -> Permit {
        self.permit
    }

    /// The body is complete.
    pub fn done(&self) -> bool {
        matches!(self.body, Inbound::None)
    }

    /// Body bytes read and not consumed.
    pub fn unread(&self) -> &[u8] {
        self.buf.unread()
    }

    /// Drops bytes that `advance` has taken and the caller has passed on.
    pub fn consume(&mut self, n: usize) {
        self.buf.consume(n);
    }

    /// Reads more of the body; 0 is the end of the stream.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.buf.poll_read(&mut self.io, cx, READ_MAX)
    }

    /// Writes to the replica while its answer is being read (a request that is streamed).
    pub(crate) fn poll_write(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let n = ready!(Pair(bytes, b"").poll_write(&mut self.io, 0, cx))?;
        ready!(Pin::new(&mut self.io).poll_flush(cx))?;
        Poll::Ready(Ok(n))
    }

    /// The replica closed: whole is then only a body that the close delimits.
    ///
    /// # Errors
    /// `UnexpectedEof` for every other body.
    pub fn ended(&mut self) -> io::Result<()> {
        match self.body {
            Inbound::Close | Inbound::None => {
                self.body = Inbound::None;
                Ok(())
            }
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Takes what is buffered: how many bytes of [`Up::unread`] are taken and how many of those may be passed on as they
    /// are. `data` sees the decoded payload. The caller passes them on, then calls [`Up::consume`] with `taken`.
    ///
    /// # Errors
    /// `InvalidData` for broken chunks.
    pub fn advance(&mut self, mut data: impl FnMut(&[u8])) -> io::Result<Fed> {
        let bytes = self.buf.unread();
        let plain = |n: usize| Fed { taken: n, pass: n, crlf: false };
        match &mut self.body {
            Inbound::None => Ok(plain(0)),
            Inbound::Close => {
                data(bytes);
                Ok(plain(bytes.len()))
            }
            Inbound::Length(left) => {
                let n = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                data(bytes.get(..n).unwrap_or_default());
                *left -= n as u64;
                if *left == 0 {
                    self.body = Inbound::None;
                }
                Ok(plain(n))
            }
            Inbound::Chunked(chunked) => {
                chunked.feed(bytes, data).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
            }
        }
    }

    /// After `advance`: the trailer lines of a chunked body that has ended; `None` while it goes on.
    pub fn trailers(&self) -> Option<&[u8]> {
        match &self.body {
            Inbound::Chunked(chunked) if chunked.done() => Some(chunked.trailers()),
            _ => None,
        }
    }

    /// After `advance` and [`Up::consume`]: a chunked body that has ended is complete.
    pub fn finish_chunks(&mut self) {
        if self.trailers().is_some() {
            self.body = Inbound::None;
        }
    }

    /// Ends the exchange: the reservation is released, and the connection is kept if its message ended cleanly.
    pub fn release(self) {
        if self.done() && self.head.reusable && self.buf.is_empty() {
            pool::put(self.permit.endpoint().id, self.io);
        }
    }

    /// For a switched protocol: the connection, what was read ahead, and the reservation that lasts as long.
    pub fn into_tunnel(self) -> (Transport, Buf, Permit) {
        (self.io, self.buf, self.permit)
    }
}
