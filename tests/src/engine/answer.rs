// SPDX-License-Identifier: Apache-2.0
//! Answering one request as its act says, over either version of HTTP.
//!
//! Owns what is sent and when. How it is framed is the sink's matter.

use std::io;

use sha2::{Digest, Sha256};

use super::Job;
use super::http1::Out1;
use super::http2::Out2;
use super::journal::Fields;
use super::script::{Framing, How, Point};
use crate::clock;

/// Where an answer goes.
pub(super) enum Sink<'a> {
    One(Out1<'a>),
    Two(Out2<'a>),
}

/// How an answer ended, from the engine's side.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// The connection may carry another request.
    Keep,
    /// The end of the answer is the end of the connection.
    Close,
    /// A scripted fault has to happen now.
    Fault(How),
}

impl Sink<'_> {
    async fn interim(&mut self, status: u16) -> io::Result<()> {
        match self {
            Sink::One(out) => out.interim(status).await,
            Sink::Two(out) => out.interim(status),
        }
    }

    fn head(
        &mut self,
        status: u16,
        fields: &Fields,
        framing: Framing,
        length: Option<usize>,
    ) -> io::Result<()> {
        match self {
            Sink::One(out) => out.head(status, fields, framing, length),
            Sink::Two(out) => out.head(status, fields, length)?,
        }
        Ok(())
    }

    async fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Sink::One(out) => out.data(bytes),
            Sink::Two(out) => out.data(bytes).await?,
        }
        Ok(())
    }

    async fn flush(&mut self) -> io::Result<()> {
        match self {
            Sink::One(out) => out.flush().await,
            Sink::Two(_) => Ok(()),
        }
    }

    async fn finish(&mut self, trailers: &Fields, surplus: &str) -> io::Result<()> {
        match self {
            Sink::One(out) => out.finish(trailers, surplus).await,
            Sink::Two(out) => out.finish(trailers),
        }
    }

    async fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Sink::One(out) => out.raw(bytes).await,
            Sink::Two(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// What was sent as body, for the journal.
#[derive(Default)]
pub(super) struct Sent {
    pub bytes: usize,
    hash: Sha256,
}

impl Sent {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        self.hash.update(bytes);
    }

    pub fn sha256(&self) -> String {
        super::hex(self.hash.clone().finalize())
    }
}

/// Answers; an error is the peer's departure.
pub(super) async fn perform(job: &mut Job<'_>, sink: &mut Sink<'_>, sent: &mut Sent) -> io::Result<Flow> {
    tokio::time::sleep(clock::ms(job.act.ttft)).await;
    if let Some(how) = job.fault_at(Point::Handler) {
        return Ok(Flow::Fault(how));
    }
    if let Some(raw) = job.act.raw.take() {
        job.release();
        sink.raw(raw.as_bytes()).await?;
        return Ok(Flow::Close);
    }
    for status in std::mem::take(&mut job.act.interim) {
        sink.interim(status).await?;
    }
    if job.act.events > 0 { events(job, sink, sent).await } else { whole(job, sink, sent).await }
}

fn fields(job: &Job<'_>, content_type: &str) -> Fields {
    let mut fields: Fields = vec![
        ("content-type".into(), content_type.into()),
        ("x-engine-name".into(), job.engine.name.clone()),
        ("x-engine-pid".into(), std::process::id().to_string()),
        ("x-engine-req".into(), job.req.to_string()),
    ];
    fields.retain(|(name, _)| !job.act.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name)));
    fields.extend(job.act.headers.iter().cloned());
    fields
}

async fn whole(job: &mut Job<'_>, sink: &mut Sink<'_>, sent: &mut Sent) -> io::Result<Flow> {
    let body = body(job);
    let length = (job.act.framing == Framing::Auto && job.act.trailers.is_empty()).then_some(body.len());
    sink.head(job.act.status, &fields(job, "application/json"), job.act.framing, length)?;
    if let Some(how) = job.fault_at(Point::Head) {
        sink.flush().await?;
        return Ok(Flow::Fault(how));
    }
    job.release();
    let bodiless = job.head_only || matches!(job.act.status, 204 | 304);
    if !bodiless {
        sent.add(&body);
        sink.data(&body).await?;
    }
    sink.finish(&job.act.trailers, &job.act.surplus).await?;
    Ok(ending(job))
}

fn body(job: &mut Job<'_>) -> Vec<u8> {
    if job.act.echo {
        return std::mem::take(&mut job.body);
    }
    if let Some(size) = job.act.size {
        return (0..size).map(|i| b'a' + (i % 26) as u8).collect();
    }
    if let Some(text) = job.act.body.take() {
        return text.into_bytes();
    }
    let told = serde_json::json!({
        "object": "chat.completion", "engine": job.engine.name, "pid": std::process::id(), "port": job.engine.port,
        "request": job.req, "length": job.body.len(), "sha256": super::sha256(&job.body),
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}],
    });
    told.to_string().into_bytes()
}

async fn events(job: &mut Job<'_>, sink: &mut Sink<'_>, sent: &mut Sent) -> io::Result<Flow> {
    sink.head(job.act.status, &fields(job, "text/event-stream"), job.act.framing, None)?;
    sink.flush().await?;
    if let Some(how) = job.fault_at(Point::Head) {
        return Ok(Flow::Fault(how));
    }
    let fault_after = job.act.fault.as_ref().filter(|f| f.at == Point::Event).map(|f| f.event);
    for n in 0..job.act.events {
        if fault_after == Some(n)
            && let Some(how) = job.fault_at(Point::Event)
        {
            return Ok(Flow::Fault(how));
        }
        let pause = job.act.pauses.get(&n).copied().unwrap_or(if n == 0 { 0 } else { job.act.gap });
        tokio::time::sleep(clock::ms(pause)).await;
        let event = format!("data: {{\"n\":{n},\"t\":{}}}\n\n", clock::now());
        let (first, second) =
            event.as_bytes().split_at(if job.act.splits.contains_key(&n) { 9 } else { event.len() });
        send(sink, sent, first).await?;
        if !second.is_empty() {
            tokio::time::sleep(clock::ms(job.act.splits[&n])).await;
            send(sink, sent, second).await?;
        }
    }
    let done = b"data: [DONE]\n\n";
    sent.add(done);
    sink.data(done).await?;
    job.release();
    sink.finish(&job.act.trailers, &job.act.surplus).await?;
    Ok(ending(job))
}

async fn send(sink: &mut Sink<'_>, sent: &mut Sent, bytes: &[u8]) -> io::Result<()> {
    sent.add(bytes);
    sink.data(bytes).await?;
    sink.flush().await
}

fn ending(job: &Job<'_>) -> Flow {
    let told =
        |(n, v): &(String, String)| n.eq_ignore_ascii_case("connection") && v.eq_ignore_ascii_case("close");
    let close = job.act.framing == Framing::Close || job.act.early || job.act.headers.iter().any(told);
    if close { Flow::Close } else { Flow::Keep }
}
