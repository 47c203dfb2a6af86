// SPDX-License-Identifier: Apache-2.0
//! Requests in flight and waiting, averaged over time, as Knative's activator reports them: the poke at the first
//! request, a report each second, silence once nothing has happened for one.
//!
//! Fed from counters that only grow. Where the number held still between two looks, sums are formed as upstream forms
//! them, to the last bit; where it did not, the measured area counts. Times are nanoseconds from any origin, because
//! upstream's are. Must not know who looks or when.

use serde::{Deserialize, Serialize};

use super::collector::Report;

/// What is reported of a first request before its second is over.
pub(crate) const POKE: Report =
    Report { concurrency: 1.0, proxied_concurrency: 0.0, count: 1.0, proxied_count: 0.0 };

/// Averages a number over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Meter {
    at: u64,
    number: u64,
    /// In unit-seconds and seconds since the last `take`.
    integral: f64,
    elapsed: f64,
}

impl Meter {
    /// Starts at zero.
    pub fn new(at: u64) -> Meter {
        Meter { at, ..Meter::default() }
    }

    /// The number as last set.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Time has passed, with the number as it is. `area` in unit-nanoseconds, if it was measured to differ. A time
    /// before the last one is ignored.
    pub fn advance(&mut self, now: u64, area: Option<i64>) {
        let passed = now.saturating_sub(self.at);
        if passed > 0 {
            self.elapsed += seconds(passed);
            self.integral += match area {
                None => self.number as f64 * seconds(passed),
                Some(area) if area < 0 => -seconds(area.unsigned_abs()),
                Some(area) => seconds(area.unsigned_abs()),
            };
            self.at = now;
        }
    }

    /// The number from now on.
    pub fn set(&mut self, number: u64) {
        self.number = number;
    }

    /// The average since the last call; zero if no time has passed.
    pub fn take(&mut self) -> f64 {
        let average = if self.elapsed > 0.0 { self.integral / self.elapsed } else { 0.0 };
        self.integral = 0.0;
        self.elapsed = 0.0;
        average
    }
}

/// Counters of one model's load at one moment. Those that are cumulative only ever grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Requests in flight or waiting.
    pub number: u64,
    /// Largest `number` since the former look.
    pub peak: u64,
    /// Requests that came in, ever.
    pub arrivals: u64,
    /// Time integral of `number` in request-nanoseconds, ever.
    pub area: u64,
}

/// The accountant of one model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Accountant {
    /// When the last look was, and what it saw. `area` is what it would be if nothing had changed since.
    seen: Option<(u64, Load)>,
    record: Option<Record>,
}

/// From a first request until a second without any.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Record {
    meter: Meter,
    arrivals: u64,
    /// The first request was reported by the poke: the next report leaves it out.
    poked: bool,
}

impl Accountant {
    /// Takes a look. Returns what is to be reported at once if it shows the first request after silence.
    ///
    /// Where that request came between two looks, its record begins as late as what was measured allows.
    pub fn look(&mut self, now: u64, load: Load) -> Option<Report> {
        // Of what came before the first look counts what is still there.
        let new = load.arrivals.saturating_sub(load.number.max(load.peak));
        let (then, former) = self.seen.replace((now, load)).unwrap_or((now, Load { arrivals: new, ..load }));
        let arrivals = load.arrivals.saturating_sub(former.arrivals);
        let area = load.area as i64 - former.area as i64;
        if self.record.is_none() && arrivals == 0 {
            return None;
        }
        let poke = self.record.is_none();
        let begin = area.unsigned_abs().div_ceil(load.peak.max(load.number).max(1));
        let record = self.record.get_or_insert_with(|| Record {
            meter: Meter::new(now.saturating_sub(begin).max(then)),
            arrivals: 0,
            poked: true,
        });
        let steady = area == record.meter.number() as i64 * now.saturating_sub(record.meter.at) as i64;
        record.meter.advance(now, (!steady).then_some(area));
        record.meter.set(load.number);
        record.arrivals += arrivals;
        poke.then_some(POKE)
    }

    /// The report of the time since the last one; `None` while there is nothing to report.
    pub fn report(&mut self, now: u64) -> Option<Report> {
        if let Some((then, load)) = &mut self.seen {
            load.area = load.area.saturating_add(load.number.saturating_mul(now.saturating_sub(*then)));
            *then = now.max(*then);
        }
        let record = self.record.as_mut()?;
        record.meter.advance(now, None);
        let average = record.meter.take();
        let first = if std::mem::take(&mut record.poked) { 1.0 } else { 0.0 };
        let count = std::mem::take(&mut record.arrivals) as f64 - first;
        if average == 0.0 && record.meter.number() == 0 {
            self.record = None;
        }
        Some(Report { concurrency: (average - first).max(0.0), count, ..Report::default() })
    }

    /// Takes what is there for a first request, if nothing is recorded: what is to be reported at once.
    pub fn recall(&mut self, now: u64) -> Option<Report> {
        let (_, load) = self.seen.filter(|(_, load)| self.record.is_none() && load.number > 0)?;
        let mut meter = Meter::new(now);
        meter.set(load.number);
        self.record = Some(Record { meter, arrivals: load.number, poked: true });
        Some(POKE)
    }

    /// Whether it holds a record, so that a further request is no first one.
    pub fn is_recording(&self) -> bool {
        self.record.is_some()
    }

    /// Forgets the record: the next request is a first one.
    pub fn forget(&mut self) {
        self.record = None;
    }
}

/// As Go makes seconds of a duration: whole ones and the rest apart.
fn seconds(nanos: u64) -> f64 {
    (nanos / 1_000_000_000) as f64 + (nanos % 1_000_000_000) as f64 / 1e9
}
