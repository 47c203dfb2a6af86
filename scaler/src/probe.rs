// SPDX-License-Identifier: Apache-2.0
//! Readiness: asks a replica over HTTP whether it takes requests, one question at a time, and says when that changes.
//!
//! Owns the counting of answers and the pauses between questions. Must not know processes or decisions.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use crate::launch::{Origin, Probe, Secret};

/// Longest pause while nobody listens yet: a refused connection costs next to nothing.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);

/// From so many refusals of the key on, over at least so long, a start cannot succeed any more.
const DENIALS: u32 = 5;
const DENIED_FOR: Duration = Duration::from_secs(2);

/// An unchanged reason for not being ready yet is told again after this long.
const TELL_AGAIN: Duration = Duration::from_secs(1);

/// What is read of an answer's body, so that the replica does not see its connection break.
const BODY_BYTES: usize = 64 * 1024;
const BODY_WAIT: Duration = Duration::from_millis(100);

/// Names asked for again after this long even if all is well.
const RESOLVE_AGAIN: Duration = Duration::from_secs(30);

/// Why a probe was no success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// An answer other than 2xx.
    Status(StatusCode),
    /// No answer in this time.
    TimedOut(Duration),
    /// Nobody listens.
    Refused,
    /// Anything else, in words.
    Broken(String),
}

impl Failure {
    /// The replica wants another key than the one it was shown.
    pub(crate) fn is_denial(&self) -> bool {
        matches!(self, Failure::Status(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Status(status) if self.is_denial() => {
                write!(f, "readiness probe answered {status}: the replica expects another key")
            }
            Failure::Status(status) => write!(f, "readiness probe answered {status}"),
            Failure::TimedOut(after) => write!(f, "readiness probe timed out after {after:?}"),
            Failure::Refused => f.write_str("readiness probe: connection refused"),
            Failure::Broken(how) => write!(f, "readiness probe: {how}"),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Failure::Refused,
            _ => Failure::Broken(error.to_string()),
        }
    }
}

impl From<hyper::Error> for Failure {
    fn from(error: hyper::Error) -> Self {
        Failure::Broken(error.to_string())
    }
}

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It takes requests at this address; for the first time, or again, or its name stands for another one now.
    Ready(SocketAddr),
    /// It took requests and does not any more.
    NotReady(String),
    /// It has not been ready yet, for this reason. Told when the reason changes, and now and then.
    NotYet(String),
    /// It has never been ready and keeps refusing the key.
    Denied(String),
}

/// Where the replica listens.
pub(crate) enum Target {
    /// A process of ours.
    Local(SocketAddr),
    /// A fixed address; names are resolved here.
    Remote(Remote),
}

/// A fixed address and what it resolved to.
pub(crate) struct Remote {
    pub(crate) origin: Origin,
    pub(crate) tls: Arc<rustls::ClientConfig>,
    found: Vec<SocketAddr>,
    found_at: Option<Instant>,
}

impl Remote {
    pub(crate) fn new(origin: Origin, tls: Arc<rustls::ClientConfig>) -> Self {
        Remote { origin, tls, found: Vec::new(), found_at: None }
    }

    /// The current addresses, `preferred` first if it is still among them.
    async fn addresses(&mut self, preferred: Option<SocketAddr>) -> Result<Vec<SocketAddr>, Failure> {
        if self.found_at.is_none_or(|at| at.elapsed() > RESOLVE_AGAIN) {
            let found = tokio::net::lookup_host((self.origin.host.as_str(), self.origin.port)).await;
            self.found = found
                .map_err(|error| Failure::Broken(format!("cannot resolve {:?}: {error}", self.origin.host)))?
                .collect();
            self.found_at = Some(Instant::now());
        }
        let mut order = self.found.clone();
        order.sort_by_key(|address| Some(*address) != preferred);
        Ok(order)
    }
}

/// Watches one replica's readiness.
pub(crate) struct Watcher {
    target: Target,
    probe: Probe,
    count: Count,
    next: Instant,
}

impl Watcher {
    pub(crate) fn new(target: Target, probe: Probe) -> Self {
        Watcher { target, probe, count: Count::default(), next: Instant::now() }
    }

    /// Waits for the next change. Probes never overlap: the next one begins after the end of the one before.
    pub(crate) async fn next(&mut self) -> Change {
        loop {
            tokio::time::sleep_until(self.next).await;
            let answer = self.ask().await;
            let change = self.count.take(answer, &self.probe, Instant::now());
            self.next = Instant::now() + self.count.pause(&self.probe);
            if let Some(change) = change {
                return change;
            }
        }
    }

    /// The last failure, as long as no success has followed it.
    pub(crate) fn last_failure(&self) -> Option<&Failure> {
        self.count.last_failure.as_ref()
    }

    async fn ask(&mut self) -> Result<SocketAddr, Failure> {
        let timeout = self.probe.timeout;
        let preferred = self.count.ready;
        let asked = ask(&mut self.target, &self.probe, preferred);
        let answer = tokio::time::timeout(timeout, asked).await.unwrap_or(Err(Failure::TimedOut(timeout)));
        if let (Err(_), Target::Remote(remote)) = (&answer, &mut self.target) {
            remote.found_at = None;
        }
        answer
    }
}

/// The state behind the changes (pure).
#[derive(Debug, Default)]
struct Count {
    ready: Option<SocketAddr>,
    ever_ready: bool,
    successes: u32,
    failures: u32,
    denials: u32,
    denied_since: Option<Instant>,
    last_failure: Option<Failure>,
    told_at: Option<Instant>,
}

impl Count {
    fn take(&mut self, answer: Result<SocketAddr, Failure>, probe: &Probe, now: Instant) -> Option<Change> {
        match answer {
            Ok(address) => self.success(address, probe),
            Err(failure) => self.failure(failure, probe, now),
        }
    }

    fn success(&mut self, address: SocketAddr, probe: &Probe) -> Option<Change> {
        (self.failures, self.denials, self.denied_since, self.last_failure) = (0, 0, None, None);
        self.successes = self.successes.saturating_add(1);
        if self.ready == Some(address) || self.successes < probe.successes {
            return None;
        }
        self.ready = Some(address);
        self.ever_ready = true;
        Some(Change::Ready(address))
    }

    fn failure(&mut self, failure: Failure, probe: &Probe, now: Instant) -> Option<Change> {
        self.successes = 0;
        self.failures = self.failures.saturating_add(1);
        self.denials = if failure.is_denial() { self.denials.saturating_add(1) } else { 0 };
        self.denied_since = (self.denials > 0).then(|| self.denied_since.unwrap_or(now));
        let why = failure.to_string();
        let news = self.last_failure.as_ref() != Some(&failure);
        self.last_failure = Some(failure);
        if self.ready.is_some() {
            let over = self.failures >= probe.failures;
            return over.then(|| {
                self.ready = None;
                Change::NotReady(why)
            });
        }
        let denied_for = self.denied_since.map(|since| now - since).unwrap_or_default();
        if !self.ever_ready && self.denials >= DENIALS && denied_for >= DENIED_FOR {
            return Some(Change::Denied(why));
        }
        let again = self.told_at.is_none_or(|at| now - at >= TELL_AGAIN);
        (!self.ever_ready && (news || again)).then(|| {
            self.told_at = Some(now);
            Change::NotYet(why)
        })
    }

    fn pause(&self, probe: &Probe) -> Duration {
        match &self.last_failure {
            Some(Failure::Refused) if self.ready.is_none() => probe.period.min(REFUSED_PAUSE),
            _ if self.ready.is_some() => probe.ready_period,
            _ => probe.period,
        }
    }
}

async fn ask(
    target: &mut Target,
    probe: &Probe,
    preferred: Option<SocketAddr>,
) -> Result<SocketAddr, Failure> {
    let remote = match target {
        Target::Local(address) => {
            let stream = TcpStream::connect(*address).await?;
            get(stream, &address.to_string(), probe).await?;
            return Ok(*address);
        }
        Target::Remote(remote) => remote,
    };
    let authority = authority(&remote.origin);
    let (stream, address) = connect(&remote.addresses(preferred).await?).await?;
    if remote.origin.tls {
        let name = ServerName::try_from(remote.origin.host.clone())
            .map_err(|_| Failure::Broken(format!("{:?} is no name for TLS", remote.origin.host)))?;
        let stream = TlsConnector::from(remote.tls.clone()).connect(name, stream).await;
        let stream = stream.map_err(|error| Failure::Broken(format!("TLS handshake: {error}")))?;
        get(stream, &authority, probe).await?;
    } else {
        get(stream, &authority, probe).await?;
    }
    Ok(address)
}

async fn connect(addresses: &[SocketAddr]) -> Result<(TcpStream, SocketAddr), Failure> {
    let mut failure = Failure::Broken("its name stands for no address".to_owned());
    for &address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok((stream, address)),
            Err(error) => failure = error.into(),
        }
    }
    Err(failure)
}

/// Host, and port if it is not the scheme's own, as `Host` names them.
pub(crate) fn authority(origin: &Origin) -> String {
    let host = if origin.host.contains(':') { format!("[{}]", origin.host) } else { origin.host.clone() };
    match (origin.tls, origin.port) {
        (true, 443) | (false, 80) => host,
        (_, port) => format!("{host}:{port}"),
    }
}

/// One request on a connection of its own; success is a 2xx status. Redirects are answers like any other.
async fn get<S>(stream: S, authority: &str, probe: &Probe) -> Result<(), Failure>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let request = request(authority, probe)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut connection = pin!(connection);
    let exchange = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let _ = tokio::time::timeout(BODY_WAIT, drain(response.into_body())).await;
        Ok(status)
    };
    let mut exchange = pin!(exchange);
    let answer = tokio::select! {
        biased;
        answer = &mut exchange => answer,
        _ = &mut connection => exchange.await,
    };
    match answer {
        Ok(status) if status.is_success() => Ok(()),
        Ok(status) => Err(Failure::Status(status)),
        Err(error) => Err(error),
    }
}

fn request(authority: &str, probe: &Probe) -> Result<Request<Empty<Bytes>>, Failure> {
    let broken = |error: hyper::http::Error| Failure::Broken(error.to_string());
    let mut request = Request::get(&probe.path)
        .header(header::HOST, authority)
        .header(header::USER_AGENT, "sluice-probe")
        .header(header::ACCEPT, "*/*")
        .header(header::CONNECTION, "close")
        .body(Empty::new())
        .map_err(broken)?;
    for (name, Secret(value)) in &probe.headers {
        let name = HeaderName::try_from(name).map_err(|error| broken(error.into()))?;
        let value = HeaderValue::try_from(value).map_err(|error| broken(error.into()))?;
        request.headers_mut().insert(name, value);
    }
    Ok(request)
}

async fn drain(mut body: hyper::body::Incoming) {
    let mut left = BODY_BYTES;
    while let Some(Ok(frame)) = body.frame().await {
        let read = frame.data_ref().map_or(0, Bytes::len);
        match left.checked_sub(read) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

#[cfg(test)]
mod tests;
