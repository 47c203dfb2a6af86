// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used, clippy::expect_used)]

use sluice_core::{
    Bytes, Demand, Event, FleetSpec, LifeSpec, ModelSpec, Profile, ReplicaEvent, ScaleSpec, Source,
    journal::Journal,
};

use super::writer::{FORMER, SEGMENT_BYTES};
use super::*;

fn fleet() -> Event {
    fleet_named("m")
}

fn fleet_named(model: &str) -> Event {
    let second = Micros::from_secs(1);
    let scale = ScaleSpec {
        min_replicas: 0,
        max_replicas: 3,
        target_milli: 1_000,
        container_concurrency: 0,
        idle_after: Micros::from_secs(300),
        window: Micros::from_secs(60),
        preload: false,
        profile: Profile::Sized,
    };
    let life = LifeSpec {
        start_deadline: Micros::from_secs(60),
        drain_deadline: second,
        stop_deadline: second,
        start_attempts: 3,
        backoff_first: second,
        backoff_max: second,
    };
    let memory = Bytes(0);
    let spec = ModelSpec { generation: 1, source: Source::Launched, scale, life, memory, groups: Vec::new() };
    Event::Configure(FleetSpec { models: [(model.into(), spec)].into(), memory: None })
}

fn demand(load: u32) -> Event {
    Event::Demand(Demand {
        model: "m".into(),
        in_flight: load,
        queued: 0,
        peak: load,
        arrivals: u64::from(load),
        completions: 0,
        abandons: 0,
        in_flight_micros: 0,
        queued_micros: 0,
        idle_since: None,
        by_replica: Default::default(),
    })
}

/// A core and its journal on disk, as the driver has them.
struct Run {
    core: Core,
    journal: Journal,
    keeper: Keeper,
    continued: bool,
}

impl Run {
    fn open(folder: &Path, now: u64) -> Run {
        let (keeper, former) = Keeper::open(folder, Micros::from_secs(now)).unwrap();
        let continued = former.is_some();
        Run { core: former.unwrap_or_default(), journal: Journal::new(10), keeper, continued }
    }

    /// Returns how much is to be done.
    fn feed(&mut self, now: u64, event: Event) -> usize {
        let (mut actions, now) = (Vec::new(), Micros::from_secs(now));
        let idle = event == Event::Tick && self.core.idles_at(now);
        self.keeper.before(&self.core, now);
        let entry = self.journal.step(&mut self.core, now, event, &mut actions);
        self.keeper.after(&entry, idle);
        actions.len()
    }

    fn full(&self) {
        self.keeper.signals.full.store(true, Ordering::Relaxed);
    }

    fn desired(&self) -> u32 {
        self.core.status(Micros::ZERO).models[0].desired
    }
}

/// A folder where a core with two replicas was told to end.
fn ended() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::open(folder.path(), 1_000);
    assert!(!run.continued);
    run.feed(1_000, fleet());
    assert_eq!(run.feed(1_001, demand(2)), 2);
    run.keeper.end(&run.core, Micros::from_secs(1_002));
    run.feed(1_002, demand(0));
    run.feed(1_500, Event::Tick);
    assert_eq!(run.desired(), 0, "it had idled before it ended");
    run.feed(1_501, Event::Shutdown);
    folder
}

#[test]
fn the_next_run_continues_from_where_the_last_one_was_told_to_end() {
    let folder = ended();
    let mut run = Run::open(folder.path(), 1_502);
    assert!(run.continued);
    assert_eq!(run.feed(1_503, fleet()), 2, "both replicas start again");
    assert!(matches!(Keeper::open(folder.path(), Micros::ZERO), Err(KeepError::InUse(_))));
}

#[test]
fn a_killed_run_is_continued_from_its_last_line() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::open(folder.path(), 1_000);
    run.feed(1_000, fleet());
    run.feed(1_001, demand(3));
    drop(run);
    let mut run = Run::open(folder.path(), 1_002);
    assert_eq!(run.feed(1_002, fleet()), 3);
}

#[test]
fn what_is_from_another_time_is_not_continued() {
    for (now, continued) in [(1_501 + 600, true), (1_501 + 601, false), (1_497, true), (1_495, false)] {
        assert_eq!(Run::open(ended().path(), now).continued, continued, "at {now}");
    }
}

#[test]
fn the_latest_run_counts_whatever_the_clock_said() {
    let folder = tempfile::tempdir().unwrap();
    for (now, desired) in [(9_000, 3), (5_000, 1), (20_000, 2)] {
        let mut run = Run::open(folder.path(), now);
        assert!(!run.continued, "it is from another time");
        run.feed(now, fleet());
        run.feed(now, demand(desired));
        drop(run);
        let run = Run::open(folder.path(), now + 1);
        assert_eq!(run.desired(), desired);
    }
    assert_eq!(segments(folder.path()).len(), 3, "who does nothing writes nothing");
}

#[test]
fn every_segment_is_whole_in_itself_and_a_broken_one_costs_what_follows_the_break() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::open(folder.path(), 1_000);
    run.feed(1_000, fleet());
    run.full();
    run.feed(1_001, demand(1));
    run.feed(1_002, demand(3));
    drop(run);
    let files = segments(folder.path());
    assert_eq!(files.len(), 2);
    for file in &files {
        let dump = fs::read(file).unwrap();
        assert!(!journal::read(&dump).unwrap().torn);
        assert_eq!(journal::replay(&dump).unwrap().difference, None);
    }
    let whole = fs::read(&files[1]).unwrap();
    let torn = &whole[..whole.len() - 9];
    for (broken, desired) in [(torn, 1), (&[torn, b"\n{}\n"].concat()[..], 1), (b"no journal\n", 0)] {
        fs::write(&files[1], broken).unwrap();
        let former = former(folder.path(), Micros::from_secs(1_003)).unwrap();
        assert_eq!(former.status(Micros::ZERO).models[0].desired, desired);
    }
    fs::write(&files[0], [0xff; 99]).unwrap();
    assert!(!Run::open(folder.path(), 1_003).continued);
}

#[test]
fn ticks_without_work_are_left_out_and_the_rest_replays_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::open(folder.path(), 1_000);
    run.feed(1_000, fleet());
    run.feed(1_000, demand(2));
    for id in 0..2 {
        let gone = ReplicaEvent::Gone { cause: "exit status 1".into() };
        run.feed(1_001, Event::Replica(sluice_core::ReplicaId(id), gone));
    }
    run.feed(1_002, demand(0));
    for second in 1_003..1_403 {
        run.feed(second, Event::Tick);
    }
    let Run { core, keeper, .. } = run;
    drop(keeper);
    let tape = journal::read(&fs::read(&segments(folder.path())[0]).unwrap()).unwrap();
    assert!((40..60).contains(&tape.entries.len()), "{}", tape.entries.len());
    let (report, last) = tape.replay(|_, _| {});
    assert_eq!(report.difference, None);
    assert!(core.continues(&last));
    assert!(!core.continues(&Core::new()));
}

#[test]
fn a_segment_that_is_full_is_followed_by_another_and_old_ones_go() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::open(folder.path(), 1_000);
    let written = || {
        let files = segments(folder.path());
        files.iter().map(|file| fs::metadata(file).unwrap().len()).sum::<u64>()
    };
    let mut second = 1_000;
    while segments(folder.path()).len() < 2 {
        second += 1;
        let before = written();
        run.feed(second, fleet_named(&"m".repeat(20_000)));
        while written() == before {
            std::thread::yield_now();
        }
    }
    let first = fs::metadata(&segments(folder.path())[0]).unwrap().len();
    assert!((SEGMENT_BYTES..SEGMENT_BYTES * 2).contains(&first), "{first}");
    for _ in 0..FORMER + 10 {
        second += 1;
        run.full();
        run.feed(second, fleet());
    }
    drop(run);
    let files = segments(folder.path());
    assert_eq!(files.len(), 1 + FORMER);
    assert!(files.last().unwrap().to_str().unwrap().contains(&format!("{second}000000")));
}

#[test]
fn a_folder_that_cannot_be_written_costs_lines_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::open(folder.path(), 1_000);
    fs::remove_dir_all(folder.path()).unwrap();
    assert_eq!(run.feed(1_000, fleet()), 0);
    while !run.keeper.signals.failed.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    assert_eq!(run.feed(1_001, demand(2)), 2);
    fs::create_dir(folder.path()).unwrap();
    run.feed(1_010, Event::Tick);
    run.feed(1_011, Event::Tick);
    drop(run);
    let files = segments(folder.path());
    assert_eq!(files.len(), 1, "it tries again after a pause");
    assert_eq!(Run::open(folder.path(), 1_012).feed(1_012, fleet()), 2);
}
