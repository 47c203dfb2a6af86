// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
//! The house rules that a machine can check, over every file of the tree. Each rule names all that breaks it at once.

mod scan;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Most lines of a file, without tests.
const FILE_LINES: usize = 500;
/// Most lines of a function.
const FUNCTION_LINES: usize = 60;
/// Most characters of a line of comment; rustfmt sees to the code.
const COMMENT_WIDTH: usize = 125;
/// Most bytes of a file.
const FILE_BYTES: u64 = 1 << 20;

/// What may stand at the root.
const ROOT_NAMES: &[&str] = &[
    ".ci",
    ".clippy.toml",
    ".git",
    ".gitignore",
    ".rustfmt.toml",
    ".venv",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "Makefile",
    "README.md",
    "deny.toml",
    "deploy",
    "docs",
    "gateway",
    "loadtests",
    "rust-toolchain.toml",
    "scaler",
    "target",
    "tests",
];

/// Text that must stand nowhere: notes to ourselves, one machine's paths, hosts that nothing is to be fetched from.
const FORBIDDEN: &[&str] = &["TODO", "FIXME", "XXX", "/root/", "/home/", "huggingface.co", "docker.io"];

/// What a pure module has no business with.
const IMPURE: &[&str] = &[
    "Instant",
    "SystemTime",
    "std::thread",
    "thread::",
    "thread_local",
    "tokio",
    "rand::",
    "getrandom",
    "HashMap",
    "HashSet",
    "std::fs",
    "std::env",
    "std::process",
    "TcpStream",
    "static mut",
];

/// Rule, file, and why the rule does not hold there.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("forbidden", "tests/tests/tidy/main.rs", "lists the words"),
    ("pingora", "loadtests/bare-pingora/src/main.rs", "what Sluice is compared with"),
    ("pingora", "tests/tests/tidy/main.rs", "names the rule's subject"),
];

struct File {
    path: String,
    text: String,
}

impl File {
    fn is_test(&self) -> bool {
        self.path.ends_with("tests.rs")
            || self.path.contains("/tests/")
            || self.path.starts_with("tests/tests/")
    }

    /// The code that ships: without comments, strings and the test module.
    fn shipped(&self) -> String {
        scan::code(scan::without_tests(&self.text))
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Paths from the root of all files that are not built, fetched or git's own.
fn paths() -> Vec<String> {
    fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let left_out =
                matches!(name, ".git" | "target" | ".venv" | "__pycache__" | "corpus" | "artifacts");
            match path.is_dir() {
                true if left_out => {}
                true => walk(&path, found),
                false => found.push(path),
            }
        }
    }
    let (root, mut found) = (root(), Vec::new());
    walk(&root, &mut found);
    let mut paths: Vec<String> =
        found.iter().map(|path| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned()).collect();
    paths.retain(|path| path != ".git");
    paths.sort();
    paths
}

fn files(extension: &str) -> Vec<File> {
    let paths = paths().into_iter().filter(|path| path.ends_with(extension));
    let files: Vec<File> =
        paths.map(|path| File { text: fs::read_to_string(root().join(&path)).unwrap(), path }).collect();
    assert!(!files.is_empty(), "no file ends with {extension}: the tree was not found");
    files
}

/// Fails with every breach that is no exception, and with every exception that nothing needs.
fn check(rule: &str, breaches: Vec<(String, String)>) {
    let excused: BTreeMap<&str, bool> = EXCEPTIONS
        .iter()
        .filter(|(of, ..)| *of == rule)
        .map(|(_, path, _)| (*path, breaches.iter().any(|(file, _)| file == path)))
        .collect();
    let mut wrong: Vec<String> = breaches
        .iter()
        .filter(|(path, _)| !excused.contains_key(path.as_str()))
        .map(|(path, what)| format!("{path}: {what}"))
        .collect();
    wrong.extend(
        excused.iter().filter(|(_, needed)| !**needed).map(|(path, _)| format!("{path}: needs no exception")),
    );
    assert!(wrong.is_empty(), "{rule}:\n  {}", wrong.join("\n  "));
}

#[test]
fn every_source_file_says_its_licence_and_its_purpose() {
    let mut breaches = Vec::new();
    for file in files(".rs") {
        if file.text.lines().next() != Some("// SPDX-License-Identifier: Apache-2.0") {
            breaches.push((file.path.clone(), "the first line is not the SPDX line".to_owned()));
        }
        let mut top =
            file.text.lines().skip(1).take_while(|line| line.starts_with("#!") || line.starts_with("//!"));
        if !file.is_test() && !top.any(|line| line.starts_with("//! ")) {
            breaches.push((file.path.clone(), "no //! header right below it".to_owned()));
        }
    }
    for file in files(".py").into_iter().chain(files(".sh")) {
        let top: Vec<&str> = file.text.lines().take(3).collect();
        if !top.iter().any(|line| line.starts_with("# ") || line.starts_with("\"\"\"")) {
            breaches.push((file.path, "says nothing of its purpose in the first three lines".to_owned()));
        }
    }
    check("header", breaches);
}

#[test]
fn files_are_short() {
    let lengths = files(".rs").into_iter().filter(|file| !file.is_test());
    let lengths = lengths.map(|file| (scan::without_tests(&file.text).lines().count(), file.path));
    let long = lengths.filter(|(lines, _)| *lines > FILE_LINES);
    check(
        "file length",
        long.map(|(lines, path)| (path, format!("{lines} lines, at most {FILE_LINES}"))).collect(),
    );
}

#[test]
fn functions_are_short() {
    let mut breaches = Vec::new();
    for file in files(".rs").into_iter().filter(|file| !file.is_test()) {
        for (name, line, lines) in scan::functions(&file.shipped()) {
            if lines > FUNCTION_LINES {
                let what = format!("line {line}: {name} has {lines} lines, at most {FUNCTION_LINES}");
                breaches.push((file.path.clone(), what));
            }
        }
    }
    check("function length", breaches);
}

#[test]
fn comments_fit_the_width() {
    let mut breaches = Vec::new();
    for file in files(".rs") {
        let comments = file.text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("//"));
        for (index, line) in comments.filter(|(_, line)| line.chars().count() > COMMENT_WIDTH) {
            breaches.push((
                file.path.clone(),
                format!("line {}: {} characters", index + 1, line.chars().count()),
            ));
        }
    }
    check("comment width", breaches);
}

#[test]
fn nothing_speaks_of_where_it_was_written() {
    let kinds = [".rs", ".md", ".toml", ".sh", ".py", ".yaml", ".yml", "Makefile", ".ci/run"];
    let mut breaches = Vec::new();
    for file in
        kinds.into_iter().flat_map(|kind| paths().into_iter().filter(move |path| path.ends_with(kind)))
    {
        let text = fs::read_to_string(root().join(&file)).unwrap();
        for (index, line) in text.lines().enumerate() {
            let words = FORBIDDEN.iter().filter(|word| line.contains(**word));
            breaches.extend(words.map(|word| (file.clone(), format!("line {}: {word}", index + 1))));
        }
    }
    check("forbidden", breaches);
}

#[test]
fn pure_modules_have_no_clock_thread_runtime_or_chance() {
    let mut breaches = Vec::new();
    let mut pure = 0;
    for file in files(".rs").into_iter().filter(|file| !file.is_test()) {
        let by_place =
            ["scaler/core/src/", "gateway/wire/src/"].iter().any(|place| file.path.starts_with(place));
        if !by_place && !scan::header(&file.text).contains("(pure)") {
            continue;
        }
        pure += 1;
        let code = file.shipped();
        let found = IMPURE.iter().filter(|name| code.contains(**name));
        breaches.extend(found.map(|name| (file.path.clone(), format!("names {name}"))));
    }
    assert!(pure > 10, "only {pure} pure modules: the places have moved");
    check("purity", breaches);
}

#[test]
fn pingora_is_named_in_its_folder_only() {
    let outside = files(".rs").into_iter().filter(|file| !file.path.starts_with("gateway/src/front/"));
    let named = outside.filter(|file| scan::code(&file.text).contains("pingora"));
    check("pingora", named.map(|file| (file.path, "names pingora".to_owned())).collect());
}

#[test]
fn the_root_holds_what_people_expect_there() {
    let names = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let others = names.filter(|name| !ROOT_NAMES.contains(&name.as_str()));
    check("root", others.map(|name| (name, "has no place at the root".to_owned())).collect());
}

#[test]
fn files_are_small() {
    let sizes = paths().into_iter().map(|path| (fs::metadata(root().join(&path)).unwrap().len(), path));
    let large = sizes.filter(|(bytes, _)| *bytes > FILE_BYTES);
    check(
        "file size",
        large.map(|(bytes, path)| (path, format!("{bytes} bytes, at most {FILE_BYTES}"))).collect(),
    );
}

#[test]
fn links_lead_somewhere() {
    let mut breaches = Vec::new();
    for file in files(".md") {
        let folder = root().join(&file.path).parent().unwrap().to_owned();
        for link in scan::links(&file.text).into_iter().filter(|link| !link.contains("://")) {
            let (path, anchor) =
                link.split_once('#').map_or((link.as_str(), None), |(path, a)| (path, Some(a)));
            let target = if path.is_empty() { root().join(&file.path) } else { folder.join(path) };
            let anchored = anchor.is_none_or(|anchor| {
                fs::read_to_string(&target).is_ok_and(|text| scan::anchors(&text).iter().any(|a| a == anchor))
            });
            if !target.exists() || !anchored {
                breaches.push((file.path.clone(), format!("the link {link} leads nowhere")));
            }
        }
    }
    check("links", breaches);
}

#[test]
fn the_changelog_keeps_its_shape() {
    let kinds = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"];
    let text = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    assert!(text.starts_with("# Changelog\n"), "begins with # Changelog");
    let headings: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(headings.first(), Some(&"Unreleased"), "the first section is Unreleased");
    let mut breaches = Vec::new();
    let entries = text.split_once("## Unreleased").map_or("", |(_, rest)| rest);
    for line in entries.lines().filter(|line| !line.is_empty() && !line.starts_with("## ")) {
        let good = match line.strip_prefix("### ") {
            Some(kind) => kinds.contains(&kind),
            None => line.starts_with("- ") || line.starts_with("  "),
        };
        if !good {
            breaches.push((
                "CHANGELOG.md".to_owned(),
                format!("{line:?} is neither a kind of change nor an entry"),
            ));
        }
    }
    check("changelog", breaches);
}
