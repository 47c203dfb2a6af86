// SPDX-License-Identifier: Apache-2.0
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use sluice_wire::head::{self, Method, ResponseFraming, ResponseHead};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Fields, chunked, end_to_end, of_hyper, of_lines, run};
use crate::generate::{self, Dice};

#[derive(Debug, PartialEq)]
struct Message {
    status: u16,
    fields: Fields,
    body: Vec<u8>,
    trailers: Fields,
}

/// The final response that hyper reads from these bytes and the end behind them.
fn by_hyper(bytes: &[u8], method: Method) -> Result<Message, hyper::Error> {
    run(async {
        let (client, mut server) = tokio::io::duplex(1 << 20);
        let mut builder = hyper::client::conn::http1::Builder::new();
        builder.allow_obsolete_multiline_headers_in_responses(true);
        let (mut sender, connection) = builder.handshake(TokioIo::new(client)).await?;
        let request = Request::builder().method(method.as_str()).uri("/").header("host", "a");
        let response = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap());
        let serve = async {
            // An answer before the request is an answer to nobody.
            assert!(server.read(&mut [0; 256]).await.unwrap() > 0);
            server.write_all(bytes).await.unwrap();
            server.shutdown().await.unwrap();
        };
        let read = async {
            let (parts, body) = response.await?.into_parts();
            let body = body.collect().await?;
            Ok(Message {
                status: parts.status.as_u16(),
                fields: of_hyper(&parts.headers),
                trailers: body.trailers().map(of_hyper).unwrap_or_default(),
                body: body.to_bytes().to_vec(),
            })
        };
        let (read, _, ()) = tokio::join!(read, connection, serve);
        read
    })
}

struct Ours {
    message: Message,
    /// As it is sent to the client, with its body.
    sent: Vec<u8>,
}

/// The final response read by us, with everything behind its head. `None`: refused, not whole, or an upgrade.
fn by_us(mut bytes: &[u8], method: Method) -> Option<Ours> {
    let mut out = Vec::new();
    let head = loop {
        let head: ResponseHead = head::response(bytes, method, false, &mut out).ok()??;
        bytes = &bytes[head.len..];
        if head.status >= 200 {
            break head;
        }
    };
    let fields = of_lines(head::fields(&out));
    let mut sent = out;
    let (body, trailers) = match head.framing {
        ResponseFraming::None => {
            sent.extend_from_slice(b"\r\n");
            (Vec::new(), Vec::new())
        }
        ResponseFraming::Length(length) => {
            let body = bytes.get(..usize::try_from(length).ok()?)?;
            sent.extend_from_slice(format!("content-length: {length}\r\n\r\n").as_bytes());
            sent.extend_from_slice(body);
            (body.to_vec(), Vec::new())
        }
        ResponseFraming::Chunked => {
            let body = chunked(bytes)?;
            sent.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
            sent.extend_from_slice(&body.relayed);
            (body.data, body.trailers)
        }
        ResponseFraming::Close => {
            sent.extend_from_slice(b"\r\n");
            sent.extend_from_slice(bytes);
            (bytes.to_vec(), Vec::new())
        }
    };
    Some(Ours { message: Message { status: head.status, fields, body, trailers }, sent })
}

/// Line folds may become any white space.
fn without_runs_of_spaces(fields: Fields) -> Fields {
    let squeeze = |value: Vec<u8>| {
        let words: Vec<_> = value.split(|c| matches!(c, b' ' | b'\t')).filter(|w| !w.is_empty()).collect();
        words.join(&b' ')
    };
    fields.into_iter().map(|(name, value)| (name, squeeze(value))).collect()
}

fn method_of(seed: u64) -> Method {
    [Method::Get, Method::Post, Method::Head][seed as usize % 3]
}

#[test]
fn responses_are_read_as_hyper_reads_them() {
    let (mut messages, mut bodies) = (0, 0);
    for seed in 0..super::CASES {
        let bytes = generate::response(&mut Dice::new(seed));
        let method = method_of(seed);
        let Some(ours) = by_us(&bytes, method) else { continue };
        let shown = format!("seed {seed} {method:?} {}", String::from_utf8_lossy(&bytes));
        let theirs = by_hyper(&bytes, method).unwrap_or_else(|e| panic!("{e}: {shown}"));
        assert_eq!(ours.message.status, theirs.status, "{shown}");
        assert_eq!(ours.message.body, theirs.body, "{shown}");
        let mut mine = ours.message.fields.clone();
        mine.retain(|(name, _)| name != "content-length" && !name.starts_with("x-forwarded-"));
        assert_eq!(
            without_runs_of_spaces(mine),
            without_runs_of_spaces(end_to_end(&theirs.fields, false)),
            "{shown}"
        );
        for trailer in &ours.message.trailers {
            assert!(theirs.trailers.contains(trailer), "{trailer:?} {shown}");
        }
        messages += 1;
        bodies += usize::from(!ours.message.body.is_empty());
    }
    assert!(messages > super::CASES / 4 && bodies > 500, "too little was compared: {messages}, {bodies}");
}

#[test]
fn what_is_relayed_is_read_as_it_is_meant() {
    for seed in 0..super::CASES {
        let bytes = generate::response(&mut Dice::new(seed));
        let method = method_of(seed);
        let Some(ours) = by_us(&bytes, method) else { continue };
        let shown = format!("seed {seed} {method:?} {}", String::from_utf8_lossy(&ours.sent));
        let mut theirs = by_hyper(&ours.sent, method).unwrap_or_else(|e| panic!("{e}: {shown}"));
        let framed = ours.message.fields.iter().any(|(name, _)| name == "content-length");
        theirs.fields.retain(|(name, _)| name != "transfer-encoding" && (name != "content-length" || framed));
        assert_eq!(ours.message, theirs, "{shown}");
    }
}
