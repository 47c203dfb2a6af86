// SPDX-License-Identifier: Apache-2.0
//! `sluice wake`, `sleep`, `scale` and `drain`: give the order, and with `--wait` see it through.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::args::{AdminArgs, DrainArgs, Replicas, ScaleArgs, SleepArgs, WaitArgs, WakeArgs};
use super::client::Client;
use super::console::Console;
use super::exit::{Exit, Failure};
use super::follow::{Follow, News};
use super::table::short;
use crate::admin::api::{Effects, Model, Replica};
use crate::admin::events::Event;
use crate::admin::path;
use crate::admin::watch::Snapshot;

/// What `--wait` waits for.
#[derive(Debug)]
enum Goal {
    /// A replica takes requests.
    Ready,
    /// So many do, and none comes or goes.
    Count(u32),
    /// No replica is left.
    Stopped,
    /// These are gone; none named: those that there are when the order is given.
    Gone(Option<Vec<String>>),
    /// Nothing: taken is done.
    Taken,
}

impl Goal {
    fn word(&self) -> String {
        match self {
            Goal::Ready => "ready".to_owned(),
            Goal::Count(count) => format!("at {count} ready"),
            Goal::Stopped => "stopped".to_owned(),
            Goal::Gone(_) => "gone".to_owned(),
            Goal::Taken => "taken".to_owned(),
        }
    }
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
            let goal = Goal::Gone(Some(vec![replica.id.clone()]));
            Order { name: id, path, ..Order::of("drain", replica.model, goal) }
        }
        (None, model) => Order::of("drain", model.unwrap_or_default(), Goal::Gone(None)),
    };
    give(order, &args.wait, &args.admin, console).await
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
    if !wait.wait {
        let _: Value = client.post(&format!("{}:{verb}", order.path), order.body.as_ref()).await?;
        return console.print(&format!("{name}: {verb} ordered\n"));
    }
    let mut progress = String::new();
    let seen = see_through(&client, &order, &mut progress, console);
    match tokio::time::timeout(wait.timeout, seen).await {
        Ok(end) => {
            let end = end?;
            console.print(&format!("{name}: {end}\n"))
        }
        Err(_) => {
            let limit = short(u64::try_from(wait.timeout.as_millis()).unwrap_or(u64::MAX));
            let message = format!("{name} is not {} after {limit}: {progress}", order.goal.word());
            Err(Failure::new(Exit::TimedOut, message))
        }
    }
}

/// Gives the order and follows its model until it is carried out. Returns what it has come to.
async fn see_through(
    client: &Client,
    order: &Order,
    progress: &mut String,
    console: &mut Console<'_>,
) -> Result<String, Failure> {
    let name = path::encode(&order.model);
    let before: Model = client.get(&format!("/api/v1/models/{name}")).await?;
    let present = match &order.goal {
        Goal::Gone(None) => client.list::<Replica>(&format!("/api/v1/replicas?model={name}")).await?,
        _ => Vec::new(),
    };
    let present: Vec<String> = present.into_iter().map(|replica| replica.id).collect();
    let _: Value = client.post(&format!("{}:{}", order.path, order.verb), order.body.as_ref()).await?;
    let mut follow = Follow::new(client, Some(&order.model), None);
    let mut now = loop {
        if let News::Snapshot(all) = follow.next(|lost| console.say(lost)).await? {
            break Now::of(*all, &order.model)?;
        }
    };
    loop {
        if now.reached(&order.goal, &present) {
            let gone = matches!(order.goal, Goal::Gone(_));
            return Ok(if gone { "gone".to_owned() } else { now.model.state });
        }
        if matches!(order.goal, Goal::Ready | Goal::Count(_)) {
            given_up(&now.model, failures(&before))?;
        }
        let is = describe(&now.model);
        if is != *progress {
            console.say(&format!("{}: {is}", order.name));
            *progress = is;
        }
        match follow.next(|lost| console.say(lost)).await? {
            News::Snapshot(all) => now = Now::of(*all, &order.model)?,
            News::Event(event) => now.take(*event)?,
            News::Reset(_) => {}
        }
    }
}

/// What is known of the ordered model.
struct Now {
    model: Model,
    replicas: BTreeMap<String, Replica>,
}

impl Now {
    fn of(all: Snapshot, name: &str) -> Result<Now, Failure> {
        let model = all.models.into_iter().find(|model| model.name == name).ok_or_else(|| removed(name))?;
        let its = all.replicas.into_iter().filter(|replica| replica.model == name);
        Ok(Now { model, replicas: its.map(|replica| (replica.id.clone(), replica)).collect() })
    }

    fn take(&mut self, event: Event) -> Result<(), Failure> {
        let is_gone = event.changed.iter().any(|change| change == "removed");
        match (event.kind.as_str(), event.model_now, event.replica_now) {
            ("model", Some(model), _) => self.model = model,
            ("model", None, _) => return Err(removed(&self.model.name)),
            (_, _, Some(replica)) if is_gone => drop(self.replicas.remove(&replica.id)),
            (_, _, Some(replica)) => drop(self.replicas.insert(replica.id.clone(), replica)),
            _ => {}
        }
        Ok(())
    }

    fn reached(&self, goal: &Goal, present: &[String]) -> bool {
        let model = &self.model;
        match goal {
            Goal::Ready => model.ready > 0,
            Goal::Count(count) => model.starting + model.leaving == 0 && model.ready == *count,
            Goal::Stopped => model.ready + model.starting + model.leaving == 0,
            Goal::Gone(ids) => {
                !ids.as_deref().unwrap_or(present).iter().any(|id| self.replicas.contains_key(id))
            }
            Goal::Taken => true,
        }
    }
}

fn failures(model: &Model) -> u32 {
    model.fault.as_ref().map_or(0, |fault| fault.failures)
}

fn removed(model: &str) -> Failure {
    Failure::new(Exit::NotFound, format!("model {model:?} is not configured any more"))
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
