// SPDX-License-Identifier: Apache-2.0
//! Lines on their way to a writer that may be slow or stuck.
//!
//! Whoever logs only copies its line into a bounded buffer; one thread writes. When the buffer is full, lines are lost
//! and counted, and the count is written as soon as there is room: a reader that stops reading must not stop requests.
//!
//! One mutex guards the buffer and is held for a copy or a swap, never for a write. The writer lingers for a moment
//! after the first line, so that a busy process wakes it some hundred times a second and not once per line.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

use crate::telemetry;

/// Bytes that may wait for the writer.
const LIMIT: usize = 4 << 20;

/// How long lines are gathered before they are written.
const LINGER: Duration = Duration::from_millis(5);

/// Says in one line that lines were lost.
pub(super) type Notice = fn(u64) -> String;

/// Where log lines go; cheap to clone.
#[derive(Clone)]
pub(super) struct Sink(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// The buffer is no longer empty.
    filled: Condvar,
    /// A batch has been written.
    written: Condvar,
}

#[derive(Default)]
struct State {
    buffer: Vec<u8>,
    lost: u64,
    writing: bool,
}

impl Sink {
    /// Starts the writing thread; it ends with the process.
    pub(super) fn start(writer: Box<dyn Write + Send>, notice: Notice) -> io::Result<Sink> {
        let shared =
            Arc::new(Shared { state: Mutex::default(), filled: Condvar::new(), written: Condvar::new() });
        let theirs = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("sluice-log".to_owned())
            .spawn(move || theirs.run(writer, notice))?;
        Ok(Sink(shared))
    }

    /// Takes a line that ends in a newline, or counts it as lost.
    pub(super) fn push(&self, line: &[u8]) {
        let mut state = self.0.lock();
        if state.buffer.len() + line.len() > LIMIT {
            state.lost += 1;
            telemetry::log_line_lost();
            return;
        }
        let first = state.buffer.is_empty();
        state.buffer.extend_from_slice(line);
        drop(state);
        if first {
            self.0.filled.notify_one();
        }
    }

    /// Waits until everything is written, at most this long.
    pub(super) fn flush(&self, limit: Duration) {
        let busy = |state: &mut State| state.writing || !state.buffer.is_empty();
        drop(self.0.written.wait_timeout_while(self.0.lock(), limit, busy));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, mut writer: Box<dyn Write + Send>, notice: Notice) {
        let mut batch = Vec::new();
        loop {
            let empty = |state: &mut State| state.buffer.is_empty();
            drop(self.filled.wait_while(self.lock(), empty));
            std::thread::sleep(LINGER);
            let lost = {
                let mut state = self.lock();
                std::mem::swap(&mut state.buffer, &mut batch);
                state.writing = true;
                std::mem::take(&mut state.lost)
            };
            if lost > 0 {
                batch.extend_from_slice(notice(lost).as_bytes());
            }
            // A closed stderr is nobody's to hear of.
            let _ = writer.write_all(&batch).and_then(|()| writer.flush());
            batch.clear();
            self.lock().writing = false;
            self.written.notify_all();
        }
    }
}

/// That lines were lost, for people.
pub(super) fn text_notice(lost: u64) -> String {
    format!("  WARN sluice::log: log_lines_lost lines={lost}\n")
}

impl<'a> MakeWriter<'a> for Sink {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(self)
    }
}

/// Takes one formatted line at a time.
pub(super) struct Line<'a>(&'a Sink);

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::mpsc;

    use super::*;

    const LIMIT_OF_TEST: Duration = Duration::from_secs(20);

    /// Hands every batch over, and waits for a permission first.
    struct Slow {
        permissions: mpsc::Receiver<()>,
        batches: mpsc::Sender<String>,
    }

    impl Write for Slow {
        fn write(&mut self, batch: &[u8]) -> io::Result<usize> {
            self.permissions.recv_timeout(LIMIT_OF_TEST).map_err(|_| io::ErrorKind::TimedOut)?;
            self.batches.send(String::from_utf8_lossy(batch).into_owned()).map_err(io::Error::other)?;
            Ok(batch.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stuck_reader_costs_lines_and_nobodys_time() {
        let (allow, permissions) = mpsc::channel();
        let (batches, written) = mpsc::channel();
        let sink =
            Sink::start(Box::new(Slow { permissions, batches }), |lost| format!("lost {lost}\n")).unwrap();
        sink.push(b"first\n");
        let writing = || sink.0.lock().writing;
        let start = std::time::Instant::now();
        while !writing() && start.elapsed() < LIMIT_OF_TEST {
            std::thread::yield_now();
        }
        assert!(writing());

        let line = [vec![b'x'; LIMIT / 4 - 1], vec![b'\n']].concat();
        for _ in 0..7 {
            sink.push(&line);
        }
        assert_eq!(sink.0.lock().lost, 3);
        allow.send(()).unwrap();
        assert_eq!(written.recv_timeout(LIMIT_OF_TEST).unwrap(), "first\n");
        allow.send(()).unwrap();
        let rest = written.recv_timeout(LIMIT_OF_TEST).unwrap();
        assert_eq!(rest.len(), LIMIT + "lost 3\n".len());
        assert!(rest.ends_with("x\nlost 3\n"));
    }

    #[test]
    fn flushing_waits_for_the_last_line() {
        let (allow, permissions) = mpsc::channel();
        let (batches, written) = mpsc::channel();
        let sink = Sink::start(Box::new(Slow { permissions, batches }), |_| String::new()).unwrap();
        sink.push(b"last\n");
        allow.send(()).unwrap();
        sink.flush(LIMIT_OF_TEST);
        assert_eq!(written.try_recv().unwrap(), "last\n");
    }
}
