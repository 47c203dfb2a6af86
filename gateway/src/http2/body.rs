// SPDX-License-Identifier: Apache-2.0
//! Response bodies towards HTTP/2 clients, and what is sent to HTTP/2 replicas.
//!
//! Owns the permit for as long as the body lives: it is released when hyper drops the body, whatever the reason.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use sluice_scaler::clock;
use sluice_wire::sse::EventBoundary;
use tokio::time::Sleep;

use super::head;
use super::replica::allowed;
use super::upload::Upload;
use crate::admission::Permit;
use crate::exchange::dispatch::earlier;
use crate::exchange::record::{Outcome, Record};
use crate::exchange::watch::{Over, Tick, Watch};
use crate::http1::relay::error_event;
use crate::http1::replica::Up;

/// Between the last bytes of a broken answer and its reset.
const BEFORE_RESET: Duration = Duration::from_millis(20);

/// Budgets of a response body, and where its end is written down.
pub struct Relaying {
    /// Of the stream.
    pub watch: Arc<Watch>,
    /// Written when dropped.
    pub record: Record,
    /// End of the total budget.
    pub total: Option<Tick>,
    /// Longest silence.
    pub between: Option<Duration>,
    /// Set for event streams.
    pub events: Option<EventBoundary>,
    /// Still to be sent, after the data.
    pub trailers: Option<HeaderMap>,
    /// The last poll found nothing.
    pub silent: bool,
    /// The request is still being sent on.
    pub upload: Option<Upload>,
    /// Of the connection.
    pub stream: super::server::Stream,
}

/// A response body towards a client.
pub enum Out {
    /// Short and ours.
    Text(Option<Bytes>),
    /// From an HTTP/1 replica.
    Http1(Option<Up>, Box<Relaying>),
    /// From an HTTP/2 replica.
    Http2(Incoming, Permit, Box<Relaying>),
    /// Broken off, after one last event; reset once what was sent before has had time to leave: a reset discards what
    /// is still queued.
    Broken(Pin<Box<Sleep>>),
}

impl Relaying {
    /// Nothing has come. The silence's deadline counts from its first poll, not from the last.
    fn over(&mut self, cx: &mut Context<'_>) -> Poll<&'static str> {
        if !self.silent {
            self.silent = true;
            self.watch.set_until(earlier(self.between.map(Tick::after), self.total));
        }
        self.watch.poll_over(cx).map(|over| match over {
            Over::Cut => "it was stopped",
            Over::Late => "it took too long",
        })
    }

    fn count(&mut self, data: &[u8]) {
        self.silent = false;
        self.stream.offered();
        self.record.body(data, self.events.as_mut());
    }

    /// The replica broke off: one error event if the stream stands between events, then the stream is reset.
    fn broken(&mut self, reason: &str) -> Option<Bytes> {
        self.record.outcome = Outcome::UpstreamError;
        self.record.code = "upstream_broke_off";
        self.events.as_ref().filter(|e| e.at_boundary()).map(|_| error_event(reason).into())
    }
}

type Polled = Poll<Option<Result<Frame<Bytes>, io::Error>>>;

fn broke_off() -> io::Error {
    io::Error::other("the replica broke off")
}

impl Body for Out {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        let this = self.get_mut();
        let step = match this {
            Out::Text(text) => return Poll::Ready(text.take().map(|b| Ok(Frame::data(b)))),
            Out::Broken(pause) => return pause.as_mut().poll(cx).map(|()| Some(Err(broke_off()))),
            Out::Http1(up, relaying) => {
                relaying.stream.asked();
                from_http1(up, relaying, cx)
            }
            Out::Http2(body, _, relaying) => {
                relaying.stream.asked();
                from_http2(body, relaying, cx)
            }
        };
        match step {
            Step::Frame(polled) => polled,
            Step::Broken(last) => {
                if let Some(permit) = this.permit() {
                    permit.endpoint().broke_off(clock::now());
                }
                *this = Out::Broken(Box::pin(tokio::time::sleep(BEFORE_RESET)));
                match last {
                    Some(event) => Poll::Ready(Some(Ok(Frame::data(event)))),
                    None => Pin::new(this).poll_frame(cx),
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Out::Text(text) => text.is_none(),
            Out::Http1(up, relaying) => up.is_none() && relaying.trailers.is_none(),
            Out::Http2(body, ..) => body.is_end_stream(),
            Out::Broken(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Out::Text(Some(text)) => SizeHint::with_exact(text.len() as u64),
            Out::Text(None) => SizeHint::with_exact(0),
            _ => SizeHint::default(),
        }
    }
}

impl Out {
    fn permit(&self) -> Option<&Permit> {
        match self {
            Out::Http1(up, _) => up.as_ref().map(Up::permit),
            Out::Http2(_, permit, _) => Some(permit),
            Out::Text(_) | Out::Broken(_) => None,
        }
    }
}

enum Step {
    Frame(Polled),
    Broken(Option<Bytes>),
}

fn from_http1(slot: &mut Option<Up>, relaying: &mut Relaying, cx: &mut Context<'_>) -> Step {
    loop {
        let Some(up) = slot else {
            let trailers = relaying.trailers.take().map(|t| Ok(Frame::trailers(t)));
            return Step::Frame(Poll::Ready(trailers));
        };
        let mut data = Vec::new();
        let Ok(fed) = up.advance(|d| data.extend_from_slice(d)) else {
            return Step::Broken(relaying.broken("its chunks are malformed"));
        };
        up.consume(fed.taken);
        if let Some(trailers) = up.trailers() {
            relaying.trailers = head::trailers(trailers);
        }
        up.finish_chunks();
        if up.done() {
            relaying.record.outcome = Outcome::Served;
            if let Some(up) = slot.take() {
                up.release();
            }
        }
        if !data.is_empty() {
            relaying.count(&data);
            return Step::Frame(Poll::Ready(Some(Ok(Frame::data(data.into())))));
        }
        let Some(up) = slot else { continue };
        if let Some(upload) = relaying.upload.as_mut().filter(|upload| !upload.is_done())
            && let Poll::Ready(Err(_)) = upload.poll(up, cx)
        {
            return Step::Broken(None);
        }
        match up.poll_fill(cx) {
            Poll::Ready(Ok(0)) if up.ended().is_ok() => {}
            Poll::Ready(Ok(n)) if n > 0 => {}
            Poll::Ready(_) => return Step::Broken(relaying.broken("it broke off")),
            Poll::Pending => match relaying.over(cx) {
                Poll::Ready(reason) => return Step::Broken(relaying.broken(reason)),
                Poll::Pending => return Step::Frame(Poll::Pending),
            },
        }
    }
}

fn from_http2(body: &mut Incoming, relaying: &mut Relaying, cx: &mut Context<'_>) -> Step {
    match Pin::new(&mut *body).poll_frame(cx) {
        Poll::Ready(None) => {
            relaying.record.outcome = Outcome::Served;
            Step::Frame(Poll::Ready(None))
        }
        Poll::Ready(Some(Ok(frame))) => {
            if let Some(data) = frame.data_ref() {
                relaying.count(data);
            }
            // Nobody polls once more where the frame said that it is the last.
            if frame.is_trailers() || body.is_end_stream() {
                relaying.record.outcome = Outcome::Served;
            }
            Step::Frame(Poll::Ready(Some(Ok(allowed(frame)))))
        }
        Poll::Ready(Some(Err(_))) => Step::Broken(relaying.broken("it broke off")),
        Poll::Pending => match relaying.over(cx) {
            Poll::Ready(reason) => Step::Broken(relaying.broken(reason)),
            Poll::Pending => Step::Frame(Poll::Pending),
        },
    }
}
