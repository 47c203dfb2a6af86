// SPDX-License-Identifier: Apache-2.0
//! What `sluice top` knows, and how documents and keys change it. Pure: no terminal, no network, no clock.

use std::collections::VecDeque;
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde_json::{Value, json};

use crate::admin::api::{Model, Replica};
use crate::admin::decisions::Decision;
use crate::admin::events::Event;
use crate::admin::path;

/// Looks that sparklines show.
pub const HISTORY: usize = 120;

/// Events that are kept.
const EVENTS: usize = 500;

/// Something that has come.
#[derive(Debug)]
pub enum News {
    /// A look at all documents.
    Look {
        /// The models.
        models: Vec<Model>,
        /// The replicas.
        replicas: Vec<Replica>,
        /// From the metrics.
        totals: Totals,
        /// When, since 1970.
        at: Duration,
    },
    /// No answer, and why.
    Lost(String),
    /// Something changed.
    Event(Box<Event>),
    /// The last decisions about a model, the latest last.
    Decisions(String, Vec<Decision>),
    /// How an order was taken.
    Told(String),
    /// What a model's replicas printed.
    Lines(String, Vec<String>),
    /// A key.
    Key(KeyEvent),
    /// The screen has another size.
    Resized,
}

/// What the loop shall do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Leave.
    Quit,
    /// Give an order.
    Order {
        /// Path of the POST.
        path: String,
        /// Its body.
        body: Option<Value>,
    },
    /// Fetch a model's logs.
    Logs(String),
}

/// Numbers of the whole process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Requests that have ended.
    pub requests: f64,
    /// Start of the process, seconds since 1970.
    pub started: Option<f64>,
}

impl Totals {
    /// From Prometheus' text format.
    pub fn of(metrics: &str) -> Totals {
        let mut totals = Totals::default();
        for line in metrics.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let value: f64 = value.parse().unwrap_or(0.0);
            match series.split('{').next() {
                Some("sluice_requests_total") => totals.requests += value,
                Some("process_start_time_seconds") => totals.started = Some(value),
                _ => {}
            }
        }
        totals
    }
}

/// What the screen shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View {
    /// All models, and a little of the selected one.
    Models,
    /// The selected model whole.
    Detail,
    /// What the model's replicas printed.
    Logs(Vec<String>),
    /// The keys.
    Help,
}

/// What the last line is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Hints and messages.
    None,
    /// The filter is being written.
    Filter,
    /// An order waits for `y`.
    Confirm {
        /// In words.
        question: String,
        /// The order.
        order: Ask,
    },
}

/// All that is known.
#[derive(Debug)]
pub struct State {
    /// Of the admin listener.
    pub address: String,
    /// Why there is no connection; `None` while there is one.
    pub lost: Option<String>,
    /// The latest models.
    pub models: Vec<Model>,
    /// The latest replicas.
    pub replicas: Vec<Replica>,
    /// The latest events, oldest first.
    pub events: VecDeque<Event>,
    /// The last decisions about the selected model, the latest last.
    pub decisions: Vec<Decision>,
    /// Requests in flight and waiting, look by look.
    pub history: VecDeque<(u64, u64)>,
    /// Requests per second between the last two looks.
    pub rate: Option<f64>,
    /// How long the process has run.
    pub uptime: Option<Duration>,
    /// Name of the selected model.
    pub selected: Option<String>,
    /// Only models whose name contains this.
    pub filter: String,
    /// What is shown.
    pub view: View,
    /// What the last line asks.
    pub prompt: Prompt,
    /// The last message.
    pub told: String,
    former: Option<(Duration, f64)>,
}

impl State {
    /// Nothing is known yet.
    pub fn new(address: &str) -> State {
        State {
            address: address.to_owned(),
            lost: None,
            models: Vec::new(),
            replicas: Vec::new(),
            events: VecDeque::new(),
            decisions: Vec::new(),
            history: VecDeque::new(),
            rate: None,
            uptime: None,
            selected: None,
            filter: String::new(),
            view: View::Models,
            prompt: Prompt::None,
            told: String::new(),
            former: None,
        }
    }

    /// Takes what has come; perhaps something is to be done.
    pub fn take(&mut self, news: News) -> Option<Ask> {
        match news {
            News::Look { models, replicas, totals, at } => self.look(models, replicas, totals, at),
            News::Lost(cause) => {
                self.lost = Some(cause.lines().next().unwrap_or_default().to_owned());
                (self.rate, self.former) = (None, None);
            }
            News::Event(event) => {
                self.events.push_back(*event);
                if self.events.len() > EVENTS {
                    self.events.pop_front();
                }
            }
            News::Decisions(model, decisions) if self.selected.as_ref() == Some(&model) => {
                self.decisions = decisions;
            }
            News::Told(told) => self.told = told,
            News::Lines(model, lines) if self.selected.as_ref() == Some(&model) => {
                self.view = View::Logs(lines);
            }
            News::Lines(..) | News::Decisions(..) | News::Resized => {}
            News::Key(key) if key.kind != KeyEventKind::Release => return self.key(key),
            News::Key(_) => {}
        }
        None
    }

    fn look(&mut self, models: Vec<Model>, replicas: Vec<Replica>, totals: Totals, at: Duration) {
        self.lost = None;
        self.rate = self.former.and_then(|(before, requests)| {
            let passed = at.checked_sub(before)?.as_secs_f64();
            (passed > 0.0 && totals.requests >= requests).then(|| (totals.requests - requests) / passed)
        });
        self.former = Some((at, totals.requests));
        self.uptime =
            totals.started.and_then(|start| Duration::try_from_secs_f64(at.as_secs_f64() - start).ok());
        (self.models, self.replicas) = (models, replicas);
        let (in_flight, queued) = self.load();
        self.history.push_back((in_flight, queued));
        if self.history.len() > HISTORY {
            self.history.pop_front();
        }
        self.keep_selection();
    }

    /// Requests in flight and waiting.
    pub fn load(&self) -> (u64, u64) {
        let sum = |of: fn(&Model) -> Option<u32>| self.models.iter().filter_map(of).map(u64::from).sum();
        (sum(|model| model.in_flight), sum(|model| model.queued))
    }

    /// The models that the filter lets through.
    pub fn shown(&self) -> Vec<&Model> {
        self.models.iter().filter(|model| model.name.contains(&self.filter)).collect()
    }

    /// The last decisions about the selected model; none while only those of another are there.
    pub fn decided(&self) -> &[Decision] {
        let its = |decision: &Decision| Some(&decision.model) == self.selected.as_ref();
        if self.decisions.iter().all(its) { &self.decisions } else { &[] }
    }

    /// The selected model.
    pub fn current(&self) -> Option<&Model> {
        self.models.iter().find(|model| Some(&model.name) == self.selected.as_ref())
    }

    fn keep_selection(&mut self) {
        let names: Vec<String> = self.shown().iter().map(|model| model.name.clone()).collect();
        if !self.selected.as_ref().is_some_and(|name| names.contains(name)) {
            self.selected = names.into_iter().next();
        }
    }

    fn step(&mut self, by: isize) {
        let shown = self.shown();
        let at = shown.iter().position(|model| Some(&model.name) == self.selected.as_ref()).unwrap_or(0);
        let to = at.saturating_add_signed(by).min(shown.len().saturating_sub(1));
        self.selected = shown.get(to).map(|model| model.name.clone());
    }

    fn key(&mut self, key: KeyEvent) -> Option<Ask> {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Some(Ask::Quit);
        }
        match std::mem::replace(&mut self.prompt, Prompt::None) {
            Prompt::None => self.command(key.code),
            Prompt::Filter => {
                self.write_filter(key.code);
                None
            }
            Prompt::Confirm { order, .. } if key.code == KeyCode::Char('y') => Some(order),
            Prompt::Confirm { .. } => {
                self.told = "not ordered".to_owned();
                None
            }
        }
    }

    fn write_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => return,
            KeyCode::Esc => {
                self.filter.clear();
                return self.keep_selection();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(letter) => self.filter.push(letter),
            _ => {}
        }
        self.prompt = Prompt::Filter;
        self.keep_selection();
    }

    fn command(&mut self, code: KeyCode) -> Option<Ask> {
        self.told.clear();
        match code {
            KeyCode::Char('q') if self.view == View::Models => return Some(Ask::Quit),
            KeyCode::Char('q') | KeyCode::Esc | KeyCode::Left => self.view = View::Models,
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::PageUp => self.step(-10),
            KeyCode::PageDown => self.step(10),
            KeyCode::Home => self.step(isize::MIN),
            KeyCode::End => self.step(isize::MAX),
            KeyCode::Enter | KeyCode::Right if self.selected.is_some() => self.view = View::Detail,
            KeyCode::Char('/') => self.prompt = Prompt::Filter,
            KeyCode::Char('?') => self.view = View::Help,
            KeyCode::Char('l') => return self.selected.clone().map(Ask::Logs),
            KeyCode::Char('w') => self.confirm("wake", None),
            KeyCode::Char('s') => self.confirm("sleep", None),
            KeyCode::Char('+') => self.scale(1),
            KeyCode::Char('-') => self.scale(-1),
            _ => {}
        }
        None
    }

    fn scale(&mut self, by: i32) {
        let Some(model) = self.current() else { return };
        let count = model.pinned.unwrap_or(model.desired).saturating_add_signed(by);
        self.confirm("scale", Some(count));
    }

    fn confirm(&mut self, verb: &str, count: Option<u32>) {
        let Some(name) = &self.selected else { return };
        let to = count.map(|count| format!(" to {count}")).unwrap_or_default();
        let path = format!("/api/v1/models/{}:{verb}", path::encode(name));
        let order = Ask::Order { path, body: count.map(|count| json!({ "replicas": count })) };
        self.prompt = Prompt::Confirm { question: format!("{verb} {name}{to}? y orders it"), order };
    }
}
