// SPDX-License-Identifier: Apache-2.0
//! What holds for whatever comes: no secret is shown, nothing panics.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;

use super::*;

#[test]
fn secrets_are_in_no_report_and_no_debug_text() {
    let secret_bits = ["sk-", "t0k", "hunter2", "from-env", "Bearer"];
    let clean = "\
models:
  - name: m
    command: [sh, --api-key, sk-1]
    backendKey: sk-2
    env: {T: hunter2}
    readiness: {headers: {x-k: t0k}}
";
    let debug = format!("{:?}", valid(clean).settings);
    for bit in ["sk-2", "hunter2", "t0k", "Bearer"] {
        assert!(!debug.contains(bit), "{debug}");
    }
    let wrong = [
        clean.replace("backendKey", "bakendKey"),
        clean.replace("sk-2", "{sk-2: sk-3}"),
        clean.replace("sk-2", "'sk-2 sk-3'"),
        clean.replace("sk-2", "[sk-2]"),
        clean.replace("backendKey: sk-2", "backendKeyFile: sk-2"),
        clean.replace("{T: hunter2}", "T=hunter2"),
        clean.replace("{T: hunter2}", "{T: hunter2, T: hunter2}"),
        clean.replace("{T: hunter2}", "{T: 'hunter2"),
        clean.replace("[sh, --api-key, sk-1]", "sh --api-key sk-1"),
        clean.replace("[sh, --api-key, sk-1]", "[sh, --api-key, {sk-1: x}]"),
        clean.replace("[sh, --api-key, sk-1]", "[sh, --api-key, \"a\\0sk-1\"]"),
        clean.replace("{x-k: t0k}", "{x-k: \"t0k\\n\"}"),
        clean.replace("sk-2", "sk-2: sk-3"),
        clean.replace("sk-2", "|\n      sk-2\n     sk-3: x"),
        format!("{clean}    # backendKey sk-9\n    bodyLimit: ${{env.SET}}\n"),
        format!("{clean}    url: http://user:hunter2@host\n"),
        format!("listen: ${{env.KEY}}\nadmin: ['${{env.KEY}}']\n{clean}"),
        format!("tls: {{listen: 127.0.0.1:1, certificate: c, key: \"-----BEGIN sk-4\\n\"}}\n{clean}"),
        clean.replace("name: m", "name: '${env.KEY} x'"),
        clean.replace("command: [sh, ", "protocol: ${env.KEY}\n    command: ["),
    ];
    for text in wrong {
        let report = errors(&text);
        let (words, json) = (report.to_string(), report.to_json().to_string());
        for bit in secret_bits {
            assert!(!words.contains(bit) && !json.contains(bit), "{bit} in\n{words}\n{json}\nof\n{text}");
        }
    }
}

#[test]
fn reports_cannot_carry_control_characters() {
    let report = errors("models: [{name: m, command: [a], preload: \"\\e[31m\\u202e\"}]\n\"\\e[2J\": x\n");
    assert!(!report.to_string().chars().any(|c| c.is_control() && c != '\n'), "{report:?}");
}

const WHOLE: &str = include_str!("../../../../deploy/local/demo.yaml");

/// Where in a text, how many characters are taken out, and what is put in.
fn cut() -> impl Strategy<Value = (prop::sample::Index, usize, String)> {
    (any::<prop::sample::Index>(), 0usize..12, "[ -~\n\té€]{0,6}")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn mutated_files_never_panic(cuts in prop::collection::vec(cut(), 1..6)) {
        let mut text: Vec<char> = WHOLE.chars().collect();
        for (at, length, replacement) in cuts {
            let from = at.index(text.len().max(1)).min(text.len());
            let to = (from + length).min(text.len());
            text.splice(from..to, replacement.chars());
        }
        let text: String = text.into_iter().collect();
        if let Err(report) = load_text(&text) {
            prop_assert!(!report.problems.is_empty());
            prop_assert!(!report.to_string().is_empty());
        }
    }

    #[test]
    fn any_text_never_panics(text in "[ -~\n\t\r:{}\\[\\]&*!|>'\"%@`,#é€]{0,80}") {
        let _ = load_text(&text).map_err(|report| report.to_string());
    }
}

#[test]
fn the_examples_in_the_tree_are_right() {
    for text in [WHOLE, include_str!("../../../../deploy/local/llama.yaml")] {
        valid(text);
    }
}
