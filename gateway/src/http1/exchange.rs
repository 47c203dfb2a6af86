// SPDX-License-Identifier: Apache-2.0
//! One HTTP/1 exchange, from a request head to the connection's next state.
//!
//! Owns the order of the steps: identify, read, admit, forward, relay. Each step is elsewhere.

use std::pin::pin;
use std::sync::Arc;

use sluice_wire::head::{Forward, Method, RequestFraming, RequestHead};
use sluice_wire::target;

use super::body::{self, Progress, Unread};
use super::client::{Client, Left};
use super::over_http2;
use super::relay::{self, Answering};
use super::replica::Asked;
use super::upload::Upload;
use crate::admission::{Ask, Class, Model};
use crate::config::Protocol;
use crate::exchange::answer::Answer;
use crate::exchange::body::Whole;
use crate::exchange::budget::Hold;
use crate::exchange::dispatch::{self, Job};
use crate::exchange::error::Failure;
use crate::exchange::identify::{self, Target};
use crate::exchange::io::{Io, Pair};
use crate::exchange::outgoing::{self, Hop, Sent};
use crate::exchange::record::{Caller, Outcome, Record};

/// How an exchange ended before a replica's answer began.
pub(super) enum Ended {
    /// Tell the client; the request was read to its end.
    Answer(Failure),
    /// Tell the client, which may still be sending.
    Refuse(Failure),
    /// The client has left, or the connection is already dealt with.
    Left(Left),
}

impl From<Unread> for Ended {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Failed(failure) => Ended::Refuse(failure),
            Unread::NoMemory(..) => Ended::Refuse(Failure::BodyMemory),
            Unread::Gone => Ended::Left(Left::Abort),
        }
    }
}

impl<I: Io> Client<I> {
    /// Serves one request whose head has been read and consumed.
    pub(super) async fn exchange(&mut self, head: &RequestHead, forward: &mut Forward) -> Left {
        let id = forward.request_id().map_or_else(new_request_id, str::to_owned);
        let family = target::family(forward.target());
        let method = head.method.as_str();
        let from = Caller { client: self.peer.clone(), protocol: "http/1.1" };
        let mut record = Record::new(&self.gateway, from, method, forward.target(), id);
        record.join_trace(&mut forward.trace);
        let (failure, whole) = match self.steps(head, forward, &mut record).await {
            Ok(left) | Err(Ended::Left(left)) => return left,
            Err(Ended::Answer(failure)) => (failure, true),
            Err(Ended::Refuse(failure)) => (failure, false),
        };
        record.failed(&failure);
        let mut answer = failure.answer(family);
        answer.field("x-request-id", &record.request_id);
        match whole {
            true => self.answer(&answer, head).await,
            false => self.refuse(&answer, head.method == Method::Head).await,
        }
    }

    async fn steps(
        &mut self,
        head: &RequestHead,
        forward: &mut Forward,
        record: &mut Record,
    ) -> Result<Left, Ended> {
        let model = match identify::by_head(&self.gateway, head.method, forward) {
            Ok(Target::Model(model)) => Some(model),
            Ok(Target::InBody) => None,
            Ok(Target::Local(answer)) => return Ok(self.answer_locally(answer, head, record).await),
            Err(failure) if self.skip_body(head).await => return Err(Ended::Answer(failure)),
            Err(failure) => return Err(Ended::Refuse(failure)),
        };
        record.model.clone_from(&model);
        let limit = model.as_ref().map_or(self.limits.body_limit, |m| m.settings().body_limit);
        let mut hold = self.gateway.bodies.try_take(0);
        let body = match body::read(self, head, limit, hold.as_mut()).await {
            Ok(body) => body,
            Err(Unread::NoMemory(begun, progress)) if model.is_some() => {
                let Some(model) = model else { return Err(Ended::Refuse(Failure::BodyMemory)) };
                return Box::pin(self.stream(head, forward, record, (model, begun, progress))).await;
            }
            Err(unread) => return Err(unread.into()),
        };
        record.bytes_in = body.data.len() as u64;
        let model = match model {
            Some(model) => model,
            None => identify::by_body(&self.gateway, forward, &body.data).map_err(Ended::Answer)?,
        };
        record.model = Some(model.clone());
        if body.data.len() > model.settings().body_limit {
            return Err(Ended::Answer(Failure::TooLarge(model.settings().body_limit)));
        }
        if !hold.as_mut().is_none_or(|hold| hold.charge(model.bodies())) {
            return Err(Ended::Answer(Failure::BodyMemory));
        }
        self.whole(head, forward, record, (model, body, hold)).await
    }

    /// What the gateway knows by itself.
    async fn answer_locally(&mut self, mut answer: Answer, head: &RequestHead, record: &mut Record) -> Left {
        answer.field("x-request-id", &record.request_id);
        (record.status, record.outcome) = (answer.status, Outcome::Local);
        match self.skip_body(head).await {
            true => self.answer(&answer, head).await,
            false => self.refuse(&answer, head.method == Method::Head).await,
        }
    }

    /// A request that is wholly in memory; `hold` accounts for it until the answer begins.
    async fn whole(
        &mut self,
        head: &RequestHead,
        forward: &mut Forward,
        record: &mut Record,
        (model, body, hold): (Arc<Model>, Whole, Option<Hold>),
    ) -> Result<Left, Ended> {
        let settings = model.settings();
        let ask = ask(forward, body.data.len());
        let sent = body.sent(head.framing != RequestFraming::None);
        outgoing::complete(forward, &self.hop(head, &record.request_id), &settings, sent);
        if settings.protocol == Protocol::Http2 {
            return Box::pin(over_http2::exchange(self, head, forward, record, (model, ask, body))).await;
        }
        let mut body = body.into_http1();
        // A small body joins its head: one system call, and nothing else to keep.
        if body.len() <= 16 << 10 {
            forward.head.append(&mut body);
        }
        let asked = Asked { method: head.method, upgrade: head.websocket };
        let watch = self.watch.clone();
        let job = Job { model: &model, ask, asked, watch: &watch };
        let request = Pair(&forward.head, &body);
        let mut out = Vec::with_capacity(512);
        let done = self.or_gone(pin!(dispatch::whole(&job, request, record, &mut out))).await;
        let mut dispatched = match done {
            None => return Ok(Left::Abort),
            Some(done) => done.map_err(Ended::Answer)?,
        };
        while dispatched.up.is_interim() {
            self.pass_interim(head, &mut out).await?;
            let next = self.or_gone(pin!(dispatched.up.next_head(request, &watch, &mut out))).await;
            match next {
                None => return Ok(Left::Abort),
                Some(Err(broken)) => {
                    return Err(Ended::Answer(dispatch::failure(broken, dispatched.total)));
                }
                Some(Ok(())) => record.status = dispatched.up.head().status,
            }
        }
        drop((body, hold));
        let answering = Answering { head, total: dispatched.total, settings: &settings };
        Ok(relay::relay(self, dispatched.up, None, answering, &mut out, record).await)
    }

    /// A body that does not fit the budget, for a model that is known without it: sent on as it comes, once.
    async fn stream(
        &mut self,
        head: &RequestHead,
        forward: &mut Forward,
        record: &mut Record,
        (model, begun, progress): (Arc<Model>, Vec<u8>, Progress),
    ) -> Result<Left, Ended> {
        let settings = model.settings();
        if settings.protocol == Protocol::Http2 {
            return Err(Ended::Refuse(Failure::BodyMemory));
        }
        let sent = match head.framing {
            RequestFraming::Length(n) => Sent::Length(n),
            _ => Sent::Chunks,
        };
        let ask = ask(forward, 0);
        outgoing::complete(forward, &self.hop(head, &record.request_id), &settings, sent);
        let asked = Asked { method: head.method, upgrade: false };
        let watch = self.watch.clone();
        let job = Job { model: &model, ask, asked, watch: &watch };
        let done = self.or_gone(pin!(dispatch::connect_only(&job, record))).await;
        let mut dispatched = match done {
            None => return Ok(Left::Abort),
            Some(done) => done.map_err(Ended::Refuse)?,
        };
        let mut upload = Upload::new(&forward.head, begun, progress, settings.body_limit);
        let mut out = Vec::with_capacity(512);
        watch.set_until(dispatch::earlier(
            settings.timeouts.first_byte.map(crate::exchange::watch::Tick::after),
            dispatched.total,
        ));
        loop {
            upload
                .until_head(self, &mut dispatched.up, &watch, &mut out)
                .await
                .map_err(|e| e.ended(dispatched.total))?;
            if !dispatched.up.is_interim() {
                break;
            }
            self.pass_interim(head, &mut out).await?;
        }
        dispatched.up.permit().endpoint().answered();
        record.answered(dispatched.up.head().status);
        let answering = Answering { head, total: dispatched.total, settings: &settings };
        Ok(relay::relay(self, dispatched.up, Some(upload), answering, &mut out, record).await)
    }

    /// A head that is not the final one: passed on to clients that know such heads, save the `100` that was ours to send.
    async fn pass_interim(&mut self, head: &RequestHead, out: &mut Vec<u8>) -> Result<(), Ended> {
        let ours = out.starts_with(b"HTTP/1.1 100");
        if !ours && !head.http10 {
            out.extend_from_slice(b"\r\n");
            let bytes = std::mem::take(out);
            self.write(Pair(&bytes, b"")).await.map_err(|_| Ended::Left(Left::Abort))?;
        }
        out.clear();
        Ok(())
    }

    fn hop<'a>(&'a self, head: &RequestHead, request_id: &'a str) -> Hop<'a> {
        let version = if head.http10 { "1.0" } else { "1.1" };
        Hop { peer: self.peer.ip_text(), tls: self.tls, version, request_id }
    }
}

/// How a request asks to be admitted.
pub fn ask(forward: &Forward, body_bytes: usize) -> Ask {
    let deadline = forward
        .deadline_ms()
        .map(|ms| sluice_scaler::clock::now().after(sluice_core::Micros::from_millis(ms)));
    Ask { body_bytes, class: Class::Standard, deadline, hold: forward.hold() }
}

/// A fresh request id: a version 7 UUID. It tells requests apart and is no secret, so its chance need not be the
/// system's, which costs a system call.
pub fn new_request_id() -> String {
    let mut chance = [0; 10];
    fastrand::fill(&mut chance);
    uuid::Builder::from_unix_timestamp_millis(crate::admin::clock::unix_ms(), &chance).into_uuid().to_string()
}
