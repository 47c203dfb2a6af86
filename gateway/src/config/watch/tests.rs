// SPDX-License-Identifier: Apache-2.0
//! Every way in which files are changed, on a real file system.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::os::unix::fs::symlink;

use super::*;

/// Longest wait for a change that must come.
const LIMIT: Duration = Duration::from_secs(20);

/// A directory, a file in it, and its watch.
fn watched(dir: &Path, content: &str) -> (PathBuf, Watch) {
    let file = dir.join("sluice.yaml");
    fs::write(&file, content).unwrap();
    let mut watch = Watch::new(&file, super::super::digest(content.as_bytes()));
    watch.listen().unwrap();
    (file, watch)
}

async fn expect_change(watch: &mut Watch, content: &str) {
    timeout(LIMIT, watch.changed()).await.expect("the change is seen");
    assert_eq!(watch.seen, super::super::digest(content.as_bytes()), "what is on disk was seen");
}

/// No change is reported although the watch has looked at the file again.
async fn expect_none(watch: &mut Watch) {
    assert!(timeout(LOOK * 2 + QUIET * 2, watch.changed()).await.is_err(), "there was no change");
}

#[tokio::test]
async fn sees_a_write_in_place_and_one_after_another() {
    let dir = tempfile::tempdir().unwrap();
    let (file, mut watch) = watched(dir.path(), "a");
    for content in ["b", "c", "b"] {
        fs::write(&file, content).unwrap();
        expect_change(&mut watch, content).await;
    }
}

#[tokio::test]
async fn sees_a_file_renamed_over_it() {
    let dir = tempfile::tempdir().unwrap();
    let (file, mut watch) = watched(dir.path(), "a");
    for content in ["b", "c"] {
        let other = dir.path().join("new");
        fs::write(&other, content).unwrap();
        fs::rename(other, &file).unwrap();
        expect_change(&mut watch, content).await;
    }
}

#[tokio::test]
async fn sees_a_config_map_swap_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    for (version, content) in [("v1", "a"), ("v2", "b"), ("v3", "c")] {
        fs::create_dir(dir.path().join(version)).unwrap();
        fs::write(dir.path().join(version).join("sluice.yaml"), content).unwrap();
    }
    symlink("v1", dir.path().join("..data")).unwrap();
    let file = dir.path().join("sluice.yaml");
    symlink("..data/sluice.yaml", &file).unwrap();
    let mut watch = Watch::new(&file, super::super::digest(b"a"));
    watch.listen().unwrap();
    for (version, content) in [("v2", "b"), ("v3", "c")] {
        symlink(version, dir.path().join("..tmp")).unwrap();
        fs::rename(dir.path().join("..tmp"), dir.path().join("..data")).unwrap();
        expect_change(&mut watch, content).await;
    }
}

#[tokio::test]
async fn sees_a_change_of_what_a_link_in_another_directory_leads_to() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (real, _) = watched(there.path(), "a");
    let file = here.path().join("link.yaml");
    symlink(&real, &file).unwrap();
    let mut watch = Watch::new(&file, super::super::digest(b"a"));
    watch.listen().unwrap();
    assert_eq!(watch.directories.len(), 2);
    fs::write(&real, "b").unwrap();
    expect_change(&mut watch, "b").await;
}

#[tokio::test]
async fn other_files_and_the_same_content_are_no_change() {
    let dir = tempfile::tempdir().unwrap();
    let (file, mut watch) = watched(dir.path(), "a");
    fs::write(dir.path().join("other"), "x").unwrap();
    fs::write(&file, "a").unwrap();
    let _ = fs::read(&file).unwrap();
    expect_none(&mut watch).await;
}

#[tokio::test]
async fn a_change_before_the_watch_began_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sluice.yaml");
    fs::write(&file, "b").unwrap();
    let mut watch = Watch::new(&file, super::super::digest(b"a"));
    expect_change(&mut watch, "b").await;
}

#[tokio::test]
async fn without_events_a_look_finds_the_change() {
    let dir = tempfile::tempdir().unwrap();
    let (file, mut watch) = watched(dir.path(), "a");
    watch.watcher = None;
    fs::write(&file, "b").unwrap();
    expect_change(&mut watch, "b").await;
}

#[tokio::test]
async fn a_missing_file_is_no_change_and_its_return_is() {
    let dir = tempfile::tempdir().unwrap();
    let (file, mut watch) = watched(dir.path(), "a");
    fs::remove_file(&file).unwrap();
    expect_none(&mut watch).await;
    fs::write(&file, "b").unwrap();
    expect_change(&mut watch, "b").await;
}

#[tokio::test]
async fn quick_edits_end_in_the_last_one() {
    let dir = tempfile::tempdir().unwrap();
    let (file, mut watch) = watched(dir.path(), "start");
    let writer = std::thread::spawn({
        let file = file.clone();
        move || {
            for n in 0..20 {
                fs::write(&file, "").unwrap();
                fs::write(&file, format!("version {n}")).unwrap();
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    });
    let last = super::super::digest(b"version 19");
    while watch.seen != last {
        timeout(LIMIT, watch.changed()).await.expect("the last version is seen");
    }
    writer.join().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_change_settles_once_it_is_quiet_or_has_been_restless_for_long() {
    let watch = Watch::new(Path::new("/no/such/file"), 0);
    let poked = watch.poked.clone();
    let poke_every = |pause: Duration, times: u32| {
        let poked = poked.clone();
        tokio::spawn(async move {
            for _ in 0..times {
                sleep(pause).await;
                poked.notify_one();
            }
        })
    };
    let settled = async || {
        let begin = Instant::now();
        watch.settle().await;
        begin.elapsed().as_millis()
    };
    assert_eq!(settled().await, 200, "nothing comes");
    poke_every(Duration::from_millis(150), 3);
    assert_eq!(settled().await, 650, "three events, then quiet");
    let restless = poke_every(Duration::from_millis(150), 1_000);
    assert_eq!(settled().await, 1_000, "never quiet");
    restless.abort();
}
