// SPDX-License-Identifier: Apache-2.0
//! What a replica wrote, made fit to be shown: no control characters, no secrets, bounded (pure).
//!
//! Must not know where text comes from or goes to.

use std::borrow::Cow;

use memchr::memmem;

/// Stands in the place of a secret.
const MASK: &str = "[secret]";

/// Shorter values (`0`, `on`) are no secrets, and masking them would make every message unreadable.
const SHORTEST_SECRET: usize = 4;

/// Values below this length are masked only where they stand alone: `info` inside `information` stays.
const SHORTEST_ANYWHERE: usize = 8;

/// Knows the values that must not be shown.
#[derive(Default)]
pub struct Redactor {
    /// Longest first, so that a secret inside another leaves no rest.
    secrets: Vec<String>,
}

impl Redactor {
    /// The given values, each of their lines, and the credentials after a scheme such as `Bearer`.
    pub fn new(values: impl Iterator<Item = String>) -> Self {
        let mut secrets: Vec<String> = Vec::new();
        for value in values {
            secrets.extend(value.lines().map(|line| line.trim().to_owned()));
            secrets
                .extend(value.trim().split_once(' ').map(|(_, credentials)| credentials.trim().to_owned()));
            secrets.push(value.trim().to_owned());
        }
        secrets.retain(|secret| secret.len() >= SHORTEST_SECRET);
        secrets.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        secrets.dedup();
        Redactor { secrets }
    }

    /// One line of output as it may be shown. With `cut`, the line went on: a secret that the cut went through
    /// is removed as well.
    pub fn clean(&self, raw: &[u8], cut: bool) -> String {
        let mut text = printable(&String::from_utf8_lossy(last_overwrite(raw)));
        if cut {
            self.drop_begun_secret(&mut text);
        }
        for secret in &self.secrets {
            if let Cow::Owned(masked) = mask(&text, secret) {
                text = masked;
            }
        }
        if cut {
            text.push_str(" [cut]");
        }
        text
    }

    fn drop_begun_secret(&self, text: &mut String) {
        let begun = self.secrets.iter().filter_map(|secret| {
            (SHORTEST_SECRET..secret.len())
                .rev()
                .filter(|&length| secret.is_char_boundary(length))
                .find(|&length| text.ends_with(&secret[..length]))
        });
        if let Some(length) = begun.max() {
            text.truncate(text.len() - length);
        }
    }
}

fn mask<'a>(text: &'a str, secret: &str) -> Cow<'a, str> {
    let alone_only = secret.len() < SHORTEST_ANYWHERE;
    let mut masked = String::new();
    let mut copied = 0;
    for at in memmem::find_iter(text.as_bytes(), secret.as_bytes()) {
        let end = at + secret.len();
        if at < copied || (alone_only && !stands_alone(text, at, end)) {
            continue;
        }
        masked.push_str(&text[copied..at]);
        masked.push_str(MASK);
        copied = end;
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    masked.push_str(&text[copied..]);
    Cow::Owned(masked)
}

fn stands_alone(text: &str, from: usize, to: usize) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    !text[..from].chars().next_back().is_some_and(joins) && !text[to..].chars().next().is_some_and(joins)
}

/// What a terminal would show in the end of a line that returns to its start, as progress bars do.
fn last_overwrite(raw: &[u8]) -> &[u8] {
    let end = raw.iter().rposition(|&b| b != b'\r').map_or(0, |last| last + 1);
    let raw = &raw[..end];
    match memchr::memrchr(b'\r', raw) {
        Some(at) => &raw[at + 1..],
        None => raw,
    }
}

/// Drops terminal escapes, control characters and marks that reorder text; tabs become spaces.
fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => skip_escape(&mut rest),
            '\u{9b}' => skip_to_final(&mut rest),
            '\t' => shown.push(' '),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {}
            c if c.is_control() => {}
            c => shown.push(c),
        }
    }
    shown.truncate(shown.trim_end().len());
    shown
}

fn skip_escape(rest: &mut std::str::Chars<'_>) {
    match rest.next() {
        Some('[') => skip_to_final(rest),
        Some(']' | 'P' | '_' | '^') => {
            while let Some(c) = rest.next() {
                if c == '\u{7}' || (c == '\u{1b}' && rest.next() == Some('\\')) {
                    break;
                }
            }
        }
        _ => {}
    }
}

fn skip_to_final(rest: &mut std::str::Chars<'_>) {
    rest.find(|c| ('\u{40}'..='\u{7e}').contains(c));
}

/// Joins the last of `lines` with ` | `, as many as fit in `limit` bytes; the newest counts most and is itself cut at
/// its front if it alone is too long.
pub fn join_last<'a>(lines: impl DoubleEndedIterator<Item = &'a str>, limit: usize) -> String {
    let mut chosen: Vec<&str> = Vec::new();
    let mut length = 0;
    for line in lines.rev().map(str::trim).filter(|line| !line.is_empty()) {
        let more = line.len() + if chosen.is_empty() { 0 } else { 3 };
        if length + more > limit {
            if chosen.is_empty() {
                chosen.push(end_of(line, limit));
            }
            break;
        }
        length += more;
        chosen.push(line);
    }
    chosen.reverse();
    chosen.join(" | ")
}

fn end_of(line: &str, limit: usize) -> &str {
    let mut from = line.len().saturating_sub(limit);
    while !line.is_char_boundary(from) {
        from += 1;
    }
    &line[from..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redactor(values: &[&str]) -> Redactor {
        Redactor::new(values.iter().map(|value| (*value).to_owned()))
    }

    #[test]
    fn masks_every_occurrence_and_leaves_the_rest() {
        let r = redactor(&["hunter2-hunter2"]);
        assert_eq!(
            r.clean(b"key=hunter2-hunter2, again hunter2-hunter2!", false),
            "key=[secret], again [secret]!"
        );
    }

    #[test]
    fn a_secret_inside_another_leaves_no_rest() {
        let r = redactor(&["abcdefgh", "abcdefgh-ijkl"]);
        assert_eq!(r.clean(b"x abcdefgh-ijkl y abcdefgh z", false), "x [secret] y [secret] z");
    }

    #[test]
    fn credentials_after_a_scheme_are_secret_too() {
        let r = redactor(&["Bearer k2-very-long"]);
        assert_eq!(r.clean(b"got 'k2-very-long' instead", false), "got '[secret]' instead");
    }

    #[test]
    fn each_line_of_a_secret_is_masked() {
        let r = redactor(&["-----BEGIN KEY-----\nMIIEabcdef\n-----END KEY-----\n"]);
        assert_eq!(r.clean(b"bad key MIIEabcdef", false), "bad key [secret]");
    }

    #[test]
    fn short_values_are_masked_as_words_only_and_tiny_ones_never() {
        let r = redactor(&["info", "1"]);
        assert_eq!(
            r.clean(b"level=info information, layer 1 of 32", false),
            "level=[secret] information, layer 1 of 32"
        );
    }

    #[test]
    fn a_secret_that_the_cut_went_through_is_removed() {
        let r = redactor(&["supersecretvalue"]);
        assert_eq!(r.clean(b"token supersecre", true), "token  [cut]");
        assert_eq!(r.clean(b"token nothing", true), "token nothing [cut]");
    }

    #[test]
    fn escapes_and_control_characters_are_dropped() {
        let r = Redactor::default();
        let raw = b"\x1b[1;31merror\x1b[0m: \x1b]0;title\x07bad\x00\x08 thing\there \xff";
        assert_eq!(r.clean(raw, false), "error: bad thing here \u{fffd}");
    }

    #[test]
    fn an_escape_inside_a_secret_does_not_hide_it() {
        let r = redactor(&["supersecretvalue"]);
        assert_eq!(r.clean(b"super\x1b[1msecretvalue", false), "[secret]");
    }

    #[test]
    fn a_progress_bar_shows_its_last_state() {
        let r = Redactor::default();
        assert_eq!(r.clean(b"10%\r20%\r100% done\r", false), "100% done");
    }

    #[test]
    fn the_newest_lines_are_kept_within_the_limit() {
        assert_eq!(join_last(["a", "", "bb", "ccc"].into_iter(), 8), "bb | ccc");
        assert_eq!(join_last(["first", "0123456789"].into_iter(), 4), "6789");
        assert_eq!(join_last(["", "  "].into_iter(), 4), "");
        assert_eq!(join_last(["ééé"].into_iter(), 3), "é");
    }
}
