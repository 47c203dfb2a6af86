// SPDX-License-Identifier: Apache-2.0
//! HTTP/1 heads: read strictly, checked, and rewritten for the other side without a map of fields.
//!
//! Owns the rules that no cut of the input and no transport may change. An HTTP/2 request goes through the
//! same [`request`]: its caller writes it as an HTTP/1.1 head. Must not know bodies, beyond how they are
//! framed.

mod forward;
mod request;
mod response;
mod target;

use std::mem::MaybeUninit;

pub use forward::{Forward, RequestFraming, RequestHead, Rules};
pub use request::request;
pub use response::{BadResponse, ResponseFraming, ResponseHead, response};

use crate::fields;

/// Fields that any head may have at most, whatever the rules say.
pub const FIELDS_MAX: usize = 256;

/// Members that the `Connection` lines of one head may have together.
pub const CONNECTION_MEMBERS_MAX: usize = 10;

type FieldRoom<'b> = [MaybeUninit<httparse::Header<'b>>; FIELDS_MAX];

/// The methods that Sluice passes on. `TRACE` and `CONNECT` are refused with 405, others with 501.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
    Options,
}

impl Method {
    /// As it stands in the request line.
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
            Method::Options => "OPTIONS",
        }
    }
}

/// Why a request head is not taken, and the status to answer. The connection cannot be used further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refused {
    /// 400, 405, 414, 417, 431, 501 or 505.
    pub status: u16,
    /// Lower-case words for the client.
    pub reason: &'static str,
}

impl Refused {
    const fn bad(reason: &'static str) -> Refused {
        Refused { status: 400, reason }
    }
}

/// The fields of a head that [`request`] or [`response`] wrote, in order, without its first line.
pub fn fields(head: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let after = memchr::memchr(b'\n', head).map_or(head.len(), |at| at + 1);
    fields::lines(head.get(after..).unwrap_or_default())
}

enum End {
    At(usize),
    Unfinished,
    /// A line ends in LF alone: some read it as a line end, others do not.
    BareLf,
}

/// Looks for the empty line in `bytes`.
fn end_of_head(bytes: &[u8]) -> End {
    let mut line_start = 0;
    for lf in memchr::memchr_iter(b'\n', bytes) {
        match bytes.get(line_start..lf) {
            Some(b"\r") => return End::At(lf + 1),
            Some([.., b'\r']) => line_start = lf + 1,
            _ => return End::BareLf,
        }
    }
    End::Unfinished
}

/// A decimal number of at most 15 digits, and nothing else.
fn number(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > 15 || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(value.iter().fold(0, |n, digit| n * 10 + u64::from(digit - b'0')))
}

/// What the `Connection` lines of one head say together.
#[derive(Default)]
struct Connection<'a> {
    close: bool,
    keep_alive: bool,
    upgrade: bool,
    named: [&'a [u8]; CONNECTION_MEMBERS_MAX],
    count: usize,
}

impl<'a> Connection<'a> {
    /// Adds one line. An error says what is wrong with it.
    fn add(&mut self, value: &'a [u8]) -> Result<(), &'static str> {
        for member in fields::members(value) {
            if !fields::is_token(member) {
                return Err("connection names something that is not a token");
            }
            let Some(slot) = self.named.get_mut(self.count) else {
                return Err("connection has more than ten members");
            };
            *slot = member;
            self.count += 1;
            self.close |= member.eq_ignore_ascii_case(b"close");
            self.keep_alive |= member.eq_ignore_ascii_case(b"keep-alive");
            self.upgrade |= member.eq_ignore_ascii_case(b"upgrade");
        }
        Ok(())
    }

    fn named(&self) -> &[&'a [u8]] {
        self.named.get(..self.count).unwrap_or_default()
    }

    fn names(&self, field: &[u8]) -> bool {
        self.named().iter().any(|n| n.eq_ignore_ascii_case(field))
    }

    /// Whether the sender keeps the connection open.
    fn persists(&self, http10: bool) -> bool {
        !self.close && (!http10 || self.keep_alive)
    }
}

fn write_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
