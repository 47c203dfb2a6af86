// SPDX-License-Identifier: Apache-2.0
//! `sluice wake` and `sluice sleep`: give the order, and with `--wait` see it through.

use std::time::Duration;

use tokio::time::Instant;

use super::args::{SleepArgs, WaitArgs, WakeArgs};
use super::client::Client;
use super::console::Console;
use super::exit::{Exit, Failure};
use super::table::short;
use crate::admin::api::Model;
use crate::admin::path;

/// Time between two looks of `--wait`.
const LOOK: Duration = Duration::from_millis(200);

/// Carries out `sluice wake`.
pub async fn wake(args: WakeArgs, console: &mut Console<'_>) -> Result<(), Failure> {
    order("wake", &args.model, &args.wait, &Client::new(&args.admin)?, console).await
}

/// Carries out `sluice sleep`.
pub async fn sleep(args: SleepArgs, console: &mut Console<'_>) -> Result<(), Failure> {
    order("sleep", &args.model, &args.wait, &Client::new(&args.admin)?, console).await
}

async fn order(
    verb: &str,
    name: &str,
    wait: &WaitArgs,
    client: &Client,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let path = format!("/api/v1/models/{}", path::encode(name));
    let deadline = Instant::now() + wait.timeout;
    let failures = if wait.wait { failures(&client.get(&path).await?) } else { 0 };
    let mut model: Model = client.post(&format!("{path}:{verb}")).await?;
    if !wait.wait {
        return console.print(&format!("{name}: {verb} ordered\n"));
    }
    let done = if verb == "wake" { is_awake } else { is_asleep };
    let mut progress = String::new();
    loop {
        if done(&model) {
            return console.print(&format!("{name}: {}\n", model.state));
        }
        if verb == "wake" {
            given_up(&model, failures)?;
        }
        let now = describe(&model);
        if now != progress {
            console.say(&format!("{name}: {now}"));
            progress = now;
        }
        if Instant::now() >= deadline {
            let limit = short(u64::try_from(wait.timeout.as_millis()).unwrap_or(u64::MAX));
            let message = format!("{name} is not {} after {limit}: {progress}", past(verb));
            return Err(Failure::new(Exit::TimedOut, message));
        }
        tokio::time::sleep_until(deadline.min(Instant::now() + LOOK)).await;
        model = client.get(&path).await?;
    }
}

fn past(verb: &str) -> &'static str {
    if verb == "wake" { "ready" } else { "stopped" }
}

fn is_awake(model: &Model) -> bool {
    model.ready > 0
}

fn is_asleep(model: &Model) -> bool {
    model.ready + model.starting + model.leaving == 0
}

fn failures(model: &Model) -> u32 {
    model.fault.as_ref().map_or(0, |fault| fault.failures)
}

/// Starts failed since the order until even waiting requests are told so: waiting on would be in vain.
fn given_up(model: &Model, failures_before: u32) -> Result<(), Failure> {
    match &model.fault {
        Some(fault) if fault.answers_waiters && fault.failures != failures_before => {
            Err(Failure::new(Exit::Failed, format!("{} does not start: {}", model.name, fault.cause)))
        }
        _ => Ok(()),
    }
}

fn describe(model: &Model) -> String {
    let mut text = model.state.clone();
    for (count, what) in [(model.ready, "ready"), (model.starting, "starting"), (model.leaving, "leaving")] {
        if count > 0 {
            text.push_str(&format!(", {count} {what}"));
        }
    }
    match (&model.fault, model.wake.p90_ms) {
        (Some(fault), _) => text.push_str(&format!("; last start failed: {}", fault.cause)),
        (None, Some(ms)) if model.ready == 0 && model.starting > 0 => {
            text.push_str(&format!("; nine of ten starts take up to {}", short(ms)));
        }
        _ => {}
    }
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
