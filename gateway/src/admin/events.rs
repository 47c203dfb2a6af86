// SPDX-License-Identifier: Apache-2.0
//! The one log of what changes: models, replicas, orders, settings, reloads.
//!
//! Fed by the scaler's status, each with the former one, and by whoever takes an order or a configuration. Keeps the
//! latest events in a ring; a follower that is too far behind is told so by [`EventLog::since`]. Must not know who
//! follows, nor how events travel.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_core::{FleetStatus, ModelStatus, ReplicaStatus};
use tokio::sync::watch;

use super::api::{self, Model, Replica};
use super::clock::{Moment, rfc3339, unix_ms};

/// Events that are kept.
const KEPT: usize = 4096;

/// One thing that changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// When, RFC 3339 in UTC.
    pub at: String,
    /// `model`, `replica`, `order`, `settings` or `reload`.
    pub kind: String,
    /// Whose; null where it is nobody's alone.
    pub model: Option<String>,
    /// Which; null where it is no replica's.
    pub replica: Option<String>,
    /// In one line, for people.
    pub text: String,
    /// What is different: of a model or replica names of its fields, or `added` or `removed`; of an order its verb; of
    /// settings the keys; of a reload `applied` or `refused`.
    pub changed: Vec<String>,
    /// Name of the token that did it; null where nobody did, or tokens are not used.
    pub by: Option<String>,
    /// The model after a change of it, its load when this was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_now: Option<Model>,
    /// The replica after a change of it, its load when this was sent; of one that is gone, as it was last seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_now: Option<Replica>,
}

impl Event {
    fn new(kind: &str, text: String) -> Event {
        Event {
            at: rfc3339(unix_ms()),
            kind: kind.to_owned(),
            model: None,
            replica: None,
            text,
            changed: Vec::new(),
            by: None,
            model_now: None,
            replica_now: None,
        }
    }

    /// An order for a model, or for one of its replicas.
    pub(super) fn order(verb: &str, model: &str, replica: Option<String>, by: &str) -> Event {
        let what = replica.as_deref().unwrap_or(model);
        let who = if by.is_empty() { String::new() } else { format!(" by {by}") };
        Event {
            model: Some(model.to_owned()),
            changed: vec![verb.to_owned()],
            by: (!by.is_empty()).then(|| by.to_owned()),
            ..Event::new("order", format!("{what}: {verb} ordered{who}"))
        }
        .of(replica)
    }

    /// The settings of a model have changed by the API, or (nobody) back to the file's.
    pub fn settings(model: &str, keys: Vec<String>, by: &str) -> Event {
        Event {
            model: Some(model.to_owned()),
            by: (!by.is_empty()).then(|| by.to_owned()),
            text: format!("{model}: settings changed: {}", keys.join(", ")),
            changed: keys,
            ..Event::new("settings", String::new())
        }
    }

    /// A configuration file was taken over, or refused for these reasons.
    pub fn reload(change: &str, errors: &[String]) -> Event {
        let (word, text) = match errors.first() {
            None => ("applied", format!("configuration taken over: {change}")),
            Some(first) => ("refused", format!("configuration refused: {first}")),
        };
        Event { changed: vec![word.to_owned()], ..Event::new("reload", text) }
    }

    fn of(self, replica: Option<String>) -> Event {
        Event { replica, ..self }
    }
}

/// An event with its number.
pub(super) type Numbered = (u64, Event);

#[derive(Default)]
struct Ring {
    /// Number of the last event; the first is 1.
    last: u64,
    events: VecDeque<Event>,
}

/// The log. One per process; shared by reference.
pub struct EventLog {
    /// Tells one process's numbers from another's.
    epoch: u64,
    ring: Mutex<Ring>,
    grown: watch::Sender<u64>,
}

impl Default for EventLog {
    fn default() -> Self {
        EventLog { epoch: unix_ms(), ring: Mutex::default(), grown: watch::Sender::new(0) }
    }
}

impl EventLog {
    /// An empty log.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one event.
    pub fn add(&self, event: Event) {
        self.add_all(vec![event]);
    }

    /// Adds what is different between two statuses of the scaler.
    pub fn compare(&self, former: &FleetStatus, new: &FleetStatus) {
        let events = differences(former, new, Moment::now());
        if !events.is_empty() {
            self.add_all(events);
        }
    }

    fn add_all(&self, events: Vec<Event>) {
        let mut ring = self.lock();
        for event in events {
            ring.last += 1;
            if ring.events.len() == KEPT {
                ring.events.pop_front();
            }
            ring.events.push_back(event);
        }
        let last = ring.last;
        drop(ring);
        self.grown.send_replace(last);
    }

    /// Number of the last event; grows with each.
    pub(super) fn grown(&self) -> watch::Receiver<u64> {
        self.grown.subscribe()
    }

    /// Number of the last event.
    pub(super) fn last(&self) -> u64 {
        self.lock().last
    }

    /// At most `most` of the events after number `after`, in order; `None` if some of these are no longer kept.
    pub(super) fn since(&self, after: u64, most: usize) -> Option<Vec<Numbered>> {
        let ring = self.lock();
        let oldest = ring.last - ring.events.len() as u64 + 1;
        if after > ring.last || after + 1 < oldest {
            return None;
        }
        let skip = usize::try_from(after + 1 - oldest).ok()?;
        let events = ring.events.iter().skip(skip).take(most).cloned();
        Some((after + 1..).zip(events).collect())
    }

    /// The number as clients see it.
    pub(super) fn id(&self, number: u64) -> String {
        format!("{:x}-{number}", self.epoch)
    }

    /// The number of such an id; `None` if it is not of this process.
    pub(super) fn number(&self, id: &str) -> Option<u64> {
        let (epoch, number) = id.split_once('-')?;
        (u64::from_str_radix(epoch, 16).ok()? == self.epoch).then(|| number.parse().ok())?
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Both lists are sorted by the same key: each pair of equals, and each one that is alone.
fn pairs<'a, T, K: Ord>(
    old: &'a [T],
    new: &'a [T],
    key: impl Fn(&T) -> K,
) -> Vec<(Option<&'a T>, Option<&'a T>)> {
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    let mut out = Vec::new();
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return out,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(a), Some(b)) => key(a).cmp(&key(b)),
        };
        let (before, after) = (order.is_le().then(|| old.next()), order.is_ge().then(|| new.next()));
        out.push((before.flatten(), after.flatten()));
    }
}

fn differences(former: &FleetStatus, new: &FleetStatus, now: Moment) -> Vec<Event> {
    let models = pairs(&former.models, &new.models, |model| model.name.clone());
    let models = models.into_iter().filter_map(|(old, new)| model_event(old, new, now));
    let replicas = pairs(&former.replicas, &new.replicas, |replica| replica.id);
    models.chain(replicas.into_iter().filter_map(|(old, new)| replica_event(old, new, now))).collect()
}

fn model_event(old: Option<&ModelStatus>, new: Option<&ModelStatus>, now: Moment) -> Option<Event> {
    let name = old.or(new)?.name.as_str();
    let (changed, text) = match (old, new) {
        (Some(_), None) => (vec!["removed"], format!("{name}: no longer configured")),
        (None, Some(new)) => (vec!["added"], format!("{name}: configured, {}", new.state.as_str())),
        (Some(old), Some(new)) => {
            let fault = |model: &ModelStatus| model.fault.as_ref().map(|f| (f.failures, f.cause.clone()));
            let fields = [
                ("state", old.state != new.state),
                ("desired", old.desired != new.desired),
                ("pinned", old.pinned != new.pinned),
                ("ready", old.ready != new.ready),
                ("starting", old.starting != new.starting),
                ("leaving", old.leaving != new.leaving),
                ("fault", fault(old) != fault(new)),
            ];
            let changed: Vec<&str> =
                fields.iter().filter(|(_, different)| *different).map(|(field, _)| *field).collect();
            if changed.is_empty() {
                return None;
            }
            (changed, model_text(old, new))
        }
        (None, None) => return None,
    };
    Some(Event {
        at: rfc3339(now.unix_ms),
        model: Some(name.to_owned()),
        changed: changed.into_iter().map(str::to_owned).collect(),
        model_now: new.map(|new| api::model(new, None, now)),
        ..Event::new("model", text)
    })
}

fn model_text(old: &ModelStatus, new: &ModelStatus) -> String {
    let mut parts = Vec::new();
    if old.state != new.state {
        parts.push(format!("{} -> {}", old.state.as_str(), new.state.as_str()));
    }
    if old.desired != new.desired {
        parts.push(format!("desired {} -> {} ({})", old.desired, new.desired, new.reason));
    }
    if old.ready != new.ready {
        parts.push(format!("ready {} -> {}", old.ready, new.ready));
    }
    match (&new.pinned, &new.fault) {
        (None, _) if old.pinned.is_some() => parts.push("scale order over".to_owned()),
        (_, Some(fault)) if old.fault.as_ref().is_none_or(|old| old.failures != fault.failures) => {
            parts.push(format!("failed {} in a row: {}", fault.failures, fault.cause));
        }
        (_, None) if old.fault.is_some() => parts.push("starts work again".to_owned()),
        _ => {}
    }
    if parts.is_empty() {
        let (starting, leaving) = (new.starting, new.leaving);
        parts.push(format!("{starting} starting, {leaving} leaving ({})", new.reason));
    }
    format!("{}: {}", new.name, parts.join(", "))
}

fn replica_event(old: Option<&ReplicaStatus>, new: Option<&ReplicaStatus>, now: Moment) -> Option<Event> {
    let last = new.or(old)?;
    let (id, model) = (last.id, &last.model);
    let note = if last.note.is_empty() { String::new() } else { format!(" ({})", last.note) };
    let (changed, text) = match (old, new) {
        (Some(_), None) => ("removed", format!("{id} of {model}: gone{note}")),
        (None, Some(new)) => ("added", format!("{id} of {model}: {}", api::phase(new.phase))),
        (Some(old), Some(new)) if old.phase != new.phase => {
            let (from, to) = (api::phase(old.phase), api::phase(new.phase));
            ("phase", format!("{id} of {model}: {from} -> {to}{note}"))
        }
        _ => return None,
    };
    Some(Event {
        at: rfc3339(now.unix_ms),
        model: Some(model.as_str().to_owned()),
        replica: Some(id.to_string()),
        changed: vec![changed.to_owned()],
        replica_now: Some(api::replica(last, None, now)),
        ..Event::new("replica", text)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use sluice_core::{Micros, ModelState, Phase, ReplicaId};

    use super::*;
    use crate::admin::fakes::{broken, cold, replica, warm};

    fn fleet(models: Vec<ModelStatus>, replicas: Vec<ReplicaStatus>) -> FleetStatus {
        FleetStatus { at: Micros::ZERO, models, replicas }
    }

    fn texts(log: &EventLog) -> Vec<String> {
        log.since(0, 100).unwrap().into_iter().map(|(_, event)| event.text).collect()
    }

    #[test]
    fn each_change_is_one_event_with_what_is_now() {
        let log = EventLog::new();
        let first = fleet(vec![cold("a"), warm("c")], vec![]);
        log.compare(&FleetStatus::default(), &first);
        let starting =
            ModelStatus { state: ModelState::Starting, desired: 1, reason: "demand".into(), ..cold("a") };
        let second = fleet(vec![starting.clone(), cold("b")], vec![replica("a")]);
        log.compare(&first, &second);
        let going = ReplicaStatus { phase: Phase::Draining, note: "drain order".into(), ..replica("a") };
        log.compare(&second, &fleet(vec![starting.clone(), broken("b", 2)], vec![going.clone()]));
        let other = ReplicaStatus { id: ReplicaId(9), phase: Phase::Starting, ..replica("a") };
        log.compare(&fleet(vec![], vec![going]), &fleet(vec![], vec![other]));
        let expected = [
            "a: configured, cold",
            "c: configured, ready",
            "a: cold -> starting, desired 0 -> 1 (demand)",
            "b: configured, cold",
            "c: no longer configured",
            "r7 of a: ready",
            "b: failed 2 in a row: exit status 1: no such file: weights.gguf",
            "r7 of a: ready -> draining (drain order)",
            "r7 of a: gone (drain order)",
            "r9 of a: starting",
        ];
        assert_eq!(texts(&log), expected);
        let (_, event) = log.since(2, 1).unwrap().remove(0);
        assert_eq!(
            (event.changed, event.model_now.unwrap().desired),
            (vec!["state".into(), "desired".into()], 1)
        );
    }

    #[test]
    fn what_only_passes_time_is_no_event() {
        let log = EventLog::new();
        let quiet = fleet(vec![warm("a")], vec![replica("a")]);
        log.compare(&quiet, &FleetStatus { at: Micros::from_secs(5), ..quiet.clone() });
        assert_eq!(log.last(), 0);
    }

    #[test]
    fn numbers_that_are_no_longer_kept_or_never_were_are_a_gap() {
        let log = EventLog::new();
        for _ in 0..KEPT + 10 {
            log.add(Event::reload("", &[]));
        }
        assert_eq!(log.since(9, 1), None);
        assert_eq!(log.since(10, 5000).unwrap().len(), KEPT);
        assert_eq!(log.since(log.last(), 10), Some(vec![]));
        assert_eq!(log.since(log.last() + 1, 10), None);
        assert_eq!(log.number(&log.id(7)), Some(7));
        assert_eq!(log.number("0-7"), None);
        assert_eq!(log.number("x"), None);
    }
}
