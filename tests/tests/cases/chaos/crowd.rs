// SPDX-License-Identifier: Apache-2.0
//! Many clients that send one request after another, over all kinds of connections, until they are told to stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use serde_json::json;
use sluice_tests::client::{Answer, Conn, H2, Request};
use sluice_tests::clock::ms;
use sluice_tests::harness::{Gateway, eventually};
use sluice_tests::wire::Ended;
use tokio::task::JoinHandle;

use crate::support::secs;

/// The header field that carries a request's mark to the engine.
pub const MARK: &str = "x-mark";
/// Events of each stream, without the last one that says so.
pub const EVENTS: u64 = 8;

/// One request and what became of it.
pub struct Sent {
    /// Its mark; no two requests of a gateway share one.
    pub mark: String,
    /// Its body, which the engine sends back; `None` for a stream.
    pub echo: Option<Vec<u8>>,
    /// What came back.
    pub answer: Answer,
}

/// Clients at work.
pub struct Crowd {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<Vec<Sent>>>,
}

/// A connection as a client keeps it: one per request, one after another on HTTP/1, or HTTP/2.
enum Line {
    Fresh,
    Kept(Option<Conn>),
    Multiplexed(Option<H2>),
}

impl Crowd {
    /// Starts so many clients. `name` sets their marks apart from those of other crowds.
    pub fn start(to: SocketAddr, model: &'static str, name: &'static str, clients: usize) -> Crowd {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let client =
            |n| tokio::spawn(client(to, model, format!("{name}-{n}"), (stop.clone(), answered.clone())));
        Crowd { clients: (0..clients).map(client).collect(), stop, answered }
    }

    /// Waits until so many more requests were answered with 200.
    pub async fn gets(&self, more: usize) {
        let goal = self.answered.load(Relaxed) + more;
        let ask = async || (self.answered.load(Relaxed) >= goal).then_some(());
        eventually(&format!("{more} more answers"), secs(30.0), ask).await;
    }

    /// No further requests; everything that was sent.
    pub async fn stop(self) -> Vec<Sent> {
        self.stop.store(true, Relaxed);
        let mut all = Vec::new();
        for client in self.clients {
            all.append(&mut client.await.expect("a client does not panic"));
        }
        all
    }

    /// As `stop`; then waits until the engines have written everything down.
    pub async fn stop_and_settle(self, gateway: &Gateway, dead: &[u32]) -> Vec<Sent> {
        let all = self.stop().await;
        eventually("living engines have ended their work", secs(10.0), async || {
            let open = |s: &sluice_tests::harness::Seen| s.started.is_some() && s.ended.is_none();
            (!gateway.engines().requests().iter().any(|s| open(s) && !dead.contains(&s.pid))).then_some(())
        })
        .await;
        all
    }
}

type Flags = (Arc<AtomicBool>, Arc<AtomicUsize>);

async fn client(to: SocketAddr, model: &str, name: String, (stop, answered): Flags) -> Vec<Sent> {
    let number = name.bytes().map(usize::from).sum::<usize>();
    let mut line = match number % 3 {
        0 => Line::Fresh,
        1 => Line::Kept(None),
        _ => Line::Multiplexed(None),
    };
    let mut all = Vec::new();
    while !stop.load(Relaxed) {
        let mark = format!("{name}-{}", all.len());
        let (request, echo) = compose(model, &mark, all.len());
        let answer = line.send(to, request).await;
        let good = answer.is(200);
        all.push(Sent { mark, echo, answer });
        if good {
            answered.fetch_add(1, Relaxed);
        } else {
            tokio::time::sleep(ms(20)).await;
        }
    }
    all
}

/// Short answers and streams in turn.
fn compose(model: &str, mark: &str, turn: usize) -> (Request, Option<Vec<u8>>) {
    let request = Request::chat(model).field(MARK, mark);
    if turn % 2 == 1 {
        return (request.act(json!({"events": EVENTS, "gap": 5})), None);
    }
    let body = json!({"model": model, "prompt": mark}).to_string().into_bytes();
    (request.body(body.clone()).act(json!({"echo": true, "ttft": 5 + turn % 20})), Some(body))
}

impl Line {
    async fn send(&mut self, to: SocketAddr, request: Request) -> Answer {
        let refused = |e: std::io::Error| Answer { ended: e.into(), ..Answer::begin() };
        match self {
            Line::Fresh => request.send(to).await,
            Line::Kept(kept) => {
                let mut conn = match kept.take() {
                    Some(conn) => conn,
                    None => match Conn::open(to).await {
                        Ok(conn) => conn,
                        Err(e) => return refused(e),
                    },
                };
                let answer = conn.exchange(&request).await;
                let close = answer.get("connection").is_some_and(|c| c.eq_ignore_ascii_case("close"));
                *kept = (answer.ended == Ended::Whole && !close).then_some(conn);
                answer
            }
            Line::Multiplexed(kept) => {
                let h2 = match kept.take() {
                    Some(h2) => h2,
                    None => match H2::open(to).await {
                        Ok(h2) => h2,
                        Err(e) => return refused(e),
                    },
                };
                let answer = h2.exchange(&request).await;
                *kept = (answer.ended == Ended::Whole).then_some(h2);
                answer
            }
        }
    }
}
