// SPDX-License-Identifier: Apache-2.0
//! When a request could be served: the promise behind every `Retry-After` and `x-sluice-eta-ms`.
//!
//! Pure: from the scaler's prospects and the line's own pace to durations.

use std::time::Duration;

use sluice_core::{Micros, ModelRoute, ModelState};

/// Clients give up at once when they are told to come back later than this.
pub(crate) const RETRY_MAX: Micros = Micros::from_secs(120);
/// For a start that was never measured.
const START_UNKNOWN: Micros = Micros::from_secs(5);
/// For a line whose pace was never measured, and where it would be less.
const RETRY_MIN: Micros = Micros::from_secs(1);

/// What a client may be told of a model's near future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prospect {
    /// The model's state.
    pub state: ModelState,
    /// How long until a request that came now would be sent to a replica; `None` if nothing measured tells.
    pub eta: Option<Duration>,
    /// When to come back, 1 to 120 s from now.
    pub retry_after: Duration,
}

/// How fast a line moves.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Requests ahead of a newcomer.
    pub waiting: u64,
    /// Slots at all open replicas together; 0 if none is open.
    pub slots: u64,
    /// Mean time that a request holds a slot.
    pub service: Option<Micros>,
}

/// The prospect of a model with this route and pace.
pub(crate) fn prospect(now: Micros, route: &ModelRoute, pace: Pace) -> Prospect {
    let (eta, retry) = if pace.slots > 0 { warm(pace) } else { cold(now, route) };
    Prospect {
        state: route.state,
        eta: eta.map(Duration::from),
        retry_after: Duration::from(retry.clamp(RETRY_MIN, RETRY_MAX)),
    }
}

/// Each slot serves one request per service time, so the line moves on by `slots` in that time.
fn warm(pace: Pace) -> (Option<Micros>, Micros) {
    let Some(service) = pace.service else { return (None, RETRY_MIN) };
    let work = u128::from(service.0) * (u128::from(pace.waiting) + 1);
    let time = Micros(u64::try_from(work / u128::from(pace.slots.max(1))).unwrap_or(u64::MAX));
    (Some(time), time)
}

fn cold(now: Micros, route: &ModelRoute) -> (Option<Micros>, Micros) {
    let (half, most) = (measured(route, route.wake.p50), measured(route, route.wake.p90));
    let after = |pause: Micros, start: Option<Micros>| start.map(|start| pause.after(start));
    if let Some(ready_at) = route.ready_at.filter(|&ready_at| ready_at > now) {
        let time = ready_at.since(now);
        return (Some(time), time);
    }
    if route.starting > 0 {
        // The start takes longer than expected; what it may still take is the spread of the measured ones.
        let rest = half.zip(most).map(|(half, most)| most.since(half).max(RETRY_MIN));
        return (rest, rest.unwrap_or(START_UNKNOWN));
    }
    let pause = route.fault.as_ref().map_or(Micros::ZERO, |fault| fault.retry_at.since(now));
    (after(pause, half), pause.after(most.unwrap_or(START_UNKNOWN)))
}

fn measured(route: &ModelRoute, time: Micros) -> Option<Micros> {
    (route.wake.samples > 0).then_some(time)
}

#[cfg(test)]
mod tests {
    use sluice_core::{Fault, WakeEstimate};

    use super::*;

    const NOW: Micros = Micros::from_secs(100);

    fn route() -> ModelRoute {
        ModelRoute {
            state: ModelState::Cold,
            replicas: Vec::new(),
            starting: 0,
            desired: 0,
            ready_at: None,
            wake: WakeEstimate { samples: 4, p50: Micros::from_secs(20), p90: Micros::from_secs(30) },
            fault: None,
            contended: false,
        }
    }

    fn fault(retry_at: Micros) -> Option<Fault> {
        Some(Fault { failures: 1, answer_waiters: true, cause: "exit 1".into(), retry_at })
    }

    fn seconds(now: Micros, route: &ModelRoute, pace: Pace) -> (Option<u64>, u64) {
        let prospect = prospect(now, route, pace);
        (prospect.eta.map(|eta| eta.as_secs()), prospect.retry_after.as_secs())
    }

    #[test]
    fn the_time_to_come_back_follows_from_what_was_measured() {
        let none = WakeEstimate::default();
        let at = |s| Micros::from_secs(s);
        let cases = [
            ("at zero", route(), (Some(20), 30)),
            ("at zero, never started", ModelRoute { wake: none, ..route() }, (None, 5)),
            ("starting", ModelRoute { starting: 1, ready_at: Some(at(107)), ..route() }, (Some(7), 7)),
            (
                "starting, overdue",
                ModelRoute { starting: 1, ready_at: Some(at(99)), ..route() },
                (Some(10), 10),
            ),
            ("first start", ModelRoute { starting: 1, wake: none, ..route() }, (None, 5)),
            ("start failed", ModelRoute { fault: fault(at(104)), ..route() }, (Some(24), 34)),
            ("start failed, pause over", ModelRoute { fault: fault(at(90)), ..route() }, (Some(20), 30)),
            ("far off", ModelRoute { ready_at: Some(at(900)), ..route() }, (Some(800), 120)),
        ];
        for (name, route, expected) in cases {
            assert_eq!(seconds(NOW, &route, Pace::default()), expected, "{name}");
        }
    }

    #[test]
    fn a_busy_model_promises_what_its_pace_gives() {
        let ready = ModelRoute { state: ModelState::Ready, ..route() };
        let pace = |waiting, slots, service| Pace { waiting, slots, service };
        let second = Some(Micros::from_secs(1));
        assert_eq!(seconds(NOW, &ready, pace(19, 4, second)), (Some(5), 5));
        assert_eq!(seconds(NOW, &ready, pace(19, 4, None)), (None, 1));
        assert_eq!(seconds(NOW, &ready, pace(0, 4, Some(Micros::from_millis(8)))), (Some(0), 1));
        assert_eq!(seconds(NOW, &ready, pace(10_000, 1, second)), (Some(10_001), 120));
    }
}
