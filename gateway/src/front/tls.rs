// SPDX-License-Identifier: Apache-2.0
//! The certificate towards clients, replaced while listening.
//!
//! Owns which certificate a handshake gets. A pair that does not belong together is refused and the old one stays.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use pingora_core::listeners::tls::TlsSettings;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::Notify;

/// Why certificate and key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or is not PEM.
    #[error("cannot read {what} from {path}: {reason}")]
    File {
        /// `certificates` or `a private key`.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// In words.
        reason: String,
    },
    /// They do not belong together.
    #[error("the key in {key} does not belong to the certificate in {certificate}: {reason}")]
    Pair {
        /// Certificate file.
        certificate: PathBuf,
        /// Key file.
        key: PathBuf,
        /// In words.
        reason: String,
    },
    /// The TLS library refused its settings.
    #[error("tls cannot be set up: {0}")]
    Setup(String),
}

/// The pair that every new handshake gets.
#[derive(Debug)]
pub struct Certificates {
    current: ArcSwap<CertifiedKey>,
    files: ArcSwap<[PathBuf; 2]>,
    moved: Notify,
}

impl Certificates {
    /// Reads both files.
    pub fn load(certificate: PathBuf, key: PathBuf) -> Result<Arc<Certificates>, TlsError> {
        let current = ArcSwap::from(read(&certificate, &key)?);
        let files = ArcSwap::from_pointee([certificate, key]);
        Ok(Arc::new(Certificates { current, files, moved: Notify::new() }))
    }

    /// Reads both files again; on an error the old pair stays. Kept connections live on.
    pub fn reload(&self) -> Result<(), TlsError> {
        let [certificate, key] = &**self.files.load();
        self.current.store(read(certificate, key)?);
        Ok(())
    }

    /// Reads other files from now on; on an error pair and files stay.
    pub fn move_to(&self, certificate: &Path, key: &Path) -> Result<(), TlsError> {
        let files = [certificate.to_owned(), key.to_owned()];
        if **self.files.load() != files {
            self.current.store(read(&files[0], &files[1])?);
            self.files.store(Arc::new(files));
            self.moved.notify_one();
        }
        Ok(())
    }

    /// The files to watch: certificate and key.
    pub fn files(&self) -> Arc<[PathBuf; 2]> {
        self.files.load_full()
    }

    /// Waits until they are others. For one caller.
    pub async fn moved(&self) {
        self.moved.notified().await;
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

/// Listener settings that ask `certificates` at every handshake, with both protocols on offer.
pub fn settings(certificates: Arc<Certificates>) -> Result<TlsSettings, TlsError> {
    // With a resolver the paths are not read.
    let mut settings = TlsSettings::intermediate("", "").map_err(|e| TlsError::Setup(e.to_string()))?;
    settings.set_cert_resolver(certificates);
    settings.enable_h2();
    Ok(settings)
}

fn read(certificate: &PathBuf, key: &PathBuf) -> Result<Arc<CertifiedKey>, TlsError> {
    let file = |what, path: &PathBuf, reason: String| TlsError::File { what, path: path.clone(), reason };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| file("certificates", certificate, e.to_string()))?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|e| file("a private key", key, e.to_string()))?;
    let provider = rustls::crypto::ring::default_provider();
    let pair = CertifiedKey::from_der(chain, secret, &provider).map_err(|e| TlsError::Pair {
        certificate: certificate.clone(),
        key: key.clone(),
        reason: e.to_string(),
    })?;
    Ok(Arc::new(pair))
}
