// SPDX-License-Identifier: Apache-2.0
//! The admin API's stream of changes, without an end: a stream that breaks is taken up where it broke.
//!
//! Must not know what the changes are for.

use std::time::Duration;

use super::client::Client;
use super::exit::{Exit, Failure};
use super::sse::{Events, Message};
use crate::admin::events::Event;
use crate::admin::path;
use crate::admin::watch::{Reset, Snapshot};

/// Time between two tries to connect again.
const AGAIN: Duration = Duration::from_secs(1);

/// What one message says.
#[derive(Debug)]
pub enum News {
    /// All that there is; what was known before is void.
    Snapshot(Box<Snapshot>),
    /// One change.
    Event(Box<Event>),
    /// Changes were missed; a snapshot follows.
    Reset(String),
}

impl News {
    /// Of a message; `None` if it is of a kind that this version does not know.
    pub fn of(message: &Message) -> Option<News> {
        let data = &message.data;
        match message.event.as_str() {
            "snapshot" => serde_json::from_str(data).ok().map(|all| News::Snapshot(Box::new(all))),
            "reset" => serde_json::from_str(data).ok().map(|Reset { reason }| News::Reset(reason)),
            _ => serde_json::from_str(data).ok().map(|event| News::Event(Box::new(event))),
        }
    }
}

/// A place in the stream.
pub struct Follow<'a> {
    client: &'a Client,
    path: String,
    last: Option<String>,
    stream: Option<Events>,
    /// Once there was a connection, a lost one is no failure.
    known: bool,
}

impl<'a> Follow<'a> {
    /// Follows a model or all, from after this event or beginning with a snapshot.
    pub fn new(client: &'a Client, model: Option<&str>, last: Option<String>) -> Follow<'a> {
        Follow { client, path: watch_path(model), known: last.is_some(), last, stream: None }
    }

    /// What comes next. `notice` is told of lost connections. Fails if there never was one, or if the server refuses.
    pub async fn next(&mut self, mut notice: impl FnMut(&str)) -> Result<News, Failure> {
        loop {
            match self.try_next().await {
                Ok(Some(message)) => {
                    if let Some(news) = News::of(&message) {
                        return Ok(news);
                    }
                    continue;
                }
                Ok(None) => notice("the stream has ended: sluice stops; trying again"),
                Err(lost) if lost.exit == Exit::Unreachable && self.known => {
                    notice(&format!("{}; trying again", lost.message.lines().next().unwrap_or_default()));
                }
                Err(other) => return Err(other),
            }
            self.stream = None;
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn try_next(&mut self) -> Result<Option<Message>, Failure> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => {
                let body = self.client.resume(&self.path, self.last.as_deref()).await?;
                self.known = true;
                none.insert(Events::new(body))
            }
        };
        let message = stream.next().await.map_err(|error| self.client.broken(error))?;
        if let Some(Message { id, .. }) = message.as_ref().filter(|message| !message.id.is_empty()) {
            self.last = Some(id.clone());
        }
        Ok(message)
    }
}

/// The path of the stream.
pub fn watch_path(model: Option<&str>) -> String {
    let filter = model.map(|model| format!("?model={}", path::encode(model))).unwrap_or_default();
    format!("/api/v1/watch{filter}")
}
