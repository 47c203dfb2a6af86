// SPDX-License-Identifier: Apache-2.0
//! Asks a running Sluice through its admin listener.
//!
//! Owns what each failed answer means for the exit code. Must not know what the answers are for.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::args::AdminArgs;
use super::exit::{Exit, Failure};
use crate::admin::api::List;
use crate::admin::path;
use crate::admin::problem::{self, BASE, Problem};

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(3);

/// Longest wait for an answer's head, and for the rest of an answer that has an end.
const ANSWER: Duration = Duration::from_secs(10);

/// A client of one admin listener.
pub struct Client {
    http: legacy::Client<HttpConnector, Full<Bytes>>,
    authority: String,
    /// `Bearer …`, if there is a token.
    authorization: Option<HeaderValue>,
}

impl Client {
    /// A client for `host`, `host:port` or `http://host:port`; the port is 8081 unless named. Connects later. Sends the
    /// token of `--token-file` or of `SLUICE_TOKEN`.
    pub fn new(args: &AdminArgs) -> Result<Client, Failure> {
        let address = &args.admin;
        let authorization = token(args)?;
        let authority = authority(address).ok_or_else(|| {
            let message = format!("{address:?} is not an admin address; expected one such as 127.0.0.1:8081");
            Failure::new(Exit::Usage, message)
        })?;
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT));
        connector.set_nodelay(true);
        let http = legacy::Client::builder(TokioExecutor::new()).build(connector);
        Ok(Client { http, authority, authorization })
    }

    /// A document.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.document(Method::GET, path, None).await
    }

    /// All items of a list, however many pages it has.
    pub async fn list<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>, Failure> {
        let mut items = Vec::new();
        let mut page: List<T> = self.get(path).await?;
        loop {
            items.append(&mut page.items);
            let Some(cursor) = page.next_cursor else { return Ok(items) };
            let and = if path.contains('?') { '&' } else { '?' };
            page = self.get(&format!("{path}{and}cursor={}", path::encode(&cursor))).await?;
        }
    }

    /// Gives an order, with a JSON body if there is one; the answer is a document.
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: Option<&Value>) -> Result<T, Failure> {
        self.document(Method::POST, path, body.map(Value::to_string)).await
    }

    /// An answer without an end.
    pub async fn stream(&self, path: &str) -> Result<Incoming, Failure> {
        self.resume(path, None).await
    }

    /// A stream of events from after this one, or from now.
    pub async fn resume(&self, path: &str, last_event_id: Option<&str>) -> Result<Incoming, Failure> {
        let mut request = self.request(Method::GET, path, None)?;
        if let Some(id) = last_event_id.and_then(|id| HeaderValue::try_from(id).ok()) {
            request.headers_mut().insert("last-event-id", id);
        }
        Ok(self.send(request).await?.into_body())
    }

    /// The address as it is connected to.
    pub fn address(&self) -> &str {
        &self.authority
    }

    /// An answer broke off.
    pub fn broken(&self, error: impl std::fmt::Display) -> Failure {
        Failure::new(
            Exit::Unreachable,
            format!("the connection to sluice at {} broke: {error}", self.authority),
        )
    }

    async fn document<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<T, Failure> {
        let response = self.send(self.request(method, path, body)?).await?;
        let body = self.body(response).await?;
        serde_json::from_slice(&body)
            .map_err(|error| self.stranger(&format!("answer not understood: {error}")))
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let has_body = body.is_some();
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.authority))
            .header(header::ACCEPT, "application/json")
            .body(Full::from(body.unwrap_or_default()))
            .map_err(|error| Failure::new(Exit::Usage, format!("{path:?} cannot be asked for: {error}")))?;
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(header::AUTHORIZATION, authorization.clone());
        }
        if has_body {
            request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        Ok(request)
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Failure> {
        let response = match tokio::time::timeout(ANSWER, self.http.request(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.unreachable(&root_cause(&error))),
            Err(_) => return Err(self.unreachable(&format!("no answer within {} s", ANSWER.as_secs()))),
        };
        if response.status().is_success() { Ok(response) } else { Err(self.refused(response).await) }
    }

    async fn body(&self, response: Response<Incoming>) -> Result<Bytes, Failure> {
        match tokio::time::timeout(ANSWER, response.into_body().collect()).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) => Err(self.broken(error)),
            Err(_) => Err(self.broken("the answer stopped coming")),
        }
    }

    async fn refused(&self, response: Response<Incoming>) -> Failure {
        let status = response.status();
        let content_type = response.headers().get(header::CONTENT_TYPE);
        let is_problem =
            content_type.is_some_and(|value| value.as_bytes() == problem::CONTENT_TYPE.as_bytes());
        let body = if is_problem { self.body(response).await.unwrap_or_default() } else { Bytes::new() };
        let Ok(problem) = serde_json::from_slice::<Problem>(&body) else {
            return self.stranger(&format!("answer {status}"));
        };
        let (exit, advice) = match (status, problem.kind.strip_prefix(BASE)) {
            (_, Some("unknown-model")) => (Exit::NotFound, "\n`sluice get models` lists those that are"),
            (_, Some("unknown-replica")) => (Exit::NotFound, "\n`sluice get replicas` lists those there are"),
            (StatusCode::CONFLICT, _) => (Exit::Conflict, ""),
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => (Exit::Unauthorised, ""),
            _ => (Exit::Failed, ""),
        };
        Failure::new(exit, problem.detail + advice)
    }

    fn unreachable(&self, cause: &str) -> Failure {
        let message = format!(
            "cannot connect to sluice at {}: {cause}\n\
             is sluice running? start it with `sluice run`, or name its admin address with --admin or SLUICE_ADMIN",
            self.authority
        );
        Failure::new(Exit::Unreachable, message)
    }

    fn stranger(&self, what: &str) -> Failure {
        let message = format!(
            "{what} from {}, which does not look like sluice's admin listener\n\
             check --admin or SLUICE_ADMIN: it is the `admin` address of the configuration, not `listen`",
            self.authority
        );
        Failure::new(Exit::Failed, message)
    }
}

/// The token to send, as a header's value.
fn token(args: &AdminArgs) -> Result<Option<HeaderValue>, Failure> {
    let text = match &args.token_file {
        Some(file) => Some(std::fs::read_to_string(file).map_err(|error| {
            Failure::new(Exit::Usage, format!("{}: cannot be read: {error}", file.display()))
        })?),
        None => std::env::var("SLUICE_TOKEN").ok().filter(|token| !token.is_empty()),
    };
    let Some(text) = text else { return Ok(None) };
    let mut value = HeaderValue::try_from(format!("Bearer {}", text.trim())).map_err(|_| {
        Failure::new(
            Exit::Usage,
            "the token of --token-file or SLUICE_TOKEN is not one line of plain characters",
        )
    })?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// `host:port` of an address as people write it.
fn authority(address: &str) -> Option<String> {
    let bare = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
    let uri: Uri = format!("http://{bare}/").parse().ok()?;
    let host = uri.host().filter(|host| !host.is_empty())?;
    let port = match uri.authority()?.as_str().strip_prefix(host)? {
        "" => 8081,
        port => port.strip_prefix(':')?.parse::<u16>().ok()?,
    };
    let is_plain = uri.path() == "/" && uri.query().is_none();
    is_plain.then(|| format!("{host}:{port}"))
}

/// The innermost cause: `Connection refused` rather than `client error (Connect)`.
fn root_cause(error: &legacy::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_lack_the_port() {
        let same = |address: &str| authority(address);
        assert_eq!(same("127.0.0.1:9").as_deref(), Some("127.0.0.1:9"));
        assert_eq!(same("http://localhost:9/").as_deref(), Some("localhost:9"));
        assert_eq!(same("sluice.example").as_deref(), Some("sluice.example:8081"));
        assert_eq!(same("[::1]:9").as_deref(), Some("[::1]:9"));
        for wrong in ["", ":9", "https://a:1", "a b", "host/path", "user@host:1", "host:port"] {
            assert_eq!(same(wrong), None, "{wrong}");
        }
    }
}
