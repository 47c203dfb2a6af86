// SPDX-License-Identifier: Apache-2.0
//! Launchers that leave things behind, over and over. Alone in its process, because it counts what the process has.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sluice_scaler::launch::Launch;
use support::{Bench, alive, eventually_async, number, replica, shell};

/// Children of this process that nobody has waited for.
fn zombies() -> Vec<i32> {
    let own = std::process::id().to_string();
    let entries = std::fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
        let mut fields = stat[stat.rfind(')').unwrap() + 1..].split_ascii_whitespace();
        fields.next() == Some("Z") && fields.next() == Some(own.as_str())
    })
    .collect()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[tokio::test]
async fn fc_31_no_zombie_stray_or_descriptor_is_left_by_a_hundred_cycles() {
    let mut bench = Bench::new();
    late_exit_is_told_at_once(&mut bench).await;
    let pids = bench.path("pids");
    let leaving = format!(
        "sleep 600 & echo $! >> {0}; setsid sleep 600 & echo $! >> {0}; while :; do sleep 0.02; done",
        pids.display()
    );
    bench.launch("clean", Launch::Process(replica(&[])));
    bench.launch("leaving", Launch::Process(shell(&leaving)));
    let mut before = None;
    for cycle in 0..100 {
        if cycle % 2 == 0 {
            let id = bench.start(100 + cycle, "clean");
            let address = bench.ready(id).await;
            bench.stop(id).await;
            assert!(std::net::TcpListener::bind(address.socket).is_ok(), "port taken after cycle {cycle}");
        } else {
            std::fs::remove_file(&pids).ok();
            let id = bench.start(100 + cycle, "leaving");
            let left = eventually_async("both grandchildren are up", || two_numbers(&pids)).await;
            bench.stop(id).await;
            assert!(left.iter().all(|&pid| !alive(pid)), "stray after cycle {cycle}: {left:?}");
        }
        eventually_async("no zombie", || zombies().is_empty().then_some(())).await;
        if cycle == 9 {
            before = Some(descriptors());
        }
    }
    let before = before.unwrap();
    eventually_async("descriptors are back", || (descriptors() <= before).then_some(())).await;
    let left = std::fs::read_dir(bench.path("state")).unwrap().count();
    assert_eq!(left, 2, "the lock, and the directory of this instance");
}

async fn late_exit_is_told_at_once(bench: &mut Bench) {
    let note = bench.path("exit");
    let script = format!("sleep 0.5; date +%s%N > {}; exit 2", note.display());
    bench.launch("late", Launch::Process(shell(&script)));
    let begun = Instant::now();
    let id = bench.start(1, "late");
    assert_eq!(bench.gone(id).await, "exited with status 2 before it was ready");
    assert!(begun.elapsed() < Duration::from_secs(20), "told at a deadline instead");
}

fn two_numbers(path: &std::path::Path) -> Option<BTreeSet<i32>> {
    number(path)?;
    let text = std::fs::read_to_string(path).ok()?;
    let pids: BTreeSet<i32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    (pids.len() == 2).then_some(pids)
}
