// SPDX-License-Identifier: Apache-2.0
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use sluice_wire::head::{self, Forward, RequestFraming, RequestHead, Rules};
use tokio::io::AsyncWriteExt;

use super::{Fields, chunked, end_to_end, of_hyper, of_lines, run, sorted};
use crate::generate::{self, Dice};

#[derive(Debug, PartialEq)]
struct Message {
    method: String,
    target: String,
    fields: Fields,
    body: Vec<u8>,
    trailers: Fields,
}

/// The messages that hyper reads from these bytes until they end or it gives up.
fn by_hyper(bytes: &[u8]) -> Vec<Message> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let service = hyper::service::service_fn(|request: Request<Incoming>| {
        let seen = Arc::clone(&seen);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await?;
            let target =
                if parts.uri == "*" { "*" } else { parts.uri.path_and_query().map_or("", |p| p.as_str()) };
            seen.lock().unwrap().push(Message {
                method: parts.method.to_string(),
                target: target.to_owned(),
                fields: of_hyper(&parts.headers),
                trailers: body.trailers().map(of_hyper).unwrap_or_default(),
                body: body.to_bytes().to_vec(),
            });
            Ok::<_, hyper::Error>(Response::new(Empty::<Bytes>::new()))
        }
    });
    run(async {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        client.write_all(bytes).await.unwrap();
        client.shutdown().await.unwrap();
        let mut builder = hyper::server::conn::http1::Builder::new();
        // Its verdict on what it does not understand is not asked for here, only what it did understand.
        let _ = builder.half_close(true).serve_connection(TokioIo::new(server), service).await;
    });
    Arc::try_unwrap(seen).unwrap().into_inner().unwrap()
}

struct Ours {
    message: Message,
    head: RequestHead,
    synthetic_host: bool,
    /// As it is sent to a replica, credentials, trace context and trailers with it.
    sent: Vec<u8>,
}

/// One message read by us and the bytes behind it. `None`: refused or not whole.
fn by_us(bytes: &[u8]) -> Option<(Ours, &[u8])> {
    let mut out = Forward::default();
    let head = head::request(bytes, &Rules::default(), &mut out).ok()??;
    let rest = &bytes[head.len..];
    let mut sent = [&out.head[..], &out.credentials, &out.trace].concat();
    let (body, trailers, taken) = match head.framing {
        RequestFraming::None => {
            sent.extend_from_slice(b"\r\n");
            (Vec::new(), Vec::new(), 0)
        }
        RequestFraming::Length(length) => {
            let body = rest.get(..usize::try_from(length).ok()?)?;
            sent.extend_from_slice(format!("content-length: {length}\r\n\r\n").as_bytes());
            sent.extend_from_slice(body);
            (body.to_vec(), Vec::new(), body.len())
        }
        RequestFraming::Chunked => {
            let body = chunked(rest)?;
            sent.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
            sent.extend_from_slice(&body.relayed);
            (body.data, body.trailers, body.taken)
        }
    };
    let aside = [&out.credentials[..], &out.trace].concat();
    let fields = head::fields(&out.head).chain(sluice_wire::fields::lines(&aside));
    let message = Message {
        method: head.method.as_str().to_owned(),
        target: String::from_utf8(out.target().to_vec()).unwrap(),
        fields: of_lines(fields),
        body,
        trailers,
    };
    let named = of_lines(sluice_wire::fields::lines(after_line(&bytes[..head.len])));
    let synthetic_host = !named.iter().any(|(name, _)| name == "host");
    Some((Ours { message, head, synthetic_host, sent }, &rest[taken..]))
}

fn after_line(head: &[u8]) -> &[u8] {
    let head = head.strip_prefix(b"\r\n").unwrap_or(head);
    &head[head.iter().position(|c| *c == b'\n').unwrap() + 1..]
}

/// An absolute target without a path means the root, or the server itself; hyper shows it as it stands.
fn same_target(ours: &str, theirs: &str) -> bool {
    ours == theirs || ours.strip_prefix('/') == Some(theirs) || (ours == "*" && matches!(theirs, "" | "/"))
}

fn agree_on_what_came(ours: &Ours, theirs: &Message, shown: &str) {
    let message = &ours.message;
    assert_eq!(message.method, theirs.method, "{shown}");
    assert!(same_target(&message.target, &theirs.target), "{:?} {:?} {shown}", message.target, theirs.target);
    assert_eq!(message.body, theirs.body, "{shown}");
    let mut mine = message.fields.clone();
    mine.retain(|(name, _)| !(name == "host" && ours.synthetic_host) && name != "connection");
    let mut hers = end_to_end(&theirs.fields, ours.head.websocket);
    if let Some(left) = ours.head.max_forwards {
        for (_, value) in hers.iter_mut().filter(|(name, _)| name == "max-forwards") {
            *value = left.saturating_sub(1).to_string().into_bytes();
        }
    }
    assert_eq!(mine, hers, "{shown}");
    for trailer in &message.trailers {
        assert!(theirs.trailers.contains(trailer), "{trailer:?} {shown}");
    }
}

#[test]
fn requests_are_read_as_hyper_reads_them() {
    let (mut messages, mut bodies) = (0, 0);
    for seed in 0..super::CASES {
        let bytes = generate::requests(&mut Dice::new(seed));
        let shown = String::from_utf8_lossy(&bytes).into_owned();
        let mut rest = &bytes[..];
        let mut ours = Vec::new();
        while let Some((read, behind)) = by_us(rest) {
            let goes_on = read.head.keep_alive && !read.head.websocket;
            ours.push(read);
            rest = behind;
            if !goes_on {
                break;
            }
        }
        if ours.is_empty() {
            continue;
        }
        let theirs = by_hyper(&bytes);
        assert!(
            theirs.len() >= ours.len(),
            "seed {seed}: hyper reads {} of {}: {shown}",
            theirs.len(),
            ours.len()
        );
        for (mine, hers) in ours.iter().zip(&theirs) {
            agree_on_what_came(mine, hers, &shown);
            messages += 1;
            bodies += usize::from(!mine.message.body.is_empty());
        }
    }
    assert!(messages > super::CASES / 4 && bodies > 500, "too little was compared: {messages}, {bodies}");
}

#[test]
fn what_is_sent_on_is_read_as_it_is_meant() {
    for seed in 0..super::CASES {
        let bytes = generate::requests(&mut Dice::new(seed));
        let Some((ours, _)) = by_us(&bytes) else { continue };
        let shown = String::from_utf8_lossy(&ours.sent).into_owned();
        // A second message behind it shows that both agree on where the first ends.
        let twice = [&ours.sent[..], b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
        let theirs = by_hyper(&twice);
        let hers = &theirs[0];
        assert!(
            (&hers.method, &hers.target, &hers.body)
                == (&ours.message.method, &ours.message.target, &ours.message.body),
            "{shown}"
        );
        let framing = ["content-length", "transfer-encoding"];
        let mut fields = hers.fields.clone();
        fields.retain(|(name, _)| !framing.contains(&name.as_str()));
        assert_eq!(sorted(fields), ours.message.fields, "{shown}");
        assert_eq!(hers.trailers, ours.message.trailers, "{shown}");
        if !ours.head.websocket {
            assert_eq!(theirs[1].target, "/next", "{shown}");
            assert_eq!(theirs.len(), 2, "{shown}");
        }
    }
}
