// SPDX-License-Identifier: Apache-2.0
//! HTTP/2 from clients: hyper keeps the protocol, the exchange is the one of HTTP/1.
//!
//! Owns the connection's settings, its idle deadline and its end at a shutdown. hyper drops the future of a request whose
//! stream or connection was reset, and with it the place in line, the permit and the upstream connection.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use super::exchange;
use crate::exchange::io::{Buf, Io, Rewind};
use crate::exchange::peer::Peer;
use crate::exchange::watch::Watch;
use crate::gateway::Gateway;

/// Flow control: one stream may have this much unread.
const STREAM_WINDOW: u32 = 64 << 10;
/// All streams of a connection together: a parked upload leaves room for its siblings.
const CONNECTION_WINDOW: u32 = 4 << 20;
const HEADER_LIST_MAX: u32 = 64 << 10;
const PING_INTERVAL: Duration = Duration::from_secs(60);

/// How often the streams of a connection are checked for a client that takes nothing.
const STALL_CHECK: Duration = Duration::from_secs(1);

/// The open streams of one connection.
#[derive(Default)]
struct Streams(Mutex<Vec<Weak<Offered>>>);

/// When a stream's last frame was handed to hyper and not asked for more since: the client's window is closed.
#[derive(Default)]
struct Offered(Mutex<Option<Instant>>);

/// One open stream; counts until dropped.
pub struct Stream(Arc<Offered>);

impl Stream {
    /// A frame is ready for the client.
    pub fn offered(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// hyper asks for more.
    pub fn asked(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Streams {
    fn open(&self) -> Stream {
        let offered = Arc::new(Offered::default());
        self.lock().push(Arc::downgrade(&offered));
        Stream(offered)
    }

    /// Open streams.
    fn count(&self) -> usize {
        let mut open = self.lock();
        open.retain(|stream| stream.strong_count() > 0);
        open.len()
    }

    /// A client has taken nothing of an offered frame for longer than it may.
    fn is_stalled(&self, patience: Duration) -> bool {
        let open: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        open.iter().any(|stream| {
            let since = *stream.0.lock().unwrap_or_else(PoisonError::into_inner);
            since.is_some_and(|since| since.elapsed() > patience)
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Offered>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What every stream of a connection shares.
pub struct Connection {
    /// The gateway.
    pub gateway: Arc<Gateway>,
    /// The client.
    pub peer: Peer,
    /// It uses TLS.
    pub tls: bool,
}

/// Serves a connection whose first bytes were read ahead.
pub async fn serve<I: Io>(io: I, ahead: Buf, connection: Connection, watch: Arc<Watch>) {
    let connection = Arc::new(connection);
    let limits = connection.gateway.limits.load_full();
    let streams = Arc::new(Streams::default());
    let service = {
        let (connection, streams) = (connection.clone(), streams.clone());
        service_fn(move |request| {
            let stream = streams.open();
            let connection = connection.clone();
            async move { Ok::<_, Infallible>(exchange::exchange(request, &connection, stream).await) }
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
    let mut was_idle = None;
    poll_fn(|cx| {
        if serving.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let idle = streams.count() == 0;
        if was_idle != Some(idle) {
            watch.set(Some(if idle { limits.idle_timeout } else { STALL_CHECK }));
            was_idle = Some(idle);
        }
        let over = watch.poll_over(cx).is_ready();
        if over && (idle && leaving || streams.is_stalled(limits.write_timeout)) {
            return Poll::Ready(());
        }
        if (over && idle || connection.gateway.is_draining()) && !leaving {
            leaving = true;
            serving.as_mut().graceful_shutdown();
            watch.set(Some(limits.head_timeout));
            return serving.as_mut().poll(cx).map(drop);
        }
        if over {
            watch.set(Some(STALL_CHECK));
        }
        Poll::Pending
    })
    .await;
}
