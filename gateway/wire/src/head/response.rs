// SPDX-License-Identifier: Apache-2.0
//! Reads a replica's response head and writes the one for the client.
//!
//! Owns what makes an answer unfit to pass on and its connection unfit to use again. Must not know retries.

use std::mem::MaybeUninit;

use super::{Connection, End, FIELDS_MAX, FieldRoom, Method, end_of_head, number, write_field};
use crate::fields::{self, Known};

/// Bytes of a response head at most.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// How a response body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFraming {
    /// There is none.
    None,
    /// After this many bytes.
    Length(u64),
    /// With the last chunk.
    Chunked,
    /// With the connection.
    Close,
}

/// A response head that was read whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// Bytes of the input that are used up.
    pub len: usize,
    /// 100 to 599. Below 200, except 101, another head follows.
    pub status: u16,
    /// How the body ends.
    pub framing: ResponseFraming,
    /// Whether the connection may serve another request once the body has ended where it should.
    pub reusable: bool,
    /// The body is a stream of server-sent events.
    pub event_stream: bool,
    /// The replica has set `cache-control`.
    pub has_cache_control: bool,
    /// The replica has set `x-accel-buffering`.
    pub has_x_accel_buffering: bool,
    /// A `trailer` field announces trailers behind the body.
    pub declares_trailers: bool,
}

/// Why an answer cannot be passed on. The client gets 502, the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct BadResponse {
    /// Lower-case words.
    pub reason: &'static str,
}

const fn bad(reason: &'static str) -> BadResponse {
    BadResponse { reason }
}

/// Reads one response head from the start of `input`. `Ok(None)`: more bytes are needed.
///
/// `asked_upgrade`: the request was a WebSocket handshake, so 101 may come. On success `out` holds status
/// line and fields without framing and what belongs to this hop; its old content is lost.
///
/// `x-sluice-*` and `x-request-id` are left out too: they are the gateway's to set.
pub fn response(
    input: &[u8],
    request_was: Method,
    asked_upgrade: bool,
    out: &mut Vec<u8>,
) -> Result<Option<ResponseHead>, BadResponse> {
    let Some(head) = whole_head(input)? else { return Ok(None) };
    let mut room: FieldRoom<'_> = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let line = parse(head, &mut room)?;
    let mut meanings = [Known::Other; FIELDS_MAX];
    let mut seen = Seen::default();
    for (field, meaning) in line.fields.iter().zip(&mut meanings) {
        *meaning = fields::known(field.name.as_bytes());
        seen.note(*meaning, field.value)?;
    }
    if line.status == 101 && !(asked_upgrade && seen.websocket && seen.connection.upgrade) {
        return Err(bad("switched protocols without being asked"));
    }
    let (framing, sound) = framing(&line, request_was, &seen)?;
    let reusable = sound
        && framing != ResponseFraming::Close
        && line.status != 101
        && seen.connection.persists(line.http10);
    write_head(&line, &meanings, &seen, out);
    if let Some(length) = seen.length.filter(|_| speaks_of_absent_body(&line, request_was, &seen)) {
        write_field(out, b"content-length", itoa::Buffer::new().format(length).as_bytes());
    }
    Ok(Some(ResponseHead {
        len: head.len(),
        status: line.status,
        framing,
        reusable,
        event_stream: seen.event_stream,
        has_cache_control: seen.cache_control,
        has_x_accel_buffering: seen.accel_buffering,
        declares_trailers: seen.trailer,
    }))
}

fn whole_head(input: &[u8]) -> Result<Option<&[u8]>, BadResponse> {
    let expected = b"HTTP/1.";
    if input.iter().zip(expected).any(|(is, should)| is != should) {
        return Err(bad("not an HTTP/1 response"));
    }
    match end_of_head(input.get(..HEAD_BYTES_MAX).unwrap_or(input)) {
        End::At(end) => Ok(input.get(..end)),
        End::BareLf => Err(bad("line feed without carriage return in the head")),
        End::Unfinished if input.len() >= HEAD_BYTES_MAX => Err(bad("head is too large")),
        End::Unfinished => Ok(None),
    }
}

struct Line<'r, 'b> {
    status: u16,
    reason: &'b str,
    http10: bool,
    fields: &'r [httparse::Header<'b>],
}

fn parse<'r, 'b>(head: &'b [u8], room: &'r mut FieldRoom<'b>) -> Result<Line<'r, 'b>, BadResponse> {
    let mut parsed = httparse::Response::new(&mut []);
    let mut config = httparse::ParserConfig::default();
    config.allow_obsolete_multiline_headers_in_responses(true);
    match config.parse_response_with_uninit_headers(&mut parsed, head, room) {
        Ok(httparse::Status::Complete(taken)) if taken == head.len() => {}
        Err(httparse::Error::TooManyHeaders) => return Err(bad("too many fields")),
        Err(httparse::Error::HeaderName) => return Err(bad("malformed field name")),
        Err(httparse::Error::HeaderValue) => return Err(bad("malformed field value")),
        _ => return Err(bad("malformed head")),
    }
    let (Some(status), Some(version)) = (parsed.code, parsed.version) else {
        return Err(bad("malformed status line"));
    };
    if !(100..600).contains(&status) {
        return Err(bad("status is not between 100 and 599"));
    }
    Ok(Line {
        status,
        reason: parsed.reason.unwrap_or_default(),
        http10: version == 0,
        fields: parsed.headers,
    })
}

#[derive(Default)]
struct Seen<'a> {
    length: Option<u64>,
    chunked: bool,
    connection: Connection<'a>,
    websocket: bool,
    event_stream: bool,
    cache_control: bool,
    accel_buffering: bool,
    trailer: bool,
}

impl<'a> Seen<'a> {
    fn note(&mut self, meaning: Known, value: &'a [u8]) -> Result<(), BadResponse> {
        match meaning {
            Known::ContentLength => {
                // Equal repetitions, as lines or as a list, are one length (RFC 9110 §8.6).
                for member in value.split(|c| *c == b',').map(fields::trim) {
                    let length = number(member).ok_or(bad("content-length is not a number"))?;
                    if self.length.replace(length).is_some_and(|before| before != length) {
                        return Err(bad("two different values of content-length"));
                    }
                }
            }
            Known::TransferEncoding => {
                if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(bad("transfer-encoding is not chunked"));
                }
                self.chunked = true;
            }
            Known::Connection => self.connection.add(value).map_err(bad)?,
            Known::Upgrade => self.websocket = value.eq_ignore_ascii_case(b"websocket"),
            Known::ContentType => {
                let kind = value.split(|c| *c == b';').next().unwrap_or_default();
                self.event_stream = fields::trim(kind).eq_ignore_ascii_case(b"text/event-stream");
            }
            Known::CacheControl => self.cache_control = true,
            Known::AccelBuffering => self.accel_buffering = true,
            Known::Trailer => self.trailer = true,
            _ => {}
        }
        Ok(())
    }
}

/// How the body ends (RFC 9112 §6.3), and whether what was said of it leaves the connection trustworthy.
fn framing(
    line: &Line<'_, '_>,
    request_was: Method,
    seen: &Seen<'_>,
) -> Result<(ResponseFraming, bool), BadResponse> {
    if seen.chunked && line.http10 {
        return Err(bad("transfer-encoding in an HTTP/1.0 response"));
    }
    let contradicts = seen.chunked && seen.length.is_some();
    Ok(match line.status {
        // Such an answer has no body and must not speak of one; whoever does may also send one.
        100..200 | 204 => (ResponseFraming::None, !seen.chunked && seen.length.unwrap_or(0) == 0),
        304 => (ResponseFraming::None, !contradicts),
        _ if request_was == Method::Head => (ResponseFraming::None, !contradicts),
        _ if seen.chunked => (ResponseFraming::Chunked, !contradicts),
        _ => (seen.length.map_or(ResponseFraming::Close, ResponseFraming::Length), true),
    })
}

/// Whether `content-length` tells of a body that is not sent, and therefore stays.
fn speaks_of_absent_body(line: &Line<'_, '_>, request_was: Method, seen: &Seen<'_>) -> bool {
    let bodiless =
        line.status == 304 || (request_was == Method::Head && line.status >= 200 && line.status != 204);
    bodiless && !seen.chunked
}

fn write_head(line: &Line<'_, '_>, meanings: &[Known], seen: &Seen<'_>, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(itoa::Buffer::new().format(line.status).as_bytes());
    out.push(b' ');
    out.extend_from_slice(line.reason.as_bytes());
    out.extend_from_slice(b"\r\n");
    let switches = line.status == 101;
    for (field, meaning) in line.fields.iter().zip(meanings) {
        let name = field.name.as_bytes();
        let stays = match meaning {
            Known::ContentLength
            | Known::TransferEncoding
            | Known::Connection
            | Known::Te
            | Known::Trailer
            | Known::HopByHop
            | Known::RequestId
            | Known::Model
            | Known::Deadline
            | Known::Hold
            | Known::Priority
            | Known::Internal => false,
            Known::Upgrade => switches,
            _ => !seen.connection.names(name),
        };
        if stays {
            write_unfolded(out, name, field.value);
        }
    }
    if switches {
        write_field(out, b"connection", b"upgrade");
    }
}

/// Writes a field; each line fold in its value becomes one space (RFC 9112 §5.2).
fn write_unfolded(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    if memchr::memchr(b'\r', value).is_none() {
        return write_field(out, name, value);
    }
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    let parts = value.split(|c| matches!(c, b'\r' | b'\n')).map(fields::trim).filter(|part| !part.is_empty());
    for (at, part) in parts.enumerate() {
        if at > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(part);
    }
    out.extend_from_slice(b"\r\n");
}
