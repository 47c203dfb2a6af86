// SPDX-License-Identifier: Apache-2.0
//! HTTP/2 with prior knowledge, stream by stream.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::HeaderMap;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::conn::{Transport, prepared};
use super::{Answer, Request};
use crate::clock;
use crate::engine::journal::Fields;
use crate::wire::{Ended, Want};

/// One HTTP/2 connection.
pub struct H2 {
    send: SendRequest<Bytes>,
    driver: JoinHandle<Result<(), h2::Error>>,
    socket: socket2::Socket,
}

impl H2 {
    /// Connects with generous windows.
    pub async fn open(to: SocketAddr) -> io::Result<H2> {
        H2::open_with(to, Builder::new().initial_window_size(1 << 20).initial_connection_window_size(8 << 20))
            .await
    }

    /// Connects with settings of one's own.
    pub async fn open_with(to: SocketAddr, settings: &Builder) -> io::Result<H2> {
        let (stream, socket) = prepared(TcpStream::connect(to).await?)?;
        H2::over(Box::new(stream), socket, settings).await
    }

    pub(super) async fn over(
        stream: Box<dyn Transport>,
        socket: socket2::Socket,
        settings: &Builder,
    ) -> io::Result<H2> {
        let (send, connection) = settings.handshake::<_, Bytes>(stream).await.map_err(io::Error::other)?;
        Ok(H2 { send, driver: tokio::spawn(connection), socket })
    }

    /// Sends a request and reads its answer.
    pub async fn exchange(&self, request: &Request) -> Answer {
        match self.begin(request).await {
            Ok(stream) => stream.finish(request.limit, |_| Want::More).await.0,
            Err(e) => Answer { ended: ended(&e), ..Answer::begin() },
        }
    }

    /// Sends a whole request; the answer is read from the stream.
    pub async fn begin(&self, request: &Request) -> Result<Stream, h2::Error> {
        let mut stream = self.begin_head(request, request.body.is_empty()).await?;
        if !request.body.is_empty() {
            stream.upload = Some(request.body.clone().into());
        }
        Ok(stream)
    }

    /// Sends only a head, and says whether a body follows.
    pub async fn begin_head(&self, request: &Request, end: bool) -> Result<Stream, h2::Error> {
        let mut send = self.send.clone().ready().await?;
        let mut head = http::Request::builder()
            .method(request.method.as_str())
            .uri(format!("http://sluice.test{}", request.target))
            .version(http::Version::HTTP_2);
        for (name, value) in &request.fields {
            head = head.header(name.to_ascii_lowercase(), value);
        }
        let head = head.body(()).expect("the test writes valid heads");
        let answer = Answer::begin();
        let (response, send) = send.send_request(head, end)?;
        Ok(Stream { response: Some(response), send, body: None, answer, upload: None, hold: false })
    }

    /// Whether the peer has ended the connection, waiting for it up to `limit`; an error text if it was not in order.
    pub async fn ended(&mut self, limit: Duration) -> Option<Result<(), String>> {
        let end = timeout(limit, &mut self.driver).await.ok()?;
        Some(end.map_err(|e| e.to_string()).and_then(|r| r.map_err(|e| e.to_string())))
    }

    /// Closes the TCP connection at once, with all its streams (FIN).
    pub async fn close(self) {
        self.driver.abort();
        let _ = self.driver.await;
    }

    /// Resets the TCP connection.
    pub async fn reset(self) {
        let _ = self.socket.set_linger(Some(Duration::ZERO));
        self.close().await;
    }
}

/// One stream.
pub struct Stream {
    response: Option<ResponseFuture>,
    send: SendStream<Bytes>,
    body: Option<RecvStream>,
    answer: Answer,
    upload: Option<Bytes>,
    hold: bool,
}

impl Stream {
    /// Keeps the flow-control window closed: what comes is never released.
    pub fn hold_window(&mut self) {
        self.hold = true;
    }

    /// Sends a piece of the request's body, as the peer's window allows.
    pub async fn push(&mut self, bytes: impl Into<Bytes>, end: bool) -> Result<(), h2::Error> {
        push(&mut self.send, bytes.into(), end).await
    }

    /// Sends a DATA frame of exactly these bytes, whatever the window.
    pub fn frame(&mut self, bytes: impl Into<Bytes>, end: bool) -> Result<(), h2::Error> {
        self.send.send_data(bytes.into(), end)
    }

    /// Ends the request with trailers.
    pub fn trailers(&mut self, fields: HeaderMap) -> Result<(), h2::Error> {
        self.send.send_trailers(fields)
    }

    /// Resets the stream (CANCEL).
    pub fn cancel(mut self) {
        self.send.send_reset(Reason::CANCEL);
    }

    /// Sends what is left of the request and reads the answer until its end or until `want` has enough. The stream
    /// comes back so that it can be left open, cancelled or dropped.
    pub async fn finish(
        mut self,
        limit: Duration,
        mut want: impl FnMut(&Answer) -> Want,
    ) -> (Answer, Stream) {
        let mut answer = std::mem::replace(&mut self.answer, Answer::begin());
        let upload = self.upload.take();
        let send = &mut self.send;
        let write = async {
            if let Some(bytes) = upload {
                let _ = push(send, bytes, true).await;
            }
            std::future::pending().await
        };
        let read = read(&mut self.response, &mut self.body, &mut answer, self.hold, &mut want);
        let both = async {
            tokio::select! { biased; end = read => end, () = write => unreachable!("pending") }
        };
        answer.ended = match timeout(limit, both).await {
            Ok(Ok(end)) => end,
            Ok(Err(e)) => ended(&e),
            Err(_) => Ended::TimedOut,
        };
        answer.end_at = clock::now();
        (answer, self)
    }
}

async fn push(send: &mut SendStream<Bytes>, mut bytes: Bytes, end: bool) -> Result<(), h2::Error> {
    while !bytes.is_empty() {
        send.reserve_capacity(bytes.len());
        let Some(room) = poll_fn(|cx| send.poll_capacity(cx)).await else { return Ok(()) };
        let piece = bytes.split_to(room?.min(bytes.len()));
        let last = end && bytes.is_empty();
        send.send_data(piece, last)?;
        if last {
            return Ok(());
        }
    }
    if end { send.send_data(Bytes::new(), true) } else { Ok(()) }
}

async fn read(
    response: &mut Option<ResponseFuture>,
    body: &mut Option<RecvStream>,
    answer: &mut Answer,
    hold: bool,
    want: &mut impl FnMut(&Answer) -> Want,
) -> Result<Ended, h2::Error> {
    if let Some(response) = response.take() {
        let (head, recv) = response.await?.into_parts();
        answer.head_at = clock::now();
        (answer.status, answer.version) = (head.status.as_u16(), "HTTP/2".into());
        answer.headers = fields(&head.headers);
        *body = Some(recv);
        if want(answer) == Want::Enough {
            return Ok(Ended::Left);
        }
    }
    let Some(body) = body else { return Ok(Ended::Whole) };
    while let Some(piece) = body.data().await {
        let piece = piece?;
        answer.piece(&piece);
        if !hold {
            let _ = body.flow_control().release_capacity(piece.len());
        }
        if want(answer) == Want::Enough {
            return Ok(Ended::Left);
        }
    }
    answer.trailers = body.trailers().await?.map(|t| fields(&t)).unwrap_or_default();
    Ok(Ended::Whole)
}

fn fields(map: &HeaderMap) -> Fields {
    map.iter().map(|(n, v)| (n.to_string(), String::from_utf8_lossy(v.as_bytes()).into_owned())).collect()
}

fn ended(error: &h2::Error) -> Ended {
    match error.reason() {
        Some(reason) if error.is_reset() => Ended::StreamReset(reason.into()),
        Some(_) => Ended::Cut,
        None => Ended::Reset,
    }
}
