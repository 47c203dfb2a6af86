// SPDX-License-Identifier: Apache-2.0
//! `sluice events`: what has changed, and what changes.

use super::args::{EventOutput, EventsArgs};
use super::client::Client;
use super::console::Console;
use super::exit::Failure;
use super::follow::{Follow, News, watch_path};
use super::sse::Events;
use crate::admin::events::Event;

/// Events that the server keeps, less some room for those that come meanwhile.
const KEPT: u64 = 4_000;

/// Carries out `sluice events`.
pub async fn events(args: EventsArgs, console: &mut Console<'_>) -> Result<(), Failure> {
    let client = Client::new(&args.admin)?;
    let (past, last) = past(&client, args.model.as_deref()).await?;
    let skip = past.len().saturating_sub(args.tail as usize);
    for event in &past[skip..] {
        print(event, args.output, console)?;
    }
    if !args.watch {
        return Ok(());
    }
    let mut follow = Follow::new(&client, args.model.as_deref(), Some(last));
    loop {
        match follow.next(|lost| console.say(lost)).await? {
            News::Event(event) => print(&event, args.output, console)?,
            News::Reset(reason) => console.say(&format!("events may be missing here: {reason}")),
            News::Snapshot(_) => {}
        }
    }
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
        if let Some(News::Event(event)) = News::of(&message)
            && concerns(&event, model)
        {
            events.push(*event);
        }
        if at >= last {
            break;
        }
    }
    Ok((events, id))
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
