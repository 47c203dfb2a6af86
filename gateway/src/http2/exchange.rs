// SPDX-License-Identifier: Apache-2.0
//! One HTTP/2 exchange: the steps of `http1::exchange`, with hyper's bodies.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use http::{HeaderValue, Request, Response, header};
use http_body::Body;
use hyper::body::Incoming;
use sluice_wire::head::{Forward, RequestFraming, RequestHead, ResponseFraming};
use sluice_wire::sse::EventBoundary;
use sluice_wire::target::{self, Family};

use super::body::{Out, Relaying};
use super::head;
use super::replica::{self, Upload};
use super::server::{Connection, Stream};
use super::upload;
use crate::admission::{Model, Permit};
use crate::config::Protocol;
use crate::exchange::answer::Answer;
use crate::exchange::body::{self, Whole};
use crate::exchange::budget::Hold;
use crate::exchange::dispatch::{self, Dispatched, Job};
use crate::exchange::error::Failure;
use crate::exchange::identify::{self, Target};
use crate::exchange::io::Pair;
use crate::exchange::outgoing::{self, Hop, Sent};
use crate::exchange::record::{Caller, Outcome, Record};
use crate::exchange::watch::{Tick, Watch};
use crate::http1::exchange::{ask, new_request_id};
use crate::http1::replica::Asked;

/// A validated request.
struct Asking<'a> {
    connection: &'a Connection,
    watch: Arc<Watch>,
    head: RequestHead,
    forward: Forward,
}

/// What the client is going to get.
enum Begun {
    Local(Answer),
    Http1(Dispatched, Vec<u8>, Option<upload::Upload>),
    Http2(Response<Incoming>, Permit, Option<Tick>),
}

/// A request body, read as far as the budget allowed.
enum Gathered {
    Whole(Whole),
    Over(Vec<u8>, Incoming),
}

/// Serves one request.
pub async fn exchange(request: Request<Incoming>, connection: &Connection, stream: Stream) -> Response<Out> {
    let (parts, body) = request.into_parts();
    let mut forward = Forward::default();
    let validated = head::validate(&parts, !body.is_end_stream(), &mut forward);
    let path = parts.uri.path().as_bytes();
    let id = forward.request_id().map_or_else(new_request_id, str::to_owned);
    let method = validated.as_ref().map_or("", |h| h.method.as_str());
    let from = Caller { client: connection.peer.clone(), protocol: "h2" };
    let mut record = Record::new(&connection.gateway, from, method, path, id.clone());
    record.join_trace(&mut forward.trace);
    let watch = Watch::new();
    let begun = match validated {
        Ok(head) => {
            let asking = Asking { connection, watch: watch.clone(), head, forward };
            asking.steps(body, &mut record).await
        }
        Err(failure) => Err(failure),
    };
    let mut response = match begun {
        Ok(Begun::Local(answer)) => {
            (record.status, record.outcome) = (answer.status, Outcome::Local);
            text(&answer, parts.method == http::Method::HEAD)
        }
        Ok(begun) => {
            let total = begun.total();
            let between = record.model.as_ref().and_then(|m| m.settings().timeouts.between_bytes);
            let relaying = Relaying {
                watch,
                record,
                total,
                between,
                events: None,
                trailers: None,
                silent: false,
                upload: None,
                stream,
            };
            begun.respond(relaying)
        }
        Err(failure) => {
            record.failed(&failure);
            text(&failure.answer(target::family(path)), parts.method == http::Method::HEAD)
        }
    };
    if let Ok(id) = HeaderValue::try_from(id) {
        response.headers_mut().entry("x-request-id").or_insert(id);
    }
    response
}

impl Asking<'_> {
    async fn steps(self, body: Incoming, record: &mut Record) -> Result<Begun, Failure> {
        let gateway = &self.connection.gateway;
        let model = match identify::by_head(gateway, self.head.method, &self.forward)? {
            Target::Local(answer) => return Ok(Begun::Local(answer)),
            Target::Model(model) => Some(model),
            Target::InBody => None,
        };
        record.model.clone_from(&model);
        // A stream's reset is seen without reading its body, so nothing needs to be gathered for an HTTP/2 replica: the
        // client may be silent until it has seen the response head.
        if let Some(model) = model.as_ref().filter(|m| m.settings().protocol == Protocol::Http2) {
            let limit = model.settings().body_limit;
            let upload = Upload::Streamed { body, left: limit, watch: self.watch.clone() };
            return self.over_http2(model.clone(), upload, record).await;
        }
        let mut hold = gateway.bodies.try_take(0);
        let limits = gateway.limits.load();
        let limit = model.as_ref().map_or(limits.body_limit, |m| m.settings().body_limit);
        let body = match (self.gather(body, limit, hold.as_mut()).await?, &model) {
            (Gathered::Whole(body), _) => body,
            (Gathered::Over(begun, rest), Some(model)) => {
                return self.stream(model.clone(), (&begun, rest), record).await;
            }
            (Gathered::Over(..), None) => return Err(Failure::BodyMemory),
        };
        record.bytes_in = body.data.len() as u64;
        let model = match model {
            Some(model) => model,
            None => identify::by_body(gateway, &self.forward, &body.data)?,
        };
        record.model = Some(model.clone());
        let settings = model.settings();
        if body.data.len() > settings.body_limit {
            return Err(Failure::TooLarge(settings.body_limit));
        }
        if !hold.as_mut().is_none_or(|hold| hold.charge(model.bodies())) {
            return Err(Failure::BodyMemory);
        }
        if settings.protocol == Protocol::Http2 {
            return self.over_http2(model, Upload::whole(body), record).await;
        }
        self.over_http1(model, body, record).await
    }

    async fn over_http1(
        mut self,
        model: Arc<Model>,
        body: Whole,
        record: &mut Record,
    ) -> Result<Begun, Failure> {
        let ask = ask(&self.forward, body.data.len());
        let sent = body.sent(self.head.framing != RequestFraming::None);
        let body = body.into_http1();
        self.complete(&model, sent, &record.request_id);
        let asked = Asked { method: self.head.method, upgrade: false };
        let job = Job { model: &model, ask, asked, watch: &self.watch };
        let request = Pair(&self.forward.head, &body);
        let mut out = Vec::with_capacity(512);
        let mut dispatched = dispatch::whole(&job, request, record, &mut out).await?;
        // hyper has no way to send interim heads; they are optional to the client.
        while dispatched.up.is_interim() {
            let next = dispatched.up.next_head(request, &self.watch, &mut out).await;
            next.map_err(|broken| dispatch::failure(broken, dispatched.total))?;
            record.status = dispatched.up.head().status;
        }
        Ok(Begun::Http1(dispatched, out, None))
    }

    /// A body that does not fit the budget, for a model that is known without it: sent on as it comes, once.
    async fn stream(
        mut self,
        model: Arc<Model>,
        (begun, rest): (&[u8], Incoming),
        record: &mut Record,
    ) -> Result<Begun, Failure> {
        let settings = model.settings();
        let (sent, chunks) = match self.head.framing {
            RequestFraming::Length(n) => (Sent::Length(n), false),
            _ => (Sent::Chunks, true),
        };
        let ask = ask(&self.forward, 0);
        self.complete(&model, sent, &record.request_id);
        let asked = Asked { method: self.head.method, upgrade: false };
        let job = Job { model: &model, ask, asked, watch: &self.watch };
        let mut dispatched = dispatch::connect_only(&job, record).await?;
        let (up, total) = (&mut dispatched.up, dispatched.total);
        let mut upload = upload::Upload::new(&self.forward.head, begun, rest, chunks, settings.body_limit);
        let mut out = Vec::with_capacity(512);
        self.watch.set_until(dispatch::earlier(settings.timeouts.first_byte.map(Tick::after), total));
        upload.until_head(up, &self.watch, total, &mut out).await?;
        while up.is_interim() {
            upload.until_head(up, &self.watch, total, &mut out).await?;
        }
        up.permit().endpoint().answered();
        record.answered(up.head().status);
        Ok(Begun::Http1(dispatched, out, Some(upload)))
    }

    async fn over_http2(
        mut self,
        model: Arc<Model>,
        upload: Upload,
        record: &mut Record,
    ) -> Result<Begun, Failure> {
        let ask = ask(&self.forward, upload.size());
        self.complete(&model, Sent::Nothing, &record.request_id);
        let asked = Asked { method: self.head.method, upgrade: false };
        let job = Job { model: &model, ask, asked, watch: &self.watch };
        let sent = replica::send(&job, &self.head, &self.forward, upload, record).await?;
        Ok(Begun::Http2(sent.response, sent.permit, sent.total))
    }

    fn complete(&mut self, model: &Model, sent: Sent, request_id: &str) {
        let Connection { peer, tls, .. } = self.connection;
        let hop = Hop { peer: peer.ip_text(), tls: *tls, version: "2", request_id };
        outgoing::complete(&mut self.forward, &hop, &model.settings(), sent);
    }

    /// The whole body, within its limit and the budget; silence has a deadline.
    async fn gather(
        &self,
        mut incoming: Incoming,
        limit: usize,
        mut hold: Option<&mut Hold>,
    ) -> Result<Gathered, Failure> {
        if incoming.size_hint().exact().is_some_and(|n| n > limit as u64) {
            return Err(Failure::TooLarge(limit));
        }
        let patience = self.connection.gateway.limits.load().body_timeout;
        let (mut all, mut trailers) = (Vec::new(), Vec::new());
        loop {
            self.watch.set(Some(patience));
            let frame = poll_fn(|cx| {
                if let Poll::Ready(frame) = Pin::new(&mut incoming).poll_frame(cx) {
                    return Poll::Ready(Ok(frame));
                }
                self.watch.poll_over(cx).map(|_| Err(Failure::BodyLate))
            })
            .await?;
            let data = match frame {
                None => return Ok(Gathered::Whole(Whole { data: all, trailers })),
                Some(Err(_)) => return Err(Failure::Body("it broke off")),
                Some(Ok(frame)) => {
                    if let Some(fields) = frame.trailers_ref() {
                        trailers = body::trailer_lines(fields);
                    }
                    frame.into_data().unwrap_or_default()
                }
            };
            if all.len() + data.len() > limit {
                return Err(Failure::TooLarge(limit));
            }
            let fits = hold.as_mut().is_none_or(|hold| hold.grow(data.len()));
            all.extend_from_slice(&data);
            if !fits {
                return Ok(Gathered::Over(all, incoming));
            }
        }
    }
}

impl Begun {
    fn total(&self) -> Option<Tick> {
        match self {
            Begun::Local(_) => None,
            Begun::Http1(dispatched, ..) => dispatched.total,
            Begun::Http2(_, _, total) => *total,
        }
    }

    fn respond(self, mut relaying: Relaying) -> Response<Out> {
        match self {
            Begun::Local(answer) => text(&answer, false),
            Begun::Http1(dispatched, out, upload) => {
                relaying.upload = upload;
                let up = dispatched.up;
                let length = match up.head().framing {
                    ResponseFraming::Length(n) => Some(n),
                    _ => None,
                };
                let status = up.head().status;
                let Some(response) = head::response(status, &out, length).filter(|_| status != 101) else {
                    let failure = Failure::Upstream("its head is not valid in HTTP/2");
                    relaying.record.failed(&failure);
                    return text(&failure.answer(Family::OpenAi), false);
                };
                let events = up.head().event_stream;
                let response = for_events(response, events);
                relaying.events = events.then(EventBoundary::default);
                response.map(|()| Out::Http1(Some(up), Box::new(relaying)))
            }
            Begun::Http2(response, permit, _) => {
                let is_events = response
                    .headers()
                    .get(header::CONTENT_TYPE)
                    .is_some_and(|t| t.as_bytes().starts_with(b"text/event-stream"));
                relaying.events = is_events.then(EventBoundary::default);
                let (parts, body) = response.into_parts();
                let response = for_events(Response::from_parts(parts, ()), is_events);
                response.map(|()| Out::Http2(body, permit, Box::new(relaying)))
            }
        }
    }
}

/// Proxies in between are to pass events on at once.
fn for_events(mut response: Response<()>, is_events: bool) -> Response<()> {
    if is_events {
        let headers = response.headers_mut();
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache"));
        headers.entry("x-accel-buffering").or_insert(HeaderValue::from_static("no"));
    }
    response
}

/// An answer of our own.
fn text(answer: &Answer, head_only: bool) -> Response<Out> {
    let body = if head_only { None } else { Some(answer.body.clone().into()) };
    let mut response = Response::new(Out::Text(body));
    if let Ok(status) = http::StatusCode::from_u16(answer.status) {
        *response.status_mut() = status;
    }
    for (name, value) in &answer.fields {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().append(*name, value);
        }
    }
    if answer.status != 204 {
        response.headers_mut().insert(header::CONTENT_LENGTH, answer.body.len().into());
    }
    response
}
