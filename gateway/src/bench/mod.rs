// SPDX-License-Identifier: Apache-2.0
//! `sluice bench`: a load generator for models, with the figures that streams need and general tools lack.
//!
//! Requests begin when the schedule says, not when earlier ones have ended, and every time is counted from the
//! scheduled moment: a server that stalls cannot hide it by slowing its own load down. Knows nothing of the rest of
//! Sluice: it is a client like any other.

mod client;
mod report;
mod schedule;
mod tally;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use client::{Client, Plan};
use schedule::{Arrivals, Schedule, Stage};
use tally::{Seen, Tally};

/// `sluice bench`.
#[derive(Clone, Debug, clap::Args)]
#[command(before_help = "\
Examples:
  sluice bench --model gemma            one new stream a second for 30 s
  sluice bench --rate 5 --duration 1m   five new ones a second
  sluice bench --stages 2:30s,20:30s    a burst after half a minute
  sluice bench --concurrency 64         64 streams at any time
  sluice bench --path /v1/embeddings --body request.json --no-stream -o json")]
pub struct BenchArgs {
    /// Base address of the server.
    #[arg(long, env = "SLUICE_URL", hide_env_values = true, default_value = "http://127.0.0.1:8080")]
    pub url: String,
    /// The model that requests name.
    #[arg(long, default_value = "demo")]
    pub model: String,
    /// Path of the requests.
    #[arg(long, default_value = "/v1/chat/completions")]
    pub path: String,
    /// New requests per second.
    #[arg(long, default_value_t = 1.0, value_parser = rate, conflicts_with_all = ["stages", "concurrency"])]
    pub rate: f64,
    /// How long requests are begun.
    #[arg(long, default_value = "30s", value_parser = crate::cli::args::duration, conflicts_with = "stages")]
    pub duration: Duration,
    /// Rates one after another, as RATE:TIME,RATE:TIME.
    #[arg(long, value_parser = stages, value_name = "STAGES", conflicts_with = "concurrency")]
    pub stages: Option<Stages>,
    /// So many requests at any time, a new one as soon as one ends, instead of a rate.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub concurrency: Option<u32>,
    /// Distances between arrivals: all the same, or exponential as those of independent users.
    #[arg(long, value_enum, default_value_t = Arrivals::Constant)]
    pub arrivals: Arrivals,
    /// Seed of the exponential distances: the same seed gives the same schedule.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Tokens to ask for (`max_tokens`).
    #[arg(long, default_value_t = 64)]
    pub tokens: u32,
    /// Events that every whole stream must have, the last one (`[DONE]`) included; others are counted as wrong.
    #[arg(long, value_name = "N")]
    pub events: Option<u64>,
    /// Ask for the whole answer at once.
    #[arg(long)]
    pub no_stream: bool,
    /// Body of the requests, as it is, from a file.
    #[arg(long, value_name = "FILE")]
    pub body: Option<PathBuf>,
    /// A further header field, `name: value`; may be repeated.
    #[arg(long, value_parser = header, value_name = "FIELD")]
    pub header: Vec<(http::HeaderName, http::HeaderValue)>,
    /// HTTP/2 without TLS (prior knowledge) instead of HTTP/1.1.
    #[arg(long)]
    pub http2: bool,
    /// Requests begun in this time are sent and not counted.
    #[arg(long, default_value = "0s", value_parser = crate::cli::args::duration)]
    pub warmup: Duration,
    /// Longest time for one request.
    #[arg(long, default_value = "5m", value_parser = crate::cli::args::duration)]
    pub timeout: Duration,
    /// Requests under way at most; a further one is not sent and counted.
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    pub max_in_flight: usize,
    /// Print JSON instead of a table.
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    pub output: Form,
}

/// Form of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// Rates one after another.
#[derive(Clone, Debug, PartialEq)]
pub struct Stages(pub Vec<Stage>);

/// Sends the load and prints the result. 0 if every counted request was answered whole, 1 if not or if the load cannot
/// be made.
pub fn run(args: BenchArgs) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("cannot start: {error}")),
    };
    let plan = match Plan::new(&args) {
        Ok(plan) => Arc::new(plan),
        Err(message) => return failed(&message),
    };
    let (form, duration) = (args.output, args.length());
    let tally = runtime.block_on(async {
        tokio::select! {
            tally = load(args, plan) => Some(tally),
            _ = tokio::signal::ctrl_c() => None,
        }
    });
    let Some(tally) = tally else { return ExitCode::from(130) };
    println!("{}", report::render(&tally, duration, form));
    if tally.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn failed(message: &str) -> ExitCode {
    eprintln!("error: {message}");
    ExitCode::FAILURE
}

impl BenchArgs {
    fn stages(&self) -> Vec<Stage> {
        match &self.stages {
            Some(stages) => stages.0.clone(),
            None => vec![Stage { rate: self.rate, duration: self.duration }],
        }
    }

    fn length(&self) -> Duration {
        self.stages().iter().map(|stage| stage.duration).sum()
    }
}

/// Sends everything and waits for the last answer.
async fn load(args: BenchArgs, plan: Arc<Plan>) -> Tally {
    let begun = Instant::now();
    let client = Arc::new(Client::new(plan));
    let (results, mut inbox) = mpsc::unbounded_channel::<(Duration, Seen)>();
    let sending = async {
        match args.concurrency {
            Some(streams) => closed(&args, begun, streams, &client, &results).await,
            None => open(&args, begun, &client, &results).await,
        }
        drop(results);
    };
    let counting = async {
        let mut tally = Tally::default();
        while let Some((offset, seen)) = inbox.recv().await {
            if offset >= args.warmup {
                tally.add(&seen);
            }
        }
        tally
    };
    let ((), tally) = tokio::join!(sending, counting);
    tally
}

type Results = mpsc::UnboundedSender<(Duration, Seen)>;

/// Begins each request at its scheduled time, whatever became of the others.
async fn open(args: &BenchArgs, begun: Instant, client: &Arc<Client>, results: &Results) {
    let places = Arc::new(tokio::sync::Semaphore::new(args.max_in_flight));
    for offset in Schedule::new(args.stages(), args.arrivals, args.seed) {
        let scheduled = begun + offset;
        tokio::time::sleep_until(scheduled).await;
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            let _ = results.send((offset, Seen::not_sent()));
            continue;
        };
        let (client, results) = (Arc::clone(client), results.clone());
        tokio::spawn(async move {
            let seen = client.send(scheduled).await;
            drop(place);
            let _ = results.send((offset, seen));
        });
    }
}

/// Keeps so many requests under way.
async fn closed(args: &BenchArgs, begun: Instant, streams: u32, client: &Arc<Client>, results: &Results) {
    let end = begun + args.duration;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..streams {
        let (client, results) = (Arc::clone(client), results.clone());
        tasks.spawn(async move {
            while Instant::now() < end {
                let scheduled = Instant::now();
                let seen = client.send(scheduled).await;
                let failed = !seen.is_answered();
                let _ = results.send((scheduled - begun, seen));
                if failed {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        });
    }
    while tasks.join_next().await.is_some() {}
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && (0.0..=1_000_000.0).contains(&rate) => Ok(rate),
        _ => Err("expected requests per second, from 0 to 1000000".to_owned()),
    }
}

fn stages(text: &str) -> Result<Stages, String> {
    let stage = |part: &str| {
        let (rate_text, time) = part.split_once(':').ok_or("expected RATE:TIME, such as 20:30s")?;
        Ok(Stage { rate: rate(rate_text)?, duration: crate::cli::args::duration(time)? })
    };
    text.split(',').map(stage).collect::<Result<_, String>>().map(Stages)
}

fn header(text: &str) -> Result<(http::HeaderName, http::HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("expected `name: value`")?;
    let name = name.trim().parse().map_err(|_| "the name is not one of a header field")?;
    let value = value.trim().parse().map_err(|_| "the value may not stand in a header field")?;
    Ok((name, value))
}

#[cfg(test)]
mod tests;
