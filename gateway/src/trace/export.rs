// SPDX-License-Identifier: Apache-2.0
//! Spans on their way to a collector: OTLP as protobuf over HTTP, in batches.
//!
//! A bounded queue and one thread with a runtime of its own. Whoever records only puts into the queue; what does not
//! fit is dropped, what the collector does not take is lost, and both are counted. Nothing is sent twice.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use prost::Message as _;
use sluice_core::Address;
use tokio::net::lookup_host;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::otlp;
use super::span::Finished;
use crate::config::Tracing;
use crate::exchange::transport;
use crate::logging::Repeat;
use crate::telemetry::{self, Spans};

/// Requests that may wait for their export.
const QUEUE: usize = 4096;
/// Requests of one export.
const BATCH: usize = 256;
/// How long a request waits for others to travel with.
const LINGER: Duration = Duration::from_secs(1);
/// Longest time of one export.
const LIMIT: Duration = Duration::from_secs(10);
/// Path of the OTLP/HTTP specification.
const PATH: &str = "/v1/traces";

static COMPLAINT: Repeat = Repeat::every(Duration::from_secs(30));

enum Message {
    Finished(Box<Finished>),
    /// Whoever waits until everything before is exported.
    Flush(oneshot::Sender<()>),
}

/// The queue's front end.
#[derive(Debug)]
pub(super) struct Exporter {
    queue: mpsc::Sender<Message>,
}

impl Exporter {
    pub(super) fn start(settings: &Tracing) -> io::Result<Exporter> {
        let (queue, messages) = mpsc::channel(QUEUE);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let settings = settings.clone();
        std::thread::Builder::new()
            .name("sluice-traces".to_owned())
            .spawn(move || runtime.block_on(run(settings, messages)))?;
        Ok(Exporter { queue })
    }

    pub(super) fn push(&self, finished: Finished) {
        if self.queue.try_send(Message::Finished(Box::new(finished))).is_err() {
            telemetry::traced(Spans::Dropped, 1);
        }
    }

    pub(super) async fn flush(&self, limit: Duration) {
        let (done, flushed) = oneshot::channel();
        let all = async {
            if self.queue.send(Message::Flush(done)).await.is_ok() {
                // An error is the thread's end: there is nothing to wait for.
                let _ = flushed.await;
            }
        };
        if timeout(limit, all).await.is_err() {
            tracing::warn!("traces_not_exported_in_time");
        }
    }
}

async fn run(settings: Tracing, mut messages: mpsc::Receiver<Message>) {
    let mut batch = Vec::with_capacity(BATCH);
    while let Some(message) = messages.recv().await {
        let mut flush = add(&mut batch, message);
        let until = Instant::now() + LINGER;
        while flush.is_none() && batch.len() < BATCH {
            match timeout_at(until, messages.recv()).await {
                Ok(Some(message)) => flush = add(&mut batch, message),
                Ok(None) | Err(_) => break,
            }
        }
        export(&settings, &mut batch).await;
        if let Some(done) = flush {
            let _ = done.send(());
        }
    }
}

fn add(batch: &mut Vec<Finished>, message: Message) -> Option<oneshot::Sender<()>> {
    match message {
        Message::Finished(finished) => {
            batch.push(*finished);
            None
        }
        Message::Flush(done) => Some(done),
    }
}

async fn export(settings: &Tracing, batch: &mut Vec<Finished>) {
    if batch.is_empty() {
        return;
    }
    let body = otlp::request(batch).encode_to_vec();
    let count = batch.len() as u64;
    batch.clear();
    let error = match timeout(LIMIT, post(settings, body)).await {
        Ok(Ok(())) => return telemetry::traced(Spans::Exported, count),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {} s", LIMIT.as_secs()),
    };
    telemetry::traced(Spans::Failed, count);
    if let Some(silenced) = COMPLAINT.due() {
        tracing::warn!(error, requests = count, silenced, "traces_not_exported");
    }
}

async fn post(settings: &Tracing, body: Vec<u8>) -> io::Result<()> {
    let origin = &settings.endpoint;
    let socket = lookup_host((origin.host.as_str(), origin.port)).await?.next();
    let socket = socket.ok_or_else(|| io::Error::other("its name has no address"))?;
    let bracketed =
        if origin.host.contains(':') { format!("[{}]", origin.host) } else { origin.host.clone() };
    let host: Arc<str> = format!("{bracketed}:{}", origin.port).into();
    let address = Address { socket, host: Some(host.clone()), tls: origin.tls };
    let stream = transport::connect(&address, false, LIMIT).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let driver = tokio::spawn(connection);
    let mut request = Request::post(PATH)
        .header(header::HOST, &*host)
        .header(header::CONTENT_TYPE, "application/x-protobuf")
        .header(header::USER_AGENT, concat!("sluice/", env!("CARGO_PKG_VERSION")));
    for (name, value) in &settings.headers {
        request = request.header(name, value.0.as_str());
    }
    let request = request.body(Full::new(Bytes::from(body))).map_err(io::Error::other)?;
    let answer = sender.send_request(request).await.map_err(io::Error::other);
    driver.abort();
    let status = answer?.status();
    if status.is_success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("the collector answers {status}")))
    }
}
