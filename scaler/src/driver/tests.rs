// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::{Mutex, MutexGuard};

use sluice_core::{
    Address, Bytes, Drained, FleetSpec, LifeSpec, Micros, ModelSpec, Phase, Profile, ReplicaEvent, ReplicaId,
    ScaleSpec,
};

use super::*;
use crate::launch::Launch;

/// No awaited line is late by less than this.
const PATIENCE: Duration = Duration::from_secs(30);

/// Everything that gateway and backend were told, in order.
#[derive(Clone, Default)]
struct Story(Arc<Mutex<Vec<String>>>);

impl Story {
    fn add(&self, line: impl Into<String>) {
        self.lines().push(line.into());
    }

    fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap()
    }

    fn at(&self, part: &str) -> Option<usize> {
        self.lines().iter().position(|line| line.contains(part))
    }

    async fn wait_for(&self, part: &str) -> usize {
        let begun = Instant::now();
        loop {
            if let Some(at) = self.at(part) {
                return at;
            }
            assert!(begun.elapsed() < PATIENCE, "no {part:?} in {:?}", self.lines());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// A gateway: its load, and whether it reports drains as soon as it sees them.
struct FakePlane {
    story: Story,
    handle: Handle,
    drains: bool,
    /// Told when everything is asked for.
    usual: Mutex<Demand>,
    /// Told when the model is asked for by name.
    named: Mutex<Demand>,
    /// Replicas routed as draining so far.
    draining: Mutex<BTreeSet<ReplicaId>>,
}

impl Plane for FakePlane {
    fn demand(&self, of: Option<&[ModelName]>, out: &mut Vec<Demand>) {
        match of {
            None => out.push(self.usual.lock().unwrap().clone()),
            Some(names) => {
                self.story.add(format!("asked {names:?}"));
                out.push(self.named.lock().unwrap().clone());
            }
        }
    }

    fn publish(&self, routes: &Arc<Routes>) {
        for (name, route) in &routes.models {
            let (draining, taking): (Vec<_>, Vec<_>) = route.replicas.iter().partition(|r| r.draining);
            let ids = |of: Vec<&sluice_core::ReplicaRoute>| of.iter().map(|r| r.id).collect::<Vec<_>>();
            let (draining, taking) = (ids(draining), ids(taking));
            let status = self.handle.status();
            let told =
                |id: ReplicaId| status.replicas.iter().any(|r| r.id == id && r.phase == Phase::Draining);
            for id in draining.iter().filter(|id| self.draining.lock().unwrap().insert(**id)) {
                if told(*id) {
                    self.story.add(format!("{id} is said to leave and still routed to"));
                }
            }
            self.story.add(format!(
                "publish {name} starting {} ready {taking:?} draining {draining:?}",
                route.starting
            ));
            for route in route.replicas.iter().filter(|r| self.drains && r.draining) {
                let told = Drained { replica: route.id, drain: route.drains };
                self.handle.send(Input::Drained(told));
            }
        }
    }

    fn cut(&self, replica: ReplicaId) {
        self.story.add(format!("cut {replica}"));
    }
}

/// A backend that does what it is told at once, or leaves stopping to the test.
struct FakeBackend {
    story: Story,
    tell: mpsc::UnboundedSender<BackendEvent>,
    events: Option<mpsc::UnboundedReceiver<BackendEvent>>,
    stops: bool,
}

impl Backend for FakeBackend {
    fn events(&mut self) -> mpsc::UnboundedReceiver<BackendEvent> {
        self.events.take().unwrap()
    }

    fn configure(&mut self, launches: &BTreeMap<ModelName, Arc<Launch>>) {
        self.story.add(format!("configure {}", launches.len()));
    }

    fn start(&mut self, replica: ReplicaId, model: &ModelName, ordinal: u32) {
        self.story.add(format!("start {replica} {model} {ordinal}"));
        let address = Address { socket: ([127, 0, 0, 1], 1).into(), host: None, tls: false };
        self.tell.send((replica, ReplicaEvent::Ready(address))).unwrap();
    }

    fn stop(&mut self, replica: ReplicaId) {
        self.story.add(format!("stop {replica}"));
        if self.stops {
            self.tell.send((replica, ReplicaEvent::Gone { cause: "stopped".to_owned() })).unwrap();
        }
    }
}

struct Bench {
    story: Story,
    handle: Handle,
    plane: Arc<FakePlane>,
    tell: mpsc::UnboundedSender<BackendEvent>,
    driver: Option<Driver<FakeBackend>>,
}

/// What the fakes leave to the test.
#[derive(Default)]
struct Leave {
    drains: bool,
    stops: bool,
}

impl Bench {
    fn new() -> Bench {
        Bench::leaving(&Leave::default())
    }

    fn leaving(leave: &Leave) -> Bench {
        let story = Story::default();
        let (handle, inputs) = Handle::new();
        let (tell, events) = mpsc::unbounded_channel();
        let plane = Arc::new(FakePlane {
            story: story.clone(),
            handle: handle.clone(),
            drains: !leave.drains,
            usual: Mutex::new(demand(0, 0)),
            named: Mutex::new(demand(0, 0)),
            draining: Mutex::default(),
        });
        let backend = FakeBackend {
            story: story.clone(),
            tell: tell.clone(),
            events: Some(events),
            stops: !leave.stops,
        };
        let driver = Driver::new(backend, plane.clone(), inputs, &handle);
        Bench { story, handle, plane, tell, driver: Some(driver) }
    }

    fn run(&mut self, plan: Plan) -> tokio::task::JoinHandle<()> {
        self.handle.send(Input::Configure(plan));
        tokio::spawn(self.driver.take().unwrap().run())
    }
}

fn demand(queued: u32, arrivals: u64) -> Demand {
    Demand {
        model: "m".into(),
        in_flight: 0,
        queued,
        peak: queued,
        arrivals,
        completions: 0,
        abandons: 0,
        in_flight_micros: 0,
        queued_micros: 0,
        idle_since: None,
        by_replica: BTreeMap::new(),
    }
}

fn spec(source: Source) -> ModelSpec {
    let scale = ScaleSpec {
        min_replicas: 0,
        max_replicas: 1,
        target_milli: 1_000,
        container_concurrency: 1,
        idle_after: Micros::from_secs(600),
        window: Micros::from_secs(1),
        preload: false,
        profile: Profile::Sized,
    };
    let life = LifeSpec {
        start_deadline: Micros::from_secs(60),
        drain_deadline: Micros::from_secs(60),
        stop_deadline: Micros::from_secs(60),
        start_attempts: 3,
        backoff_first: Micros::from_secs(1),
        backoff_max: Micros::from_secs(60),
    };
    ModelSpec { generation: 1, source, scale, life, memory: Bytes(0), groups: Vec::new() }
}

fn plan(spec: ModelSpec) -> Plan {
    Plan { fleet: FleetSpec { models: [("m".into(), spec)].into(), memory: None }, launches: BTreeMap::new() }
}

fn launched() -> Plan {
    plan(spec(Source::Launched))
}

#[tokio::test]
async fn a_poke_is_acted_on_without_waiting_for_the_tick() {
    let mut bench = Bench::new();
    bench.run(launched());
    bench.story.wait_for("publish m starting 0").await;
    // Only a look at the model by name sees the request.
    *bench.plane.named.lock().unwrap() = demand(1, 1);
    bench.handle.send(Input::Poke("m".into()));
    bench.story.wait_for("start r").await;
    assert!(bench.story.at("asked").unwrap() < bench.story.at("start r").unwrap());
}

#[tokio::test]
async fn the_tick_looks_at_everything() {
    let mut bench = Bench::new();
    *bench.plane.usual.lock().unwrap() = demand(1, 1);
    bench.run(launched());
    bench.story.wait_for("start r").await;
    assert_eq!(bench.story.at("asked"), None);
}

#[tokio::test]
async fn pokes_that_wait_together_cost_one_look() {
    let mut bench = Bench::new();
    for _ in 0..BATCH - 1 {
        bench.handle.send(Input::Poke("m".into()));
    }
    // Without a tick in the way.
    bench.driver.as_mut().unwrap().tick_at = Instant::now() + PATIENCE;
    let running = tokio::spawn(bench.driver.take().unwrap().run());
    bench.story.wait_for("asked").await;
    let (answer, ended) = oneshot::channel();
    bench.handle.send(Input::Shutdown(answer));
    ended.await.unwrap();
    running.await.unwrap();
    assert_eq!(bench.story.lines().iter().filter(|line| line.contains("asked")).count(), 1);
}

#[tokio::test]
async fn routes_are_in_force_before_anything_is_started_or_stopped() {
    let mut bench = Bench::new();
    bench.run(launched());
    bench.handle.command(Command::Wake("m".into())).await.unwrap();
    let ready = bench.story.wait_for("ready [r").await;
    let started = bench.story.at("start r").unwrap();
    assert!(bench.story.at("starting 1").unwrap() < started && started < ready);
    bench.handle.command(Command::Sleep("m".into())).await.unwrap();
    let stopped = bench.story.wait_for("stop r").await;
    assert!(bench.story.at("draining [r").unwrap() < stopped, "{:?}", bench.story.lines());
    let lines = bench.story.lines();
    let last = lines[..stopped].iter().rfind(|line| line.starts_with("publish")).unwrap();
    assert!(last.contains("ready [] draining []"), "stopped while routed to: {lines:?}");
}

#[tokio::test]
async fn a_replica_is_said_to_leave_once_nothing_new_is_sent_there() {
    let mut bench = Bench::leaving(&Leave { drains: true, ..Leave::default() });
    let mut spec = spec(Source::Launched);
    spec.scale.idle_after = Micros::from_millis(20);
    bench.run(plan(spec));
    bench.handle.command(Command::Wake("m".into())).await.unwrap();
    bench.story.wait_for("draining [r").await;
    assert_eq!(bench.story.at("still routed to"), None, "{:?}", bench.story.lines());
}

#[tokio::test]
async fn what_outlasts_its_drain_is_cut_before_it_is_stopped() {
    let mut bench = Bench::leaving(&Leave { drains: true, ..Leave::default() });
    let mut spec = spec(Source::Launched);
    spec.life.drain_deadline = Micros::from_millis(20);
    bench.run(plan(spec));
    bench.handle.command(Command::Wake("m".into())).await.unwrap();
    bench.story.wait_for("ready [r").await;
    bench.handle.command(Command::Sleep("m".into())).await.unwrap();
    let stopped = bench.story.wait_for("stop r").await;
    assert!(bench.story.at("cut r").unwrap() < stopped);
}

#[tokio::test]
async fn the_backend_is_configured_before_it_is_told_to_start() {
    let mut bench = Bench::new();
    let mut spec = spec(Source::Launched);
    spec.scale.min_replicas = 1;
    bench.run(plan(spec));
    let started = bench.story.wait_for("start r").await;
    assert!(bench.story.at("configure").unwrap() < started);
}

#[tokio::test]
async fn shutdown_is_answered_when_the_last_replica_is_gone() {
    let mut bench = Bench::leaving(&Leave { stops: true, ..Leave::default() });
    let running = bench.run(launched());
    bench.handle.command(Command::Wake("m".into())).await.unwrap();
    bench.story.wait_for("ready [r").await;
    let (answer, mut ended) = oneshot::channel();
    bench.handle.send(Input::Shutdown(answer));
    bench.story.wait_for("stop r").await;
    // One more round of the loop, and still no answer.
    assert!(bench.handle.command(Command::Wake("nobody".into())).await.is_err());
    assert!(ended.try_recv().is_err(), "answered with a replica alive");
    let replica = bench.handle.status().replicas[0].id;
    bench.tell.send((replica, ReplicaEvent::Gone { cause: "stopped".to_owned() })).unwrap();
    tokio::time::timeout(PATIENCE, ended).await.unwrap().unwrap();
    running.await.unwrap();
    assert_eq!(bench.handle.command(Command::Wake("m".into())).await, Err(CommandError::Stopped));
}

#[tokio::test]
async fn orders_that_make_no_sense_are_refused() {
    let mut bench = Bench::new();
    bench.run(plan(spec(Source::Fixed(1))));
    let of = |name: &str| ModelName::from(name);
    let wake = bench.handle.command(Command::Wake(of("nobody"))).await;
    assert_eq!(wake, Err(CommandError::UnknownModel(of("nobody"))));
    let sleep = bench.handle.command(Command::Sleep(of("m"))).await;
    assert_eq!(sleep, Err(CommandError::FixedModel(of("m"))));
}

#[tokio::test]
async fn the_status_shows_what_an_order_has_done() {
    let mut bench = Bench::new();
    bench.run(launched());
    bench.handle.command(Command::Wake("m".into())).await.unwrap();
    assert_eq!(bench.handle.status().models[0].desired, 1);
    assert_eq!(bench.handle.status().replicas.len(), 1);
}

#[tokio::test]
async fn a_number_of_replicas_is_ordered_within_the_maximum_and_a_replica_to_go() {
    let mut bench = Bench::new();
    let mut spec = spec(Source::Launched);
    spec.scale.max_replicas = 2;
    bench.run(plan(spec));
    let model = ModelName::from("m");
    let above = bench.handle.command(Command::Scale(model.clone(), Some(3))).await;
    assert_eq!(above, Err(CommandError::AboveMax { model: model.clone(), asked: 3, most: 2 }));
    bench.handle.command(Command::Scale(model.clone(), Some(2))).await.unwrap();
    assert_eq!(bench.handle.status().models[0].pinned, Some(2));
    bench.story.wait_for("ready [r").await;
    let replica = bench.handle.status().replicas.iter().find(|r| r.phase == Phase::Ready).unwrap().id;
    bench.handle.command(Command::Drain(replica)).await.unwrap();
    let going = bench.handle.status().replicas.iter().find(|r| r.id == replica).map(|r| r.note.clone());
    assert!(going.is_none_or(|note| note.starts_with("drain order")));
    let nobody = bench.handle.command(Command::Drain(ReplicaId(999))).await;
    assert_eq!(nobody, Err(CommandError::UnknownReplica(ReplicaId(999))));
}

#[tokio::test]
async fn an_order_on_trial_tells_what_it_would_do_and_does_nothing() {
    let mut bench = Bench::new();
    bench.run(launched());
    let trial = bench.handle.try_command(Command::Wake("m".into())).await.unwrap();
    assert_eq!((trial.status.models[0].desired, trial.actions.len()), (1, 1));
    let unknown = bench.handle.try_command(Command::Wake("nobody".into())).await.unwrap_err();
    assert_eq!(unknown, CommandError::UnknownModel("nobody".into()));
    bench.handle.command(Command::Sleep("m".into())).await.unwrap();
    assert!(bench.handle.status().replicas.is_empty());
    assert_eq!(bench.story.at("start r"), None);
}

#[tokio::test]
async fn an_observer_is_told_every_new_status_with_the_former_one() {
    let mut bench = Bench::new();
    let (tell, mut told) = mpsc::unbounded_channel();
    bench.handle.observe(Box::new(move |former, new| {
        tell.send((former.models.len(), new.models.iter().map(|m| m.desired).sum::<u32>())).unwrap();
    }));
    bench.run(launched());
    bench.handle.command(Command::Wake("m".into())).await.unwrap();
    let first = told.recv().await.unwrap();
    assert_eq!(first.0, 0);
    while told.recv().await.unwrap() != (1, 1) {}
}

#[tokio::test]
async fn a_driver_that_nobody_can_reach_any_more_ends() {
    let (handle, inputs) = Handle::new();
    let (tell, events) = mpsc::unbounded_channel();
    let story = Story::default();
    let backend = FakeBackend { story: story.clone(), tell, events: Some(events), stops: true };
    let (other, _inputs) = Handle::new();
    let plane = FakePlane {
        story,
        handle: other,
        drains: false,
        usual: Mutex::new(demand(0, 0)),
        named: Mutex::new(demand(0, 0)),
        draining: Mutex::default(),
    };
    let running = Driver::new(backend, Arc::new(plane), inputs, &handle).spawn().unwrap();
    drop(handle);
    tokio::task::spawn_blocking(move || running.join().unwrap()).await.unwrap();
}

#[tokio::test]
async fn the_journal_of_a_live_run_is_lived_through_again_to_the_same_decisions() {
    let mut bench = Bench::new();
    *bench.plane.usual.lock().unwrap() = demand(1, 1);
    bench.run(launched());
    bench.story.wait_for("start r").await;
    let (answer, dump) = oneshot::channel();
    bench.handle.send(Input::DumpJournal(answer));
    let dump = dump.await.unwrap();
    let replayed = sluice_core::journal::replay(&dump).unwrap();
    assert_eq!(replayed.difference, None);
    assert!(replayed.inputs >= 2, "configuration and demand at least: {replayed:?}");
    let text = String::from_utf8(dump).unwrap();
    assert!(text.contains("\"Start\""), "the decision is in the record: {text}");
}
