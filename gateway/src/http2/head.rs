// SPDX-License-Identifier: Apache-2.0
//! Heads between HTTP/2 and the codec (pure): requests are validated as HTTP/1.1 heads, so that every rule has one home.

use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Request, Response, StatusCode, Uri, Version, request};
use sluice_wire::head::{self, Forward, RequestHead, Rules};

use crate::exchange::error::Failure;

const BAD: u16 = 400;

/// Validates the head and fills `forward` as for HTTP/1. `has_body`: the stream did not end with its head.
pub fn validate(
    parts: &request::Parts,
    has_body: bool,
    forward: &mut Forward,
) -> Result<RequestHead, Failure> {
    let refused = |status, reason| Failure::Head { status, reason };
    let text = as_http1(parts, has_body).map_err(|reason| refused(BAD, reason))?;
    match head::request(&text, &Rules::default(), forward) {
        Ok(Some(head)) if head.len == text.len() => Ok(head),
        Ok(_) => Err(refused(BAD, "the head is not whole")),
        Err(bad) => Err(refused(bad.status, bad.reason)),
    }
}

fn as_http1(parts: &request::Parts, has_body: bool) -> Result<Vec<u8>, &'static str> {
    let host = host(parts)?;
    let path = parts.uri.path_and_query().map_or("/", |p| p.as_str());
    let mut out = Vec::with_capacity(512);
    for piece in [parts.method.as_str(), " ", path, " HTTP/1.1\r\nhost: ", host, "\r\n"] {
        out.extend_from_slice(piece.as_bytes());
    }
    // RFC 9113 §8.2.3: several cookie fields are one.
    for (i, cookie) in parts.headers.get_all(header::COOKIE).iter().enumerate() {
        out.extend_from_slice(if i == 0 { b"cookie: " } else { b"; " });
        out.extend_from_slice(cookie.as_bytes());
    }
    if parts.headers.contains_key(header::COOKIE) {
        out.extend_from_slice(b"\r\n");
    }
    for (name, value) in &parts.headers {
        if [header::HOST, header::COOKIE, header::EXPECT].contains(name) {
            continue;
        }
        if value.as_bytes() != value.as_bytes().trim_ascii() {
            return Err("a field value begins or ends with a space");
        }
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    if has_body && !parts.headers.contains_key(header::CONTENT_LENGTH) {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    out.extend_from_slice(b"\r\n");
    Ok(out)
}

/// `:authority` and `host` must agree where both are sent.
fn host(parts: &request::Parts) -> Result<&str, &'static str> {
    let field = match parts.headers.get(header::HOST) {
        Some(value) => Some(value.to_str().map_err(|_| "the host is not text")?),
        None => None,
    };
    match (parts.uri.authority().map(|a| a.as_str()), field) {
        (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => {
            Err(":authority and host differ")
        }
        (Some(name), _) | (None, Some(name)) => Ok(name),
        (None, None) => Err("neither :authority nor host is there"),
    }
}

/// A response head for an HTTP/2 client from a cleaned HTTP/1 head.
pub fn response(status: u16, cleaned: &[u8], length: Option<u64>) -> Option<Response<()>> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).ok()?;
    *response.headers_mut() = map(head::fields(cleaned))?;
    if let Some(length) = length {
        response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    }
    Some(response)
}

/// A request head for an HTTP/2 replica from a completed HTTP/1 head.
pub fn request(forward: &Forward, head: &RequestHead, tls: bool, host: Option<&str>) -> Option<Request<()>> {
    let mut headers = map(head::fields(&forward.head))?;
    headers.remove(header::HOST);
    headers.remove(header::TRANSFER_ENCODING);
    if head.te_trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    let path = std::str::from_utf8(forward.target()).ok()?;
    let uri = Uri::builder()
        .scheme(if tls { "https" } else { "http" })
        .authority(host.unwrap_or(forward.host()))
        .path_and_query(path)
        .build()
        .ok()?;
    let mut request = Request::new(());
    *request.method_mut() = http::Method::from_bytes(head.method.as_str().as_bytes()).ok()?;
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_2;
    *request.headers_mut() = headers;
    Some(request)
}

/// Trailer lines as a map; `None` if there are none.
pub fn trailers(lines: &[u8]) -> Option<HeaderMap> {
    map(sluice_wire::fields::lines(lines)).filter(|map| !map.is_empty())
}

fn map<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Option<HeaderMap> {
    let mut map = HeaderMap::with_capacity(16);
    for (name, value) in fields {
        map.append(HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?);
    }
    Some(map)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parts(uri: &str, fields: &[(&str, &str)]) -> request::Parts {
        let mut request = Request::builder().method("POST").uri(uri).version(Version::HTTP_2);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn cookies_are_joined_and_the_authority_becomes_the_host() {
        let parts = parts("http://a.example/v1/x?q=1", &[("cookie", "a=1"), ("cookie", "b=2"), ("x-y", "z")]);
        let mut forward = Forward::default();
        let head = validate(&parts, true, &mut forward).unwrap();
        assert_eq!(head.framing, sluice_wire::head::RequestFraming::Chunked);
        let text = String::from_utf8(forward.head.clone()).unwrap();
        assert!(text.starts_with("POST /v1/x?q=1 HTTP/1.1\r\n"), "{text}");
        assert!(text.contains("cookie: a=1; b=2\r\n"), "{text}");
        assert!(text.contains("x-y: z\r\n"), "{text}");
        assert_eq!(forward.host(), "a.example");
    }

    #[test]
    fn t05_two_hosts_and_no_host_are_refused() {
        let mut forward = Forward::default();
        assert!(validate(&parts("http://a/", &[("host", "b")]), false, &mut forward).is_err());
        assert!(validate(&parts("/x", &[]), false, &mut forward).is_err());
        assert!(validate(&parts("http://u@a/", &[]), false, &mut forward).is_err());
        assert!(validate(&parts("http://a/", &[("host", "A")]), false, &mut forward).is_ok());
    }

    #[test]
    fn t19_two_lengths_are_refused() {
        let mut forward = Forward::default();
        let two = parts("http://a/", &[("content-length", "1"), ("content-length", "1")]);
        assert!(validate(&two, true, &mut forward).is_err());
    }
}
