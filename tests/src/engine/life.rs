// SPDX-License-Identifier: Apache-2.0
//! The life of one engine process: launch, listening, signals, end.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::journal::{Event, Journal};
use super::script::{Script, TermMode};
use super::{Engine, http1, http2};
use crate::clock;

/// An orphan of a test that went wrong does not live longer than this.
const GRANDCHILD_LIFE: u64 = 120_000;
/// Where the journal goes when the command line does not say.
const JOURNAL_VARIABLE: &str = "FAKE_ENGINE_LOG";

/// The command line.
#[derive(Debug, Default)]
pub struct Args {
    port: u16,
    name: String,
    log: Option<PathBuf>,
    script: Script,
    grandchild: bool,
}

impl Args {
    /// `--port N [--name TEXT] [--log FILE] [--script JSON]`.
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Args, String> {
        let mut args = Args { log: std::env::var_os(JOURNAL_VARIABLE).map(PathBuf::from), ..Args::default() };
        while let Some(word) = words.next() {
            if word == "--grandchild" {
                args.grandchild = true;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
            match word.as_str() {
                "--port" => args.port = value.parse().map_err(|e| format!("--port {value}: {e}"))?,
                "--name" => args.name = value,
                "--log" => args.log = Some(value.into()),
                "--script" => {
                    args.script = serde_json::from_str(&value).map_err(|e| format!("--script: {e}"))?
                }
                _ => return Err(format!("unknown argument {word}")),
            }
        }
        Ok(args)
    }
}

/// Lives; returns when it is told to end.
pub async fn run(args: Args) -> ExitCode {
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    let (Ok(term), Ok(interrupt)) = signals else { return ExitCode::from(71) };
    if args.grandchild {
        tokio::time::sleep(clock::ms(GRANDCHILD_LIFE)).await;
        return ExitCode::SUCCESS;
    }
    let journal = match Journal::open(args.log.as_deref(), &args.name, args.port) {
        Ok(journal) => journal,
        Err(e) => {
            eprintln!("fake-engine: {:?}: {e}", args.log);
            return ExitCode::from(73);
        }
    };
    let engine = Arc::new(Engine::new(args.script, journal, args.name, args.port));
    engine.journal.note(Event::Launch);
    if engine.script.grandchild {
        leave_grandchild();
    }
    let _lock = take_lock(&engine);
    tokio::spawn(exit_as_scripted(engine.clone()));
    tokio::spawn(serve(engine.clone()));
    end_by_signal(&engine, term, interrupt).await
}

/// Holds the scripted lock for as long as the process lives.
fn take_lock(engine: &Engine) -> Option<std::fs::File> {
    let path = engine.script.lock.as_ref()?;
    let file = std::fs::File::create(path).ok()?;
    if file.try_lock().is_err() {
        eprintln!("fake-engine: {} is held by another engine", path.display());
        engine.exit(70);
    }
    Some(file)
}

fn leave_grandchild() {
    let Ok(exe) = std::env::current_exe() else { return };
    // Not waited for: what becomes of it is the launcher's concern, that is what it is for.
    let _ = std::process::Command::new(exe).arg("--grandchild").stdin(std::process::Stdio::null()).spawn();
}

async fn exit_as_scripted(engine: Arc<Engine>) {
    let Some(exit) = &engine.script.exit else { return };
    if exit.only_while.as_ref().is_some_and(|p| !p.exists()) {
        return;
    }
    clock::until(engine.launched + exit.after * 1000).await;
    eprint!("{}", exit.stderr);
    engine.exit(exit.code)
}

async fn serve(engine: Arc<Engine>) {
    clock::until(engine.launched + engine.script.listen_at * 1000).await;
    let listener = match listen(engine.port) {
        Ok(listener) => listener,
        Err(e) => {
            eprintln!("fake-engine: port {}: {e}", engine.port);
            engine.exit(48)
        }
    };
    engine.journal.note(Event::Listening);
    let ready = engine.clone();
    tokio::spawn(async move {
        clock::until(ready.ready_at()).await;
        ready.journal.note(Event::Ready);
    });
    for conn in 1.. {
        let Ok((stream, _)) = listener.accept().await else { return };
        let _ = stream.set_nodelay(true);
        engine.journal.note(Event::Accept { conn });
        tokio::spawn(connection(engine.clone(), stream, conn));
    }
}

/// With room for a herd: a dropped SYN comes again after a second, which is not what is measured.
fn listen(port: u16) -> std::io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind((std::net::Ipv4Addr::LOCALHOST, port).into())?;
    socket.listen(4096)
}

async fn connection(engine: Arc<Engine>, stream: TcpStream, conn: u64) {
    let mut start = [0; 4];
    match stream.peek(&mut start).await {
        Ok(_) if start == *b"PRI " => http2::serve(engine, stream, conn).await,
        _ => http1::serve(engine, stream, conn).await,
    }
}

async fn end_by_signal(engine: &Engine, mut term: Signal, mut interrupt: Signal) -> ExitCode {
    loop {
        let name = tokio::select! {
            _ = term.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        engine.journal.note(Event::Signal { signal: name.to_owned() });
        let script = &engine.script.term;
        if script.mode == TermMode::Ignore {
            continue;
        }
        while script.mode == TermMode::Finish && engine.running.load(Relaxed) > 0 {
            tokio::time::sleep(clock::ms(5)).await;
        }
        tokio::time::sleep(clock::ms(script.delay)).await;
        engine.exit(0)
    }
}
