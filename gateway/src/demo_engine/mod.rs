// SPDX-License-Identifier: Apache-2.0
//! `sluice demo-engine`: a stand-in for an inference engine, for trying Sluice and for load tests without a model.
//!
//! It speaks what real engines speak and takes the time that its flags say, but computes nothing: its text is about the
//! request it got, its token counts are of the words it sent. Knows nothing of the rest of Sluice.

mod engine;
mod kserve;
mod openai;
mod refusal;
#[cfg(test)]
mod tests;
mod text;

use std::future::IntoFuture;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use engine::Engine;
use refusal::{Family, Refusal};

/// Largest request body, in bytes.
const BODY_LIMIT: usize = 64 << 20;

/// What `sluice demo-engine` can be told.
#[derive(Clone, Debug, clap::Args)]
pub struct DemoEngineArgs {
    /// Port to listen on; 0 takes a free one and says which.
    #[arg(long)]
    pub port: u16,
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// Name of the one model it has.
    #[arg(long, default_value = "demo")]
    pub model: String,
    /// Time from the start until it is ready; it listens at once and answers 503 until then.
    #[arg(long, default_value = "2s", value_parser = duration)]
    pub load_time: Duration,
    /// Tokens per second of each running request; 0 sends without pause.
    #[arg(long, default_value_t = 20.0, value_parser = rate)]
    pub token_rate: f64,
    /// Time from a request's turn to its first token.
    #[arg(long, default_value = "0ms", value_parser = duration)]
    pub first_token: Duration,
    /// Length of an answer in tokens; a request's `max_tokens` can shorten it.
    #[arg(long, default_value_t = 64)]
    pub tokens: u32,
    /// Requests that run at once; others wait for their turn, first come first served. 0 is unlimited.
    #[arg(long, default_value_t = 4)]
    pub concurrency: usize,
    /// Requests that may wait for their turn; a further one is answered 503. Unlimited when absent.
    #[arg(long)]
    pub max_waiting: Option<usize>,
    /// Length of an embedding.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub embedding_dim: u32,
    /// Demand `authorization: Bearer KEY` everywhere but on health and metrics paths.
    #[arg(long, env = "DEMO_ENGINE_API_KEY", hide_env_values = true)]
    pub api_key: Option<String>,
}

/// Serves until SIGTERM or SIGINT, finishes what runs and waits, then returns. A second signal ends it at once.
///
/// 0 after a signal, 1 when it cannot listen.
pub fn run(args: DemoEngineArgs) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed("cannot start", &error),
    };
    runtime.block_on(async {
        let (Ok(term), Ok(int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else {
            return failed("cannot listen for signals", &std::io::Error::last_os_error());
        };
        let address = SocketAddr::new(args.host, args.port);
        match TcpListener::bind(address).await {
            Ok(listener) => serve(listener, args, term, int).await,
            Err(error) => failed(&format!("cannot listen on {address}"), &error),
        }
    })
}

fn failed(what: &str, error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("demo engine: {what}: {error}");
    ExitCode::FAILURE
}

async fn serve(listener: TcpListener, args: DemoEngineArgs, mut term: Signal, mut int: Signal) -> ExitCode {
    let address = match listener.local_addr() {
        Ok(address) => address,
        Err(error) => return failed("cannot listen", &error),
    };
    let (load_time, name) = (args.load_time, args.model.clone());
    eprintln!("demo engine: {name} loads for {load_time:?}, http://{address}");
    let engine = Arc::new(Engine::new(args));
    let loading = engine.clone();
    tokio::spawn(async move {
        tokio::time::sleep(load_time).await;
        loading.set_ready();
        eprintln!("demo engine: {name} is ready");
    });
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = axum::serve(listener, router(engine)).with_graceful_shutdown(async {
        let _ = stopped.await;
    });
    let mut server = std::pin::pin!(server.into_future());
    tokio::select! {
        Err(error) = &mut server => return failed("stopped serving", &error),
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    let _ = stop.send(());
    tokio::select! {
        ended = &mut server => match ended {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed("stopped serving", &error),
        },
        _ = term.recv() => ExitCode::SUCCESS,
        _ = int.recv() => ExitCode::SUCCESS,
    }
}

fn router(engine: Arc<Engine>) -> Router {
    let open = Router::new()
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .merge(kserve::health_routes());
    let keyed = Router::new()
        .merge(openai::routes())
        .merge(kserve::routes())
        .layer(axum::middleware::from_fn_with_state(engine.clone(), check_key));
    open.merge(keyed).layer(DefaultBodyLimit::max(BODY_LIMIT)).with_state(engine)
}

async fn check_key(State(engine): State<Arc<Engine>>, request: Request, next: Next) -> Response {
    let given = request.headers().get(http::header::AUTHORIZATION).map(http::HeaderValue::as_bytes);
    match engine.key_fits(given) {
        true => next.run(request).await,
        false => Refusal::WrongKey.to_response(Family::of_path(request.uri().path())),
    }
}

async fn health(State(engine): State<Arc<Engine>>) -> Response {
    match engine.is_ready() {
        true => (StatusCode::OK, axum::Json(serde_json::json!({"status": "ok"}))).into_response(),
        false => Refusal::Loading(engine.model().to_owned()).to_response(Family::OpenAi),
    }
}

async fn metrics(State(engine): State<Arc<Engine>>) -> Response {
    ([(http::header::CONTENT_TYPE, "text/plain; version=0.0.4")], engine.metrics()).into_response()
}

/// `250ms`, `2s`, `1.5s` or `3m`.
fn duration(text: &str) -> Result<Duration, String> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let scale = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        _ => return Err("a duration needs a unit: ms, s or m, as in 250ms or 2s".to_owned()),
    };
    let number: f64 = number.parse().map_err(|_| format!("{number:?} is not a number"))?;
    Duration::try_from_secs_f64(number * scale).map_err(|error| error.to_string())
}

/// A finite number that is not negative.
fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate >= 0.0 => Ok(rate),
        _ => Err("tokens per second are a number from 0 up".to_owned()),
    }
}
