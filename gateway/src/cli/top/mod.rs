// SPDX-License-Identifier: Apache-2.0
//! `sluice top`: a screen that follows a running Sluice.
//!
//! [`state`] is what is known and how keys change it, [`render`] draws it; both are pure. [`screen`] is the terminal. Here
//! is the thin rest: asking the admin API, reading keys, and ending when the terminal is gone.

pub mod render;
mod screen;
pub mod state;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use ratatui::crossterm::event as terminal;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use super::args::AdminArgs;
use super::client::Client;
use super::exit::{Exit, Failure};
use super::follow::Follow;
use super::{events, follow};
use crate::admin::api::{Line, List, Model, Replica};
use crate::admin::decisions::Decision;
use crate::admin::events::Event;
use crate::admin::path;
use screen::Screen;
use state::{Ask, News, State, Totals};

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// Decisions about the selected model that are fetched.
const DECISIONS: usize = 8;

/// Longest wait for a key until the reader sees that it is no longer needed.
const KEY: Duration = Duration::from_millis(200);

/// Carries out `sluice top`. Needs a terminal, and ends with it.
pub async fn top(args: AdminArgs, colour: bool) -> Result<(), Failure> {
    let client = Arc::new(Client::new(&args)?);
    // Whoever names a wrong address or token should read so on an ordinary screen.
    client.get::<List<Model>>("/api/v1/models?limit=1").await?;
    let cannot = |error| Failure::new(Exit::Failed, format!("top needs a terminal: {error}"));
    let mut hangup = signal(SignalKind::hangup()).map_err(cannot)?;
    let closed = screen::hung_up().map_err(cannot)?;
    ratatui::crossterm::style::force_color_output(colour);
    let gone = Failure::new(Exit::HungUp, "");
    tokio::select! {
        end = show(client, cannot) => end,
        _ = hangup.recv() => Err(gone),
        _ = closed => Err(gone),
    }
}

/// Follows and draws until somebody leaves.
async fn show(client: Arc<Client>, cannot: impl Fn(io::Error) -> Failure) -> Result<(), Failure> {
    let mut screen = Screen::take().map_err(cannot)?;
    let (news, mut inbox) = unbounded_channel();
    let (selected, of_selected) = watch::channel(None);
    tokio::spawn(look(client.clone(), of_selected, news.clone()));
    tokio::spawn(follow_events(client.clone(), news.clone()));
    let keys = news.clone();
    std::thread::spawn(move || read_keys(&keys));
    let mut state = State::new(client.address());
    loop {
        let drawn = screen.draw(|frame| render::draw(&state, frame)).await;
        // Nothing can be said on a terminal that takes nothing.
        drawn.map_err(|_| Failure::new(Exit::HungUp, ""))?;
        selected.send_if_modified(|now| {
            let other = *now != state.selected;
            now.clone_from(&state.selected);
            other
        });
        let Some(first) = inbox.recv().await else { return Ok(()) };
        for ask in take(first, &mut inbox, &mut state) {
            match ask {
                Ask::Quit => return Ok(()),
                Ask::Order { path, body } => {
                    tokio::spawn(order(client.clone(), path, body, news.clone()));
                }
                Ask::Logs(model) => {
                    tokio::spawn(logs(client.clone(), model, news.clone()));
                }
            }
        }
    }
}

/// Takes all that has come, so that a burst is drawn once.
fn take(first: News, inbox: &mut UnboundedReceiver<News>, state: &mut State) -> Vec<Ask> {
    let mut asks = Vec::from_iter(state.take(first));
    while let Ok(more) = inbox.try_recv() {
        asks.extend(state.take(more));
    }
    asks
}

fn read_keys(news: &UnboundedSender<News>) {
    while !news.is_closed() {
        let sent = match terminal::poll(KEY) {
            Ok(false) => Ok(()),
            Ok(true) => match terminal::read() {
                Ok(terminal::Event::Key(key)) => news.send(News::Key(key)),
                Ok(_) => news.send(News::Resized),
                Err(_) => return,
            },
            Err(_) => return,
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Looks at all, and at the decisions about the selected model, once a second and when another one is selected.
async fn look(
    client: Arc<Client>,
    mut selected: watch::Receiver<Option<String>>,
    news: UnboundedSender<News>,
) {
    loop {
        let model = selected.borrow_and_update().clone();
        if let Some(model) = model
            && let Ok(decisions) = decisions(&client, &model).await
        {
            let _ = news.send(News::Decisions(model, decisions));
        }
        let seen = match one_look(&client).await {
            Ok(look) => look,
            Err(failure) => News::Lost(failure.message),
        };
        if news.send(seen).is_err() {
            return;
        }
        // The end of the screen is seen by the next look.
        let _ = tokio::time::timeout(LOOK, selected.changed()).await;
    }
}

async fn decisions(client: &Client, model: &str) -> Result<Vec<Decision>, Failure> {
    let path = format!("/api/v1/decisions?model={}&limit={DECISIONS}", path::encode(model));
    Ok(client.get::<List<Decision>>(&path).await?.items)
}

async fn one_look(client: &Client) -> Result<News, Failure> {
    let models = client.list::<Model>("/api/v1/models").await?;
    let replicas = client.list::<Replica>("/api/v1/replicas").await?;
    let metrics = text(client, "/metrics").await?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Ok(News::Look { models, replicas, totals: Totals::of(&metrics), at: now })
}

async fn text(client: &Client, path: &str) -> Result<String, Failure> {
    let body = client.stream(path).await?.collect().await.map_err(|error| client.broken(error))?;
    Ok(String::from_utf8_lossy(&body.to_bytes()).into_owned())
}

/// The events so far, then each. What fails here is told by the looks.
async fn follow_events(client: Arc<Client>, news: UnboundedSender<News>) {
    let send = |event: Event| news.send(News::Event(Box::new(event)));
    let last = loop {
        match events::past(&client, None).await {
            Ok((past, last)) => {
                past.into_iter().for_each(|event| drop(send(event)));
                break last;
            }
            Err(_) => tokio::time::sleep(LOOK).await,
        }
    };
    let mut stream = Follow::new(&client, None, Some(last));
    while !news.is_closed() {
        match stream.next(|_| ()).await {
            Ok(follow::News::Event(event)) => drop(send(*event)),
            Ok(_) => {}
            Err(_) => tokio::time::sleep(LOOK).await,
        }
    }
}

async fn order(client: Arc<Client>, path: String, body: Option<Value>, news: UnboundedSender<News>) {
    let told = match client.post::<Value>(&path, body.as_ref()).await {
        Ok(_) => "ordered".to_owned(),
        Err(failure) => format!("refused: {}", failure.message),
    };
    let _ = news.send(News::Told(told));
}

async fn logs(client: Arc<Client>, model: String, news: UnboundedSender<News>) {
    let path = format!("/api/v1/models/{}/logs?tail=200", path::encode(&model));
    let lines = match text(&client, &path).await {
        Ok(text) => text
            .lines()
            .filter_map(|line| serde_json::from_str::<Line>(line).ok())
            .map(|line| format!("{} {}", line.replica, line.text))
            .collect(),
        Err(failure) => vec![failure.message],
    };
    let _ = news.send(News::Lines(model, lines));
}
