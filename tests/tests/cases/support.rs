// SPDX-License-Identifier: Apache-2.0
//! Small words that the cases share.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use sluice_tests::client::{Answer, Conn, H2, Request, Stream};
use sluice_tests::harness::{Gateway, eventually};
use sluice_tests::wire::Want;
use tokio::task::JoinHandle;

/// A configuration of these models, and more top-level lines.
pub fn fleet(models: &[String]) -> String {
    format!("models:\n{}", models.concat())
}

/// One model that the fake engine serves, with more keys, one a line.
pub fn model(name: &str, script: &str, keys: &[&str]) -> String {
    let mut text = format!("  - name: {name}\n    command: @engine {name} {script}\n");
    for key in keys {
        text += &format!("    {key}\n");
    }
    text
}

/// Two models that exclude each other.
pub fn exclusive(models: &[String; 2]) -> String {
    let names = models.each_ref().map(|m| m.split_whitespace().nth(2).expect("a model begins with its name"));
    format!(
        "groups:\n  - {{name: one-at-a-time, exclusive: [{}, {}]}}\n{}",
        names[0],
        names[1],
        fleet(models)
    )
}

/// Sends in the background.
pub fn send(request: Request, to: SocketAddr) -> JoinHandle<Answer> {
    tokio::spawn(request.send(to))
}

/// Several seconds, also fractions.
pub fn secs(s: f64) -> Duration {
    Duration::from_secs_f64(s)
}

/// Fails unless all are complete and 200.
#[track_caller]
pub fn all_ok(answers: &[Answer]) {
    for answer in answers {
        answer.expect(200);
    }
}

/// Enough when so many events have come.
pub fn after_events(n: usize) -> impl Fn(&Answer) -> Want {
    move |answer| if answer.events().len() >= n { Want::Enough } else { Want::More }
}

/// A chat request for an endless stream: an event each 50 ms for a minute.
pub fn endless(model: &str) -> Request {
    Request::chat(model).act(json!({"events": 1200, "gap": 50})).limit(Duration::from_secs(70))
}

/// Asserts that `took` is near `nominal` by the cases' tolerance: 250 ms or 10 %, whichever is larger.
#[track_caller]
pub fn near(what: &str, took: f64, nominal: f64) {
    let slack = (nominal * 0.1).max(0.25);
    assert!((took - nominal).abs() <= slack, "{what}: {took:.3} s, should be {nominal} s");
}

/// Seconds between two moments of the shared clock; negative if `to` is the earlier one.
pub fn between(from: u64, to: u64) -> f64 {
    (to as f64 - from as f64) / 1e6
}

/// Waits until so many requests of the model wait in the gateway.
pub async fn queued(gw: &Gateway, model: &str, n: usize) {
    gauge(gw, "sluice_queue_depth", model, n).await;
}

/// Waits until so many requests of the model are with replicas.
pub async fn in_flight(gw: &Gateway, model: &str, n: usize) {
    gauge(gw, "sluice_inflight", model, n).await;
}

async fn gauge(gw: &Gateway, name: &str, model: &str, n: usize) {
    eventually(&format!("{name} of {model} is {n}"), Duration::from_secs(10), async || {
        (gw.metrics().await.sum(name, &[("model", model)]) == n as f64).then_some(())
    })
    .await;
}

/// How a client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Closes its HTTP/1 connection.
    Fin,
    /// Resets its HTTP/1 connection.
    Rst,
    /// Resets its HTTP/2 stream.
    H2Stream,
    /// Closes its HTTP/2 connection.
    H2Connection,
}

impl Leave {
    /// All of them.
    pub const ALL: [Leave; 4] = [Leave::Fin, Leave::Rst, Leave::H2Stream, Leave::H2Connection];
}

/// A client in the middle of a request, over either version.
pub enum Visitor {
    /// With its connection.
    One(Conn, Leave),
    /// With its connection and stream.
    Two(H2, Box<Stream>, Leave),
}

impl Visitor {
    /// Sends the head and so much of the body; a part of the body leaves the request unfinished.
    pub async fn enter(to: SocketAddr, leave: Leave, request: &Request, body: usize) -> Visitor {
        match leave {
            Leave::Fin | Leave::Rst => {
                let mut conn = Conn::open(to).await.expect("the gateway listens");
                let mut bytes = request.head_bytes();
                bytes.extend_from_slice(&request.body[..body]);
                conn.send(bytes).await.expect("the gateway reads");
                Visitor::One(conn, leave)
            }
            Leave::H2Stream | Leave::H2Connection => {
                let h2 = H2::open(to).await.expect("the gateway speaks HTTP/2");
                let mut stream = h2.begin_head(request, false).await.expect("a stream is allowed");
                let end = body == request.body.len();
                stream.push(request.body[..body].to_vec(), end).await.expect("the window is open");
                Visitor::Two(h2, Box::new(stream), leave)
            }
        }
    }

    /// Reads until there is enough, or the end.
    pub async fn read(self, want: impl Fn(&Answer) -> Want) -> (Answer, Visitor) {
        match self {
            Visitor::One(mut conn, leave) => {
                let answer = conn.answer_until("POST", want).await;
                (answer, Visitor::One(conn, leave))
            }
            Visitor::Two(h2, stream, leave) => {
                let (answer, stream) = stream.finish(Duration::from_secs(30), want).await;
                (answer, Visitor::Two(h2, Box::new(stream), leave))
            }
        }
    }

    /// Leaves.
    pub async fn leave(self) {
        match self {
            Visitor::One(conn, Leave::Rst) => conn.reset(),
            Visitor::One(conn, _) => drop(conn),
            Visitor::Two(h2, stream, Leave::H2Stream) => {
                stream.cancel();
                // The reset goes out before the connection ends.
                tokio::time::sleep(Duration::from_millis(20)).await;
                drop(h2);
            }
            Visitor::Two(h2, stream, _) => {
                h2.close().await;
                drop(stream);
            }
        }
    }
}
