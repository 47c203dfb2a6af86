// SPDX-License-Identifier: Apache-2.0
//! The live loop: real time and real events into the core, its routes and actions out.
//!
//! Owns the order of things: new routes are in force before anything is stopped, and orders are carried out before
//! anybody is told of them. Decides nothing. Runs on a thread of its own and waits for nobody, so that a first request
//! is acted on at once; what one wake-up does is bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sluice_core::journal::Journal;
use sluice_core::{Action, Core, Demand, Event, ModelName, Routes, Source};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::backend::{Backend, BackendEvent};
use crate::chronicle::Chronicle;
use crate::clock;
use crate::keep::Keeper;
use crate::plane::{Board, Command, CommandError, Handle, Input, Plan, Plane, Trial};

/// Load of all models is looked at this often.
const TICK: Duration = Duration::from_millis(250);

/// Messages of each channel taken in one wake-up.
const BATCH: usize = 256;

/// Inputs between two snapshots of the core; between one and two times as many are kept.
const JOURNAL: usize = 4096;

type Answer = (oneshot::Sender<Result<(), CommandError>>, Result<(), CommandError>);

/// Drives one core, one backend and one gateway.
pub struct Driver<B: Backend> {
    core: Core,
    /// Every input, bounded, to be lived through again.
    journal: Journal,
    /// The same on disk, if it is kept there.
    keeper: Option<Keeper>,
    backend: B,
    events: mpsc::UnboundedReceiver<BackendEvent>,
    plane: Arc<dyn Plane>,
    inputs: mpsc::UnboundedReceiver<Input>,
    inputs_closed: bool,
    board: Arc<Board>,
    routes: Arc<Routes>,
    /// Where each model's replicas come from, and how many there may be.
    specs: BTreeMap<ModelName, (Source, u32)>,
    /// What the core was last told of each model.
    fed: BTreeMap<ModelName, Demand>,
    tick_at: Instant,
    chronicle: Chronicle,
    /// Whoever waits for the end.
    ending: Vec<oneshot::Sender<()>>,
    batch: Batch,
}

/// What one wake-up collects.
#[derive(Default)]
struct Batch {
    actions: Vec<Action>,
    poked: BTreeSet<ModelName>,
    demands: Vec<Demand>,
    answers: Vec<Answer>,
    /// Something was seen of a replica, so that its status may be another.
    seen: bool,
}

enum Woken {
    Input(Option<Input>),
    Event(BackendEvent),
    Time,
}

impl<B: Backend> Driver<B> {
    /// A driver that has not begun. `inputs` came with `handle`.
    pub fn new(
        mut backend: B,
        plane: Arc<dyn Plane>,
        inputs: mpsc::UnboundedReceiver<Input>,
        handle: &Handle,
    ) -> Self {
        let core = Core::new();
        Driver {
            events: backend.events(),
            backend,
            plane,
            inputs,
            inputs_closed: false,
            board: handle.board.clone(),
            routes: core.routes(),
            core,
            journal: Journal::new(JOURNAL),
            keeper: None,
            specs: BTreeMap::new(),
            fed: BTreeMap::new(),
            tick_at: Instant::now(),
            chronicle: Chronicle::new(handle.board.tally.clone()),
            ending: Vec::new(),
            batch: Batch::default(),
        }
    }

    /// Keeps the journal on disk too, and continues from the core that the last run left there.
    pub fn keep(mut self, keeper: Keeper, former: Option<Core>) -> Self {
        self.keeper = Some(keeper);
        self.core = former.unwrap_or_default();
        self.routes = self.core.routes();
        self
    }

    /// Runs on a new thread until the end. If it panics, the backend goes with it and ends what it has started.
    pub fn spawn(self) -> std::io::Result<std::thread::JoinHandle<()>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        std::thread::Builder::new()
            .name("sluice-scaler".to_owned())
            .spawn(move || runtime.block_on(self.run()))
    }

    /// Runs until a shutdown is complete. Every `Handle` gone is a shutdown too.
    pub async fn run(mut self) {
        loop {
            match self.wait().await {
                Woken::Input(Some(input)) => self.take(input),
                Woken::Input(None) => {
                    self.inputs_closed = true;
                    self.feed(Event::Shutdown);
                }
                Woken::Event(event) => self.see(event),
                Woken::Time => {}
            }
            self.take_waiting();
            self.look_at_demand();
            self.carry_out();
            if self.core.is_empty() {
                // What was handed over is on the disk before the process may end.
                drop(self.keeper.take());
                for end in self.ending {
                    // Whoever waited may have left.
                    let _ = end.send(());
                }
                return;
            }
        }
    }

    async fn wait(&mut self) -> Woken {
        let deadline = self.core.next_deadline().map(|at| Instant::now() + at.since(clock::now()).into());
        let due = deadline.map_or(self.tick_at, |deadline| deadline.min(self.tick_at));
        tokio::select! {
            biased;
            input = self.inputs.recv(), if !self.inputs_closed => Woken::Input(input),
            Some(event) = self.events.recv() => Woken::Event(event),
            () = tokio::time::sleep_until(due) => Woken::Time,
        }
    }

    /// Takes what else has come in, so that it costs one look and one publication.
    fn take_waiting(&mut self) {
        for _ in 0..BATCH {
            let Ok(event) = self.events.try_recv() else { break };
            self.see(event);
        }
        for _ in 0..BATCH {
            let Ok(input) = self.inputs.try_recv() else { break };
            self.take(input);
        }
    }

    fn see(&mut self, (replica, event): BackendEvent) {
        self.batch.seen = true;
        self.chronicle.seen(replica, &event, clock::now());
        self.feed(Event::Replica(replica, event));
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Poke(model) => {
                self.batch.poked.insert(model);
            }
            Input::Drained(told) => self.feed(Event::Drained(told)),
            Input::Configure(plan) => self.configure(plan),
            Input::Command(command, answer) => {
                let taken = self.command(command);
                self.batch.answers.push((answer, taken));
            }
            Input::Try(command, answer) => drop(answer.send(self.trial(&command))),
            Input::DumpJournal(answer) => drop(answer.send(self.journal.dump())),
            Input::Ending => {
                // What is in flight now counts, not what is left of it at the end.
                self.feed_demand(None);
                if let Some(keeper) = &mut self.keeper {
                    keeper.end(&self.core, clock::now());
                }
            }
            Input::Shutdown(answer) => {
                self.ending.push(answer);
                self.feed(Event::Shutdown);
            }
        }
    }

    fn configure(&mut self, plan: Plan) {
        let specs = plan.fleet.models.iter();
        self.specs =
            specs.map(|(model, spec)| (model.clone(), (spec.source, spec.scale.max_replicas))).collect();
        // Which replica has to go is decided by what each has in flight now, not at the last tick.
        self.feed_demand(None);
        // The core may order a start in the very next step.
        self.backend.configure(&plan.launches);
        self.board.configured(&plan.fleet.models.keys().cloned().collect());
        self.feed(Event::Configure(plan.fleet));
        // What was told of a model that the core did not know yet was told to nobody.
        self.fed.clear();
        self.tick_at = Instant::now();
    }

    fn command(&mut self, command: Command) -> Result<(), CommandError> {
        let event = self.order(&command)?;
        self.feed(event);
        Ok(())
    }

    /// The order on a copy of the core.
    fn trial(&mut self, command: &Command) -> Result<Trial, CommandError> {
        let event = self.order(command)?;
        let (mut core, now, mut actions) = (self.core.clone(), clock::now(), Vec::new());
        core.step(now, &event, &mut actions);
        Ok(Trial { status: core.status(now), actions })
    }

    /// The event of an order that can be taken. The core knows the model's present load then: a request that has just
    /// ended must not look like one that came after the order.
    fn order(&mut self, command: &Command) -> Result<Event, CommandError> {
        let model = match command {
            Command::Drain(id) => self.core.owner(*id).ok_or(CommandError::UnknownReplica(*id))?.clone(),
            Command::Wake(model)
            | Command::Sleep(model)
            | Command::Scale(model, _)
            | Command::DrainModel(model) => model.clone(),
        };
        let Some(spec) = self.specs.get(&model) else { return Err(CommandError::UnknownModel(model)) };
        let most = match spec {
            (Source::Fixed(_), _) => return Err(CommandError::FixedModel(model)),
            (Source::Launched | Source::Elsewhere, most) => *most,
        };
        if let Command::Scale(_, Some(asked)) = *command
            && asked > most
        {
            return Err(CommandError::AboveMax { model, asked, most });
        }
        self.feed_demand(Some(std::slice::from_ref(&model)));
        Ok(match command {
            Command::Wake(_) => Event::Wake(model),
            Command::Sleep(_) => Event::Sleep(model),
            Command::Scale(_, count) => Event::Scale(model, *count),
            Command::Drain(id) => Event::Drain(*id),
            Command::DrainModel(_) => Event::DrainModel(model),
        })
    }

    /// Tells the core the load of poked models, or of all if time is up.
    fn look_at_demand(&mut self) {
        let poked = std::mem::take(&mut self.batch.poked);
        let deadline_passed = self.core.next_deadline().is_some_and(|at| at <= clock::now());
        let time_is_up = deadline_passed || Instant::now() >= self.tick_at;
        if time_is_up {
            self.feed_demand(None);
        } else if !poked.is_empty() {
            let poked: Vec<ModelName> = poked.into_iter().collect();
            self.feed_demand(Some(&poked));
        }
        if time_is_up {
            self.feed(Event::Tick);
            self.tick_at = Instant::now() + TICK;
            // Told by `carry_out`, once the routes are in force: a replica said to leave gets nothing new.
            self.batch.seen = true;
        }
    }

    /// Tells the core the present load of these models (or all), where it has changed.
    fn feed_demand(&mut self, of: Option<&[ModelName]>) {
        let mut demands = std::mem::take(&mut self.batch.demands);
        self.plane.demand(of, &mut demands);
        for demand in demands.drain(..) {
            if self.fed.get(&demand.model) != Some(&demand) {
                self.fed.insert(demand.model.clone(), demand.clone());
                self.feed(Event::Demand(demand));
            }
        }
        self.batch.demands = demands;
    }

    fn feed(&mut self, event: Event) {
        metrics::counter!("sluice_journal_inputs_total").increment(1);
        let now = clock::now();
        let idle = event == Event::Tick && self.core.idles_at(now);
        if let Some(keeper) = &mut self.keeper {
            keeper.before(&self.core, now);
        }
        let entry = self.journal.step(&mut self.core, now, event, &mut self.batch.actions);
        if let Some(keeper) = &mut self.keeper {
            keeper.after(&entry, idle);
        }
        self.board.decided(self.core.decisions());
    }

    /// Puts new routes in force, then does what was decided, then tells.
    fn carry_out(&mut self) {
        let routes = self.core.routes();
        let rerouted = routes.version != self.routes.version;
        if rerouted {
            self.plane.publish(&routes);
            self.routes = routes;
        }
        let mut actions = std::mem::take(&mut self.batch.actions);
        let seen = std::mem::take(&mut self.batch.seen);
        if rerouted || seen || !actions.is_empty() || !self.batch.answers.is_empty() {
            actions.iter().for_each(|action| self.act(action));
            actions.clear();
            self.publish_status();
        }
        self.batch.actions = actions;
        for (answer, taken) in self.batch.answers.drain(..) {
            // Whoever asked may have left.
            let _ = answer.send(taken);
        }
    }

    fn act(&mut self, action: &Action) {
        self.chronicle.ordered(action, clock::now());
        match action {
            Action::Start { replica, model, ordinal } => self.backend.start(*replica, model, *ordinal),
            Action::Cut { replica } => self.plane.cut(*replica),
            Action::Stop { replica, .. } => self.backend.stop(*replica),
        }
    }

    fn publish_status(&self) {
        self.board.put_up(self.core.status(clock::now()));
    }
}

#[cfg(test)]
mod tests;
