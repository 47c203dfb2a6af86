// SPDX-License-Identifier: Apache-2.0
//! A line of the file under a problem, with everything covered that could be a secret.
//!
//! Owns the covering. Must not know what a problem means: it is told which bytes may be shown.

use super::keys;
use super::tree::Place;

/// Longest part of a line that is shown.
const WIDTH: usize = 96;
/// What is kept before the marked word in a long line.
const BEFORE: usize = 40;

/// A text, and which of its bytes may be shown.
pub(super) struct Cover<'a> {
    lines: Vec<(usize, &'a str)>,
    shown: Vec<(usize, usize)>,
}

impl<'a> Cover<'a> {
    /// `shown`: first byte and byte after the last of what is harmless.
    pub fn new(text: &'a str, shown: &[(usize, usize)]) -> Self {
        let mut start = 0;
        let mut lines = Vec::new();
        for line in text.split('\n') {
            lines.push((start, line.trim_end_matches('\r')));
            start += line.len() + 1;
        }
        let mut shown = shown.to_vec();
        shown.sort_unstable();
        shown.dedup();
        Cover { lines, shown }
    }

    /// The line of `place` with a mark under it; empty if there is no such line.
    pub fn excerpt(&self, place: Place, hidden: bool) -> String {
        let Some((start, line)) = place.line.checked_sub(1).and_then(|i| self.lines.get(i)) else {
            return String::new();
        };
        let own = if hidden { (0, 0) } else { (place.start, place.end) };
        let covered = self.covered(*start, self.without_comment(*start, line, place.end), own);
        let skip = if covered.len() > WIDTH { place.column.saturating_sub(1 + BEFORE) } else { 0 };
        let visible: String = covered.iter().skip(skip).take(WIDTH).collect();
        let inside = line.get(place.start.saturating_sub(*start)..place.end.saturating_sub(*start));
        let width = inside.map_or(1, |word| word.chars().count()).clamp(1, WIDTH);
        let indent = place.column.saturating_sub(1 + skip);
        let number = place.line.to_string();
        let margin = " ".repeat(number.len());
        format!(
            "  {number} | {}\n  {margin} | {}{}\n",
            visible.trim_end(),
            " ".repeat(indent),
            "^".repeat(width)
        )
    }

    /// The line up to where a comment seems to begin: nothing that may be shown comes after it.
    fn without_comment<'l>(&self, start: usize, line: &'l str, marked: usize) -> &'l str {
        let bare = |at: usize| {
            let from = start + at;
            let next = self.shown.partition_point(|(first, _)| *first < from);
            marked <= from && self.shown.get(next).is_none_or(|(first, _)| *first >= start + line.len())
        };
        let comment = line.match_indices(" #").map(|(at, _)| at).find(|at| bare(*at));
        comment.map_or(line, |at| &line[..at])
    }

    /// The line's characters; letters and digits of what may not be shown are dots.
    fn covered(&self, start: usize, line: &str, own: (usize, usize)) -> Vec<char> {
        let mut out = Vec::with_capacity(line.len());
        let mut rest = line.char_indices().peekable();
        while let Some((at, first)) = rest.next() {
            if !is_word(first) {
                out.push(if first.is_control() { ' ' } else { first });
                continue;
            }
            let mut end = at + first.len_utf8();
            while let Some((next, c)) = rest.next_if(|(_, c)| is_word(*c)) {
                end = next + c.len_utf8();
            }
            let word = &line[at..end];
            let harmless = self.is_shown(start + at, start + end, own) || is_key(word, &line[end..]);
            out.extend(word.chars().map(|c| if harmless || !c.is_alphanumeric() { c } else { '·' }));
        }
        out
    }

    fn is_shown(&self, start: usize, end: usize, own: (usize, usize)) -> bool {
        let inside = |(first, last): (usize, usize)| first <= start && end <= last;
        let before = self.shown.partition_point(|(first, _)| *first <= start);
        inside(own) || before.checked_sub(1).is_some_and(|last| inside(self.shown[last]))
    }
}

fn is_word(c: char) -> bool {
    !c.is_whitespace() && !c.is_control() && !"\"',[]{}:#&*|>!".contains(c)
}

/// Whether `word` is a key of ours in a key's place.
fn is_key(word: &str, rest: &str) -> bool {
    rest.starts_with(':') && keys::is_known(word)
}
