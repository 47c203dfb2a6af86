// SPDX-License-Identifier: Apache-2.0
//! How Knative's activator shares replicas, holds requests and chooses: a reference model, held against the recording.
//!
//! The gateway works otherwise here (`docs/compat-kpa.md` lists how), so nothing of this is in the product but the count
//! of activators. The model is what the difference is measured from.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use serde_json::{Value, json};
use sluice_core::kpa::{Settings, decider};

use crate::records;

const UNLIMITED: u64 = 2_147_483_647;

/// Of these replicas, the part of one activator; `index` is its place among so many, or `None` if it is not among them.
fn assigned(cc: u64, replicas: &[String], index: Option<usize>, activators: usize) -> Vec<String> {
    let mut all = replicas.to_vec();
    all.sort();
    let many = all.len();
    let Some(index) = index.filter(|_| cc > 0 && many > 1 && activators > 1) else { return all };
    if activators > many {
        return vec![all[index % many].clone()];
    }
    let each = many / activators;
    let mut own = all[index * each..(index + 1) * each].to_vec();
    if index < many % activators {
        own.push(all[each * activators + index].clone());
    }
    own
}

fn capacity(cc: u64, replicas: usize) -> u64 {
    match (cc, replicas) {
        (_, 0) => 0,
        (0, _) => UNLIMITED,
        (cc, n) => cc * n as u64,
    }
}

/// Behind one address of the whole service the part of an activator is a number only.
fn shared_capacity(cc: u64, replicas: usize, activators: usize) -> u64 {
    match capacity(cc, replicas) {
        0 => 0,
        UNLIMITED => UNLIMITED,
        whole => (whole / activators.max(1) as u64).max(1),
    }
}

fn check_assignment(line: &Value) {
    let cc = line["cc"].as_u64().unwrap();
    let (replicas, activators) = (texts(&line["replicas"]), texts(&line["activators"]));
    let mut sorted = activators.clone();
    sorted.sort();
    let askers = line["assigned"].as_array().unwrap().len();
    for asker in 0..askers {
        let outside = line["id"].as_str().unwrap().starts_with("outside/");
        let index = sorted.iter().position(|other| *other == activators[asker]).filter(|_| !outside);
        let (own, most) = match line.get("cluster_ip") {
            Some(_) => (Vec::new(), shared_capacity(cc, replicas.len(), activators.len())),
            None => {
                let own = assigned(cc, &replicas, index, activators.len());
                (own.clone(), capacity(cc, own.len()))
            }
        };
        let gate = if cc == 0 { most.min(1) } else { most };
        let told: BTreeSet<_> = texts(&line["assigned"][asker]).into_iter().collect();
        assert_eq!(own.into_iter().collect::<BTreeSet<_>>(), told, "{}", line["id"]);
        assert_eq!(json!(most), line["capacity"][asker], "{}", line["id"]);
        assert_eq!(json!(gate), line["gate"][asker], "{}", line["id"]);
    }
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// A replica in the list; who runs there keeps it when the list drops it.
type Tracker = Rc<(String, Cell<u64>)>;

/// Holds requests and starts them: the gate alone, or the gate with a choice of replica.
#[derive(Default)]
struct Throttler {
    cc: u64,
    own: String,
    choosing: bool,
    capacity: u64,
    /// Running and waiting together at most.
    places: u64,
    running: BTreeMap<u64, Option<Tracker>>,
    waiting: VecDeque<u64>,
    /// Wake-ups that found nobody waiting, at most `most_tokens`: a later waiter takes one, and looks again.
    tokens: u64,
    most_tokens: u64,
    activators: Vec<String>,
    replicas: Vec<Tracker>,
    part: Vec<Tracker>,
    next: usize,
}

impl Throttler {
    /// What started or failed because of one operation.
    fn apply(&mut self, op: &Value) -> Vec<(u64, String)> {
        let number = || op[1].as_u64().unwrap();
        let mut out = Vec::new();
        match op[0].as_str().unwrap() {
            "arrive" if self.running.len() + self.waiting.len() >= self.places as usize => {
                out.push((number(), "error: pending request queue full".to_owned()));
            }
            "arrive" => self.look(number(), &mut out),
            "finish" => {
                if let Some(Some(tracker)) = self.running.remove(&number()) {
                    tracker.1.set(tracker.1.get() - 1);
                }
                if (self.running.len() as u64) < self.capacity {
                    self.wake(&mut out);
                }
            }
            "cancel" => {
                if let Some(at) = self.waiting.iter().position(|id| *id == number()) {
                    self.waiting.remove(at);
                    out.push((number(), "error: context canceled".to_owned()));
                }
            }
            "capacity" => self.resize(number(), &mut out),
            // One that is not among them keeps what it had.
            "activators" if !texts(&op[1]).contains(&self.own) => {}
            "activators" => {
                self.activators = texts(&op[1]);
                self.activators.sort();
                self.share(&mut out);
            }
            "replicas" => {
                let known = std::mem::take(&mut self.replicas);
                let find = |name: &String| known.iter().find(|tracker| tracker.0 == *name).cloned();
                let listed = texts(&op[1]).into_iter();
                self.replicas =
                    listed.map(|name| find(&name).unwrap_or_else(|| Rc::new((name, Cell::new(0))))).collect();
                self.share(&mut out);
            }
            other => panic!("unknown operation {other}"),
        }
        out
    }

    fn share(&mut self, out: &mut Vec<(u64, String)>) {
        let names: Vec<String> = self.replicas.iter().map(|tracker| tracker.0.clone()).collect();
        let index = self.activators.iter().position(|other| *other == self.own);
        let own = assigned(self.cc, &names, index, self.activators.len());
        let find = |name: &String| self.replicas.iter().find(|tracker| tracker.0 == *name).cloned();
        self.part = own.iter().filter_map(find).collect();
        self.resize(capacity(self.cc, self.part.len()), out);
    }

    /// Each further place wakes one; those who find none free wait behind the others again. Of several the last one
    /// looks first: Go's scheduler ran it so.
    fn resize(&mut self, capacity: u64, out: &mut Vec<(u64, String)>) {
        let more = capacity.saturating_sub(std::mem::replace(&mut self.capacity, capacity));
        let woken = self.waiting.len().min(usize::try_from(more).unwrap());
        let mut woken: Vec<u64> = self.waiting.drain(..woken).collect();
        self.tokens = (self.tokens + more - woken.len() as u64).min(self.most_tokens);
        let last = woken.len().min(1);
        woken.rotate_right(last);
        woken.into_iter().for_each(|id| self.look(id, out));
    }

    fn wake(&mut self, out: &mut Vec<(u64, String)>) {
        match self.waiting.pop_front() {
            Some(id) => self.look(id, out),
            None => self.tokens = (self.tokens + 1).min(self.most_tokens),
        }
    }

    /// A request runs if there is a place, whoever waits; else it waits, as soon as no wake-up is left over.
    fn look(&mut self, id: u64, out: &mut Vec<(u64, String)>) {
        if self.running.len() as u64 >= self.capacity {
            self.tokens = 0;
            self.waiting.push_back(id);
            return;
        }
        let tracker = if self.choosing { self.choose() } else { None };
        assert!(!self.choosing || tracker.is_some(), "a place without a replica");
        let name = tracker.as_ref().map_or_else(|| "run".to_owned(), |tracker| tracker.0.clone());
        self.running.insert(id, tracker);
        out.push((id, name));
    }

    /// Goes on with the chance that was recorded.
    fn adopt(&mut self, told: &[(u64, String)]) {
        let chosen: Vec<Tracker> =
            told.iter().filter_map(|(id, _)| self.running.get(id).cloned().flatten()).collect();
        for (id, name) in told {
            if let Some(tracker) = chosen.iter().find(|tracker| tracker.0 == *name) {
                self.running.insert(*id, Some(tracker.clone()));
            }
        }
    }

    fn choose(&mut self) -> Option<Tracker> {
        let free = |tracker: &&Tracker| self.cc == 0 || tracker.1.get() < self.cc;
        let mut parts: Vec<&Tracker> = self.part.iter().collect();
        parts.sort_by(|a, b| a.0.cmp(&b.0));
        let chosen = match self.cc {
            0 => self.part.iter().min_by_key(|tracker| tracker.1.get()).cloned(),
            1..=3 => parts.into_iter().find(free).cloned(),
            _ => {
                let many = self.part.len();
                let begin = if self.next >= many { 0 } else { self.next };
                let mut turns = (0..many).map(|turn| (begin + turn) % many);
                let at = turns.find(|&at| free(&parts[at]))?;
                self.next = at + 1;
                Some(parts[at].clone())
            }
        }?;
        chosen.1.set(chosen.1.get() + 1);
        Some(chosen)
    }
}

fn check_throttler(line: &Value) {
    let number = |key: &str| line[key].as_u64().unwrap_or(0);
    let choosing = line["kind"] == "selection";
    let mut throttler = Throttler {
        cc: number("cc"),
        own: line["self"].as_str().unwrap_or_default().to_owned(),
        choosing,
        capacity: number("initial_capacity"),
        most_tokens: if choosing { UNLIMITED } else { number("max_concurrency") },
        places: if choosing { u64::MAX >> 1 } else { number("queue_depth") + number("max_concurrency") },
        ..Throttler::default()
    };
    for (at, (op, told)) in
        line["ops"].as_array().unwrap().iter().zip(line["result"].as_array().unwrap()).enumerate()
    {
        let mut got = throttler.apply(op);
        let told = told.as_array().unwrap().iter();
        let mut told: Vec<(u64, String)> =
            told.map(|row| (row[0].as_u64().unwrap(), row[1].as_str().unwrap().to_owned())).collect();
        // Which of several waiting ones gets which replica is left to chance there.
        let split = |list: &mut Vec<(u64, String)>| {
            list.sort();
            let mut names: Vec<String> = list.iter().map(|(_, name)| name.clone()).collect();
            names.sort();
            (list.iter().map(|(id, _)| *id).collect::<Vec<_>>(), names)
        };
        assert_eq!(split(&mut got), split(&mut told), "{}: operation {at} {op}", line["id"]);
        throttler.adopt(&told);
    }
}

fn check_table(line: &Value) {
    for row in line["rows"].as_array().unwrap() {
        let column = |at: usize| row[at].as_f64().unwrap();
        match line["id"].as_str().unwrap() {
            "table/scrape-sample-size" => {
                let n = column(0);
                let sampled = if n <= 3.0 { n } else { (15.3664 * n / (n + 14.3664)).ceil() };
                assert_eq!(sampled, column(1), "{row}");
            }
            "table/activator-count" => {
                let settings = Settings {
                    target: Some(column(1)),
                    target_burst_capacity: column(2),
                    activator_capacity: column(3),
                    ..Settings::default()
                };
                let count = decider::activators(&settings, column(0) as u32);
                assert_eq!(f64::from(count), column(4), "{row}");
            }
            "table/scrape-extrapolation" => {
                let (pods, sample) = (column(0), column(1));
                for (sum, told) in [(2, 4), (3, 5)] {
                    assert_eq!(column(sum) / sample * pods, column(told), "{row}");
                }
            }
            other => panic!("unknown table {other}"),
        }
    }
}

#[test]
fn the_reference_of_sharing_holding_and_choosing_does_as_recorded() {
    let lines = records::lines(&["capacity.jsonl.gz"]);
    assert_eq!(lines.len(), 387);
    for line in &lines {
        match line["kind"].as_str().unwrap() {
            "assignment" => check_assignment(line),
            "selection" | "breaker" => check_throttler(line),
            "table" => check_table(line),
            other => panic!("unknown kind {other}"),
        }
    }
}
