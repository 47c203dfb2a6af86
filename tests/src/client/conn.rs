// SPDX-License-Identifier: Apache-2.0
//! One HTTP/1 connection under exact control.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::{Answer, Request};
use crate::clock;
use crate::wire::{BodyEnd, Ended, RawHead, Reader, Want};

/// What a connection runs over.
pub(super) trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// Everything waits at most so long unless told otherwise.
const LIMIT: Duration = Duration::from_secs(30);

/// An open connection. Dropping it closes it in order (FIN).
pub struct Conn {
    reader: Reader<ReadHalf<Box<dyn Transport>>>,
    writer: WriteHalf<Box<dyn Transport>>,
    /// The same socket, to set options on.
    socket: socket2::Socket,
}

impl Conn {
    /// Connects.
    pub async fn open(to: SocketAddr) -> io::Result<Conn> {
        let (stream, socket) = prepared(TcpStream::connect(to).await?)?;
        Ok(Conn::over(Box::new(stream), socket))
    }

    /// Connects from another loopback address.
    pub async fn open_from(source: Ipv4Addr, to: SocketAddr) -> io::Result<Conn> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((source, 0).into())?;
        let (stream, socket) = prepared(socket.connect(to).await?)?;
        Ok(Conn::over(Box::new(stream), socket))
    }

    pub(super) fn over(stream: Box<dyn Transport>, socket: socket2::Socket) -> Conn {
        let (reader, writer) = tokio::io::split(stream);
        Conn { reader: Reader::new(reader), writer, socket }
    }

    /// Our end of it.
    pub fn local(&self) -> SocketAddr {
        self.socket.local_addr().ok().and_then(|a| a.as_socket()).expect("an open socket has an address")
    }

    /// Makes the receive buffer small, so that a peer's writes soon block.
    pub fn shrink(&self, bytes: usize) -> io::Result<()> {
        self.socket.set_recv_buffer_size(bytes)
    }

    /// Sends exactly these bytes.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.writer.write_all(bytes.as_ref()).await?;
        self.writer.flush().await
    }

    /// Sends these bytes one by one with a pause before each but the first.
    pub async fn drip(&mut self, bytes: impl AsRef<[u8]>, gap: Duration) -> io::Result<()> {
        for (n, byte) in bytes.as_ref().iter().enumerate() {
            if n > 0 {
                tokio::time::sleep(gap).await;
            }
            self.send([*byte]).await?;
        }
        Ok(())
    }

    /// Ends our sending half; the answer can still be read.
    pub async fn fin(&mut self) -> io::Result<()> {
        self.writer.shutdown().await
    }

    /// Resets the connection.
    pub fn reset(self) {
        let _ = self.socket.set_linger(Some(Duration::ZERO));
    }

    /// Sends a request and reads its answer, which may come before the request is out.
    pub async fn exchange(&mut self, request: &Request) -> Answer {
        self.exchange_until(request, |_| Want::More).await
    }

    /// As `exchange`, but stops reading where `want` says so.
    pub async fn exchange_until(&mut self, request: &Request, want: impl FnMut(&Answer) -> Want) -> Answer {
        let mut answer = Answer::begin();
        let (head, body) = (request.head_bytes(), request.body_bytes());
        let writer = &mut self.writer;
        let write = async {
            let _ = writer.write_all(&head).await;
            let _ = writer.write_all(&body).await;
            let _ = writer.flush().await;
            std::future::pending().await
        };
        let read = read_answer(&mut self.reader, &request.method, &mut answer, want);
        let both = async {
            tokio::select! { biased; end = read => end, () = write => unreachable!("pending") }
        };
        let ended = timeout(request.limit, both).await.unwrap_or(Ended::TimedOut);
        finished(answer, ended)
    }

    /// The next answer, to a request of that method.
    pub async fn answer(&mut self, method: &str) -> Answer {
        self.answer_until(method, |_| Want::More).await
    }

    /// As `answer`, but stops reading where `want` says so.
    pub async fn answer_until(&mut self, method: &str, want: impl FnMut(&Answer) -> Want) -> Answer {
        let mut answer = Answer::begin();
        let read = read_answer(&mut self.reader, method, &mut answer, want);
        let ended = timeout(LIMIT, read).await.unwrap_or(Ended::TimedOut);
        finished(answer, ended)
    }

    /// The next head, interim or final; `None` at the end of the connection.
    pub async fn head(&mut self) -> io::Result<Option<RawHead>> {
        timeout(LIMIT, self.reader.head()).await?
    }

    /// Everything until the peer ends the connection, and how it did; `TimedOut` if it has not within `limit`.
    pub async fn rest(&mut self, limit: Duration) -> (Vec<u8>, Ended) {
        let mut rest = Vec::new();
        let keep = |piece: &[u8]| crate::wire::keep(&mut rest, piece);
        let ended = match timeout(limit, self.reader.body(BodyEnd::Close, keep)).await {
            Ok(Ok(_)) => Ended::Whole,
            Ok(Err(e)) => e.into(),
            Err(_) => Ended::TimedOut,
        };
        (rest, ended)
    }

    /// Reads until at least so many bytes have come, and drops them; how many, and how it ended if it did.
    pub async fn some(&mut self, least: usize) -> (usize, Option<Ended>) {
        let mut got = 0;
        let count = |piece: &[u8]| {
            got += piece.len();
            if got >= least { Want::Enough } else { Want::More }
        };
        let ended = match timeout(LIMIT, self.reader.body(BodyEnd::Close, count)).await {
            Ok(Ok(_)) => Some(Ended::Whole),
            Ok(Err(e)) if e.kind() == io::ErrorKind::Interrupted => None,
            Ok(Err(e)) => Some(e.into()),
            Err(_) => Some(Ended::TimedOut),
        };
        (got, ended)
    }

    /// Bytes that came and were not read yet.
    pub fn unread(&self) -> &[u8] {
        self.reader.ahead()
    }
}

/// Without delay, and with a second handle to set options by.
pub(super) fn prepared(stream: TcpStream) -> io::Result<(TcpStream, socket2::Socket)> {
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(&stream).try_clone()?;
    Ok((stream, socket))
}

fn finished(mut answer: Answer, ended: Ended) -> Answer {
    answer.ended = ended;
    answer.end_at = clock::now();
    answer
}

async fn read_answer<R: AsyncRead + Unpin>(
    reader: &mut Reader<R>,
    method: &str,
    answer: &mut Answer,
    want: impl FnMut(&Answer) -> Want,
) -> Ended {
    match try_read_answer(reader, method, answer, want).await {
        Ok(()) => Ended::Whole,
        Err(e) => e.into(),
    }
}

async fn try_read_answer<R: AsyncRead + Unpin>(
    reader: &mut Reader<R>,
    method: &str,
    answer: &mut Answer,
    mut want: impl FnMut(&Answer) -> Want,
) -> io::Result<()> {
    let head = loop {
        let head = reader.head().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        match head.word(1) {
            "101" => break head,
            status if status.starts_with('1') => answer.interim.push(head),
            _ => break head,
        }
    };
    answer.head_at = clock::now();
    answer.status = head.word(1).parse().unwrap_or(0);
    answer.version = head.word(0).to_owned();
    let end = body_end(&head, method, answer.status);
    answer.headers = head.fields;
    if want(answer) == Want::Enough {
        return Err(io::ErrorKind::Interrupted.into());
    }
    answer.trailers = reader
        .body(end, |piece| {
            answer.piece(piece);
            want(answer)
        })
        .await?;
    Ok(())
}

fn body_end(head: &RawHead, method: &str, status: u16) -> BodyEnd {
    if method == "HEAD" || matches!(status, 101 | 204 | 304) {
        return BodyEnd::Length(0);
    }
    if head.get("transfer-encoding").is_some() {
        return BodyEnd::Chunked;
    }
    head.get("content-length").and_then(|n| n.parse().ok()).map_or(BodyEnd::Close, BodyEnd::Length)
}
