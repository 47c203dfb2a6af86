// SPDX-License-Identifier: Apache-2.0
//! `sluice wake`, `sleep`, `scale` and `drain`: give the order, and with `--wait` see it through.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::args::{AdminArgs, DrainArgs, Replicas, ScaleArgs, SleepArgs, WaitArgs, WakeArgs};
use super::client::Client;
use super::console::Console;
use super::exit::{Exit, Failure};
use super::table::short;
use crate::admin::api::{Effects, List, Model, Replica};
use crate::admin::path;

/// Time between two looks of `--wait`.
const LOOK: Duration = Duration::from_millis(200);

/// What `--wait` waits for.
#[derive(Debug)]
enum Goal {
    /// A replica takes requests.
    Ready,
    /// So many do, and none comes or goes.
    Count(u32),
    /// No replica is left.
    Stopped,
    /// These are gone.
    Gone(Vec<String>),
    /// Nothing: taken is done.
    Taken,
}

/// An order and whom it concerns.
struct Order {
    verb: &'static str,
    /// As the user named it.
    name: String,
    model: String,
    /// Of what the order is for.
    path: String,
    body: Option<Value>,
    goal: Goal,
}

impl Order {
    fn of(verb: &'static str, model: String, goal: Goal) -> Order {
        let path = format!("/api/v1/models/{}", path::encode(&model));
        Order { verb, name: model.clone(), model, path, body: None, goal }
    }
}

/// Carries out `sluice wake`.
pub async fn wake(args: WakeArgs, console: &mut Console<'_>) -> Result<(), Failure> {
    give(Order::of("wake", args.model, Goal::Ready), &args.wait, &args.admin, console).await
}

/// Carries out `sluice sleep`.
pub async fn sleep(args: SleepArgs, console: &mut Console<'_>) -> Result<(), Failure> {
    give(Order::of("sleep", args.model, Goal::Stopped), &args.wait, &args.admin, console).await
}

/// Carries out `sluice scale`.
pub async fn scale(args: ScaleArgs, console: &mut Console<'_>) -> Result<(), Failure> {
    let (count, goal) = match args.replicas {
        Replicas::Auto => (None, Goal::Taken),
        Replicas::Count(0) => (Some(0), Goal::Stopped),
        Replicas::Count(count) => (Some(count), Goal::Count(count)),
    };
    let order = Order { body: Some(json!({ "replicas": count })), ..Order::of("scale", args.model, goal) };
    give(order, &args.wait, &args.admin, console).await
}

/// Carries out `sluice drain`.
pub async fn drain(args: DrainArgs, console: &mut Console<'_>) -> Result<(), Failure> {
    let client = Client::new(&args.admin)?;
    let order = match (args.replica, args.model) {
        (Some(id), _) => {
            let path = format!("/api/v1/replicas/{}", path::encode(&id));
            let replica: Replica = client.get(&path).await?;
            let goal = Goal::Gone(vec![replica.id.clone()]);
            Order { name: id, path, ..Order::of("drain", replica.model, goal) }
        }
        (None, model) => {
            let model = model.unwrap_or_default();
            let present = replicas(&client, &model).await?.into_iter().map(|replica| replica.id);
            Order::of("drain", model, Goal::Gone(present.collect()))
        }
    };
    give(order, &args.wait, &args.admin, console).await
}

async fn replicas(client: &Client, model: &str) -> Result<Vec<Replica>, Failure> {
    let path = format!("/api/v1/replicas?model={}", path::encode(model));
    Ok(client.get::<List<Replica>>(&path).await?.items)
}

async fn give(
    order: Order,
    wait: &WaitArgs,
    admin: &AdminArgs,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let client = Client::new(admin)?;
    let (name, verb) = (&order.name, order.verb);
    if wait.dry_run {
        let path = format!("{}:{verb}?dryRun=true", order.path);
        let effects: Effects = client.post(&path, order.body.as_ref()).await?;
        return console.print(&foretold(&effects));
    }
    let deadline = Instant::now() + wait.timeout;
    let model = format!("/api/v1/models/{}", path::encode(&order.model));
    let failures = if wait.wait { failures(&client.get(&model).await?) } else { 0 };
    let _: Value = client.post(&format!("{}:{verb}", order.path), order.body.as_ref()).await?;
    if !wait.wait {
        return console.print(&format!("{name}: {verb} ordered\n"));
    }
    see_through(&client, &order, (deadline, wait.timeout), failures, console).await
}

async fn see_through(
    client: &Client,
    order: &Order,
    (deadline, limit): (Instant, Duration),
    failures: u32,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let name = &order.name;
    let path = format!("/api/v1/models/{}", path::encode(&order.model));
    let mut progress = String::new();
    loop {
        let model: Model = client.get(&path).await?;
        let (done, goal) = reached(client, &order.goal, &model).await?;
        if done {
            let gone = matches!(order.goal, Goal::Gone(_));
            let end = if gone { "gone" } else { &model.state };
            return console.print(&format!("{name}: {end}\n"));
        }
        if matches!(order.goal, Goal::Ready | Goal::Count(_)) {
            given_up(&model, failures)?;
        }
        let now = describe(&model);
        if now != progress {
            console.say(&format!("{name}: {now}"));
            progress = now;
        }
        if Instant::now() >= deadline {
            let limit = short(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
            let message = format!("{name} is not {goal} after {limit}: {progress}");
            return Err(Failure::new(Exit::TimedOut, message));
        }
        tokio::time::sleep_until(deadline.min(Instant::now() + LOOK)).await;
    }
}

/// Whether it is so, and the word for it.
async fn reached(client: &Client, goal: &Goal, model: &Model) -> Result<(bool, String), Failure> {
    Ok(match goal {
        Goal::Ready => (model.ready > 0, "ready".to_owned()),
        Goal::Count(count) => {
            let still = model.starting + model.leaving == 0;
            (still && model.ready == *count, format!("at {count} ready"))
        }
        Goal::Stopped => (model.ready + model.starting + model.leaving == 0, "stopped".to_owned()),
        Goal::Gone(ids) => {
            let now = replicas(client, &model.name).await?;
            (!now.iter().any(|replica| ids.contains(&replica.id)), "gone".to_owned())
        }
        Goal::Taken => (true, "taken".to_owned()),
    })
}

fn foretold(effects: &Effects) -> String {
    let model = &effects.model;
    let mut text = format!("{}: would be {}, desired {}\n", model.name, model.state, model.desired);
    for (model, count) in &effects.starts {
        text += &format!("would start {count} of {model}\n");
    }
    if !effects.leave.is_empty() {
        text += &format!("would leave: {}\n", effects.leave.join(", "));
    }
    text
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
