// SPDX-License-Identifier: Apache-2.0
//! Reads Rust and Markdown roughly, as far as the house rules need it: no parser, so that it never lags behind the language.

/// Rust source with comments, strings and character literals blanked; lines and columns keep their places.
pub fn code(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        match blank_end(&chars, at) {
            Some(end) => {
                out.extend(chars[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
                at = end;
            }
            None => {
                out.push(chars[at]);
                at += 1;
            }
        }
    }
    out
}

/// Where the comment, string or character literal that begins at `at` ends.
fn blank_end(chars: &[char], at: usize) -> Option<usize> {
    let rest = &chars[at..];
    let word_before = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    match rest {
        ['/', '/', ..] => Some(at + rest.iter().position(|c| *c == '\n').unwrap_or(rest.len())),
        ['/', '*', ..] => Some(at + block_comment(rest)),
        ['"', ..] => Some(at + quoted(rest, '"')),
        ['\'', '\\', ..] => Some(at + quoted(rest, '\'')),
        ['\'', _, '\'', ..] => Some(at + 3),
        ['r', '"' | '#', ..] if !word_before => raw_string(&rest[1..]).map(|length| at + 1 + length),
        ['b', 'r', '"' | '#', ..] if !word_before => raw_string(&rest[2..]).map(|length| at + 2 + length),
        _ => None,
    }
}

fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match (rest[at], rest.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn quoted(rest: &[char], mark: char) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != mark {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// `#…#"…"#…#`; `None` for a raw identifier.
fn raw_string(rest: &[char]) -> Option<usize> {
    let hashes = rest.iter().take_while(|c| **c == '#').count();
    if rest.get(hashes) != Some(&'"') {
        return None;
    }
    let body = &rest[hashes + 1..];
    let closes =
        |at: &usize| body[*at] == '"' && body[at + 1..].iter().take_while(|c| **c == '#').count() >= hashes;
    let end = (0..body.len()).find(closes).unwrap_or(body.len());
    Some((hashes + 1 + end + 1 + hashes).min(rest.len()))
}

/// The part before a test module at the end of a file.
pub fn without_tests(text: &str) -> &str {
    let mut start = 0;
    let mut marked = None;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        match marked {
            Some(at) if trimmed.starts_with("mod ") && trimmed.ends_with('{') => return &text[..at],
            Some(_) if trimmed.starts_with("#[") => {}
            _ => marked = (line.starts_with("#[cfg(test)]")).then_some(start),
        }
        start += line.len();
    }
    text
}

/// Name, first line (counted from 1) and number of lines of each function with a body. Takes what `code` gives.
pub fn functions(code: &str) -> Vec<(String, usize, usize)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let word_before = code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let name: String = code[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if word_before || name.is_empty() {
            continue;
        }
        if let Some(end) = body_end(&code[at..]) {
            let first = code[..at].matches('\n').count() + 1;
            found.push((name, first, code[at..at + end].matches('\n').count() + 1));
        }
    }
    found
}

/// Where the braces of the body close; `None` for a declaration without one.
fn body_end(code: &str) -> Option<usize> {
    let (mut round, mut curly) = (0, 0);
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => round += 1,
            ')' | ']' => round -= 1,
            ';' if round == 0 && curly == 0 => return None,
            '{' if round == 0 || curly > 0 => curly += 1,
            '}' if curly == 1 => return Some(at),
            '}' if curly > 1 => curly -= 1,
            _ => {}
        }
    }
    None
}

/// The `//!` lines.
pub fn header(text: &str) -> String {
    text.lines().filter_map(|line| line.strip_prefix("//!")).collect::<Vec<_>>().join("\n")
}

/// Targets of the links and pictures of a Markdown text, outside of code.
pub fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        let outside_code = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for piece in outside_code.split("](").skip(1) {
            found.extend(piece.split_once(')').map(|(target, _)| target.to_owned()));
        }
    }
    found
}

/// The anchors that a Markdown text's headings get.
pub fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    headings.map(|line| slug(line.trim_start_matches('#').trim())).collect()
}

fn slug(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Lines outside of fenced code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

#[test]
fn code_blanks_what_is_not_code() {
    let text = "a // x\nb /* y /* z */ */ c \"q\\\"{\" 'x' '\\'' '{' &'life r#\"raw \" {\"# d br\"}\" r#type";
    let kept: Vec<String> = code(text).split_whitespace().map(str::to_owned).collect();
    assert_eq!(kept, ["a", "b", "c", "&'life", "d", "r#type"]);
    assert_eq!(code(text).chars().count(), text.chars().count());
}

#[test]
fn functions_are_measured_with_their_braces() {
    let text = "trait T { fn none(&self) -> [u8; 4]; }\nfn two(f: fn (u8)) -> u8 {\n  if x { 1 } else { 2 } }\nfn one() {}\n";
    let found = functions(&code(text));
    assert_eq!(found, [("two".to_owned(), 2, 2), ("one".to_owned(), 4, 1)]);
}

#[test]
fn a_test_module_at_the_end_is_cut_and_a_sibling_is_not() {
    assert_eq!(without_tests("a\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n}\n"), "a\n");
    let sibling = "#[cfg(test)]\nmod tests;\nfn a() {}\n";
    assert_eq!(without_tests(sibling), sibling);
}

#[test]
fn links_and_anchors_are_found_outside_of_code() {
    let text = "# A `b` c, D!\n[x](y.md#z) `[no](no)` ![p](q.png)\n```\n[no](no)\n# no\n```\n";
    assert_eq!(links(text), ["y.md#z", "q.png"]);
    assert_eq!(anchors(text), ["a-b-c-d"]);
}
