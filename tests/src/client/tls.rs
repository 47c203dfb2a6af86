// SPDX-License-Identifier: Apache-2.0
//! TLS towards the gateway with a certificate of the test's own.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use h2::client::Builder;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::conn::prepared;
use super::{Conn, H2};

/// The name the certificate is for.
const NAME: &str = "sluice.test";

/// A self-signed certificate.
pub struct Authority {
    certificate: CertificateDer<'static>,
}

/// What the client offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alpn {
    /// `http/1.1`.
    Http1,
    /// `h2`.
    Http2,
}

impl Authority {
    /// Makes a certificate and writes `cert.pem` and `key.pem` into the directory.
    pub fn write(dir: &Path) -> Authority {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).expect("the name is valid");
        std::fs::write(dir.join("cert.pem"), made.cert.pem()).expect("the test's directory is writable");
        let key = dir.join("key.pem");
        std::fs::write(&key, made.signing_key.serialize_pem()).expect("the test's directory is writable");
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&key, private).expect("the file is ours");
        Authority { certificate: made.cert.der().clone() }
    }

    fn connector(&self, alpn: Alpn) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).expect("the certificate is well-formed");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider knows the versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![if alpn == Alpn::Http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
        Arc::new(config).into()
    }

    async fn handshake(
        &self,
        to: SocketAddr,
        alpn: Alpn,
    ) -> io::Result<(TlsStream<TcpStream>, socket2::Socket)> {
        let name = ServerName::try_from(NAME).expect("the name is valid");
        let (stream, socket) = prepared(TcpStream::connect(to).await?)?;
        Ok((self.connector(alpn).connect(name, stream).await?, socket))
    }

    /// The protocol that the server chose.
    pub async fn negotiated(&self, to: SocketAddr, alpn: Alpn) -> io::Result<Option<Vec<u8>>> {
        let (stream, _) = self.handshake(to, alpn).await?;
        Ok(stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec))
    }

    /// An HTTP/1 connection.
    pub async fn open(&self, to: SocketAddr) -> io::Result<Conn> {
        let (stream, socket) = self.handshake(to, Alpn::Http1).await?;
        Ok(Conn::over(Box::new(stream), socket))
    }

    /// An HTTP/2 connection.
    pub async fn open_h2(&self, to: SocketAddr) -> io::Result<H2> {
        let (stream, socket) = self.handshake(to, Alpn::Http2).await?;
        H2::over(Box::new(stream), socket, &Builder::new()).await
    }
}
