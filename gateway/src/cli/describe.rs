// SPDX-License-Identifier: Apache-2.0
//! `sluice describe`: all there is to know about one model or replica, for people.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};

use super::args::{Describe, DescribeOne, Whole};
use super::client::Client;
use super::console::Console;
use super::exit::Failure;
use super::table::short;
use super::{events, explain};
use crate::admin::api::{List, Model, Replica, Settings};
use crate::admin::decisions::Decision;
use crate::admin::events::Event;
use crate::admin::path;

/// Latest events that are shown.
const EVENTS: usize = 10;

/// Carries out `sluice describe`.
pub async fn describe(what: Describe, console: &mut Console<'_>) -> Result<(), Failure> {
    match what {
        Describe::Model(DescribeOne { name, output, admin }) => {
            let client = Client::new(&admin)?;
            let name = path::encode(&name);
            let model: Model = client.get(&format!("/api/v1/models/{name}")).await?;
            let replicas: Vec<Replica> = client.list(&format!("/api/v1/replicas?model={name}")).await?;
            let settings: Settings = client.get(&format!("/api/v1/models/{name}/settings")).await?;
            let decisions: List<Decision> =
                client.get(&format!("/api/v1/decisions?model={name}&limit=1")).await?;
            let decision = decisions.items.last();
            let (events, _) = events::past(&client, Some(&model.name)).await?;
            if output != Whole::Text {
                let whole = json!({
                    "model": model, "replicas": replicas, "settings": settings.settings,
                    "origins": settings.origins, "decision": decision, "events": tail(&events),
                });
                return document(&whole, output, console);
            }
            let mut text = of_model(&model, &replicas);
            let words = decision.map(explain::words).unwrap_or_default();
            text.list("Last decision", words.lines().map(str::to_owned));
            text.list("Settings", in_lines(&settings));
            text.list("Latest events", latest(&events));
            console.print(&text.0)
        }
        Describe::Replica(DescribeOne { name, output, admin }) => {
            let client = Client::new(&admin)?;
            let replica: Replica = client.get(&format!("/api/v1/replicas/{}", path::encode(&name))).await?;
            let (events, _) = events::past(&client, Some(&replica.model)).await?;
            let its: Vec<Event> =
                events.into_iter().filter(|event| event.replica.as_ref() == Some(&replica.id)).collect();
            match output {
                Whole::Text => console.print(&of_replica(&replica, &its)),
                _ => document(&json!({"replica": replica, "events": tail(&its)}), output, console),
            }
        }
    }
}

fn document(whole: &Value, output: Whole, console: &mut Console<'_>) -> Result<(), Failure> {
    if output == Whole::Yaml { console.yaml(whole) } else { console.json(whole) }
}

/// Every key with its value; what is no default says where it comes from.
fn in_lines(settings: &Settings) -> impl Iterator<Item = String> {
    let mut leaves = Vec::new();
    collect("", &settings.settings, &settings.origins, &mut leaves);
    let width = leaves.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
    leaves.into_iter().map(move |(key, value)| format!("{key:width$}  {value}"))
}

fn collect(
    path: &str,
    value: &Value,
    origins: &BTreeMap<String, String>,
    leaves: &mut Vec<(String, String)>,
) {
    if let (None, Value::Object(members)) = (origins.get(path), value) {
        for (key, value) in members {
            let dot = if path.is_empty() { "" } else { "." };
            collect(&format!("{path}{dot}{key}"), value, origins, leaves);
        }
        return;
    }
    let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let origin = match origins.get(path).map(String::as_str) {
        None | Some("default") => String::new(),
        Some(origin) => format!("  ({origin})"),
    };
    leaves.push((path.to_owned(), format!("{value}{origin}")));
}

fn of_model(model: &Model, replicas: &[Replica]) -> Text {
    let mut text = Text::default();
    text.row("Model", &model.name);
    text.row("State", &model.state);
    text.row("Reason", &model.reason);
    text.row("Next", &next(model));
    let counts = format!(
        "{} ready, {} starting, {} leaving; desired {}, wanted {}",
        model.ready,
        model.starting,
        model.leaving,
        model.desired,
        known(model.wanted)
    );
    text.row("Replicas", &counts);
    if let Some(pinned) = model.pinned {
        text.row("Ordered", &format!("{pinned} by `scale`, until the model has idled"));
    }
    text.row("Load", &format!("{} in flight, {} waiting", known(model.in_flight), known(model.queued)));
    text.row("Idle", &model.idle_ms.map_or("-".to_owned(), short));
    text.row("Starts", &starts(model));
    if let Some(fault) = &model.fault {
        let answered = if fault.answers_waiters { "; waiting requests are told" } else { "" };
        let what = format!("{} failed in a row, next try in {}", fault.failures, short(fault.retry_in_ms));
        text.row("Fault", &format!("{}: {what}{answered}", fault.cause));
    }
    text.list("Replicas now", replicas.iter().map(one_line));
    text
}

fn of_replica(replica: &Replica, events: &[Event]) -> String {
    let mut text = Text::default();
    text.row("Replica", &replica.id);
    text.row("Model", &replica.model);
    text.row("Phase", &format!("{} for {}, since {}", replica.phase, short(replica.age_ms), replica.since));
    text.row("Address", replica.address.as_deref().unwrap_or("-"));
    text.row("In flight", &known(replica.in_flight));
    text.row("Note", if replica.note.is_empty() { "-" } else { &replica.note });
    text.list("Latest events", latest(events));
    text.0
}

/// One replica in a line.
pub fn one_line(replica: &Replica) -> String {
    let address = replica.address.as_deref().unwrap_or("-");
    let load = known(replica.in_flight);
    let head = format!("{}  {} for {}  {address}", replica.id, replica.phase, short(replica.age_ms));
    let note = if replica.note.is_empty() { String::new() } else { format!("  {}", replica.note) };
    format!("{head}  {load} in flight{note}")
}

/// What happens next to a model, in words.
pub fn next(model: &Model) -> String {
    let p90 = model.wake.p90_ms.map(|ms| format!(", nine of ten starts take up to {}", short(ms)));
    let p90 = p90.unwrap_or_default();
    match (&model.fault, model.desired) {
        (Some(fault), desired) if model.ready == 0 && desired > 0 => {
            format!("next try in {}: {}", short(fault.retry_in_ms), fault.cause)
        }
        (_, desired) if model.starting > 0 => match &model.next {
            Some(next) if next.in_ms > 0 => {
                format!("{} starting of {desired}, ready in about {}", model.starting, short(next.in_ms))
            }
            Some(_) => format!("{} starting of {desired}, later than nine of ten", model.starting),
            None => format!("{} starting of {desired}{p90}", model.starting),
        },
        (_, desired) if desired > model.ready => format!("{} more to start{p90}", desired - model.ready),
        _ if model.leaving > 0 => format!("{} leaving: {}", model.leaving, model.reason),
        (_, 0) => format!("starts on the next request{p90}"),
        _ => match &model.next {
            Some(next) if next.what == "asleep" => format!("sleeps in {}", short(next.in_ms)),
            Some(next) if next.what == "fewer" => format!("fewer replicas in {}", short(next.in_ms)),
            _ => model.reason.clone(),
        },
    }
}

fn starts(model: &Model) -> String {
    match (model.wake.p50_ms, model.wake.p90_ms) {
        (Some(half), Some(nine)) => {
            format!(
                "half take up to {}, nine of ten up to {} ({} measured)",
                short(half),
                short(nine),
                model.wake.samples
            )
        }
        _ => "none measured".to_owned(),
    }
}

/// A count that may be unknown.
pub fn known(count: Option<u32>) -> String {
    count.map_or_else(|| "?".to_owned(), |count| count.to_string())
}

fn latest(events: &[Event]) -> impl Iterator<Item = String> {
    tail(events).iter().map(events::line)
}

fn tail(events: &[Event]) -> &[Event] {
    &events[events.len().saturating_sub(EVENTS)..]
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn row(&mut self, label: &str, value: &str) {
        let value: String = value.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let _ = writeln!(self.0, "{label:<10} {value}");
    }

    fn list(&mut self, label: &str, lines: impl Iterator<Item = String>) {
        let _ = writeln!(self.0, "\n{label}:");
        let before = self.0.len();
        for line in lines {
            let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            let _ = writeln!(self.0, "  {line}");
        }
        if self.0.len() == before {
            self.0.push_str("  none\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use sluice_core::{Coming, Micros, ModelState, ModelStatus, Next};

    use super::*;
    use crate::admin::api;
    use crate::admin::clock::Moment;
    use crate::admin::fakes::{cold, warm};

    fn said(status: ModelStatus, coming: Option<(Coming, u64)>) -> String {
        let now = Moment { micros: Micros::from_secs(100), unix_ms: 0 };
        let next = coming.map(|(what, secs)| Next { what, at: Micros::from_secs(secs) });
        super::next(&api::model(&ModelStatus { next, ..status }, None, now))
    }

    #[test]
    fn what_comes_next_has_a_countdown() {
        let starting = || ModelStatus { state: ModelState::Starting, ready: 0, starting: 1, ..warm("m") };
        let cases = [
            (cold("m"), None, "starts on the next request, nine of ten starts take up to 1.1s"),
            (starting(), Some((Coming::Ready, 112)), "1 starting of 1, ready in about 12s"),
            (starting(), Some((Coming::Ready, 90)), "1 starting of 1, later than nine of ten"),
            (starting(), None, "1 starting of 1"),
            (warm("m"), Some((Coming::Asleep, 400)), "sleeps in 5m"),
            (warm("m"), Some((Coming::Fewer, 125)), "fewer replicas in 25s"),
            (warm("m"), None, "steady"),
        ];
        for (status, coming, words) in cases {
            assert_eq!(said(status, coming), words);
        }
    }

    #[test]
    fn settings_are_lines_with_their_origin() {
        let settings = Settings {
            model: "m".to_owned(),
            settings: json!({"queue": {"length": 5, "bytes": "1Mi"}, "idleAfter": "5m", "groups": ["a"]}),
            origins: [("queue.length", "api"), ("queue.bytes", "default"), ("idleAfter", "file")]
                .map(|(key, origin)| (key.to_owned(), origin.to_owned()))
                .into(),
        };
        let lines: Vec<String> = in_lines(&settings).collect();
        let expected = [
            "groups        [\"a\"]",
            "idleAfter     5m  (file)",
            "queue.bytes   1Mi",
            "queue.length  5  (api)",
        ];
        assert_eq!(lines, expected);
    }
}
