// SPDX-License-Identifier: Apache-2.0
//! What the demo engine is at a moment: loading or ready, who runs and who waits, what it has produced.
//!
//! Must not know HTTP paths or bodies. Counters are relaxed atomics: each is right by itself, no two are read together.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::DemoEngineArgs;
use super::refusal::Refusal;

/// The one model and its work.
pub(super) struct Engine {
    args: DemoEngineArgs,
    started: Instant,
    created: u64,
    ready: AtomicBool,
    turns: Option<Arc<Semaphore>>,
    running: AtomicUsize,
    waiting: AtomicUsize,
    begun: AtomicU64,
    prompt_tokens: AtomicU64,
    generated_tokens: AtomicU64,
}

/// A request's turn; dropping it lets the next one run.
pub(super) struct Turn {
    engine: Arc<Engine>,
    _permit: Option<OwnedSemaphorePermit>,
    began: Instant,
    /// Which request this is since the start, counted from 1.
    pub(super) nth: u64,
    /// Time spent waiting for it.
    pub(super) waited: Duration,
}

/// One who waits; dropping it, also because the client left, takes it off the count.
struct Waiter<'a>(&'a Engine);

impl Engine {
    pub(super) fn new(args: DemoEngineArgs) -> Self {
        let turns = (args.concurrency > 0).then(|| Arc::new(Semaphore::new(args.concurrency)));
        Self {
            turns,
            args,
            started: Instant::now(),
            created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            ready: AtomicBool::new(false),
            running: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            prompt_tokens: AtomicU64::new(0),
            generated_tokens: AtomicU64::new(0),
        }
    }

    pub(super) fn set_ready(&self) {
        self.ready.store(true, Relaxed);
    }

    pub(super) fn is_ready(&self) -> bool {
        self.ready.load(Relaxed)
    }

    pub(super) fn model(&self) -> &str {
        &self.args.model
    }

    /// Unix seconds of the start.
    pub(super) fn created(&self) -> u64 {
        self.created
    }

    pub(super) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn embedding_dim(&self) -> usize {
        self.args.embedding_dim as usize
    }

    /// Length of an answer, and whether the request's own limit cut it.
    pub(super) fn length(&self, limit: Option<u64>) -> (usize, bool) {
        let own = u64::from(self.args.tokens);
        let length = limit.map_or(own, |limit| limit.min(own));
        (length as usize, length < own)
    }

    pub(super) fn key_fits(&self, authorization: Option<&[u8]>) -> bool {
        let Some(key) = &self.args.api_key else { return true };
        authorization.and_then(|value| value.strip_prefix(b"Bearer ")) == Some(key.as_bytes())
    }

    /// Waits for a turn, behind those who came before.
    ///
    /// Refuses while loading, for another model's name, and when too many wait already.
    pub(super) async fn turn(self: &Arc<Self>, model: Option<&str>) -> Result<Turn, Refusal> {
        if let Some(other) = model.filter(|name| *name != self.model()) {
            return Err(Refusal::UnknownModel(other.to_owned()));
        }
        if !self.is_ready() {
            return Err(Refusal::Loading(self.model().to_owned()));
        }
        let arrived = Instant::now();
        let permit = match &self.turns {
            Some(turns) => Some(self.wait(turns).await?),
            None => None,
        };
        self.running.fetch_add(1, Relaxed);
        let began = Instant::now();
        let nth = self.begun.fetch_add(1, Relaxed) + 1;
        Ok(Turn { engine: self.clone(), _permit: permit, began, nth, waited: began - arrived })
    }

    async fn wait(&self, turns: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Refusal> {
        if let Ok(permit) = turns.clone().try_acquire_owned() {
            return Ok(permit);
        }
        if self.args.max_waiting.is_some_and(|most| self.waiting.load(Relaxed) >= most) {
            return Err(Refusal::Busy);
        }
        self.waiting.fetch_add(1, Relaxed);
        let _waiter = Waiter(self);
        turns.clone().acquire_owned().await.map_err(|_| Refusal::Busy)
    }

    /// Prometheus text under the names that vLLM uses.
    pub(super) fn metrics(&self) -> String {
        let model = self.model().replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let mut text = String::new();
        for (name, kind, value) in [
            ("num_requests_running", "gauge", self.running.load(Relaxed) as u64),
            ("num_requests_waiting", "gauge", self.waiting.load(Relaxed) as u64),
            ("prompt_tokens_total", "counter", self.prompt_tokens.load(Relaxed)),
            ("generation_tokens_total", "counter", self.generated_tokens.load(Relaxed)),
        ] {
            let _ =
                writeln!(text, "# TYPE vllm:{name} {kind}\nvllm:{name}{{model_name=\"{model}\"}} {value}");
        }
        text
    }
}

impl Turn {
    /// Sleeps until token `index`, counted from 0, is due, and counts it as produced.
    pub(super) async fn token(&self, index: usize) {
        self.sleep_until_token(index).await;
        self.engine.generated_tokens.fetch_add(1, Relaxed);
    }

    /// Sleeps as long as `units` tokens take, for work that has no tokens.
    pub(super) async fn work(&self, units: usize) {
        self.sleep_until_token(units.saturating_sub(1)).await;
    }

    pub(super) fn count_prompt(&self, tokens: usize) {
        self.engine.prompt_tokens.fetch_add(tokens as u64, Relaxed);
    }

    /// Due times are counted from the turn's begin, so that late wake-ups do not lower the rate.
    async fn sleep_until_token(&self, index: usize) {
        let rate = self.engine.args.token_rate;
        let paced = if rate > 0.0 { index as f64 / rate } else { 0.0 };
        let paced = Duration::try_from_secs_f64(paced).unwrap_or(Duration::MAX);
        let due = self.began.checked_add(self.engine.args.first_token.saturating_add(paced));
        match due {
            Some(due) if due > Instant::now() => tokio::time::sleep_until(due).await,
            Some(_) => {}
            None => std::future::pending().await,
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.engine.running.fetch_sub(1, Relaxed);
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}
