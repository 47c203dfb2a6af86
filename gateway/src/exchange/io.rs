// SPDX-License-Identifier: Apache-2.0
//! A read buffer, and reading and writing as one task does them with several streams at once.
//!
//! Owns how bytes move between a transport and memory. Must not know HTTP.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::watch::Watch;

/// A transport towards a client or a replica.
pub trait Io: AsyncRead + AsyncWrite + Unpin + Send + 'static {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> Io for T {}

/// Most bytes that one read takes, and most that a stalled connection holds.
pub const READ_MAX: usize = 64 << 10;

thread_local! {
    /// Reads of this thread go through one buffer, so that the many waiting connections own none.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_MAX].into());
}

/// Reads at most `most` bytes once and hands them over; how many, 0 at the end of the stream.
pub fn poll_scratch<I: Io>(
    io: &mut I,
    cx: &mut Context<'_>,
    most: usize,
    take: impl FnOnce(&[u8]),
) -> Poll<io::Result<usize>> {
    SCRATCH.with_borrow_mut(|scratch| {
        let most = most.min(scratch.len());
        let mut read = ReadBuf::new(scratch.get_mut(..most).unwrap_or_default());
        ready!(Pin::new(io).poll_read(cx, &mut read))?;
        take(read.filled());
        Poll::Ready(Ok(read.filled().len()))
    })
}

/// Bytes read and not yet consumed.
#[derive(Debug, Default)]
pub struct Buf {
    bytes: Vec<u8>,
    start: usize,
}

impl Buf {
    /// What is there.
    pub fn unread(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    /// How much is there.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Nothing is there.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops the first `n` bytes; all of them if there are fewer. An emptied buffer keeps no memory.
    pub fn consume(&mut self, n: usize) {
        self.start = (self.start + n).min(self.bytes.len());
        if self.is_empty() {
            *self = Buf::default();
        }
    }

    /// Reads once and appends; 0 is the end of the stream. With `limit` bytes unread it fails as `OutOfMemory`.
    pub fn poll_read<I: Io>(
        &mut self,
        io: &mut I,
        cx: &mut Context<'_>,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        if self.len() >= limit {
            return Poll::Ready(Err(io::ErrorKind::OutOfMemory.into()));
        }
        poll_scratch(io, cx, READ_MAX, |bytes| self.push(bytes))
    }

    /// Appends.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// [`Buf::poll_read`], ended by the watch as `TimedOut`.
    pub async fn read<I: Io>(&mut self, io: &mut I, limit: usize, watch: &Watch) -> io::Result<usize> {
        poll_fn(|cx| {
            if let Poll::Ready(n) = self.poll_read(io, cx, limit) {
                return Poll::Ready(n);
            }
            watch.poll_over(cx).map(|_| Err(io::ErrorKind::TimedOut.into()))
        })
        .await
    }
}

/// Two slices to be written one after the other, in one system call where the transport can.
#[derive(Clone, Copy)]
pub struct Pair<'a>(pub &'a [u8], pub &'a [u8]);

impl Pair<'_> {
    /// Bytes in both.
    pub fn size(&self) -> usize {
        self.0.len() + self.1.len()
    }

    /// Writes what is left behind the first `done` bytes, once. Never reports 0 bytes as success.
    pub fn poll_write<I: Io>(
        &self,
        io: &mut I,
        done: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let io = Pin::new(io);
        let n = match self.0.get(done..) {
            None | Some([]) => {
                let rest = self.1.get(done - self.0.len()..).unwrap_or_default();
                ready!(io.poll_write(cx, rest))?
            }
            Some(first) if self.1.is_empty() => ready!(io.poll_write(cx, first))?,
            Some(first) => {
                let both = [io::IoSlice::new(first), io::IoSlice::new(self.1)];
                ready!(io.poll_write_vectored(cx, &both))?
            }
        };
        if n == 0 { Poll::Ready(Err(io::ErrorKind::WriteZero.into())) } else { Poll::Ready(Ok(n)) }
    }
}

/// Writes both slices and flushes. Fails as `TimedOut` when the watch is over; `progress` runs after every
/// partial write and may set the watch anew.
pub async fn write_all<I: Io>(
    io: &mut I,
    what: Pair<'_>,
    watch: &Watch,
    progress: impl Fn(),
) -> io::Result<()> {
    let mut done = 0;
    poll_fn(|cx| {
        loop {
            let step = if done < what.size() {
                what.poll_write(io, done, cx).map_ok(Some)
            } else {
                Pin::new(&mut *io).poll_flush(cx).map_ok(|()| None)
            };
            match step {
                Poll::Ready(Ok(Some(n))) => {
                    done += n;
                    progress();
                }
                Poll::Ready(Ok(None)) => return Poll::Ready(Ok(())),
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                Poll::Pending => {
                    return watch.poll_over(cx).map(|_| Err(io::ErrorKind::TimedOut.into()));
                }
            }
        }
    })
    .await
}

/// Resolves when the peer has left. What it sends meanwhile (a pipelined request) is kept up to a bound; beyond
/// that it has to wait, and its departure is seen later.
pub fn poll_gone<I: Io>(io: &mut I, buf: &mut Buf, cx: &mut Context<'_>) -> Poll<()> {
    while buf.len() < READ_MAX {
        match ready!(buf.poll_read(io, cx, READ_MAX)) {
            Ok(n) if n > 0 => {}
            _ => return Poll::Ready(()),
        }
    }
    Poll::Pending
}

/// Bytes that were read ahead, then the stream: hands a connection to another protocol.
pub struct Rewind<I> {
    /// Read ahead.
    pub ahead: Buf,
    /// The rest.
    pub io: I,
}

impl<I: Io> AsyncRead for Rewind<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, into);
        }
        let n = self.ahead.len().min(into.remaining());
        into.put_slice(self.ahead.unread().get(..n).unwrap_or_default());
        self.ahead.consume(n);
        Poll::Ready(Ok(()))
    }
}

impl<I: Io> AsyncWrite for Rewind<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, b: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, b)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        b: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, b)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
