// SPDX-License-Identifier: Apache-2.0
//! HTTP/1 at the socket, so that the engine can misbehave to the byte.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::answer::{Flow, Sent, Sink, perform};
use super::journal::{Closer, Event, Fields, Outcome};
use super::script::{Framing, How, Point};
use super::{Engine, Job, READINESS};
use crate::clock;
use crate::wire::{BodyEnd, RawHead, Reader, keep};

/// What was sent before a reset gets so long to arrive.
const SETTLE: Duration = Duration::from_millis(30);

/// How a connection ends.
enum Bye {
    By(Closer),
    Rst,
}

/// Serves one connection to its end.
pub(super) async fn serve(engine: Arc<Engine>, mut stream: TcpStream, conn: u64) {
    let since = clock::now();
    let (reader, writer) = stream.split();
    let mut talk = Talk { engine: &engine, reader: Reader::new(reader), writer, conn, since, earlier: 0 };
    let bye = talk.run().await;
    let by = match bye {
        Bye::By(by) => by,
        Bye::Rst => {
            tokio::time::sleep(SETTLE).await;
            let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            Closer::Engine
        }
    };
    engine.journal.note(Event::Closed { conn, by });
}

struct Talk<'a> {
    engine: &'a Engine,
    reader: Reader<ReadHalf<'a>>,
    writer: WriteHalf<'a>,
    conn: u64,
    since: u64,
    earlier: u64,
}

impl Talk<'_> {
    async fn run(&mut self) -> Bye {
        loop {
            let idle = Duration::from_millis(self.engine.script.idle_close.unwrap_or(u64::MAX / 2000));
            let head = match tokio::time::timeout(idle, self.reader.head()).await {
                Err(_) => return Bye::By(Closer::Idle),
                Ok(Ok(None)) => return Bye::By(Closer::PeerFin),
                Ok(Ok(Some(head))) => head,
                Ok(Err(e)) => return Bye::By(closer(&e)),
            };
            if let Some(bye) = self.exchange(&head).await {
                return bye;
            }
            self.earlier += 1;
        }
    }

    async fn exchange(&mut self, head: &RawHead) -> Option<Bye> {
        let engine = self.engine;
        if head.word(0) == "GET" && head.word(1).split('?').next() == Some(READINESS) {
            return self.probe(head).await;
        }
        if engine.script.hang_until_ready {
            let gone = tokio::select! {
                by = gone(&mut self.reader) => Some(Bye::By(by)),
                () = clock::until(engine.ready_at()) => None,
            };
            if gone.is_some() {
                return gone;
            }
        }
        let req = engine.requests.fetch_add(1, Relaxed) + 1;
        self.note_head(head, req);
        let mut job = Job::new(engine, engine.act_for(&head.fields), req);
        job.head_only = head.word(0) == "HEAD";
        (job.earlier, job.conn_since) = (self.earlier, self.since);
        if job.too_many() {
            return Some(Bye::Rst);
        }
        if let Some(how) = job.fault_at(Point::Request) {
            return Some(self.fault(how).await);
        }
        if !job.act.early
            && let Err(bye) = self.read_body(&mut job, head).await
        {
            return Some(bye);
        }
        if let Some(how) = job.fault_at(Point::Body) {
            return Some(self.fault(how).await);
        }
        self.answer(&mut job, head).await
    }

    fn note_head(&self, head: &RawHead, req: u64) {
        self.engine.journal.note(Event::Head {
            conn: self.conn,
            req,
            earlier: self.earlier,
            method: head.word(0).to_owned(),
            target: head.word(1).to_owned(),
            version: head.word(2).to_owned(),
            headers: head.fields.clone(),
        });
    }

    async fn probe(&mut self, head: &RawHead) -> Option<Bye> {
        let status = tokio::select! {
            by = gone(&mut self.reader) => return Some(Bye::By(by)),
            status = self.engine.probe(head.fields.clone()) => status,
        };
        let answer = format!("HTTP/1.1 {status} Probe\r\ncontent-length: 0\r\n\r\n");
        self.writer.write_all(answer.as_bytes()).await.err().map(|e| Bye::By(closer(&e)))
    }

    async fn read_body(&mut self, job: &mut Job<'_>, head: &RawHead) -> Result<(), Bye> {
        tokio::time::sleep(clock::ms(job.act.read_after)).await;
        if head.get("expect").is_some_and(|e| e.eq_ignore_ascii_case("100-continue")) {
            let _ = self.writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await;
        }
        let chunked = head.get("transfer-encoding").is_some_and(|t| t.eq_ignore_ascii_case("chunked"));
        let length = head.get("content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
        let end = if chunked { BodyEnd::Chunked } else { BodyEnd::Length(length) };
        let mut body = Vec::new();
        let result = self.reader.body(end, |piece| keep(&mut body, piece)).await;
        job.body = body;
        match result {
            Ok(trailers) => {
                job.note_body(true, trailers);
                Ok(())
            }
            Err(e) => {
                job.note_body(false, Fields::new());
                Err(Bye::By(closer(&e)))
            }
        }
    }

    async fn answer(&mut self, job: &mut Job<'_>, head: &RawHead) -> Option<Bye> {
        job.note_start();
        let mut sent = Sent::default();
        let result = {
            let mut sink = Sink::One(Out1 { writer: &mut self.writer, out: Vec::new(), chunked: false });
            tokio::select! {
                biased;
                done = perform(job, &mut sink, &mut sent) => done.map_err(|e| closer(&e)),
                by = gone(&mut self.reader) => Err(by),
            }
        };
        let (outcome, bye) = match result {
            Ok(Flow::Keep) if head.get("connection").is_some_and(|c| c.eq_ignore_ascii_case("close")) => {
                (Outcome::Answered, Some(Bye::By(Closer::Engine)))
            }
            Ok(Flow::Keep) => (Outcome::Answered, None),
            Ok(Flow::Close) => (Outcome::Answered, Some(Bye::By(Closer::Engine))),
            Ok(Flow::Fault(how)) => (Outcome::Fault, Some(self.fault(how).await)),
            Err(by) => (Outcome::PeerGone, Some(Bye::By(by))),
        };
        let (sent, sha256) = (sent.bytes, sent.sha256());
        self.engine.journal.note(Event::End { req: job.req, outcome, sent, sha256 });
        bye
    }

    async fn fault(&mut self, how: How) -> Bye {
        match how {
            How::Rst => Bye::Rst,
            How::Fin => Bye::By(Closer::Engine),
            How::Hang => Bye::By(gone(&mut self.reader).await),
            How::Exit => self.engine.exit(9),
        }
    }
}

/// Waits until the peer has gone; what it sends meanwhile is kept.
async fn gone(reader: &mut Reader<ReadHalf<'_>>) -> Closer {
    loop {
        match reader.fill().await {
            Ok(0) => return Closer::PeerFin,
            Ok(_) => {}
            Err(e) => return closer(&e),
        }
    }
}

fn closer(error: &io::Error) -> Closer {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => Closer::PeerFin,
        _ => Closer::PeerRst,
    }
}

/// An answer on its way out.
pub(super) struct Out1<'a> {
    writer: &'a mut (dyn AsyncWrite + Unpin + Send),
    out: Vec<u8>,
    chunked: bool,
}

impl Out1<'_> {
    pub(super) async fn interim(&mut self, status: u16) -> io::Result<()> {
        self.raw(format!("HTTP/1.1 {status} Interim\r\nx-interim: {status}\r\n\r\n").as_bytes()).await
    }

    pub(super) fn head(&mut self, status: u16, fields: &Fields, framing: Framing, length: Option<usize>) {
        let version = if framing == Framing::Close { "1.0" } else { "1.1" };
        let mut head = format!("HTTP/{version} {status} Scripted\r\n");
        for (name, value) in fields {
            head += &format!("{name}: {value}\r\n");
        }
        match length {
            Some(_) if status == 204 => {}
            Some(n) => head += &format!("content-length: {n}\r\n"),
            None if framing == Framing::Close => {}
            None => {
                self.chunked = true;
                head += "transfer-encoding: chunked\r\n";
            }
        }
        self.out.extend_from_slice(head.as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    pub(super) fn data(&mut self, bytes: &[u8]) {
        if self.chunked && !bytes.is_empty() {
            self.out.extend_from_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
            self.out.extend_from_slice(bytes);
            self.out.extend_from_slice(b"\r\n");
        } else {
            self.out.extend_from_slice(bytes);
        }
    }

    pub(super) async fn flush(&mut self) -> io::Result<()> {
        let out = std::mem::take(&mut self.out);
        self.writer.write_all(&out).await
    }

    pub(super) async fn finish(&mut self, trailers: &Fields, surplus: &str) -> io::Result<()> {
        if self.chunked {
            self.out.extend_from_slice(b"0\r\n");
            for (name, value) in trailers {
                self.out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
            }
            self.out.extend_from_slice(b"\r\n");
        }
        self.out.extend_from_slice(surplus.as_bytes());
        self.flush().await
    }

    pub(super) async fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.extend_from_slice(bytes);
        self.flush().await
    }
}
