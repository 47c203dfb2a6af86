// SPDX-License-Identifier: Apache-2.0
//! HTTP/2 towards replicas: one multiplexed connection per replica, hyper's client.
//!
//! Owns these connections and the retry of what was surely not processed. Needed where client and replica talk in both
//! directions at once; trailers come for nothing.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use dashmap::DashMap;
use http::{HeaderMap, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use sluice_core::ReplicaId;
use sluice_wire::head::{Forward, RequestHead};

use super::head;
use crate::admission::Permit;
use crate::exchange::body::{Whole, keep_allowed};
use crate::exchange::dispatch::{Job, admitted, earlier, open};
use crate::exchange::error::Failure;
use crate::exchange::record::Record;
use crate::exchange::retry::{self, Ended};
use crate::exchange::watch::{Over, Tick, Watch};

static CONNECTIONS: LazyLock<DashMap<ReplicaId, SendRequest<Upload>>> = LazyLock::new(DashMap::new);

/// A request body on its way to a replica.
pub enum Upload {
    /// In memory, with its trailers; can be sent again.
    Whole(Bytes, Option<HeaderMap>),
    /// As it comes from the client, up to `left` more bytes.
    Streamed {
        /// The client's stream.
        body: Incoming,
        /// Bytes that may still come.
        left: usize,
        /// Of the client's stream.
        watch: Arc<Watch>,
    },
}

impl Upload {
    /// One that is wholly in memory.
    pub fn whole(body: Whole) -> Upload {
        Upload::Whole(body.data.into(), head::trailers(&body.trailers))
    }

    /// Bytes in memory.
    pub fn size(&self) -> usize {
        match self {
            Upload::Whole(bytes, _) => bytes.len(),
            Upload::Streamed { .. } => 0,
        }
    }

    fn again(&self) -> Option<Upload> {
        match self {
            Upload::Whole(bytes, trailers) => Some(Upload::Whole(bytes.clone(), trailers.clone())),
            Upload::Streamed { .. } => None,
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.get_mut() {
            Upload::Whole(bytes, trailers) if bytes.is_empty() => {
                Poll::Ready(trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
            }
            Upload::Whole(bytes, _) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Upload::Streamed { body, left, .. } => {
                let frame = std::task::ready!(Pin::new(body).poll_frame(cx));
                Poll::Ready(frame.map(|frame| {
                    let frame = frame.map_err(io::Error::other)?;
                    let n = frame.data_ref().map_or(0, Bytes::len);
                    *left = left.checked_sub(n).ok_or_else(|| io::Error::other("over the body limit"))?;
                    Ok(allowed(frame))
                }))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Upload::Whole(bytes, trailers) => bytes.is_empty() && trailers.is_none(),
            Upload::Streamed { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Upload::Whole(bytes, _) => SizeHint::with_exact(bytes.len() as u64),
            Upload::Streamed { body, .. } => body.size_hint(),
        }
    }
}

/// Without trailers that may not be passed on.
pub(super) fn allowed(frame: Frame<Bytes>) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(trailers) => Frame::trailers(keep_allowed(trailers)),
        Err(data) => data,
    }
}

/// A replica's answer that has begun.
pub struct Sent {
    /// Head, and the body to come.
    pub response: Response<Incoming>,
    /// The reservation.
    pub permit: Permit,
    /// End of the total budget.
    pub total: Option<Tick>,
}

/// Waits for a replica, sends the request, waits for the response head.
pub async fn send(
    job: &Job<'_>,
    request_head: &RequestHead,
    forward: &Forward,
    upload: Upload,
    record: &mut Record,
) -> Result<Sent, Failure> {
    let settings = job.model.settings();
    let (mut connects, mut resends) = (0, 0);
    let mut admission = job.model.admit(job.ask)?;
    let mut upload = Some(upload);
    loop {
        let permit = admitted(job, admission, record).await?;
        let Some((mut sender, reused)) = sender(job, &permit).await else {
            connects += 1;
            if !retry::again(Ended::NotConnected, connects, resends, settings.retry_stale) {
                return Err(Failure::Unreachable);
            }
            admission = job.model.readmit(permit, job.ask)?;
            continue;
        };
        let address = &permit.endpoint().address;
        let request = head::request(forward, request_head, address.tls, address.host.as_deref());
        let (Some(request), Some(body)) = (request, upload.take()) else {
            return Err(Failure::Upstream("the request cannot be sent in HTTP/2"));
        };
        upload = body.again();
        let total = settings.timeouts.total.map(Tick::after);
        job.watch.set_until(earlier(settings.timeouts.first_byte.map(Tick::after), total));
        match first_head(job.watch, sender.send_request(request.map(|()| body))).await {
            Ok(Ok(response)) => {
                permit.endpoint().answered();
                record.answered(response.status().as_u16());
                return Ok(Sent { response, permit, total });
            }
            Ok(Err(error)) => {
                CONNECTIONS.remove(&permit.endpoint().id);
                tracing::debug!(%error, "replica_stream_failed");
                let ended = Ended::Broken { reused, responded: false };
                if upload.is_none() || !retry::again(ended, connects, resends, settings.retry_stale) {
                    return Err(Failure::Upstream("it ended the stream"));
                }
                resends += 1;
                admission = job.model.readmit(permit, job.ask)?;
            }
            Err(Over::Cut) => return Err(Failure::Cut),
            Err(Over::Late) if total.is_some_and(Tick::is_past) => return Err(Failure::Total),
            Err(Over::Late) => return Err(Failure::FirstByte),
        }
    }
}

async fn first_head<F>(watch: &Watch, response: F) -> Result<F::Output, Over>
where
    F: Future,
{
    let mut response = std::pin::pin!(response);
    poll_fn(|cx| {
        if let Poll::Ready(done) = response.as_mut().poll(cx) {
            return Poll::Ready(Ok(done));
        }
        watch.poll_over(cx).map(Err)
    })
    .await
}

/// The replica's connection, opened if need be; and whether it was there before.
async fn sender(job: &Job<'_>, permit: &Permit) -> Option<(SendRequest<Upload>, bool)> {
    let id = permit.endpoint().id;
    let known = CONNECTIONS.get(&id).map(|s| s.clone());
    if let Some(mut sender) = known
        && sender.ready().await.is_ok()
    {
        return Some((sender, true));
    }
    let io = open(permit, true, job.model.settings().timeouts.connect).await?;
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(8 << 20);
    let (sender, connection) = builder.handshake(TokioIo::new(io)).await.ok()?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "replica_connection_ended");
        }
        CONNECTIONS.remove_if(&id, |_, sender| sender.is_closed());
    });
    CONNECTIONS.insert(id, sender.clone());
    Some((sender, false))
}
