// SPDX-License-Identifier: Apache-2.0
//! One spelling for the paths that mean the same (RFC 3986 §6.2.2): escapes of unreserved characters decoded,
//! dot segments taken out. Everything else, doubled slashes too, stays.
//!
//! Must not know any path.

use std::borrow::Cow;

/// The normal spelling of a path, or why it has none. Borrowed when it is written normally already.
pub(super) fn normal(path: &[u8]) -> Result<Cow<'_, [u8]>, &'static str> {
    if !path.starts_with(b"/") {
        return Err("path does not begin with a slash");
    }
    let plain = memchr::memchr(b'%', path).is_none();
    if plain && !may_have_dots(path) {
        return Ok(Cow::Borrowed(path));
    }
    let path = if plain { Cow::Borrowed(path) } else { Cow::Owned(unreserved(path)?) };
    if !may_have_dots(&path) {
        return Ok(path);
    }
    without_dots(&path).map(Cow::Owned).ok_or("path leads above its root")
}

fn may_have_dots(path: &[u8]) -> bool {
    path.windows(2).any(|pair| pair == b"/.")
}

/// Decodes every escape once. What is no escape stays as it is.
pub(super) fn decoded(path: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'%', path).is_none() {
        return Cow::Borrowed(path);
    }
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((byte, after)) = rest.split_first() {
        match escape(rest) {
            Some((value, behind)) => {
                out.push(value);
                rest = behind;
            }
            None => {
                out.push(*byte);
                rest = after;
            }
        }
    }
    Cow::Owned(out)
}

fn unreserved(path: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((byte, after)) = rest.split_first() {
        if *byte != b'%' {
            out.push(*byte);
            rest = after;
            continue;
        }
        let (value, behind) =
            escape(rest).ok_or("percent sign without two hexadecimal digits in the path")?;
        if value.is_ascii_alphanumeric() || matches!(value, b'-' | b'.' | b'_' | b'~') {
            out.push(value);
        } else {
            out.extend_from_slice(rest.get(..3).unwrap_or_default());
        }
        rest = behind;
    }
    Ok(out)
}

/// The byte that an escape at the start of `text` stands for, and what follows it.
fn escape(text: &[u8]) -> Option<(u8, &[u8])> {
    let [b'%', high, low, behind @ ..] = text else { return None };
    let digit = |c: &u8| char::from(*c).to_digit(16);
    let value = u8::try_from(digit(high)? << 4 | digit(low)?).ok()?;
    Some((value, behind))
}

/// RFC 3986 §5.2.4, save that leading above the root is an error.
fn without_dots(path: &[u8]) -> Option<Vec<u8>> {
    let mut out: Vec<&[u8]> = Vec::new();
    let mut segments = path.get(1..)?.split(|c| *c == b'/').peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            b"." => {}
            b".." => {
                out.pop()?;
            }
            _ => {
                out.push(segment);
                continue;
            }
        }
        if last {
            out.push(b"");
        }
    }
    Some(out.iter().flat_map(|segment| [&b"/"[..], segment]).flatten().copied().collect())
}
