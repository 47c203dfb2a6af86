// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;

#[test]
fn a_request_keeps_its_end_to_end_fields_and_loses_the_rest() {
    let input = b"POST /v1/chat/completions?a=1 HTTP/1.1\r\nHost: a:80\r\nContent-Length: 5\r\n\
        Connection: keep-alive, x-hop\r\nX-Hop: 1\r\nTE: trailers\r\nAuthorization: Bearer s\r\nX-Request-Id: r1\r\n\
        X-Sluice-Model: org/m\r\nX-Sluice-Other: 1\r\nX-Forwarded-For: 1.2.3.4\r\nAccept: */*\r\n\r\nhello";
    let mut out = Forward::default();
    let head = request(input, &Rules::default(), &mut out).unwrap().unwrap();
    assert_eq!(head.len, input.len() - 5);
    assert_eq!(head.framing, RequestFraming::Length(5));
    assert!(head.keep_alive && head.te_trailers && !head.websocket);
    let sent = "POST /v1/chat/completions?a=1 HTTP/1.1\r\nHost: a:80\r\nAccept: */*\r\n";
    assert_eq!(std::str::from_utf8(&out.head).unwrap(), sent);
    assert_eq!(out.credentials, b"Authorization: Bearer s\r\n");
    assert_eq!((out.model(), out.request_id(), out.host()), (Some("org/m"), Some("r1"), "a:80"));
    assert_eq!(out.target(), b"/v1/chat/completions?a=1");
}

#[test]
fn a_response_loses_what_belongs_to_its_hop() {
    let input = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\
        Connection: X-Secret\r\nX-Secret: 1\r\nKeep-Alive: timeout=5\r\nServer: s\r\n\r\n";
    let mut out = Vec::new();
    let head = response(input, Method::Post, false, &mut out).unwrap().unwrap();
    assert_eq!((head.len, head.status, head.framing), (input.len(), 200, ResponseFraming::Chunked));
    assert!(head.reusable && head.event_stream);
    let kept: Vec<_> = fields(&out).collect();
    let stream: (&[u8], &[u8]) = (b"Content-Type", b"text/event-stream; charset=utf-8");
    assert_eq!(kept, [stream, (b"Server", b"s")]);
}
