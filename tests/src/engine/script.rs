// SPDX-License-Identifier: Apache-2.0
//! What a fake engine is told to do, as JSON: once for the process (`--script`) and per request (`x-engine` header).
//!
//! Owns the vocabulary and its defaults; an empty script is a well-behaved engine. All times are milliseconds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The life of one process.
#[derive(Clone, Debug, Deserialize, Default)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Script {
    /// Starts to listen this long after launch.
    pub listen_at: u64,
    /// The readiness path answers 200 from then on.
    pub ready_at: u64,
    /// How the readiness path behaves.
    pub probe: Probe,
    /// Everything but the readiness path is accepted and left without an answer until `readyAt`.
    pub hang_until_ready: bool,
    /// 401 to every request without `authorization: Bearer KEY`, readiness included.
    pub key: Option<String>,
    /// Ends by itself.
    pub exit: Option<Exit>,
    /// `flock`ed for the life of the process; when somebody else holds it the engine exits 70 at once.
    pub lock: Option<PathBuf>,
    /// Reaction to SIGTERM.
    pub term: Term,
    /// Leaves a process of the same group behind that ignores SIGTERM.
    pub grandchild: bool,
    /// Closes a connection that was idle for so long.
    pub idle_close: Option<u64>,
    /// Resets the connection of a request that finds so many running already.
    pub max_concurrent: Option<usize>,
    /// For requests without an `x-engine` header.
    pub act: Act,
}

/// How the readiness path (`/health`) behaves.
#[derive(Clone, Debug, Deserialize, Default)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Probe {
    /// Before `readyAt` probes are left without an answer instead of 503.
    pub hang: bool,
    /// Each answer takes so long.
    pub delay: u64,
    /// Statuses of the first answers after `readyAt`, in order; 200 afterwards.
    pub answers: Vec<u16>,
    /// While this file exists the answer is 503.
    pub red_while: Option<PathBuf>,
}

/// An end at launch.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Exit {
    /// Exit status.
    pub code: i32,
    /// After launch.
    #[serde(default)]
    pub after: u64,
    /// Written to standard error first.
    #[serde(default)]
    pub stderr: String,
    /// Only while this file exists.
    #[serde(default)]
    pub only_while: Option<PathBuf>,
}

/// Reaction to SIGTERM.
#[derive(Clone, Debug, Deserialize, Default)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Term {
    /// What it waits for.
    pub mode: TermMode,
    /// Then so long.
    pub delay: u64,
}

/// What a process does on SIGTERM.
#[derive(Clone, Copy, Debug, Deserialize, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum TermMode {
    /// Exits at once, whatever runs.
    #[default]
    Exit,
    /// Takes no connection any more and exits when no request runs.
    Finish,
    /// Goes on.
    Ignore,
}

/// How one request is answered.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Act {
    /// Status of the answer.
    pub status: u16,
    /// Added to the answer's head.
    pub headers: Vec<(String, String)>,
    /// Interim answers before the final head.
    pub interim: Vec<u16>,
    /// From the whole request to the answer's head.
    pub ttft: u64,
    /// Answers without reading the request's body.
    pub early: bool,
    /// Waits so long before it reads the request's body.
    pub read_after: u64,
    /// Server-sent events, with `[DONE]` at the end.
    pub events: u32,
    /// Before each event but the first.
    pub gap: u64,
    /// Before this event instead of `gap`.
    pub pauses: BTreeMap<u32, u64>,
    /// Pauses in the middle of the events named.
    pub splits: BTreeMap<u32, u64>,
    /// The answer's body; JSON about the request if unset.
    pub body: Option<String>,
    /// A body of so many bytes.
    pub size: Option<usize>,
    /// The request's body is the answer's.
    pub echo: bool,
    /// How the end of the body is told on HTTP/1.
    pub framing: Framing,
    /// After the body.
    pub trailers: Vec<(String, String)>,
    /// Sent after the end of the answer, in the same write.
    pub surplus: String,
    /// Sent verbatim instead of any answer; the connection is closed after it.
    pub raw: Option<String>,
    /// A misbehaviour.
    pub fault: Option<Fault>,
}

impl Default for Act {
    fn default() -> Self {
        Act {
            status: 200,
            headers: Vec::new(),
            interim: Vec::new(),
            ttft: 0,
            early: false,
            read_after: 0,
            events: 0,
            gap: 0,
            pauses: BTreeMap::new(),
            splits: BTreeMap::new(),
            body: None,
            size: None,
            echo: false,
            framing: Framing::default(),
            trailers: Vec::new(),
            surplus: String::new(),
            raw: None,
            fault: None,
        }
    }
}

/// How the end of an HTTP/1 body is told.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum Framing {
    /// Known bodies by length, events chunked.
    #[default]
    Auto,
    /// `transfer-encoding: chunked`.
    Chunked,
    /// An HTTP/1.0 answer that ends with the connection.
    Close,
}

/// A misbehaviour at one point of a request, if every condition that is set holds.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fault {
    /// Where.
    pub at: Point,
    /// What.
    pub how: How,
    /// For `at: event`: after so many events.
    #[serde(default)]
    pub event: u32,
    /// Only on a connection that carried a request before.
    #[serde(default)]
    pub reused: bool,
    /// Only on a connection older than this.
    #[serde(default)]
    pub older_than: u64,
    /// Only when the request's body contains this text; for points after the body.
    #[serde(default)]
    pub contains: Option<String>,
    /// Only for the one engine that manages to create this file.
    #[serde(default)]
    pub once: Option<PathBuf>,
}

/// A point of a request.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum Point {
    /// The request's head has arrived.
    Request,
    /// The whole request has arrived, the handler has not run.
    Body,
    /// The handler has run, nothing was answered.
    Handler,
    /// The answer's head was sent.
    Head,
    /// Some events were sent.
    Event,
}

/// A way to misbehave.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum How {
    /// The connection is reset.
    Rst,
    /// The connection is closed.
    Fin,
    /// Nothing more is sent.
    Hang,
    /// The process exits with status 9.
    Exit,
}

/// What is known of a request when a fault is considered.
pub struct Circumstances<'a> {
    /// Requests on the connection before it.
    pub earlier: u64,
    /// Age of the connection in milliseconds.
    pub age: u64,
    /// The request's body as far as it is kept.
    pub body: &'a [u8],
}

impl Act {
    /// What happens at this point, if anything.
    pub fn fault_at(&self, point: Point, seen: &Circumstances<'_>) -> Option<How> {
        let fault = self.fault.as_ref().filter(|f| f.at == point)?;
        let holds = (!fault.reused || seen.earlier > 0)
            && (fault.older_than == 0 || seen.age > fault.older_than)
            && fault.contains.as_ref().is_none_or(|text| contains(seen.body, text.as_bytes()))
            && fault.once.as_deref().is_none_or(create);
        holds.then_some(fault.how)
    }
}

fn create(path: &Path) -> bool {
    std::fs::OpenOptions::new().write(true).create_new(true).open(path).is_ok()
}

fn contains(body: &[u8], text: &[u8]) -> bool {
    body.windows(text.len().max(1)).any(|w| w == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_script_behaves_well() {
        let script: Script = serde_json::from_str("{}").unwrap();
        assert_eq!((script.listen_at, script.ready_at, script.act.status), (0, 0, 200));
        assert!(script.exit.is_none() && script.act.fault.is_none());
    }

    #[test]
    fn unknown_words_are_refused() {
        assert!(serde_json::from_str::<Script>(r#"{"redyAt":1}"#).is_err());
        assert!(serde_json::from_str::<Act>(r#"{"fault":{"at":"head","how":"rst","onse":"x"}}"#).is_err());
    }

    #[test]
    fn a_fault_needs_all_its_conditions() {
        let act: Act = serde_json::from_str(
            r#"{"fault":{"at":"body","how":"rst","reused":true,"olderThan":100,"contains":"poison"}}"#,
        )
        .unwrap();
        let seen = |earlier, age, body| Circumstances { earlier, age, body };
        assert_eq!(act.fault_at(Point::Body, &seen(1, 101, b"a poison pill")), Some(How::Rst));
        assert_eq!(act.fault_at(Point::Head, &seen(1, 101, b"a poison pill")), None);
        assert_eq!(act.fault_at(Point::Body, &seen(0, 101, b"a poison pill")), None);
        assert_eq!(act.fault_at(Point::Body, &seen(1, 100, b"a poison pill")), None);
        assert_eq!(act.fault_at(Point::Body, &seen(1, 101, b"a pill")), None);
    }

    #[test]
    fn once_is_once_for_all_engines() {
        let dir = tempfile::tempdir().unwrap();
        let fault =
            format!(r#"{{"fault":{{"at":"head","how":"fin","once":"{}/taken"}}}}"#, dir.path().display());
        let act: Act = serde_json::from_str(&fault).unwrap();
        let seen = Circumstances { earlier: 0, age: 0, body: b"" };
        assert_eq!(act.fault_at(Point::Head, &seen), Some(How::Fin));
        assert_eq!(act.fault_at(Point::Head, &seen), None);
    }
}
