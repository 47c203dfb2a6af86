// SPDX-License-Identifier: Apache-2.0
//! Deadlines and cuts without a timer per request: one thread looks at every watch ten times a second.
//!
//! Owns when a wait has taken too long, and the order to end what is in flight at a replica. Must not know what is
//! waited for: whoever waits polls its watch beside its stream.
//!
//! A watch has one deadline at a time, in ticks of 100 ms, so a wait of `d` ends between `d` and `d` + 100 ms. The
//! sweep only wakes; the waiting task itself compares the deadline with the tick, so a deadline that was moved in the
//! meantime cannot fire.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;
use sluice_core::ReplicaId;

const TICK: Duration = Duration::from_millis(100);

static NOW: AtomicU32 = AtomicU32::new(1);
static NEW: Mutex<Vec<Weak<Watch>>> = Mutex::new(Vec::new());
static CUTS: Mutex<Vec<ReplicaId>> = Mutex::new(Vec::new());
static WAKE_ALL: AtomicBool = AtomicBool::new(false);

/// Why a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Its deadline has passed.
    Late,
    /// The replica's drain deadline has passed.
    Cut,
}

/// A point in time, in ticks; the resolution of every deadline here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(u32);

impl Tick {
    /// `wait` from now, rounded up.
    pub fn after(wait: Duration) -> Tick {
        let ticks = wait.as_millis().div_ceil(TICK.as_millis()) + 1;
        Tick(NOW.load(Relaxed).saturating_add(u32::try_from(ticks).unwrap_or(u32::MAX)))
    }

    /// It has come.
    pub fn is_past(self) -> bool {
        NOW.load(Relaxed) >= self.0
    }
}

/// One connection's or stream's current deadline.
#[derive(Debug, Default)]
pub struct Watch {
    /// 0 is none.
    due: AtomicU32,
    /// The replica in use, plus one; 0 is none.
    replica: AtomicU64,
    cut: AtomicBool,
    waker: AtomicWaker,
}

impl Watch {
    /// A watch that the sweep knows until the last reference is dropped.
    pub fn new() -> Arc<Watch> {
        static SWEEP: Once = Once::new();
        SWEEP.call_once(|| {
            let started = std::thread::Builder::new().name("sluice-sweep".into()).spawn(sweep);
            if let Err(error) = started {
                tracing::error!(%error, "deadline sweep could not be started: deadlines will not be kept");
            }
        });
        let watch = Arc::new(Watch::default());
        NEW.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&watch));
        watch
    }

    /// The wait that begins now ends after `wait`; `None` is never.
    pub fn set(&self, wait: Option<Duration>) {
        self.set_until(wait.map(Tick::after));
    }

    /// The wait that begins now ends at `tick`; `None` is never.
    pub fn set_until(&self, tick: Option<Tick>) {
        self.due.store(tick.map_or(0, |t| t.0), Relaxed);
    }

    /// The replica in use from now on: a cut of it ends the waits of this watch.
    pub fn uses(&self, replica: Option<ReplicaId>) {
        self.replica.store(replica.map_or(0, |r| r.0.wrapping_add(1)), SeqCst);
        self.cut.store(false, SeqCst);
    }

    /// Resolves when the current wait is over. The last task that polled is woken.
    pub fn poll_over(&self, cx: &mut Context<'_>) -> Poll<Over> {
        self.waker.register(cx.waker());
        if self.cut.load(SeqCst) {
            return Poll::Ready(Over::Cut);
        }
        let due = self.due.load(Relaxed);
        if due != 0 && NOW.load(Relaxed) >= due { Poll::Ready(Over::Late) } else { Poll::Pending }
    }

    /// Whether a cut ended this watch's replica.
    pub fn is_cut(&self) -> bool {
        self.cut.load(SeqCst)
    }

    fn look(&self, now: u32, cuts: &[ReplicaId], wake_all: bool) {
        let replica = self.replica.load(SeqCst);
        if replica != 0 && cuts.iter().any(|c| c.0.wrapping_add(1) == replica) {
            self.cut.store(true, SeqCst);
            self.waker.wake();
            return;
        }
        let due = self.due.load(Relaxed);
        if wake_all || (due != 0 && now >= due) {
            self.waker.wake();
        }
    }
}

/// Ends every exchange that is in flight at the replica, within 100 ms.
pub fn cut(replica: ReplicaId) {
    CUTS.lock().unwrap_or_else(PoisonError::into_inner).push(replica);
}

/// Wakes every waiting task once, so that it looks at whatever has changed for all (a shutdown).
pub fn wake_all() {
    WAKE_ALL.store(true, SeqCst);
}

fn sweep() {
    let start = Instant::now();
    let mut all: Vec<Weak<Watch>> = Vec::new();
    loop {
        std::thread::sleep(TICK);
        let ticks = start.elapsed().as_millis() / TICK.as_millis() + 1;
        let now = u32::try_from(ticks).unwrap_or(u32::MAX);
        NOW.store(now, Relaxed);
        all.append(&mut NEW.lock().unwrap_or_else(PoisonError::into_inner));
        let cuts = std::mem::take(&mut *CUTS.lock().unwrap_or_else(PoisonError::into_inner));
        let wake_all = WAKE_ALL.swap(false, SeqCst);
        all.retain(|watch| {
            let Some(watch) = watch.upgrade() else { return false };
            watch.look(now, &cuts, wake_all);
            true
        });
        super::pool::sweep();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn a_deadline_ends_the_wait_and_a_moved_one_does_not() {
        let watch = Watch::new();
        watch.set(Some(Duration::from_millis(150)));
        assert_eq!(poll_fn(|cx| watch.poll_over(cx)).await, Over::Late);
        watch.set(None);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(watch.poll_over(&mut cx).is_pending());
    }

    #[tokio::test]
    async fn a_cut_ends_only_the_waits_on_its_replica() {
        let (here, there) = (Watch::new(), Watch::new());
        here.uses(Some(ReplicaId(4_000_001)));
        there.uses(Some(ReplicaId(4_000_002)));
        cut(ReplicaId(4_000_001));
        assert_eq!(poll_fn(|cx| here.poll_over(cx)).await, Over::Cut);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(there.poll_over(&mut cx).is_pending());
        here.uses(None);
        assert!(here.poll_over(&mut cx).is_pending());
    }
}
