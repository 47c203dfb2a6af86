// SPDX-License-Identifier: Apache-2.0
//! `sluice get models|replicas`: lists in five forms, once or as they change.

use std::collections::BTreeMap;

use clap::builder::styling::{AnsiColor, Style};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::args::{Get, GetModels, GetReplicas, ListArgs, Output};
use super::client::Client;
use super::console::Console;
use super::exit::Failure;
use super::follow::{Follow, News};
use super::table::{Cell, Table, short};
use crate::admin::api::{List, Model, Replica, Wake};
use crate::admin::events::Event;
use crate::admin::path;
use crate::admin::watch::Snapshot;

/// Carries out `sluice get`.
pub async fn get(what: Get, console: &mut Console<'_>) -> Result<(), Failure> {
    match what {
        Get::Models(GetModels { name, list }) => {
            let path = "/api/v1/models".to_owned();
            show::<Model>(Choice { model: name.clone(), one: name }, path, &list, console).await
        }
        Get::Replicas(GetReplicas { name, model, list }) => {
            let filter = match &model {
                Some(model) => format!("?model={}", path::encode(model)),
                None => String::new(),
            };
            let path = format!("/api/v1/replicas{filter}");
            show::<Replica>(Choice { one: name, model }, path, &list, console).await
        }
    }
}

/// A document that has a row in a table.
trait Item: Clone + PartialEq + Serialize + DeserializeOwned {
    /// Columns of the plain table and of the wide one.
    const COLUMNS: [&'static [&'static str]; 2];

    fn name(&self) -> &str;

    fn row(&self, wide: bool) -> Vec<Cell>;

    /// Only what events tell of; the rest changes without one.
    fn told(&self) -> Self;

    /// Those of a snapshot.
    fn all(snapshot: Snapshot) -> Vec<Self>;

    /// Whose change this is, and what it is now; `None` in place of that if it is gone.
    fn changed(event: Event) -> Option<(String, Option<Self>)>;
}

/// Which of all.
struct Choice {
    one: Option<String>,
    model: Option<String>,
}

async fn show<T: Item>(
    choice: Choice,
    path: String,
    list: &ListArgs,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let client = Client::new(&list.admin)?;
    let items: Vec<T> = match &choice.one {
        Some(name) => vec![client.get(&format!("{path}/{}", path::encode(name))).await?],
        None => client.list(&path).await?,
    };
    let mut table = Table::new(T::COLUMNS[usize::from(list.output == Output::Wide)]);
    print(&items, list.output, choice.one.is_some(), &mut table, console)?;
    if list.watch { watch(&client, &choice, items, (list.output, table), console).await } else { Ok(()) }
}

/// Prints each change; a lost connection is taken up again.
async fn watch<T: Item>(
    client: &Client,
    choice: &Choice,
    items: Vec<T>,
    (output, mut table): (Output, Table),
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let mut seen: BTreeMap<String, T> = items.into_iter().map(by_name).collect();
    let mut follow = Follow::new(client, choice.model.as_deref(), None);
    loop {
        let changes: Vec<(String, Option<T>)> = match follow.next(|lost| console.say(lost)).await? {
            News::Reset(_) => continue,
            News::Event(event) => T::changed(*event).into_iter().collect(),
            News::Snapshot(all) => {
                let now: BTreeMap<String, T> = T::all(*all).into_iter().map(by_name).collect();
                let gone: Vec<String> =
                    seen.keys().filter(|name| !now.contains_key(*name)).cloned().collect();
                gone.into_iter()
                    .map(|name| (name, None))
                    .chain(now.into_iter().map(|(n, item)| (n, Some(item))))
                    .collect()
            }
        };
        for (name, now) in changes {
            if choice.one.as_ref().is_some_and(|one| *one != name) {
                continue;
            }
            match now {
                Some(item) if seen.get(&name).is_some_and(|former| former.told() == item.told()) => {}
                Some(item) => {
                    more(std::slice::from_ref(&item), output, &mut table, console)?;
                    seen.insert(name, item);
                }
                None if seen.remove(&name).is_some() => console.say(&format!("{name} is gone")),
                None => {}
            }
        }
    }
}

fn by_name<T: Item>(item: T) -> (String, T) {
    (item.name().to_owned(), item)
}

fn print<T: Item>(
    items: &[T],
    output: Output,
    single: bool,
    table: &mut Table,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    match (output, items) {
        (Output::Json, [item]) if single => console.json(item),
        (Output::Json, _) => console.json(&List { items: items.to_vec(), next_cursor: None }),
        (Output::Yaml, [item]) if single => console.yaml(item),
        (Output::Yaml, _) => console.yaml(&List { items: items.to_vec(), next_cursor: None }),
        (Output::Table | Output::Wide, []) => {
            console.say("none");
            Ok(())
        }
        (Output::Table | Output::Wide, _) => {
            table.header(&rows(items, output), console.out)?;
            more(items, output, table, console)
        }
        (Output::Name, _) => more(items, output, table, console),
    }
}

/// What `--watch` adds.
fn more<T: Item>(
    items: &[T],
    output: Output,
    table: &mut Table,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    match output {
        Output::Table | Output::Wide => {
            let mut text = Vec::new();
            table.rows(&rows(items, output), console.colour, &mut text)?;
            console.print(&String::from_utf8_lossy(&text))
        }
        Output::Json => items.iter().try_for_each(|item| console.json_line(item)),
        Output::Yaml => items.iter().try_for_each(|item| {
            console.print("---\n")?;
            console.yaml(item)
        }),
        Output::Name => items.iter().try_for_each(|item| console.print(&format!("{}\n", item.name()))),
    }
}

fn rows<T: Item>(items: &[T], output: Output) -> Vec<Vec<Cell>> {
    items.iter().map(|item| item.row(output == Output::Wide)).collect()
}

impl Item for Model {
    const COLUMNS: [&'static [&'static str]; 2] = [
        &["MODEL", "STATE", "READY", "DESIRED", "INFLIGHT", "QUEUE", "WAKES-IN", "IDLE", "REASON"],
        &[
            "MODEL", "STATE", "READY", "STARTING", "LEAVING", "WANTED", "DESIRED", "INFLIGHT", "QUEUE",
            "WAKE-P50", "WAKE-P90", "SAMPLES", "IDLE", "REASON", "FAULT",
        ],
    ];

    fn name(&self) -> &str {
        &self.name
    }

    fn row(&self, wide: bool) -> Vec<Cell> {
        let time = |ms: Option<u64>| Cell::new(ms.map(short).unwrap_or_default());
        let mut row = vec![Cell::new(&self.name), Cell::styled(&self.state, colour_of(&self.state))];
        row.push(number(self.ready));
        if wide {
            row.extend([number(self.starting), number(self.leaving), known(self.wanted)]);
        }
        row.extend([number(self.desired), known(self.in_flight), known(self.queued)]);
        if wide {
            row.extend([time(self.wake.p50_ms), time(self.wake.p90_ms), number(self.wake.samples)]);
        } else {
            row.push(Cell::new(wakes_in(self)));
        }
        row.extend([time(self.idle_ms), Cell::new(&self.reason)]);
        if wide {
            row.push(Cell::new(fault(self).unwrap_or_default()));
        } else if let (Some(cell), Some(fault)) = (row.last_mut(), fault(self)) {
            *cell = Cell::styled(fault, AnsiColor::Red.on_default());
        }
        row
    }

    fn told(&self) -> Self {
        let wake = Wake { p50_ms: None, p90_ms: None, samples: 0 };
        let mut told = Model { wanted: None, reason: String::new(), wake, ..self.clone() };
        (told.in_flight, told.queued, told.idle_ms, told.next) = (None, None, None, None);
        if let Some(fault) = &mut told.fault {
            (fault.answers_waiters, fault.retry_in_ms) = (false, 0);
        }
        told
    }

    fn all(snapshot: Snapshot) -> Vec<Self> {
        snapshot.models
    }

    fn changed(event: Event) -> Option<(String, Option<Self>)> {
        (event.kind == "model").then_some((event.model?, event.model_now))
    }
}

impl Item for Replica {
    const COLUMNS: [&'static [&'static str]; 2] = [
        &["REPLICA", "MODEL", "PHASE", "AGE", "INFLIGHT", "ADDRESS", "NOTE"],
        &["REPLICA", "MODEL", "PHASE", "AGE", "SINCE", "INFLIGHT", "ADDRESS", "NOTE"],
    ];

    fn name(&self) -> &str {
        &self.id
    }

    fn row(&self, wide: bool) -> Vec<Cell> {
        let mut row = vec![
            Cell::new(&self.id),
            Cell::new(&self.model),
            Cell::styled(&self.phase, colour_of(&self.phase)),
            Cell::new(short(self.age_ms)),
        ];
        if wide {
            row.push(Cell::new(&self.since));
        }
        let address = self.address.as_deref().unwrap_or_default();
        row.extend([known(self.in_flight), Cell::new(address), Cell::new(&self.note)]);
        row
    }

    fn told(&self) -> Self {
        let (since, note) = (String::new(), String::new());
        Replica { age_ms: 0, since, note, address: None, in_flight: None, ..self.clone() }
    }

    fn all(snapshot: Snapshot) -> Vec<Self> {
        snapshot.replicas
    }

    fn changed(event: Event) -> Option<(String, Option<Self>)> {
        let is_gone = event.changed.iter().any(|change| change == "removed");
        (event.kind == "replica").then_some((event.replica?, event.replica_now.filter(|_| !is_gone)))
    }
}

fn number(n: u32) -> Cell {
    Cell::new(n.to_string())
}

/// A count that may be unknown, which is not zero.
fn known(n: Option<u32>) -> Cell {
    Cell::new(n.map_or_else(|| "?".to_owned(), |n| n.to_string()))
}

/// How long a request would wait for the model's first replica.
fn wakes_in(model: &Model) -> String {
    match model.wake.p90_ms {
        Some(ms) if model.ready == 0 => format!("{} p90", short(ms)),
        _ => String::new(),
    }
}

fn fault(model: &Model) -> Option<String> {
    let fault = model.fault.as_ref()?;
    let times = if fault.failures == 1 { "once".to_owned() } else { format!("{} times", fault.failures) };
    Some(format!("failed {times}, next try in {}: {}", short(fault.retry_in_ms), fault.cause))
}

fn colour_of(state: &str) -> Style {
    match state {
        "ready" => AnsiColor::Green.on_default(),
        "starting" | "draining" | "stopping" => AnsiColor::Yellow.on_default(),
        "unready" => AnsiColor::Red.on_default(),
        _ => AnsiColor::BrightBlack.on_default(),
    }
}
