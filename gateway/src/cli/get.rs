// SPDX-License-Identifier: Apache-2.0
//! `sluice get models|replicas`: lists in five forms, once or as they change.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Style};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::args::{Get, GetModels, GetReplicas, ListArgs, Output};
use super::client::Client;
use super::console::Console;
use super::exit::{Exit, Failure};
use super::table::{Cell, Table, short};
use crate::admin::api::{List, Model, Replica};
use crate::admin::path;

/// Time between two looks of `--watch`.
const LOOK: Duration = Duration::from_secs(1);

/// Carries out `sluice get`.
pub async fn get(what: Get, console: &mut Console<'_>) -> Result<(), Failure> {
    match what {
        Get::Models(GetModels { name, list }) => {
            let one = name.map(|name| format!("/api/v1/models/{}", path::encode(&name)));
            show::<Model>(one, "/api/v1/models".to_owned(), &list, console).await
        }
        Get::Replicas(GetReplicas { name, model, list }) => {
            let one = name.map(|id| format!("/api/v1/replicas/{}", path::encode(&id)));
            let filter = model.map(|model| format!("?model={}", path::encode(&model))).unwrap_or_default();
            show::<Replica>(one, format!("/api/v1/replicas{filter}"), &list, console).await
        }
    }
}

/// A document that has a row in a table.
trait Item: Clone + PartialEq + Serialize + DeserializeOwned {
    /// Columns of the plain table and of the wide one.
    const COLUMNS: [&'static [&'static str]; 2];

    fn name(&self) -> &str;

    fn row(&self, wide: bool) -> Vec<Cell>;

    /// Without what changes merely because time passes.
    fn still(&self) -> Self;
}

async fn show<T: Item>(
    one: Option<String>,
    all: String,
    list: &ListArgs,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let client = Client::new(&list.admin)?;
    let items = fetch::<T>(&client, one.as_deref(), &all).await?;
    let mut table = Table::new(T::COLUMNS[usize::from(list.output == Output::Wide)]);
    print(&items, list.output, one.is_some(), &mut table, console)?;
    if !list.watch {
        return Ok(());
    }
    let mut seen = by_name(&items);
    loop {
        tokio::time::sleep(LOOK).await;
        let items = match fetch::<T>(&client, one.as_deref(), &all).await {
            Err(gone) if gone.exit == Exit::NotFound => Vec::new(),
            other => other?,
        };
        let now = by_name(&items);
        let changed: Vec<T> =
            items.into_iter().filter(|item| seen.get(item.name()) != now.get(item.name())).collect();
        more(&changed, list.output, &mut table, console)?;
        for name in seen.keys().filter(|name| !now.contains_key(*name)) {
            console.say(&format!("{name} is gone"));
        }
        seen = now;
    }
}

async fn fetch<T: Item>(client: &Client, one: Option<&str>, all: &str) -> Result<Vec<T>, Failure> {
    match one {
        Some(path) => Ok(vec![client.get(path).await?]),
        None => Ok(client.get::<List<T>>(all).await?.items),
    }
}

fn by_name<T: Item>(items: &[T]) -> BTreeMap<String, T> {
    items.iter().map(|item| (item.name().to_owned(), item.still())).collect()
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

    fn still(&self) -> Self {
        let mut still = self.clone();
        still.idle_ms = None;
        if let Some(fault) = &mut still.fault {
            fault.retry_in_ms = 0;
        }
        still
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

    fn still(&self) -> Self {
        Replica { age_ms: 0, since: String::new(), ..self.clone() }
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
