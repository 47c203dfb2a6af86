// SPDX-License-Identifier: Apache-2.0
use super::*;

fn answer(input: &str) -> Result<(ResponseHead, String), &'static str> {
    answer_to(Method::Post, input.as_bytes())
}

fn answer_to(method: Method, input: &[u8]) -> Result<(ResponseHead, String), &'static str> {
    let mut out = b"leftover".to_vec();
    let head = response(input, method, false, &mut out).map_err(|bad| bad.reason)?.ok_or("unfinished")?;
    Ok((head, text(&out).to_owned()))
}

fn ok(lines: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{lines}\r\n")
}

fn framing(input: &str) -> (ResponseFraming, bool) {
    let (head, _) = answer(input).expect(input);
    (head.framing, head.reusable)
}

#[test]
fn rows_that_are_refused() {
    let many = ok(&"X: a\r\n".repeat(300));
    let long = ok(&format!("X: {}\r\n", "a".repeat(200 << 10)));
    for (row, input) in [
        ("U02", ok("Content-Length: 2\r\nContent-Length: 3\r\n")),
        ("U02", ok("Content-Length: 2, 3\r\n")),
        ("U03", ok("Content-Length: 2x\r\n")),
        ("U03", ok("Content-Length:\r\n")),
        ("U03", ok("Content-Length: 2,\r\n")),
        ("U03", ok("Content-Length: -1\r\n")),
        ("U08", "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n".into()),
        ("U10", ok("X: a\rb\r\n")),
        ("U10", ok("X: a\0b\r\n")),
        ("U10", ok("X: a\nY: b\r\n")),
        ("U10", "HTTP/1.1 200 OK\nX: a\n\n".into()),
        ("U10", ok("X : a\r\n")),
        ("U10", ok("X\r\n")),
        ("U13", "HTTP/1.1 099 X\r\n\r\n".into()),
        ("U13", "HTTP/1.1 999 X\r\n\r\n".into()),
        ("U13", "HTTP/1.1 600 X\r\n\r\n".into()),
        ("U13", "HTTP/1.1 20 X\r\n\r\n".into()),
        ("U14", "garbage".into()),
        ("U14", "HTTP/2 200\r\n\r\n".into()),
        ("U14", "\r\nHTTP/1.1 200 OK\r\n\r\n".into()),
        ("U14", "HTTP/1.2 200 OK\r\n\r\n".into()),
        ("U17", ok("Transfer-Encoding: gzip\r\n")),
        ("U17", ok("Transfer-Encoding: gzip, chunked\r\n")),
        ("U17", ok("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n")),
        ("U17", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".into()),
        ("U21", many),
        ("U21", long),
    ] {
        let shown: String = input.chars().take(60).collect();
        assert!(!matches!(answer(&input), Ok(_) | Err("unfinished")), "{row} {shown:?}");
    }
}

#[test]
fn u01_chunked_wins_over_a_length_and_the_connection_is_not_used_again() {
    let both = ok("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n");
    assert_eq!(framing(&both), (ResponseFraming::Chunked, false));
    assert_eq!(answer(&both).unwrap().1, "HTTP/1.1 200 OK\r\n");
}

#[test]
fn u02_equal_lengths_are_one() {
    for lines in
        ["Content-Length: 2\r\nContent-Length: 2\r\n", "Content-Length: 2, 2\r\n", "Content-Length: 2\r\n"]
    {
        assert_eq!(framing(&ok(lines)), (ResponseFraming::Length(2), true));
    }
    let (_, head) =
        answer_to(Method::Head, ok("Content-Length: 2, 2\r\nContent-Length: 2\r\n").as_bytes()).unwrap();
    assert_eq!(head, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n");
}

#[test]
fn u05_no_content_has_no_length() {
    let (head, out) = answer("HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nab").unwrap();
    assert_eq!((head.framing, head.reusable), (ResponseFraming::None, false));
    assert_eq!(out, "HTTP/1.1 204 No Content\r\n");
    assert_eq!(framing("HTTP/1.1 204 No Content\r\n\r\n"), (ResponseFraming::None, true));
    assert_eq!(framing("HTTP/1.1 204 N\r\nContent-Length: 0\r\n\r\n"), (ResponseFraming::None, true));
    assert_eq!(
        framing("HTTP/1.1 204 N\r\nTransfer-Encoding: chunked\r\n\r\n"),
        (ResponseFraming::None, false)
    );
}

#[test]
fn u06_u22_what_speaks_of_an_absent_body_keeps_its_length() {
    let (head, out) = answer("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\nETag: x\r\n\r\n").unwrap();
    assert_eq!((head.framing, head.reusable), (ResponseFraming::None, true));
    assert_eq!(out, "HTTP/1.1 304 Not Modified\r\nETag: x\r\ncontent-length: 9\r\n");
    let (head, out) = answer_to(Method::Head, ok("Content-Length: 9\r\n").as_bytes()).unwrap();
    assert_eq!((head.framing, head.reusable), (ResponseFraming::None, true));
    assert_eq!(out, "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n");
    let (head, out) = answer_to(Method::Head, ok("Transfer-Encoding: chunked\r\n").as_bytes()).unwrap();
    assert_eq!(
        (head.framing, head.reusable, out.as_str()),
        (ResponseFraming::None, true, "HTTP/1.1 200 OK\r\n")
    );
    let both = ok("Content-Length: 9\r\nTransfer-Encoding: chunked\r\n");
    let (head, out) = answer_to(Method::Head, both.as_bytes()).unwrap();
    assert_eq!(
        (head.framing, head.reusable, out.as_str()),
        (ResponseFraming::None, false, "HTTP/1.1 200 OK\r\n")
    );
    let (head, out) = answer_to(Method::Head, b"HTTP/1.1 204 N\r\nContent-Length: 9\r\n\r\n").unwrap();
    assert_eq!((head.framing, out.as_str()), (ResponseFraming::None, "HTTP/1.1 204 N\r\n"));
}

#[test]
fn u07_interim_heads_are_read_one_by_one() {
    let first = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let both = format!("{first}{}", ok("Content-Length: 0\r\n"));
    let (head, out) = answer(&both).unwrap();
    assert_eq!((head.len, head.status, head.framing), (first.len(), 103, ResponseFraming::None));
    assert!(head.reusable);
    assert_eq!(out, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n");
    let (head, out) = answer("HTTP/1.1 100 Continue\r\nContent-Length: 3\r\n\r\n").unwrap();
    assert_eq!((head.status, head.framing, head.reusable), (100, ResponseFraming::None, false));
    assert_eq!(out, "HTTP/1.1 100 Continue\r\n");
}

#[test]
fn u08_protocols_are_switched_only_when_asked() {
    let switch = |input: &str, asked| {
        let mut out = Vec::new();
        let head =
            response(input.as_bytes(), Method::Get, asked, &mut out).map_err(|bad| bad.reason)?.unwrap();
        Ok::<_, &str>((head.framing, head.reusable, String::from_utf8(out).unwrap()))
    };
    let full = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Accept: x\r\n\r\n";
    let sent = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\
        connection: upgrade\r\n";
    assert_eq!(switch(full, true), Ok((ResponseFraming::None, false, sent.to_owned())));
    assert!(switch(full, false).is_err());
    assert!(switch("HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", true).is_err());
    assert!(switch("HTTP/1.1 101 S\r\nUpgrade: websocket\r\n\r\n", true).is_err());
    let (_, _, out) =
        switch("HTTP/1.1 426 U\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", true).unwrap();
    assert_eq!(out, "HTTP/1.1 426 U\r\n");
}

#[test]
fn u09_a_folded_value_becomes_one_line() {
    let (_, out) = answer(&ok("X: a\r\n b\r\n\t  c\r\nY:\r\n d\r\nZ: e\r\n \r\n")).unwrap();
    assert_eq!(out, "HTTP/1.1 200 OK\r\nX: a b c\r\nY: d\r\nZ: e\r\n");
    assert!(answer(&ok("Content-Length: 1\r\n 2\r\n")).is_err(), "no fold makes a number");
    assert!(answer("HTTP/1.1 200 OK\r\n X: a\r\n\r\n").is_err());
}

#[test]
fn u11_a_reason_is_not_needed() {
    for line in ["HTTP/1.1 200", "HTTP/1.1 200 "] {
        let (head, out) = answer(&format!("{line}\r\nContent-Length: 0\r\n\r\n")).unwrap();
        assert_eq!((head.status, out.as_str()), (200, "HTTP/1.1 200 \r\n"));
    }
}

#[test]
fn u12_without_framing_the_body_ends_with_the_connection() {
    assert_eq!(framing("HTTP/1.0 200 OK\r\n\r\nx"), (ResponseFraming::Close, false));
    assert_eq!(framing(&ok("Connection: keep-alive\r\n")), (ResponseFraming::Close, false));
    assert_eq!(answer("HTTP/1.0 200 OK\r\n\r\n").unwrap().1, "HTTP/1.1 200 OK\r\n");
}

#[test]
fn u18_u20_fc_08_what_belongs_to_the_hop_stays_behind() {
    let (head, out) =
        answer(&ok("Connection: X-Secret\r\nConnection: x-other\r\nX-Secret: 1\r\nX-Other: 1\r\n\
            Keep-Alive: timeout=5\r\n\
         Trailer: x\r\nProxy-Authenticate: Basic\r\nUpgrade: h2c\r\nServer: s\r\nContent-Length: 0\r\n"))
        .unwrap();
    assert_eq!(out, "HTTP/1.1 200 OK\r\nServer: s\r\n");
    assert!(head.reusable && head.declares_trailers);
}

#[test]
fn u19_the_replica_decides_whether_its_connection_stays() {
    for (version, lines, stays) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: keep-alive\r\n", true),
    ] {
        let input = format!("HTTP/{version} 200 OK\r\nContent-Length: 0\r\n{lines}\r\n");
        assert_eq!(framing(&input).1, stays, "{input:?}");
    }
}

#[test]
fn what_is_the_gateways_to_say_is_left_out() {
    let (_, out) = answer(&ok("X-Sluice-Replica: 1\r\nX-Request-Id: r\r\nX: 1\r\n")).unwrap();
    assert_eq!(out, "HTTP/1.1 200 OK\r\nX: 1\r\n");
}

#[test]
fn what_the_relay_must_know_is_told() {
    let (head, _) =
        answer(&ok("Content-Type: Text/Event-Stream ;charset=utf-8\r\nCache-Control: no-cache\r\n")).unwrap();
    assert!(head.event_stream && head.has_cache_control && !head.has_x_accel_buffering);
    let (head, _) = answer(&ok("Content-Type: text/event-streams\r\nX-Accel-Buffering: no\r\n")).unwrap();
    assert!(!head.event_stream && !head.has_cache_control && head.has_x_accel_buffering);
}

#[test]
fn opaque_bytes_and_order_are_kept() {
    let mut out = Vec::new();
    let input = b"HTTP/1.1 200 OK\r\nX: \xe9\r\nset-cookie: a\r\nSet-Cookie: b\r\nX: 2\r\n\r\n";
    response(input, Method::Get, false, &mut out).unwrap().unwrap();
    assert_eq!(out, &input[..input.len() - 2]);
    let names: Vec<_> = fields(&out).map(|(name, _)| text(name)).collect();
    assert_eq!(names, ["X", "set-cookie", "Set-Cookie", "X"]);
}
