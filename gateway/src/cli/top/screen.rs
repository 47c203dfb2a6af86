// SPDX-License-Identifier: Apache-2.0
//! The terminal that `sluice top` draws on: taken at the start, given back at the end, noticed when it goes away.
//!
//! A terminal whose window is frozen takes no bytes, and a write to it blocks. So a thread writes; the command itself
//! never waits for longer than it wants to and can always end. Must not know what is drawn.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{execute, queue};
use ratatui::{Frame, Terminal};
use tokio::sync::oneshot;

/// Longest wait for a terminal that takes nothing; it counts as gone after that.
const STALLED: Duration = Duration::from_secs(30);

/// Longest wait for it to take the screen from before at the end.
const FAREWELL: Duration = Duration::from_millis(500);

/// A terminal in raw mode with another screen on top; as before again when this is dropped.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Page>>,
    page: Page,
    pen: Pen,
}

impl Screen {
    /// Takes the terminal that stdout is.
    pub fn take() -> io::Result<Screen> {
        let stdout = io::stdout();
        if !stdout.is_terminal() {
            return Err(io::Error::other("stdout is none"));
        }
        let pen = Pen::new(File::from(stdout.as_fd().try_clone_to_owned()?))?;
        let page = Page::default();
        let terminal = Terminal::new(CrosstermBackend::new(page.clone()))?;
        restore_on_panic();
        enable_raw_mode()?;
        let mut screen = Screen { terminal, page, pen };
        // Goes out with the first drawing.
        queue!(screen.page, EnterAlternateScreen)?;
        Ok(screen)
    }

    /// Draws, and waits until the terminal has taken it; fails if it does not.
    pub async fn draw(&mut self, what: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(what)?;
        self.pen.write(self.page.tear_off(), STALLED).await
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing of this.
        let _ = disable_raw_mode();
        let _ = queue!(self.page, LeaveAlternateScreen, Show);
        self.pen.write_last(self.page.tear_off(), FAREWELL);
    }
}

/// A panic's message belongs on the screen from before.
fn restore_on_panic() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let _ = disable_raw_mode();
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        hook(info);
    }));
}

/// Bytes on their way to the terminal.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Page {
    fn tear_off(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The way to the thread that writes.
struct Pen {
    pages: mpsc::Sender<Job>,
}

/// A page, and whom to tell how its writing went.
type Job = (Vec<u8>, Box<dyn FnOnce(io::Result<()>) + Send>);

impl Pen {
    fn new(mut terminal: File) -> io::Result<Pen> {
        let (pages, jobs) = mpsc::channel::<Job>();
        let write = move || {
            while let Ok((page, tell)) = jobs.recv() {
                tell(terminal.write_all(&page));
            }
        };
        thread::Builder::new().name("screen".to_owned()).spawn(write)?;
        Ok(Pen { pages })
    }

    async fn write(&self, page: Vec<u8>, limit: Duration) -> io::Result<()> {
        let (tell, told) = oneshot::channel();
        let _ = self.pages.send((page, Box::new(|result| drop(tell.send(result)))));
        match tokio::time::timeout(limit, told).await {
            Ok(told) => told.unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into())),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Waits without a runtime, which may be at its end.
    fn write_last(&self, page: Vec<u8>, limit: Duration) {
        let (tell, told) = mpsc::channel();
        let _ = self.pages.send((page, Box::new(move |result| drop(tell.send(result)))));
        let _ = told.recv_timeout(limit);
    }
}

/// Tells once the terminal that stdout is has gone.
pub fn hung_up() -> io::Result<oneshot::Receiver<()>> {
    let (tell, told) = oneshot::channel();
    let watch = move || {
        wait_for_hangup(io::stdout().as_fd());
        let _ = tell.send(());
    };
    thread::Builder::new().name("hangup".to_owned()).spawn(watch)?;
    Ok(told)
}

fn wait_for_hangup(terminal: BorrowedFd<'_>) {
    // Nothing is asked for, so only a hangup or an error ends the wait.
    let mut watched = [PollFd::new(terminal, PollFlags::empty())];
    while poll(&mut watched, PollTimeout::NONE) == Err(Errno::EINTR) {}
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::fd::OwnedFd;

    use super::*;

    #[tokio::test]
    async fn who_takes_nothing_is_given_up() {
        let (reader, writer) = io::pipe().unwrap();
        let pen = Pen::new(File::from(OwnedFd::from(writer))).unwrap();
        pen.write(b"one".to_vec(), STALLED).await.unwrap();
        let moment = Duration::from_millis(1);
        let stalled = pen.write(vec![0; 1 << 20], moment).await.unwrap_err();
        assert_eq!(stalled.kind(), io::ErrorKind::TimedOut);
        pen.write_last(b"end".to_vec(), moment);
        drop(reader);
        assert!(pen.write(b"more".to_vec(), STALLED).await.is_err());
    }

    #[test]
    fn a_hangup_ends_the_wait() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        wait_for_hangup(writer.as_fd());
    }
}
