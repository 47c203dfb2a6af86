// SPDX-License-Identifier: Apache-2.0
//! HTTP/2 from clients: hyper keeps the protocol, the exchange is the one of HTTP/1.
//!
//! Owns the connection's settings, its idle deadline and its end at a shutdown. hyper drops the future of a request whose
//! stream or connection was reset, and with it the place in line, the permit and the upstream connection.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use super::exchange;
use crate::exchange::io::{Buf, Io, Rewind};
use crate::exchange::watch::Watch;
use crate::gateway::Gateway;

/// Flow control: one stream may have this much unread.
const STREAM_WINDOW: u32 = 64 << 10;
/// All streams of a connection together: a parked upload leaves room for its siblings.
const CONNECTION_WINDOW: u32 = 4 << 20;
const HEADER_LIST_MAX: u32 = 64 << 10;
const PING_INTERVAL: Duration = Duration::from_secs(60);

/// One open stream; counts itself until dropped.
pub struct StreamCount(Arc<AtomicUsize>);

impl StreamCount {
    fn new(of: &Arc<AtomicUsize>) -> StreamCount {
        of.fetch_add(1, SeqCst);
        StreamCount(of.clone())
    }
}

impl Drop for StreamCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// What every stream of a connection shares.
pub struct Connection {
    /// The gateway.
    pub gateway: Arc<Gateway>,
    /// The client.
    pub peer: SocketAddr,
    /// It uses TLS.
    pub tls: bool,
}

/// Serves a connection whose first bytes were read ahead.
pub async fn serve<I: Io>(io: I, ahead: Buf, connection: Connection, watch: Arc<Watch>) {
    let connection = Arc::new(connection);
    let limits = connection.gateway.limits.load_full();
    let streams = Arc::new(AtomicUsize::new(0));
    let service = {
        let (connection, streams) = (connection.clone(), streams.clone());
        service_fn(move |request| {
            let count = StreamCount::new(&streams);
            let connection = connection.clone();
            async move { Ok::<_, Infallible>(exchange::exchange(request, &connection, count).await) }
        })
    };
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(limits.h2_streams)
        .max_header_list_size(HEADER_LIST_MAX)
        .keep_alive_interval(PING_INTERVAL);
    let mut serving = pin!(builder.serve_connection(TokioIo::new(Rewind { ahead, io }), service));
    let mut leaving = false;
    let mut was_idle = false;
    poll_fn(|cx| {
        if serving.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let idle = streams.load(SeqCst) == 0;
        if idle != was_idle {
            watch.set(idle.then_some(limits.idle_timeout));
            was_idle = idle;
        }
        let over = watch.poll_over(cx).is_ready();
        if over && idle && leaving {
            return Poll::Ready(());
        }
        if (over || connection.gateway.is_draining()) && !leaving {
            leaving = true;
            serving.as_mut().graceful_shutdown();
            watch.set(Some(limits.head_timeout));
            return serving.as_mut().poll(cx).map(drop);
        }
        Poll::Pending
    })
    .await;
}
