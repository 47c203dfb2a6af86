// SPDX-License-Identifier: Apache-2.0
//! The core is pure: no clock, no randomness, no threads, no I/O, no order that depends on a hash.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};

/// Words that no source of the core may contain, tests included: virtual time and seeds are enough for these.
const FORBIDDEN: [&str; 19] = [
    "Instant",
    "SystemTime",
    "HashMap",
    "HashSet",
    "tokio",
    "async ",
    "std::thread",
    "std::fs",
    "std::io",
    "std::env",
    "std::process",
    "std::sync::Mutex",
    "AtomicU",
    "static ",
    "unsafe",
    "rand::",
    "println!",
    "f32",
    "f64",
];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn all() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    assert!(found.len() > 20, "the sources were not found: {found:?}");
    found.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

/// Knative's arithmetic is binary64, so its exact copy is too. Decisions of our own count in whole numbers.
fn allowed(path: &Path, word: &str) -> bool {
    word == "f64" && path.to_string_lossy().contains("/src/kpa")
}

/// Whether the line contains the word as code: comments and `'static` do not count.
fn uses(line: &str, word: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default().replace("'static ", "");
    code.contains(word)
}

#[test]
fn no_source_of_the_core_knows_a_clock_chance_threads_or_files() {
    for (path, text) in all() {
        for (line, number) in text.lines().zip(1..) {
            let found = FORBIDDEN.iter().find(|word| uses(line, word) && !allowed(&path, word));
            assert_eq!(found, None, "{}:{number}: {line}", path.display());
        }
    }
}

#[test]
fn the_words_are_found_where_they_are_used() {
    assert!(uses("let start = Instant::now();", "Instant"));
    assert!(uses("static COUNT: u8 = 0;", "static "));
    assert!(!uses("// an Instant would be a clock", "Instant"));
    assert!(!uses("fn word() -> &'static str {", "static "));
}

#[test]
fn files_are_short_and_say_what_they_own() {
    for (path, text) in all() {
        let shown = path.display();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("// SPDX-License-Identifier: Apache-2.0"), "{shown}");
        assert!(lines.next().is_some_and(|line| line.starts_with("//! ")), "{shown} has no header");
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let limit = if path.to_string_lossy().contains("/src/tests/") { 800 } else { 500 };
        assert!(code.lines().count() <= limit, "{shown} has more than {limit} lines");
    }
}
