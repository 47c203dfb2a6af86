// SPDX-License-Identifier: Apache-2.0
//! The configuration language of the tests: plain configuration with a few words filled in.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use super::binaries;

/// Fills in `@dir` and `@engine NAME {SCRIPT}`, and puts the test's listeners in place of the text's own.
pub(super) fn expand(yaml: &str, dir: &Path, data: SocketAddr, admin: SocketAddr) -> String {
    let mut out = format!("listen: {data}\nadmin: {admin}\n");
    for line in yaml.lines() {
        if line.starts_with("listen:") || line.starts_with("admin:") {
            continue;
        }
        let line = line.replace("@dir", &dir.display().to_string());
        match line.split_once("@engine ") {
            Some((before, words)) => out += &format!("{before}{}", engine(words.trim())),
            None => out += &line,
        }
        out.push('\n');
    }
    out
}

fn engine(words: &str) -> String {
    let (name, script) = words.split_once(' ').unwrap_or((words, "{}"));
    let program = binaries::engine().display().to_string();
    let command = [&program, "--name", name, "--port", "${PORT}", "--script", script.trim()];
    serde_json::to_string(&command).expect("strings are JSON")
}

/// What the leak check needs to know of a model.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Terms {
    pub name: String,
    #[serde(default)]
    min_replicas: u32,
    idle_after: Option<String>,
    url: Option<String>,
    urls: Option<Vec<String>>,
}

impl Terms {
    /// When the model goes to zero by itself: the time after which it does.
    pub fn sleeps_after(&self) -> Option<Duration> {
        let text = self
            .idle_after
            .as_deref()
            .filter(|_| self.min_replicas == 0 && self.url.is_none() && self.urls.is_none())?;
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let number: u64 = digits.parse().ok()?;
        match &text[digits.len()..] {
            "ms" => Some(Duration::from_millis(number)),
            "s" => Some(Duration::from_secs(number)),
            "m" => Some(Duration::from_secs(60 * number)),
            _ => None,
        }
    }
}

/// The models of an expanded configuration.
pub(super) fn terms(yaml: &str) -> Vec<Terms> {
    #[derive(Deserialize)]
    struct File {
        #[serde(default)]
        models: Vec<Terms>,
    }
    serde_saphyr::from_str::<File>(yaml).expect("the test writes valid YAML").models
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_filled_in() {
        let yaml = "listen: 0.0.0.0:1\nmodels:\n  - name: m\n    command: @engine m {\"readyAt\": 5}\n    idleAfter: 250ms\n    env: {A: @dir/x}\n  - {name: k, minReplicas: 1, idleAfter: 2s}\n";
        let [data, admin] = [1, 2].map(|p| SocketAddr::from(([127, 0, 0, 1], p)));
        let text = expand(yaml, Path::new("/d"), data, admin);
        assert!(text.starts_with("listen: 127.0.0.1:1\nadmin: 127.0.0.1:2\nmodels:"), "{text}");
        assert!(text.contains(r#""--name","m","--port","${PORT}","--script","{\"readyAt\": 5}"]"#), "{text}");
        assert!(text.contains("A: /d/x"), "{text}");
        let terms = terms(&text);
        assert_eq!(terms[0].sleeps_after(), Some(Duration::from_millis(250)));
        assert_eq!(terms[1].sleeps_after(), None);
    }
}
