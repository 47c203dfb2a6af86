// SPDX-License-Identifier: Apache-2.0
//! Fixed addresses: attached by probing, followed both ways, detached on order.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use sluice_core::ReplicaEvent;
use sluice_scaler::launch::{FixedLaunch, Launch, Origin};
use sluice_scaler::{Backend, LocalOptions};
use support::{Bench, probe};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, status: u16) {
    let mut head = vec![0; 4096];
    let read = stream.read(&mut head).await.unwrap_or(0);
    let head = String::from_utf8_lossy(&head[..read]).to_lowercase();
    let status = if head.contains("host: localhost:") { status } else { 421 };
    let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n");
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// A server on loopback that answers with the status in the cell.
async fn server(tls: Option<TlsAcceptor>) -> (SocketAddr, Arc<AtomicU16>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let status = Arc::new(AtomicU16::new(200));
    let current = status.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (tls, status) = (tls.clone(), current.load(Ordering::SeqCst));
            tokio::spawn(async move {
                match tls {
                    None => answer(stream, status).await,
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            answer(stream, status).await;
                        }
                    }
                }
            });
        }
    });
    (address, status)
}

fn fixed(tls: bool, port: u16) -> Launch {
    let urls = vec![Origin { tls, host: "localhost".to_owned(), port }];
    Launch::Fixed(FixedLaunch { urls, probe: probe() })
}

#[tokio::test]
async fn a_fixed_address_is_resolved_probed_and_followed() {
    let (address, status) = server(None).await;
    status.store(503, Ordering::SeqCst);
    let mut bench = Bench::new();
    bench.launch("m", fixed(false, address.port()));
    let id = bench.start(1, "m");
    assert_eq!(bench.not_ready(id).await, "readiness probe answered 503 Service Unavailable");
    status.store(200, Ordering::SeqCst);
    let found = bench.ready(id).await;
    assert_eq!(found.socket, address);
    assert_eq!(found.host.as_deref(), Some(format!("localhost:{}", address.port()).as_str()));
    assert!(!found.tls);
    status.store(500, Ordering::SeqCst);
    assert!(bench.not_ready(id).await.contains("500"));
    status.store(200, Ordering::SeqCst);
    bench.ready(id).await;
    let cause = bench.stop(id).await;
    assert_eq!(cause, format!("localhost:{} detached", address.port()));
}

#[tokio::test]
async fn a_denied_probe_is_named_and_not_given_up() {
    let (address, status) = server(None).await;
    status.store(401, Ordering::SeqCst);
    let mut bench = Bench::new();
    bench.launch("m", fixed(false, address.port()));
    let id = bench.start(1, "m");
    assert!(bench.not_ready(id).await.contains("401 Unauthorized"));
    tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
    status.store(200, Ordering::SeqCst);
    bench.ready(id).await;
}

#[tokio::test]
async fn an_address_with_tls_is_probed_with_tls() {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = certified.cert.der().clone();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server_side = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let client_side = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let (address, _) = server(Some(TlsAcceptor::from(Arc::new(server_side)))).await;

    let mut trusting =
        Bench::with(LocalOptions { tls: Some(Arc::new(client_side)), ..LocalOptions::default() });
    trusting.launch("m", fixed(true, address.port()));
    let id = trusting.start(1, "m");
    assert!(trusting.ready(id).await.tls);

    let mut wary = Bench::new();
    wary.launch("m", fixed(true, address.port()));
    let id = wary.start(1, "m");
    let why = wary.not_ready(id).await;
    assert!(why.starts_with("readiness probe: TLS handshake"), "{why}");
}

#[tokio::test]
async fn an_ordinal_without_an_address_is_gone_at_once() {
    let mut bench = Bench::new();
    bench.launch("m", fixed(false, 1));
    bench.backend.start(sluice_core::ReplicaId(1), &"m".into(), 1);
    let (_, event) = bench.event().await;
    assert!(matches!(event, ReplicaEvent::Gone { cause } if cause.contains("1 fixed addresses")));
}
