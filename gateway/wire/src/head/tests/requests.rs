// SPDX-License-Identifier: Apache-2.0
use super::*;

/// `POST` with a host and these lines.
fn post(lines: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n")
}

fn get(lines: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n")
}

/// Of the forwarded head, what stands behind request line and host.
fn kept(lines: &str) -> String {
    let (_, out) = accepted(&get(lines));
    text(&out.head).strip_prefix("GET / HTTP/1.1\r\nHost: a\r\n").unwrap().to_owned()
}

#[test]
fn framing_rows() {
    let te = "Transfer-Encoding: chunked\r\n";
    let rows: Vec<(&str, String, u16)> = vec![
        ("F01", post(&format!("Content-Length: 5\r\n{te}")), 400),
        ("F01", post(&format!("{te}Content-Length: 5\r\n")), 400),
        ("F02", post("Content-Length: 5\r\nContent-Length: 6\r\n"), 400),
        ("F03", post("Content-Length: 5\r\nContent-Length: 5\r\n"), 400),
        ("F04", post("Content-Length: 5, 5\r\n"), 400),
        ("F05", post("Content-Length: +5\r\n"), 400),
        ("F05", post("Content-Length: -5\r\n"), 400),
        ("F05", post("Content-Length: 0x5\r\n"), 400),
        ("F05", post("Content-Length:\r\n"), 400),
        ("F05", post("Content-Length: 5 5\r\n"), 400),
        ("F05", post("Content-Length: 18446744073709551616\r\n"), 400),
        ("F06", post("Transfer-Encoding: chunked, chunked\r\n"), 400),
        ("F07", post(&format!("{te}{te}")), 400),
        ("F07", post(&format!("Transfer-Encoding: gzip\r\n{te}")), 400),
        ("F08", post("Transfer-Encoding: gzip, chunked\r\n"), 501),
        ("F09", post("Transfer-Encoding: identity\r\n"), 400),
        ("F09", post("Transfer-Encoding: xchunked\r\n"), 400),
        ("F09", post("Transfer-Encoding: \x0bchunked\r\n"), 400),
        ("F09", post("Transfer-Encoding: \"chunked\"\r\n"), 400),
        ("F09", post("Transfer-Encoding: chunked, identity\r\n"), 400),
        ("F09", post("Transfer-Encoding: chunked;q=1\r\n"), 400),
        ("F09", post("Transfer-Encoding: , chunked\r\n"), 400),
        ("F09", post("Transfer-Encoding:\r\n"), 400),
        ("F10", post("Transfer-Encoding : chunked\r\n"), 400),
        ("F10", post("Content-Length : 5\r\n"), 400),
        ("F11", format!("POST / HTTP/1.0\r\nHost: a\r\n{te}\r\n"), 400),
        ("F12", post("Content_Length: 5\r\n"), 400),
        ("F12", post("content-length: 5\r\nTransfer_Encoding: chunked\r\n"), 400),
        ("F12", post("X_Sluice_Model: m\r\n"), 400),
        ("F12", post("x_forwarded_for: 1.2.3.4\r\n"), 400),
        ("F12", post("x_sluice_a_name_that_is_longer_than_any_known_one: 1\r\n"), 400),
        ("F12", post("x_other: 1\r\n"), 200),
        ("F24", post("Expect: 200-ok\r\n"), 417),
        ("F24", post("Expect: 100-continue, x\r\n"), 417),
    ];
    for (row, input, status) in rows {
        assert_eq!(status_of(input.as_bytes()), status, "{row} {input:?}");
    }
}

#[test]
fn f18_f19_f21_the_head_ends_where_it_ends_and_the_body_where_it_says() {
    let (head, _) = accepted(&format!("{}hello more", post("Content-Length: 5\r\n")));
    assert_eq!((head.len, head.framing), (post("Content-Length: 5\r\n").len(), RequestFraming::Length(5)));
    let (head, _) = accepted(&format!("{}hello", get("Content-Length: 5\r\n")));
    assert_eq!(head.framing, RequestFraming::Length(5), "F19: a GET may have a body");
    let (head, _) = accepted(&format!("{}{}", get(""), get("")));
    assert_eq!((head.len, head.framing), (get("").len(), RequestFraming::None));
    let (head, _) = accepted(&post("Content-Length: 0\r\n"));
    assert_eq!(head.framing, RequestFraming::Length(0));
    let (head, out) = accepted(&post("transfer-encoding: CHUNKED\r\n"));
    assert_eq!(head.framing, RequestFraming::Chunked);
    assert_eq!(text(&out.head), "POST / HTTP/1.1\r\nHost: a\r\n", "framing is not in the forwarded head");
}

#[test]
fn f22_a_request_behind_a_refused_upgrade_is_its_own() {
    let first = get("Connection: Upgrade\r\nUpgrade: h2c\r\n");
    let (head, _) = accepted(&format!("{first}{}", get("")));
    assert!(!head.websocket);
    assert_eq!(head.len, first.len());
}

#[test]
fn f23_fc_10_a_continue_is_owed_only_where_a_body_waits_for_it() {
    for (input, owed) in [
        (post("Content-Length: 5\r\nExpect: 100-continue\r\n"), true),
        (post("Transfer-Encoding: chunked\r\nExpect: 100-Continue\r\n"), true),
        (post("Content-Length: 0\r\nExpect: 100-continue\r\n"), false),
        (get("Expect: 100-continue\r\n"), false),
        ("POST / HTTP/1.0\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n".to_owned(), false),
    ] {
        let (head, out) = accepted(&input);
        assert_eq!(head.expect_continue, owed, "{input:?}");
        assert!(!text(&out.head).to_lowercase().contains("expect"), "not sent on: the answer is ours");
    }
}

#[test]
fn head_rows() {
    let host = "Host: a\r\n\r\n";
    let line = |line: &str| format!("{line}\r\n{host}");
    let rows: Vec<(&str, String, u16)> = vec![
        ("L01", "GET / HTTP/1.1\r\n\r\n".into(), 400),
        ("L01", "GET http://a/ HTTP/1.1\r\n\r\n".into(), 400),
        ("L02", get("Host: a\r\n"), 400),
        ("L03", "GET / HTTP/1.1\r\nHost: a b/c\r\n\r\n".into(), 400),
        ("L03", "GET / HTTP/1.1\r\nHost: u@h\r\n\r\n".into(), 400),
        ("L03", "GET / HTTP/1.1\r\nHost: a,b\r\n\r\n".into(), 400),
        ("L03", "GET / HTTP/1.1\r\nHost: a:x\r\n\r\n".into(), 400),
        ("L03", "GET / HTTP/1.1\r\nHost: a:1:2\r\n\r\n".into(), 400),
        ("L03", "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n".into(), 400),
        ("L03", "GET / HTTP/1.1\r\nHost: [x]\r\n\r\n".into(), 400),
        ("L03", "GET / HTTP/1.1\r\nHost: :80\r\n\r\n".into(), 400),
        ("L03", "GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n".into(), 200),
        ("L03", "GET / HTTP/1.1\r\nHost: my_host.ns.svc:80\r\n\r\n".into(), 200),
        ("L04", "GET / HTTP/1.1\r\nHost:\r\n\r\n".into(), 400),
        ("L05", line("GET http://b/ HTTP/1.1"), 400),
        ("L05", line("GET http://a:81/ HTTP/1.1"), 400),
        ("L06", line("GET http://u@a/ HTTP/1.1"), 400),
        ("L06", line("GET ftp://a/ HTTP/1.1"), 400),
        ("L06", line("GET http:/a HTTP/1.1"), 400),
        ("L07", "GET / HTTP/1.1\nHost: a\n\n".into(), 400),
        ("L07", "GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n".into(), 400),
        ("L07", "GET / HTTP/1.1\r\nHost: a\r\n\n".into(), 400),
        ("L08", get("X: a\rb\r\n"), 400),
        ("L08", get("X: a\0b\r\n"), 400),
        ("L08", get("X: a\x7fb\r\n"), 400),
        ("L09", get("X: a\r\n b\r\n"), 400),
        ("L09", get("X:\r\n b\r\n"), 400),
        ("L10", "GET / HTTP/1.1\r\n Host: a\r\n\r\n".into(), 400),
        ("L11", get(": v\r\n"), 400),
        ("L11", get("X\r\n"), 400),
        ("L11", get("X y: v\r\n"), 400),
        ("L11", get("X(: v\r\n"), 400),
        ("L11", get("X\u{e9}: v\r\n"), 400),
        ("L12", line("GET /a b HTTP/1.1"), 400),
        ("L12", line("GET  / HTTP/1.1"), 400),
        ("L12", line("GET /  HTTP/1.1"), 400),
        ("L12", line("GET / HTTP/1.1 "), 400),
        ("L13", line("GET /#x HTTP/1.1"), 400),
        ("L13", line("GET /?a#x HTTP/1.1"), 400),
        ("L14", line("GET /\u{e9} HTTP/1.1"), 400),
        ("L14", line("GET /\\ HTTP/1.1"), 400),
        ("L14", line("GET /<a> HTTP/1.1"), 400),
        ("L16", line("GET foo HTTP/1.1"), 400),
        ("L16", line("GET * HTTP/1.1"), 400),
        ("L17", line("TRACE / HTTP/1.1"), 405),
        ("L18", "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n".into(), 405),
        ("L19", line("BREW / HTTP/1.1"), 501),
        ("L19", line("get / HTTP/1.1"), 501),
        ("L20", line("GET / HTTP/1.2"), 505),
        ("L20", line("GET / HTTP/2.0"), 505),
        ("L20", line("GET / HTTP/0.9"), 505),
        ("L20", line("GET / http/1.1"), 505),
        ("L20", "GET /\r\n\r\n".into(), 400),
        ("L21", line(&format!("GET /{} HTTP/1.1", "a".repeat(9_000))), 200),
        ("L21", line(&format!("GET /{} HTTP/1.1", "a".repeat(16 << 10))), 414),
        ("L21", line(&format!("GET /{} HTTP/1.1", "a".repeat(70_000))), 414),
        ("L22", get(&format!("X: {}\r\n", "a".repeat(60 << 10))), 200),
        ("L22", get(&format!("X: {}\r\n", "a".repeat(64 << 10))), 431),
        ("L22", get(&format!("X: {}\r\n", "a".repeat(1_200_000))), 431),
        ("L23", get(&"X: a\r\n".repeat(127)), 200),
        ("L23", get(&"X: a\r\n".repeat(128)), 431),
        ("L23", get(&"X: a\r\n".repeat(257)), 431),
        ("L24", format!("\r\n{}", get("")), 200),
        ("L24", format!("\r\n\r\n{}", get("")), 400),
        ("L30", "\x16\x03\x01\x02\0\x01\0\x01\u{fc}".into(), 400),
    ];
    for (row, input, status) in rows {
        let shown: String = input.chars().take(80).collect();
        assert_eq!(status_of(input.as_bytes()), status, "{row} {shown:?}");
    }
    assert_eq!(status_of(b"GET /\xe9\xff HTTP/1.1\r\nHost: a\r\n\r\n"), 400, "L14");
    assert_eq!(status_of(&[0x16]), 400, "L30: known from its first byte");
    assert_eq!(status_of(b"GET / HTTP/1.1\n"), 400, "L07: known before the head ends");
}

#[test]
fn every_limit_is_met_without_the_end_of_the_head() {
    let line = format!("GET /{}", "a".repeat(16 << 10));
    assert_eq!(status_of(line.as_bytes()), 0);
    assert_eq!(status_of(format!("{line}{}", "a".repeat(32)).as_bytes()), 414);
    let long = format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(64 << 10));
    assert_eq!(status_of(&long.as_bytes()[..(64 << 10) - 1]), 0);
    assert_eq!(status_of(&long.as_bytes()[..64 << 10]), 431);
    let lead = format!("\r\n{long}");
    assert_eq!(status_of(&lead.as_bytes()[..64 << 10]), 431, "a buffer of the limit's size is enough");
}

#[test]
fn limits_come_from_the_rules() {
    let judge = |rules: Rules, input: &str| {
        request(input.as_bytes(), &rules, &mut Forward::default())
            .map_err(|refused| refused.status)
            .map(|_| ())
    };
    assert_eq!(judge(Rules { head_bytes_max: 20, ..Rules::default() }, &get("")), Err(431));
    assert_eq!(judge(Rules { target_bytes_max: 0, ..Rules::default() }, &get("")), Err(414));
    assert_eq!(judge(Rules { fields_max: 1, ..Rules::default() }, &get("X: 1\r\n")), Err(431));
    assert_eq!(judge(Rules { fields_max: 1, ..Rules::default() }, &get("")), Ok(()));
    let most = Rules { fields_max: usize::MAX, ..Rules::default() };
    assert_eq!(judge(most.clone(), &get(&"X: a\r\n".repeat(FIELDS_MAX - 1))), Ok(()));
    assert_eq!(judge(most, &get(&"X: a\r\n".repeat(FIELDS_MAX))), Err(431));
}

#[test]
fn l06_absolute_form_becomes_origin_form() {
    for (method, target, host, forwarded) in [
        ("GET", "http://a/x?y", "a", "/x?y"),
        ("GET", "HTTP://A/x", "a", "/x"),
        ("GET", "http://a", "a", "/"),
        ("GET", "http://a?x=/", "a", "/?x=/"),
        ("GET", "http://a:80/", "a", "/"),
        ("GET", "http://a/", "a:80", "/"),
        ("GET", "https://a/", "a:443", "/"),
        ("GET", "http://[::1]:8080/x", "[::1]:8080", "/x"),
        ("OPTIONS", "http://a", "a", "*"),
        ("OPTIONS", "http://a/", "a", "/"),
        ("OPTIONS", "*", "a", "*"),
    ] {
        let (_, out) = accepted(&format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(text(&out.head), format!("{method} {forwarded} HTTP/1.1\r\nHost: {host}\r\n"));
        assert_eq!(text(out.target()), forwarded);
        assert_eq!(out.host(), host);
    }
}

#[test]
fn l15_dot_segments_are_forwarded_as_they_are() {
    for target in ["/a/../admin", "/a/%2e%2e/b", "/a//b?x=%zz", "/{a}|\"^[]?{b}\\`^|"] {
        let (_, out) = accepted(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(text(out.target()), target);
    }
}

#[test]
fn l24_one_empty_line_before_a_request_counts_as_used() {
    let (head, _) = accepted(&format!("\r\n{}", get("")));
    assert_eq!(head.len, get("").len() + 2);
}

#[test]
fn l25_an_http_1_0_request_without_host_gets_one() {
    let (head, out) = accepted("GET / HTTP/1.0\r\n\r\n");
    assert!(head.http10 && !head.keep_alive);
    assert_eq!(text(&out.head), "GET / HTTP/1.1\r\nhost: localhost\r\n");
    assert_eq!(out.host(), "localhost");
    let (_, out) = accepted("GET http://b:8/x HTTP/1.0\r\n\r\n");
    assert_eq!(text(&out.head), "GET /x HTTP/1.1\r\nhost: b:8\r\n");
    let rules = Rules { default_host: "models.test".into(), ..Rules::default() };
    let mut out = Forward::default();
    request(b"GET / HTTP/1.0\r\n\r\n", &rules, &mut out).unwrap();
    assert_eq!(out.host(), "models.test");
}

#[test]
fn l29_opaque_bytes_in_a_value_go_on_unchanged() {
    let (_, out) = read(b"GET / HTTP/1.1\r\nHost: a\r\nX: \xe9\xff\tb\r\n\r\n").unwrap().unwrap();
    assert!(out.head.ends_with(b"X: \xe9\xff\tb\r\n"));
}

#[test]
fn connection_rows() {
    let members = |count: usize| (0..count).map(|i| format!("x-{i}")).collect::<Vec<_>>().join(", ");
    let rows: Vec<(&str, String, u16)> = vec![
        ("H02", get("Connection: Authorization\r\nAuthorization: x\r\n"), 400),
        ("H02", get("Connection: close\r\nConnection: x-api-key\r\n"), 400),
        ("H02", get("Connection: Cookie\r\n"), 400),
        ("H02", get("Connection: traceparent\r\n"), 400),
        ("H02", get("Connection: x-request-id\r\n"), 400),
        ("H02", get("Connection: X-Sluice-Model\r\n"), 400),
        ("H02", get("Connection: X-Sluice-Anything\r\n"), 400),
        ("H02", get("Connection: Sec-WebSocket-Key\r\n"), 400),
        ("H03", get("Connection: Host\r\n"), 400),
        ("H03", get("Connection: X-Forwarded-For\r\n"), 400),
        ("H03", get("Connection: X-Forwarded-Anything\r\n"), 400),
        ("H04", get("Connection: Content-Length\r\n"), 400),
        ("H04", get("Connection: Transfer-Encoding\r\n"), 400),
        ("H04", get("Connection: content-type\r\n"), 400),
        ("H05", get(&format!("Connection: {}\r\n", members(12))), 400),
        ("H05", get(&format!("Connection: {}\r\n", members(10))), 200),
        ("H05", get(&format!("Connection: {}\r\nConnection: {}\r\n", members(6), members(6))), 400),
        ("H05", get("Connection: a b\r\n"), 400),
        ("H05", get("Connection: , close,,\r\n"), 200),
        ("H06", get("Connection: TE, Keep-Alive, Trailer, Proxy-Authorization\r\n"), 200),
        ("H11", get("Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"), 400),
        ("H11", get("Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: short\r\n"), 400),
        ("H14", "OPTIONS / HTTP/1.1\r\nHost: a\r\nMax-Forwards: x\r\n\r\n".into(), 400),
        ("H14", "OPTIONS / HTTP/1.1\r\nHost: a\r\nMax-Forwards: 1\r\nMax-Forwards: 0\r\n\r\n".into(), 400),
    ];
    for (row, input, status) in rows {
        assert_eq!(status_of(input.as_bytes()), status, "{row} {input:?}");
    }
}

#[test]
fn h01_fc_08_what_belongs_to_the_hop_stays_behind() {
    assert_eq!(kept("Connection: X-Foo\r\nX-Foo: 1\r\nx-foo: 2\r\nX-Fo: 3\r\n"), "X-Fo: 3\r\n");
    assert_eq!(kept("X-Foo: 1\r\nConnection: close\r\nX-Bar: 1\r\nConnection: x-foo\r\n"), "X-Bar: 1\r\n");
    let lines = "Connection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=1\r\n\
        Proxy-Connection: keep-alive\r\n\
        Proxy-Authorization: p\r\nTE: trailers\r\nTrailer: x\r\nHTTP2-Settings: x\r\n";
    assert_eq!(kept(lines), "");
}

#[test]
fn the_client_decides_whether_its_connection_stays() {
    for (version, lines, stays) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: keep-alive\r\nConnection: x, CLOSE\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
        ("1.0", "Proxy-Connection: keep-alive\r\n", false),
    ] {
        let (head, _) = accepted(&format!("GET / HTTP/{version}\r\nHost: a\r\n{lines}\r\n"));
        assert_eq!(head.keep_alive, stays, "{version} {lines:?}");
    }
}

#[test]
fn h06_trailers_are_wanted_and_announced() {
    let (head, _) = accepted(&get("TE: deflate, Trailers\r\nTrailer: x-a\r\n"));
    assert!(head.te_trailers && head.declares_trailers);
    let (head, _) = accepted(&get("TE: deflate\r\n"));
    assert!(!head.te_trailers && !head.declares_trailers);
}

#[test]
fn h07_forwarding_fields_pass_only_from_a_trusted_peer() {
    let input =
        get("X-Forwarded-For: 1.2.3.4\r\nForwarded: for=x\r\nX-Real-IP: 1\r\nX-Forwarded-Proto: https\r\n");
    let (_, out) = accepted(&input);
    assert_eq!(text(&out.head), "GET / HTTP/1.1\r\nHost: a\r\n");
    let rules = Rules { trust_forwarded: true, ..Rules::default() };
    let mut out = Forward::default();
    request(input.as_bytes(), &rules, &mut out).unwrap();
    assert_eq!(text(&out.head), &input[..input.len() - 2]);
}

#[test]
fn h08_internal_fields_are_read_and_removed() {
    let (_, out) =
        accepted(&get("X-Sluice-Model: org/m:q4\r\nx-sluice-deadline-ms: 1500\r\nx-sluice-hold: 0\r\n\
            x-sluice-priority: batch\r\n\
         X-SLUICE-REPLICA: 7\r\nx-stainless-retry-count: 2\r\nVia: 1.1 p\r\nContent-Type: text/plain\r\n\
         Content-Encoding: gzip\r\nX-Request-Id: r-1\r\n"));
    assert_eq!((out.model(), out.deadline_ms(), out.hold()), (Some("org/m:q4"), Some(1500), false));
    assert_eq!((out.priority(), out.retry_count(), out.via()), (Some("batch"), Some(2), true));
    assert_eq!((out.content_type(), out.content_encoding()), (Some(&b"text/plain"[..]), Some(&b"gzip"[..])));
    assert_eq!(out.request_id(), Some("r-1"));
    let head = "GET / HTTP/1.1\r\nHost: a\r\nx-stainless-retry-count: 2\r\nVia: 1.1 p\r\n\
        Content-Type: text/plain\r\n\
        Content-Encoding: gzip\r\n";
    assert_eq!(text(&out.head), head);
}

#[test]
fn without_internal_fields_nothing_is_assumed() {
    let (_, out) = accepted(&get(""));
    assert_eq!((out.model(), out.deadline_ms(), out.hold(), out.priority()), (None, None, true, None));
    assert_eq!((out.request_id(), out.retry_count(), out.via()), (None, None, false));
    assert_eq!((out.content_type(), out.content_encoding()), (None, None));
}

#[test]
fn internal_fields_that_make_no_sense_are_refused_by_name() {
    for (line, names) in [
        ("x-sluice-deadline-ms: abc", "x-sluice-deadline-ms"),
        ("x-sluice-deadline-ms: -1", "x-sluice-deadline-ms"),
        ("x-sluice-deadline-ms: 1\r\nx-sluice-deadline-ms: 1", "x-sluice-deadline-ms"),
        ("x-sluice-hold: no", "x-sluice-hold"),
        ("x-sluice-hold:", "x-sluice-hold"),
        ("x-sluice-priority: a b", "x-sluice-priority"),
        ("x-sluice-priority:", "x-sluice-priority"),
        ("x-sluice-model:", "model"),
        ("x-sluice-model: a\tb", "model"),
        ("x-sluice-model: a\r\nx-sluice-model: b", "model"),
        ("x-sluice-model: a\r\nx-gateway-model-name: b", "model"),
    ] {
        let refused = read(get(&format!("{line}\r\n")).as_bytes()).expect_err(line);
        assert_eq!(refused.status, 400, "{line}");
        assert!(refused.reason.contains(names), "{line}: {refused}");
    }
    let refused = read(b"GET / HTTP/1.1\r\nHost: a\r\nx-sluice-model: \xff\r\n\r\n").err().unwrap();
    assert!(refused.reason.contains("model"));
}

#[test]
fn other_gateways_names_for_the_model_are_understood_and_passed_on() {
    for name in ["x-gateway-model-name", "X-AI-EG-Model"] {
        let (_, out) = accepted(&get(&format!("{name}: m\r\nx-sluice-model: m\r\n")));
        assert_eq!(out.model(), Some("m"));
        assert!(text(&out.head).ends_with(&format!("{name}: m\r\n")));
    }
}

#[test]
fn a_request_id_is_taken_only_when_it_is_sane() {
    let long = "x".repeat(129);
    for (value, taken) in
        [("abc-1", true), ("", false), ("a b", false), ("\u{e9}", false), (&long, false), (&long[1..], true)]
    {
        let (_, out) = accepted(&get(&format!("X-Request-ID: {value}\r\n")));
        assert_eq!(out.request_id(), taken.then_some(value), "{value:?}");
        assert_eq!(text(&out.head), "GET / HTTP/1.1\r\nHost: a\r\n");
    }
}

#[test]
fn credentials_are_set_apart() {
    let (_, out) = accepted(&get("Authorization: Bearer s\r\nX: 1\r\nx-api-key: k\r\napi-key: z\r\n"));
    assert_eq!(text(&out.head), "GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n");
    assert_eq!(text(&out.credentials), "Authorization: Bearer s\r\nx-api-key: k\r\napi-key: z\r\n");
    let lines: Vec<_> = crate::fields::lines(&out.credentials).collect();
    assert_eq!(lines[1], (&b"x-api-key"[..], &b"k"[..]));
}

#[test]
fn the_trace_context_is_set_apart() {
    let (_, out) = accepted(&get("TraceParent: 00-a\r\nX: 1\r\ntracestate: a=1\r\ntracestate: b=2\r\n"));
    assert_eq!(text(&out.head), "GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n");
    assert_eq!(text(&out.trace), "TraceParent: 00-a\r\ntracestate: a=1\r\ntracestate: b=2\r\n");
}

#[test]
fn h10_upgrades_other_than_a_websocket_are_left_out() {
    assert_eq!(kept("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n"), "");
    assert_eq!(kept("Upgrade: websocket\r\n"), "");
    assert_eq!(kept("Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n"), "");
}

#[test]
fn a_websocket_handshake_keeps_its_upgrade() {
    let lines = "Connection: keep-alive, Upgrade, x-hop\r\nUpgrade: WebSocket\r\nx-hop: 1\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";
    let (head, out) = accepted(&get(lines));
    assert!(head.websocket);
    let sent = "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: WebSocket\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
        Sec-WebSocket-Version: 13\r\nconnection: upgrade\r\n";
    assert_eq!(text(&out.head), sent);
    for not in [
        post(lines),
        get(&format!("{lines}Content-Length: 5\r\n")),
        format!("GET / HTTP/1.0\r\nHost: a\r\n{lines}\r\n"),
    ] {
        let (head, out) = accepted(&not);
        assert!(!head.websocket, "{not:?}");
        assert!(!text(&out.head).to_lowercase().contains("upgrade"), "{not:?}");
    }
}

#[test]
fn h14_max_forwards_of_options_counts_down() {
    let options = |lines: &str| accepted(&format!("OPTIONS / HTTP/1.1\r\nHost: a\r\n{lines}\r\n"));
    let (head, _) = options("Max-Forwards: 0\r\n");
    assert_eq!(head.max_forwards, Some(0));
    let (head, out) = options("Max-Forwards: 7\r\n");
    assert_eq!(head.max_forwards, Some(7));
    assert!(text(&out.head).ends_with("Max-Forwards: 6\r\n"));
    let (head, out) = accepted(&get("Max-Forwards: x\r\n"));
    assert_eq!(head.max_forwards, None);
    assert!(text(&out.head).ends_with("Max-Forwards: x\r\n"));
}

#[test]
fn fields_that_may_come_once_come_once() {
    for line in ["Content-Type: a", "Content-Encoding: gzip", "Upgrade: x", "Sec-WebSocket-Key: k"] {
        assert_eq!(status_of(get(&format!("{line}\r\n{line}\r\n")).as_bytes()), 400, "{line}");
    }
    assert_eq!(status_of(get("Via: 1.1 a\r\nVia: 1.1 b\r\nAccept: a\r\nAccept: b\r\n").as_bytes()), 200);
}

#[test]
fn a_buffer_is_cleared_before_it_is_used_again() {
    let mut out = Forward::default();
    let first =
        get("Authorization: s\r\nx-sluice-model: m\r\nx-sluice-hold: 0\r\nX-Request-Id: r\r\nVia: 1.1 p\r\n");
    request(first.as_bytes(), &Rules::default(), &mut out).unwrap();
    request(get("").as_bytes(), &Rules::default(), &mut out).unwrap();
    assert_eq!(text(&out.head), "GET / HTTP/1.1\r\nHost: a\r\n");
    assert_eq!((out.credentials.len(), out.model(), out.hold()), (0, None, true));
    assert_eq!((out.request_id(), out.via()), (None, false));
    assert_eq!(out.values, b"a", "only the host is kept: what is reused must not grow");
}
