// SPDX-License-Identifier: Apache-2.0
//! One request of the load: what is sent, and what of the answer is timed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as Hyper;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use sluice_wire::sse::EventBoundary;
use tokio::time::Instant;

use super::BenchArgs;
use super::tally::Seen;

/// What every request is made of.
pub struct Plan {
    uri: Uri,
    fields: HeaderMap,
    body: Bytes,
    stream: bool,
    events: Option<u64>,
    timeout: Duration,
    http2: bool,
}

impl Plan {
    /// The requests that the arguments ask for.
    ///
    /// # Errors
    /// If the address is no `http://` one or the body cannot be read.
    pub fn new(args: &BenchArgs) -> Result<Plan, String> {
        let address = format!("{}{}", args.url.trim_end_matches('/'), args.path);
        let uri: Uri = address.parse().map_err(|error| format!("{address} is not an address: {error}"))?;
        if uri.scheme_str() != Some("http") || uri.host().is_none() {
            return Err(format!("{address} does not begin with http://HOST"));
        }
        let body = match &args.body {
            Some(path) => std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?,
            None => json!({
                "model": args.model,
                "stream": !args.no_stream,
                "max_tokens": args.tokens,
                "messages": [{"role": "user", "content": "Say something of the length that was asked for."}],
            })
            .to_string()
            .into_bytes(),
        };
        let mut fields = HeaderMap::new();
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in &args.header {
            fields.append(name.clone(), value.clone());
        }
        Ok(Plan {
            uri,
            fields,
            body: body.into(),
            stream: !args.no_stream,
            events: args.events,
            timeout: args.timeout,
            http2: args.http2,
        })
    }
}

/// Sends requests of a plan.
pub struct Client {
    plan: Arc<Plan>,
    http: Hyper<HttpConnector, Full<Bytes>>,
}

impl Client {
    /// A client with a pool of its own.
    pub fn new(plan: Arc<Plan>) -> Client {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let http = Hyper::builder(TokioExecutor::new()).http2_only(plan.http2).build(connector);
        Client { plan, http }
    }

    /// Sends one request; its times count from `scheduled`.
    pub async fn send(&self, scheduled: Instant) -> Seen {
        let mut seen = Seen::default();
        let work = tokio::time::timeout(self.plan.timeout, self.exchange(scheduled, &mut seen));
        seen.failure = match work.await {
            Ok(Ok(())) => None,
            Ok(Err(kind)) => Some(kind),
            Err(_) => Some("timed out".to_owned()),
        };
        seen
    }

    async fn exchange(&self, scheduled: Instant, seen: &mut Seen) -> Result<(), String> {
        let mut request = Request::post(self.plan.uri.clone())
            .body(Full::new(self.plan.body.clone()))
            .map_err(|error| error.to_string())?;
        request.headers_mut().clone_from(&self.plan.fields);
        let response = self.http.request(request).await.map_err(|error| match error.is_connect() {
            true => "no connection".to_owned(),
            false => "no answer".to_owned(),
        })?;
        let status = response.status();
        let is_stream = response
            .headers()
            .get(header::CONTENT_TYPE)
            .is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"));
        let end = body(response.into_body(), scheduled, seen).await?;
        if !status.is_success() {
            return Err(format!("status {}", status.as_u16()));
        }
        self.judge(is_stream, end, seen.events)
    }

    /// Whether what came is what was asked for.
    fn judge(&self, is_stream: bool, end: End, events: u64) -> Result<(), String> {
        match (self.plan.stream, is_stream) {
            (true, false) => return Err("not a stream".to_owned()),
            (true, true) if end == End::Undone => return Err("ended without [DONE]".to_owned()),
            _ => {}
        }
        match self.plan.events {
            Some(wanted) if is_stream && wanted != events => {
                Err(format!("{events} events instead of {wanted}"))
            }
            _ => Ok(()),
        }
    }
}

/// How a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// With `data: [DONE]`.
    Done,
    /// Without.
    Undone,
}

async fn body(mut incoming: Incoming, scheduled: Instant, seen: &mut Seen) -> Result<End, String> {
    let mut boundary = EventBoundary::default();
    let mut tail: Vec<u8> = Vec::with_capacity(32);
    let mut last: Option<Instant> = None;
    while let Some(frame) = incoming.frame().await {
        let frame = frame.map_err(|_| "broke off".to_owned())?;
        let Some(data) = frame.data_ref().filter(|data| !data.is_empty()) else { continue };
        let now = Instant::now();
        seen.first.get_or_insert(now - scheduled);
        seen.bytes += data.len() as u64;
        boundary.feed(data);
        let came = boundary.events() - seen.events;
        seen.events = boundary.events();
        if let Some(last) = last.filter(|_| came > 0) {
            // Events that come together have no gap between them.
            seen.gaps.push(now - last);
            seen.gaps.extend((1..came).map(|_| Duration::ZERO));
        }
        if came > 0 {
            last = Some(now);
        }
        keep_tail(&mut tail, data);
    }
    seen.total = Some(Instant::now() - scheduled);
    Ok(if is_done(&tail) { End::Done } else { End::Undone })
}

/// The last bytes of the body, enough for its last event.
fn keep_tail(tail: &mut Vec<u8>, data: &[u8]) {
    const KEPT: usize = 32;
    tail.extend_from_slice(data.get(data.len().saturating_sub(KEPT)..).unwrap_or_default());
    let over = tail.len().saturating_sub(KEPT);
    tail.drain(..over);
}

fn is_done(tail: &[u8]) -> bool {
    let text = tail.trim_ascii_end();
    text.ends_with(b"data: [DONE]") || text.ends_with(b"data:[DONE]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_seen_however_it_is_cut() {
        let whole = b"data: {\"text\":\"some words of an answer\"}\n\ndata: [DONE]\n\n";
        for cut in 0..=whole.len() {
            let mut tail = Vec::new();
            keep_tail(&mut tail, &whole[..cut]);
            keep_tail(&mut tail, &whole[cut..]);
            assert!(is_done(&tail), "cut at {cut}");
        }
        let mut tail = Vec::new();
        keep_tail(&mut tail, &whole[..whole.len() - 4]);
        assert!(!is_done(&tail));
    }
}
