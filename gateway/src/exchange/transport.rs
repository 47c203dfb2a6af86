// SPDX-License-Identifier: Apache-2.0
//! Connections to replicas: TCP, or TLS over it.
//!
//! Owns how one is opened. Must not know HTTP, save the protocol names that TLS negotiates.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::pki_types::ServerName;
use sluice_core::Address;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A connection to a replica.
pub enum Transport {
    /// In the clear.
    Tcp(TcpStream),
    /// Encrypted; boxed because its state is large and it is rare.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Opens a connection within `limit`, TLS handshake included.
///
/// # Errors
/// Whatever the system or TLS says, `TimedOut` past the limit.
pub async fn connect(address: &Address, http2: bool, limit: Duration) -> io::Result<Transport> {
    match tokio::time::timeout(limit, open(address, http2)).await {
        Ok(done) => done,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

async fn open(address: &Address, http2: bool) -> io::Result<Transport> {
    let tcp = TcpStream::connect(address.socket).await?;
    tcp.set_nodelay(true)?;
    if !address.tls {
        return Ok(Transport::Tcp(tcp));
    }
    let config = if http2 { &*TLS_HTTP2 } else { &*TLS_HTTP1 };
    let config = config.clone().ok_or_else(|| io::Error::other("no trusted root certificates were found"))?;
    let name = server_name(address)?;
    let tls = TlsConnector::from(config).connect(name, tcp).await?;
    Ok(Transport::Tls(Box::new(tls)))
}

/// The host without its port.
fn server_name(address: &Address) -> io::Result<ServerName<'static>> {
    let host = address.host.as_deref().unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
    ServerName::try_from(name).map_err(io::Error::other)
}

/// TLS towards replicas as HTTP/1 uses it; `None` if no root certificate is trusted.
pub fn trusted_roots() -> Option<Arc<rustls::ClientConfig>> {
    TLS_HTTP1.clone()
}

static TLS_HTTP1: LazyLock<Option<Arc<rustls::ClientConfig>>> = LazyLock::new(|| client_config(b"http/1.1"));
static TLS_HTTP2: LazyLock<Option<Arc<rustls::ClientConfig>>> = LazyLock::new(|| client_config(b"h2"));

/// Trusts the system's roots (or those of `SSL_CERT_FILE`); `None` if there are none.
fn client_config(alpn: &[u8]) -> Option<Arc<rustls::ClientConfig>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return None;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider);
    let mut config = builder
        .with_safe_default_protocol_versions()
        .ok()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.to_vec()];
    Some(Arc::new(config))
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Transport::Tcp(io) => Pin::new(io).poll_read(cx, into),
            Transport::Tls(io) => Pin::new(io).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, b: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Transport::Tcp(io) => Pin::new(io).poll_write(cx, b),
            Transport::Tls(io) => Pin::new(io).poll_write(cx, b),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        b: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Transport::Tcp(io) => Pin::new(io).poll_write_vectored(cx, b),
            Transport::Tls(io) => Pin::new(io).poll_write_vectored(cx, b),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Transport::Tcp(io) => io.is_write_vectored(),
            Transport::Tls(io) => io.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Transport::Tcp(io) => Pin::new(io).poll_flush(cx),
            Transport::Tls(io) => Pin::new(io).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Transport::Tcp(io) => Pin::new(io).poll_shutdown(cx),
            Transport::Tls(io) => Pin::new(io).poll_shutdown(cx),
        }
    }
}
