// SPDX-License-Identifier: Apache-2.0
//! What the service manager is told (systemd's notification protocol): ready, reloading, stopping, alive.
//!
//! Without a service manager that listens nothing is done; one that cannot be told is logged and does not matter
//! otherwise. Replicas never get the variables that this is steered by.

use std::future::pending;
use std::io;
use std::time::Duration;

use sd_notify::NotifyState;
use sluice_core::Micros;
use sluice_scaler::{Handle, clock};
use tokio::time::{Interval, MissedTickBehavior, interval};

/// A scaler that has looked at nothing for so long does not live.
const STUCK: Micros = Micros::from_secs(10);

/// Everything is up.
pub(super) fn ready(models: usize) {
    let status = format!("serving {models} models");
    tell(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// A configuration is about to be read; [`ready`] follows whatever becomes of it.
pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => failed(&error),
    }
}

/// The orderly stop begins and may take so long.
pub(super) fn stopping(longest: Duration) {
    let longest = u32::try_from(longest.as_micros()).unwrap_or(u32::MAX);
    tell(&[
        NotifyState::Stopping,
        NotifyState::ExtendTimeoutUsec(longest),
        NotifyState::Status("finishing what runs"),
    ]);
}

/// Signs of life, as often as the service manager wants them.
pub(super) struct Heartbeat(Option<Interval>);

impl Heartbeat {
    /// Two per period of the service manager's watchdog; none if it has none.
    pub(super) fn new() -> Heartbeat {
        Heartbeat(sd_notify::watchdog_enabled().map(|period| {
            let mut beats = interval((period / 2).max(Duration::from_millis(1)));
            beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
            beats
        }))
    }

    /// Waits until a sign is due.
    pub(super) async fn due(&mut self) {
        match &mut self.0 {
            Some(beats) => drop(beats.tick().await),
            None => pending().await,
        }
    }

    /// Gives the sign, if the scaler lives too: whoever calls this is the main loop.
    pub(super) fn beat(handle: &Handle) {
        let age = clock::now().since(handle.status().at);
        if age < STUCK {
            tell(&[NotifyState::Watchdog]);
        } else {
            tracing::error!(age_ms = age.as_millis(), "scaler_stuck");
        }
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        failed(&error);
    }
}

fn failed(error: &io::Error) {
    tracing::warn!(%error, "service_manager_not_told");
}
