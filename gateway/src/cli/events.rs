// SPDX-License-Identifier: Apache-2.0
//! `sluice events`: what has changed, and what changes.

use std::time::Duration;

use super::args::{EventOutput, EventsArgs};
use super::client::Client;
use super::console::Console;
use super::exit::{Exit, Failure};
use super::sse::{Events, Message};
use crate::admin::events::Event;
use crate::admin::path;

/// Time between two tries to connect again.
const AGAIN: Duration = Duration::from_secs(1);

/// Events that the server keeps, less some room for those that come meanwhile.
const KEPT: u64 = 4_000;

/// Carries out `sluice events`.
pub async fn events(args: EventsArgs, console: &mut Console<'_>) -> Result<(), Failure> {
    let client = Client::new(&args.admin)?;
    let (past, mut last) = past(&client, args.model.as_deref()).await?;
    let skip = past.len().saturating_sub(args.tail as usize);
    for event in &past[skip..] {
        print(event, args.output, console)?;
    }
    if !args.watch {
        return Ok(());
    }
    loop {
        match follow(&client, &args, &mut last, console).await {
            Err(gone) if gone.exit == Exit::Unreachable => {
                console.say(&format!("{}; trying again", gone.message.lines().next().unwrap_or_default()));
            }
            Err(other) => return Err(other),
            Ok(()) => console.say("the stream has ended: sluice stops; trying again"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Prints until the stream ends. `last` is the last event that was seen.
async fn follow(
    client: &Client,
    args: &EventsArgs,
    last: &mut String,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let body = client.resume(&watch_path(args.model.as_deref()), Some(last)).await?;
    let mut stream = Events::new(body);
    while let Some(message) = stream.next().await.map_err(|error| client.broken(error))? {
        if let Some(event) = event(&message) {
            print(&event, args.output, console)?;
        } else if message.event == "reset" {
            console.say(&format!("events may be missing here: {}", message.data));
        }
        if !message.id.is_empty() {
            *last = message.id;
        }
    }
    Ok(())
}

/// The events that the server still has, of a model or all, and the id of the last one. An id is `run-number`.
pub async fn past(client: &Client, model: Option<&str>) -> Result<(Vec<Event>, String), Failure> {
    let watch = watch_path(model);
    let mut now = Events::new(client.stream(&watch).await?);
    let broken = |error: hyper::Error| client.broken(error);
    let id = now.next().await.map_err(broken)?.map(|snapshot| snapshot.id).unwrap_or_default();
    drop(now);
    let Some((run, last)) = numbered(&id).filter(|(_, last)| *last > 0) else {
        return Ok((Vec::new(), id));
    };
    // All models' events: only these surely include the last one, where reading must stop.
    let from = format!("{run}-{}", last.saturating_sub(KEPT));
    let mut stream = Events::new(client.resume(&watch_path(None), Some(&from)).await?);
    let mut events = Vec::new();
    while let Some(message) = stream.next().await.map_err(broken)? {
        let at = numbered(&message.id).map_or(0, |(_, at)| at);
        events.extend(event(&message).filter(|event| concerns(event, model)));
        if at >= last {
            break;
        }
    }
    Ok((events, id))
}

/// The path of the stream.
pub fn watch_path(model: Option<&str>) -> String {
    let filter = model.map(|model| format!("?model={}", path::encode(model))).unwrap_or_default();
    format!("/api/v1/watch{filter}")
}

fn concerns(event: &Event, model: Option<&str>) -> bool {
    match (model, &event.model) {
        (Some(model), Some(its)) => model == its,
        _ => true,
    }
}

fn numbered(id: &str) -> Option<(&str, u64)> {
    let (run, number) = id.split_once('-')?;
    Some((run, number.parse().ok()?))
}

/// What a message says; `None` for a snapshot or a reset.
pub fn event(message: &Message) -> Option<Event> {
    serde_json::from_str(&message.data).ok()
}

fn print(event: &Event, output: EventOutput, console: &mut Console<'_>) -> Result<(), Failure> {
    match output {
        EventOutput::Json => console.json_line(event),
        EventOutput::Table => console.print(&format!("{}\n", line(event))),
    }
}

/// One line for people, without what could steer a terminal.
pub fn line(event: &Event) -> String {
    format!("{}  {}", event.at, event.text).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
