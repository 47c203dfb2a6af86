// SPDX-License-Identifier: Apache-2.0
//! HTTP/2 by prior knowledge, over the `h2` crate: the same acts, without the bytes.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};

use super::answer::{Flow, Sent, Sink, perform};
use super::journal::{Closer, Event, Fields, Outcome};
use super::script::{How, Point};
use super::{Engine, Job, READINESS};
use crate::clock;

/// Serves one connection to its end.
pub(super) async fn serve(engine: Arc<Engine>, io: impl AsyncRead + AsyncWrite + Unpin, conn: u64) {
    let since = clock::now();
    let Ok(mut connection) = h2::server::handshake(io).await else {
        return engine.journal.note(Event::Closed { conn, by: Closer::PeerFin });
    };
    let earlier = Arc::new(AtomicU64::new(0));
    let mut by = Closer::PeerFin;
    while let Some(stream) = connection.accept().await {
        let Ok((request, respond)) = stream else {
            by = Closer::PeerRst;
            break;
        };
        let (engine, nth) = (engine.clone(), earlier.fetch_add(1, Relaxed));
        tokio::spawn(async move { exchange(&engine, request, respond, (conn, since, nth)).await });
    }
    engine.journal.note(Event::Closed { conn, by });
}

async fn exchange(
    engine: &Engine,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    (conn, since, earlier): (u64, u64, u64),
) {
    let (head, mut body) = request.into_parts();
    let headers = fields(&head.headers);
    if head.uri.path() == READINESS {
        let status = engine.probe(headers).await;
        let answer = Response::builder().status(status).body(()).expect("a plain status");
        let _ = respond.send_response(answer, true);
        return;
    }
    let req = engine.requests.fetch_add(1, Relaxed) + 1;
    let mut job = Job::new(engine, engine.act_for(&headers), req);
    let (method, target) = (head.method.to_string(), head.uri.to_string());
    let version = "HTTP/2".to_owned();
    engine.journal.note(Event::Head { conn, req, earlier, method, target, version, headers });
    (job.earlier, job.conn_since, job.head_only) = (earlier, since, head.method == http::Method::HEAD);
    if !job.act.early && read_body(&mut job, &mut body).await.is_err() {
        return;
    }
    if let Some(how) = job.fault_at(Point::Request).or_else(|| job.fault_at(Point::Body)) {
        return fault(engine, how, &mut respond);
    }
    answer(&mut job, &mut respond).await;
}

async fn read_body(job: &mut Job<'_>, body: &mut RecvStream) -> Result<(), h2::Error> {
    tokio::time::sleep(clock::ms(job.act.read_after)).await;
    while let Some(piece) = body.data().await {
        let piece = piece.inspect_err(|_| job.note_body(false, Fields::new()))?;
        let _ = body.flow_control().release_capacity(piece.len());
        job.body.extend_from_slice(&piece);
    }
    let trailers = body.trailers().await?.map(|t| fields(&t)).unwrap_or_default();
    job.note_body(true, trailers);
    Ok(())
}

async fn answer(job: &mut Job<'_>, respond: &mut SendResponse<Bytes>) {
    job.note_start();
    let mut sent = Sent::default();
    let mut sink = Sink::Two(Out2 { respond, stream: None });
    let result = perform(job, &mut sink, &mut sent).await;
    let Sink::Two(mut out) = sink else { unreachable!("made above") };
    let outcome = match result {
        Ok(Flow::Fault(how)) => {
            out.fault(job.engine, how);
            Outcome::Fault
        }
        Ok(_) => Outcome::Answered,
        Err(_) => Outcome::PeerGone,
    };
    let (sent, sha256) = (sent.bytes, sent.sha256());
    job.engine.journal.note(Event::End { req: job.req, outcome, sent, sha256 });
}

fn fault(engine: &Engine, how: How, respond: &mut SendResponse<Bytes>) {
    match how {
        How::Exit => engine.exit(9),
        _ => respond.send_reset(Reason::INTERNAL_ERROR),
    }
}

fn fields(map: &HeaderMap) -> Fields {
    map.iter().map(|(n, v)| (n.to_string(), String::from_utf8_lossy(v.as_bytes()).into_owned())).collect()
}

fn map(fields: &Fields) -> io::Result<HeaderMap> {
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name.to_ascii_lowercase().as_bytes())
            .map_err(|_| io::ErrorKind::InvalidInput)?;
        map.append(name, HeaderValue::from_str(value).map_err(invalid)?);
    }
    Ok(map)
}

/// An answer on its way out.
pub(super) struct Out2<'a> {
    respond: &'a mut SendResponse<Bytes>,
    stream: Option<SendStream<Bytes>>,
}

impl Out2<'_> {
    pub(super) fn interim(&mut self, status: u16) -> io::Result<()> {
        let head = Response::builder().status(status).body(()).map_err(io::Error::other)?;
        self.respond.send_informational(head).map_err(io::Error::other)
    }

    pub(super) fn head(&mut self, status: u16, fields: &Fields, length: Option<usize>) -> io::Result<()> {
        let mut head = Response::builder().status(status).body(()).map_err(io::Error::other)?;
        *head.headers_mut() = map(fields)?;
        if let Some(length) = length {
            head.headers_mut().insert("content-length", length.into());
        }
        self.stream = Some(self.respond.send_response(head, false).map_err(io::Error::other)?);
        Ok(())
    }

    pub(super) async fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Err(io::ErrorKind::NotConnected.into()) };
        let mut left = Bytes::copy_from_slice(bytes);
        while !left.is_empty() {
            stream.reserve_capacity(left.len());
            let room = poll_fn(|cx| stream.poll_capacity(cx)).await;
            let room = room.ok_or(io::ErrorKind::ConnectionReset)?.map_err(io::Error::other)?;
            stream.send_data(left.split_to(room.min(left.len())), false).map_err(io::Error::other)?;
        }
        Ok(())
    }

    pub(super) fn finish(&mut self, trailers: &Fields) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Err(io::ErrorKind::NotConnected.into()) };
        let end = match trailers.as_slice() {
            [] => stream.send_data(Bytes::new(), true),
            _ => stream.send_trailers(map(trailers)?),
        };
        end.map_err(io::Error::other)
    }

    fn fault(&mut self, engine: &Engine, how: How) {
        match (&mut self.stream, how) {
            (_, How::Exit) => engine.exit(9),
            (Some(stream), _) => stream.send_reset(Reason::INTERNAL_ERROR),
            (None, _) => self.respond.send_reset(Reason::INTERNAL_ERROR),
        }
    }
}
