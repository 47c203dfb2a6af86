// SPDX-License-Identifier: Apache-2.0
//! The admin listener on a thread and a runtime of its own, so that a saturated data plane cannot starve it.
//!
//! Owns binding, accepting and the limits of connections. One thread answers everything; what may take long (rendering
//! metrics) goes to a second one.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};
use tower::ServiceExt;

use super::guard::Reach;
use super::routes;
use super::state::AdminState;
use crate::logging::Repeat;

/// Connections at once; further ones wait to be accepted.
const CONNECTIONS: usize = 256;

/// Longest wait for a request's head, also between requests of a kept connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How long answers in progress may take after [`Admin::stop`].
const GRACE: Duration = Duration::from_secs(1);

static ACCEPT_FAILED: Repeat = Repeat::every(Duration::from_secs(10));

/// Why the listener did not start.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// It would be reachable from other machines.
    #[error(
        "admin address {0} is reachable from other machines and there are no tokens; name a file of them with \
         `adminTokens`, or use a loopback address such as 127.0.0.1:{port}", port = .0.port()
    )]
    Exposed(SocketAddr),
    /// The address cannot be had.
    #[error("admin address {address} cannot be bound: {source}")]
    Bind {
        /// As configured.
        address: SocketAddr,
        /// From the operating system.
        source: io::Error,
    },
    /// No thread or no runtime.
    #[error("the admin thread cannot be started: {0}")]
    Thread(io::Error),
}

/// A running listener. Stops when dropped.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Binds `address` (port 0: any free one) and serves from now on. An address that other machines can reach is
    /// refused where no tokens are needed.
    pub fn start(address: SocketAddr, state: AdminState) -> Result<Admin, AdminError> {
        let reach = reach(address, state.access.is_closed())?;
        let listener = bind(address).map_err(|source| AdminError::Bind { address, source })?;
        let bound = listener.local_addr().map_err(|source| AdminError::Bind { address, source })?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .thread_name("sluice-admin-render")
            .build()
            .map_err(AdminError::Thread)?;
        let (stop, stopping) = watch::channel(false);
        let router = routes::router(state, reach, stopping.clone());
        let thread = std::thread::Builder::new()
            .name("sluice-admin".to_owned())
            .spawn(move || serve(runtime, listener, router, stopping))
            .map_err(AdminError::Thread)?;
        Ok(Admin { address: bound, stop, thread: Some(thread) })
    }

    /// Where it really listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes the listener, lets answers in progress end for a second, and returns when the thread is gone.
    pub fn stop(self) {}
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn reach(address: SocketAddr, closed: bool) -> Result<Reach, AdminError> {
    match (address.ip().is_loopback(), closed) {
        (true, _) => Ok(Reach::Loopback),
        (false, true) => Ok(Reach::Network),
        (false, false) => Err(AdminError::Exposed(address)),
    }
}

fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn serve(runtime: Runtime, listener: std::net::TcpListener, router: Router, stopping: watch::Receiver<bool>) {
    runtime.block_on(async {
        match TcpListener::from_std(listener) {
            Ok(listener) => accept(listener, router, stopping).await,
            Err(error) => tracing::error!(target: "sluice::admin", %error, "admin_listener_lost"),
        }
    });
    runtime.shutdown_timeout(Duration::from_millis(100));
}

async fn accept(listener: TcpListener, router: Router, mut stopping: watch::Receiver<bool>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let next = async { (Arc::clone(&slots).acquire_owned().await, listener.accept().await) };
        let (slot, accepted) = tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => break,
            next = next => next,
        };
        match accepted {
            Ok((stream, _)) => {
                let served = connection(stream, router.clone(), stopping.clone());
                tokio::spawn(async move {
                    served.await;
                    drop(slot);
                });
            }
            Err(error) => {
                if let Some(silenced) = ACCEPT_FAILED.due() {
                    tracing::warn!(target: "sluice::admin", %error, silenced, "admin_accept_failed");
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    let all = u32::try_from(CONNECTIONS).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(GRACE, slots.acquire_many(all)).await;
}

async fn connection(stream: TcpStream, router: Router, mut stopping: watch::Receiver<bool>) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| router.clone().oneshot(request));
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    tokio::select! {
        _ = serving.as_mut() => return,
        _ = stopping.wait_for(|stop| *stop) => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}
