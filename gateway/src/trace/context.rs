// SPDX-License-Identifier: Apache-2.0
//! The field `traceparent` of W3C Trace Context (pure): reading, writing, and putting another in its place.

use std::io::Write;

use sluice_wire::fields;

use super::{SpanId, TraceId};

/// The flag that says that the caller records the trace.
pub(super) const SAMPLED: u8 = 1;

/// Length of version 00.
const LENGTH: usize = 55;

/// What a `traceparent` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Context {
    pub trace: TraceId,
    pub parent: SpanId,
    pub flags: u8,
}

/// The one valid `traceparent` among field lines; `None` if there is none, or another one beside it.
pub(super) fn read(lines: &[u8]) -> Option<Context> {
    let mut found = fields::lines(lines).filter(|(name, _)| is_traceparent(name));
    let (_, value) = found.next()?;
    if found.next().is_some() { None } else { parse(value) }
}

/// Puts `context` in the place of the lines' `traceparent`.
pub(super) fn replace(lines: &mut Vec<u8>, context: Context) {
    let mut out = Vec::with_capacity(lines.len());
    write(&mut out, context);
    for (name, value) in fields::lines(lines).filter(|(name, _)| !is_traceparent(name)) {
        for part in [name, b": ", value, b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
    *lines = out;
}

/// Appends the line of version 00.
pub(super) fn write(lines: &mut Vec<u8>, context: Context) {
    let Context { trace, parent, flags } = context;
    // Writing to a vector cannot fail.
    let _ = write!(lines, "traceparent: 00-{trace}-{parent}-{flags:02x}\r\n");
}

fn is_traceparent(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"traceparent")
}

/// A value of version 00, or of a later version, whose beginning is the same and which may go on after a dash.
fn parse(value: &[u8]) -> Option<Context> {
    let (head, rest) = value.split_at_checked(LENGTH)?;
    let [version, trace, parent, flags]: [&[u8]; 4] =
        head.split(|c| *c == b'-').collect::<Vec<_>>().try_into().ok()?;
    let [version] = bytes(version)?;
    let fits = match version {
        0 => rest.is_empty(),
        0xff => false,
        _ => rest.is_empty() || rest.starts_with(b"-"),
    };
    let (trace, parent, [flags]) = (bytes::<16>(trace)?, bytes::<8>(parent)?, bytes(flags)?);
    let named = trace != [0; 16] && parent != [0; 8];
    (fits && named).then_some(Context { trace: TraceId(trace), parent: SpanId(parent), flags })
}

/// Exactly `N` bytes as lower case hexadecimal digits.
fn bytes<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    if text.len() != 2 * N {
        return None;
    }
    let mut out = [0; N];
    for (byte, digits) in out.iter_mut().zip(text.chunks_exact(2)) {
        let [high, low]: [u8; 2] = digits.try_into().ok()?;
        *byte = digit(high)? << 4 | digit(low)?;
    }
    Some(out)
}

fn digit(c: u8) -> Option<u8> {
    match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn with(value: &str) -> Option<Context> {
        read(format!("Traceparent: {value}\r\ntracestate: a=1\r\n").as_bytes())
    }

    #[test]
    fn a_valid_value_is_read_and_written_the_same() {
        let context = with(GOOD).unwrap();
        assert_eq!(context.trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!((context.parent.to_string().as_str(), context.flags), ("00f067aa0ba902b7", 1));
        let mut out = Vec::new();
        write(&mut out, context);
        assert_eq!(out, format!("traceparent: {GOOD}\r\n").as_bytes());
    }

    #[test]
    fn later_versions_are_read_by_what_they_share() {
        let later = GOOD.replacen("00", "cc", 1);
        assert_eq!(with(&later), with(GOOD));
        assert_eq!(with(&format!("{later}-what-the-future-holds")), with(GOOD));
        assert_eq!(with(&format!("{later}.what")), None);
    }

    #[test]
    fn everything_else_is_no_trace() {
        for value in [
            "",
            "00",
            &GOOD[..54],
            &format!("{GOOD}-more"),
            &format!("{GOOD}0"),
            &GOOD.to_uppercase(),
            &GOOD.replacen("00", "ff", 1),
            &GOOD.replacen("00", "0G", 1),
            &GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &GOOD.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &GOOD.replacen('-', "_", 1),
            &GOOD.replace("-01", "-0x"),
            &GOOD.replacen("4b", "4-", 1),
        ] {
            assert_eq!(with(value), None, "{value}");
        }
        assert_eq!(read(format!("traceparent: {GOOD}\r\ntraceparent: {GOOD}\r\n").as_bytes()), None);
        assert_eq!(read(b"tracestate: a=1\r\n"), None);
    }

    #[test]
    fn another_parent_leaves_the_state_alone() {
        let mut lines = format!("tracestate: a=1\r\nTraceParent:{GOOD}\r\ntracestate: b=2\r\n").into_bytes();
        let context = read(&lines).unwrap();
        replace(&mut lines, Context { parent: SpanId([1; 8]), ..context });
        let text = String::from_utf8(lines).unwrap();
        let wanted = GOOD.replace("00f067aa0ba902b7", "0101010101010101");
        assert_eq!(text, format!("traceparent: {wanted}\r\ntracestate: a=1\r\ntracestate: b=2\r\n"));
    }
}
