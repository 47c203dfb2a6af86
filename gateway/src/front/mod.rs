// SPDX-License-Identifier: Apache-2.0
//! The process frame: Pingora's server, listeners and TLS, in front of our connections.
//!
//! The only code that knows Pingora. Owns listening addresses and when they close. Must not know HTTP.

mod guard;
mod socket;
mod tls;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::apps::ServerApp;
use pingora_core::listeners::ListenerConfig;
use pingora_core::protocols::Stream;
use pingora_core::protocols::l4::stream::L4BufferSettings;
use pingora_core::server::configuration::ServerConf;
use pingora_core::server::{RunArgs, Server, ShutdownSignal, ShutdownSignalWatch, ShutdownWatch};
use pingora_core::services::listening::Service;
use socket2::{Domain, Socket, Type};
use tokio::sync::oneshot;

pub use self::guard::Guard;
pub use self::tls::{Certificates, TlsError};
use crate::config::{Settings, Tls};
use crate::exchange::peer::Peer;
use crate::exchange::watch::Watch;
use crate::gateway::Gateway;
use crate::http1::client::Client;
use crate::http2::server::{Connection, serve};

/// Pingora's own wait after the listeners closed. Sluice ends by itself long before; this only keeps Pingora from
/// dropping connections that still finish.
const GRACE_SECONDS: u64 = 24 * 3600;

/// Why the data listeners could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum FrontError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}; free the address or change `{key}`")]
    Listen {
        /// Which address.
        address: SocketAddr,
        /// The configuration key it came from.
        key: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Certificate or key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The server's thread could not be started or ended at once.
    #[error("the data plane could not be started: {0}")]
    Start(io::Error),
}

/// Running listeners.
pub struct Front {
    /// Addresses in the clear, with the ports that were chosen.
    pub plain: Vec<SocketAddr>,
    /// Addresses with TLS.
    pub tls: Vec<SocketAddr>,
    /// Reloads the certificate; `None` without TLS.
    pub certificates: Option<Arc<Certificates>>,
    close: Option<oneshot::Sender<()>>,
}

impl Front {
    /// Opens every listener and begins to serve. Returns when they take connections.
    pub fn start(settings: &Settings, gateway: Arc<Gateway>) -> Result<Front, FrontError> {
        let plain = reserve(&settings.listen, "listen")?;
        let tls = reserve(settings.tls.as_ref().map_or(&[], |t| &t.listen), "tls.listen")?;
        let certificates = settings.tls.as_ref().map(load).transpose()?;
        let mut service = Service::new("gateway".into(), App { gateway });
        // The default buffers hold 64 KiB for every silent connection; bytes go straight into ours.
        let small = L4BufferSettings::new(64, 64);
        for (_, address) in &plain {
            service.add_listener(ListenerConfig::tcp(address.to_string()).l4_buffer(small));
        }
        for (_, address) in &tls {
            if let Some(certificates) = &certificates {
                let tls = tls::settings(certificates.clone())?;
                service.add_listener(ListenerConfig::tcp(address.to_string()).l4_buffer(small).tls(tls));
            }
        }
        let (close, closing) = oneshot::channel();
        run_server(settings.threads, service, closing)?;
        let addresses = |reserved: &[(Socket, SocketAddr)]| reserved.iter().map(|r| r.1).collect::<Vec<_>>();
        let front =
            Front { plain: addresses(&plain), tls: addresses(&tls), certificates, close: Some(close) };
        for address in front.plain.iter().chain(&front.tls) {
            wait_until_open(*address).map_err(FrontError::Start)?;
        }
        Ok(front)
    }

    /// Closes the listeners; open connections live on.
    pub fn close(&mut self) {
        if let Some(close) = self.close.take() {
            let _ = close.send(());
        }
    }
}

fn load(tls: &Tls) -> Result<Arc<Certificates>, TlsError> {
    Certificates::load(tls.certificate.clone(), tls.key.clone())
}

/// Pingora binds inside its own service and ends the process if it cannot. Binding first, without listening, gives a
/// clear error instead, and the port number where none was asked for; both sockets allow the reuse of the address.
fn reserve(addresses: &[SocketAddr], key: &'static str) -> Result<Vec<(Socket, SocketAddr)>, FrontError> {
    let one = |address: &SocketAddr| -> io::Result<(Socket, SocketAddr)> {
        let socket = Socket::new(Domain::for_address(*address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&(*address).into())?;
        let bound = socket.local_addr()?.as_socket().unwrap_or(*address);
        Ok((socket, bound))
    };
    let error = |address, source| FrontError::Listen { address, key, source };
    addresses.iter().map(|a| one(a).map_err(|source| error(*a, source))).collect()
}

/// Runs Pingora on a thread of its own: its `run` does not return until the process may end.
fn run_server(
    threads: usize,
    service: Service<App>,
    closing: oneshot::Receiver<()>,
) -> Result<(), FrontError> {
    let conf = ServerConf {
        threads,
        work_stealing: true,
        grace_period_seconds: Some(GRACE_SECONDS),
        ..ServerConf::default()
    };
    let run = move || {
        let mut server = Server::new_with_opt_and_conf(None, conf);
        server.bootstrap();
        server.add_service(service);
        let signal = Box::new(Closing(tokio::sync::Mutex::new(Some(closing))));
        server.run(RunArgs { shutdown_signal: signal });
    };
    std::thread::Builder::new().name("sluice-front".into()).spawn(run).map_err(FrontError::Start)?;
    Ok(())
}

/// Tries until the listener takes a connection; bounded.
fn wait_until_open(address: SocketAddr) -> io::Result<()> {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
    };
    let target = SocketAddr::new(ip, address.port());
    let mut last = io::ErrorKind::TimedOut.into();
    for _ in 0..500 {
        match std::net::TcpStream::connect_timeout(&target, Duration::from_secs(1)) {
            Ok(_) => return Ok(()),
            Err(error) => last = error,
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(last)
}

/// Signals belong to `run.rs`; Pingora only hears when the listeners are to close.
struct Closing(tokio::sync::Mutex<Option<oneshot::Receiver<()>>>);

#[async_trait]
impl ShutdownSignalWatch for Closing {
    async fn recv(&self) -> ShutdownSignal {
        match self.0.lock().await.take() {
            Some(closing) => {
                let _ = closing.await;
                ShutdownSignal::GracefulTerminate
            }
            None => std::future::pending().await,
        }
    }
}

/// Serves accepted connections.
struct App {
    gateway: Arc<Gateway>,
}

#[async_trait]
impl ServerApp for App {
    async fn process_new(self: &Arc<Self>, io: Stream, _: &ShutdownWatch) -> Option<Stream> {
        let peer = Peer::new(peer_of(&io));
        let tls = io.get_ssl_digest().is_some();
        let Some(_place) = self.gateway.connections.enter(peer.ip(), &self.gateway.limits.load()) else {
            tracing::debug!(client = peer.socket_text(), "connection_refused");
            return None;
        };
        socket::tune(io.id());
        let watch = Watch::new();
        let client = Client::new(io, self.gateway.clone(), peer.clone(), tls, watch.clone());
        if let Some((io, ahead)) = client.serve().await {
            let connection = Connection { gateway: self.gateway.clone(), peer, tls };
            // Boxed, or every HTTP/1 connection would hold the room of an HTTP/2 one.
            Box::pin(serve(io, ahead, connection, watch)).await;
        }
        None
    }
}

fn peer_of(io: &Stream) -> SocketAddr {
    let digest = io.get_socket_digest();
    let known = digest.as_ref().and_then(|d| d.peer_addr()).and_then(|a| a.as_inet()).copied();
    known.unwrap_or(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))
}
