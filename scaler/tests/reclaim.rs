// SPDX-License-Identifier: Apache-2.0
//! What happens to children when Sluice itself is killed, and at the start after that.
//!
//! The test program runs itself again as a small Sluice: environment variables name the state directory and the script.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use sluice_core::{ModelName, ReplicaId};
use sluice_scaler::launch::{Launch, ProcessLaunch};
use sluice_scaler::{Backend, LocalBackend, LocalOptions};
use support::{Bench, alive, eventually, number, replica, shell, state};

const ROLE: &str = "SLUICE_TEST_ROLE";
const PLACE: &str = "SLUICE_TEST_PLACE";

/// Not a test of its own: what the others run in a process that is killed.
#[test]
fn small_sluice() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let place = PathBuf::from(std::env::var_os(PLACE).unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let state_directory = Some(place.join("state"));
    let mut backend =
        LocalBackend::open(LocalOptions { state_directory, ..LocalOptions::default() }).unwrap();
    let model = ModelName::from("m");
    let launch = Launch::Process(family(&place));
    backend.configure(&[(model.clone(), launch.into())].into());
    let mut events = backend.events();
    backend.start(ReplicaId(1), &model, 0);
    match role.as_str() {
        "run" => runtime.block_on(async { while events.recv().await.is_some() {} }),
        "kill-all" => {
            eventually("all are up", || Family::of(&place));
            sluice_scaler::process::kill_all();
            std::process::exit(0);
        }
        "abort" => {
            eventually("all are up", || Family::of(&place));
            eventually("the word", || place.join("go").exists().then_some(()));
            std::process::abort();
        }
        "init" => {
            let family = eventually("all are up", || Family::of(&place));
            runtime.block_on(async move {
                backend.stop(ReplicaId(1));
                while !matches!(events.recv().await, Some((_, sluice_core::ReplicaEvent::Gone { .. })) | None)
                {
                }
            });
            eventually("an orphan of nobody's is reaped too", || (!any_zombie()).then_some(()));
            assert!(family.all().iter().all(|&pid| state(pid).is_none()));
            std::fs::write(place.join("verdict"), "good").unwrap();
        }
        other => panic!("no role {other}"),
    }
}

/// A leader with a grandchild in its group, one that left it, and one that hides its environment.
fn family(place: &Path) -> ProcessLaunch {
    let at = |name: &str| place.join(name).display().to_string();
    let script = format!(
        "echo $$ > {0}; sleep 600 & echo $! > {1}; setsid sh -c 'echo $$ > {2}; exec sleep 600' & \
         trap 'exit 0' TERM; while :; do sleep 0.05; done",
        at("leader"),
        at("grouped"),
        at("strayed")
    );
    shell(&script)
}

#[derive(Debug)]
struct Family([i32; 3]);

impl Family {
    fn of(place: &Path) -> Option<Family> {
        let [leader, grouped, strayed] =
            ["leader", "grouped", "strayed"].map(|name| number(&place.join(name)));
        Some(Family([leader?, grouped?, strayed?]))
    }

    fn all(&self) -> &[i32] {
        &self.0
    }

    fn any_alive(&self) -> bool {
        self.0.iter().any(|&pid| alive(pid))
    }
}

fn any_zombie() -> bool {
    let pids = std::fs::read_dir("/proc").unwrap();
    let mut pids = pids.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<i32>().ok());
    pids.any(|pid| state(pid) == Some('Z'))
}

fn small(role: &str, place: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "small_sluice", "--nocapture"]).env(ROLE, role).env(PLACE, place);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn open(place: &Path) -> LocalBackend {
    let state_directory = Some(place.join("state"));
    LocalBackend::open(LocalOptions { state_directory, ..LocalOptions::default() }).unwrap()
}

/// Someone else's process with the same program as a grandchild.
struct Bystander(Child);

impl Bystander {
    fn new() -> Bystander {
        Bystander(Command::new("sleep").arg("600").spawn().unwrap())
    }

    fn is_well(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn end_and_start_again(role: &str, end: impl FnOnce(&mut Child, &Path)) {
    let place = tempfile::tempdir().unwrap();
    let mut bystander = Bystander::new();
    let mut sluice = small(role, place.path()).spawn().unwrap();
    let family = eventually("the family is up", || Family::of(place.path()));
    assert!(family.any_alive());
    end(&mut sluice, place.path());
    sluice.wait().unwrap();
    let leader = family.all()[0];
    eventually("the leader has died with its parent", || (!alive(leader)).then_some(()));
    drop(open(place.path()));
    assert!(!family.any_alive(), "left after the next start: {family:?}");
    assert!(bystander.is_well(), "a stranger was touched");
    let left: Vec<_> = std::fs::read_dir(place.path().join("state")).unwrap().collect();
    assert_eq!(left.len(), 1, "only the lock: {left:?}");
}

#[test]
fn fc_42_after_sigkill_the_next_start_reclaims_and_touches_no_stranger() {
    end_and_start_again("run", |sluice, _| sluice.kill().unwrap());
}

#[test]
fn fc_42_after_an_abort_the_next_start_reclaims_and_touches_no_stranger() {
    end_and_start_again("abort", |_, place| std::fs::write(place.join("go"), "").unwrap());
}

#[test]
fn a_hard_end_in_order_leaves_nothing() {
    let place = tempfile::tempdir().unwrap();
    small("kill-all", place.path()).status().unwrap();
    let family = Family::of(place.path()).unwrap();
    eventually("all are gone", || (!family.any_alive()).then_some(()));
}

#[test]
fn the_children_of_a_living_instance_are_left_alone() {
    let place = tempfile::tempdir().unwrap();
    let mut sluice = small("run", place.path()).spawn().unwrap();
    let family = eventually("the family is up", || Family::of(place.path()));
    drop(open(place.path()));
    let states: Vec<bool> = family.all().iter().map(|&pid| alive(pid)).collect();
    sluice.kill().unwrap();
    sluice.wait().unwrap();
    drop(open(place.path()));
    assert_eq!(states, [true; 3]);
    assert!(!family.any_alive());
}

/// Field `n` of `/proc/PID/stat`, counted from 1.
fn stat_field(pid: u32, n: usize) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name = &stat[stat.rfind(')').unwrap() + 2..];
    after_name.split(' ').nth(n - 3).unwrap().parse().unwrap()
}

/// The directory of an instance that died, with one record.
fn dead_instance(place: &Path, record: &serde_json::Value) -> PathBuf {
    let instance = place.join("state/0123456789abcdef0123456789abcdef");
    std::fs::create_dir_all(&instance).unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let space = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let about = serde_json::json!({"boot": boot.trim(), "id_space": space.to_str().unwrap()});
    std::fs::write(instance.join("instance.json"), about.to_string()).unwrap();
    std::fs::write(instance.join("r1.json"), record.to_string()).unwrap();
    instance
}

fn record_of(pid: u32, start: u64) -> serde_json::Value {
    let identity = serde_json::json!({"pid": pid, "start": start});
    serde_json::json!({"replica": 1, "model": "m", "port": 1, "leader": identity, "members": [], "stop": null})
}

#[test]
fn a_record_whose_process_id_is_a_strangers_now_hits_nobody() {
    let place = tempfile::tempdir().unwrap();
    let mut bystander = Bystander::new();
    let pid = bystander.0.id();
    let instance = dead_instance(place.path(), &record_of(pid, stat_field(pid, 22) - 1));
    drop(open(place.path()));
    assert!(bystander.is_well());
    assert!(!instance.exists());
}

#[test]
fn a_recorded_process_with_another_instances_mark_is_left_alone() {
    let place = tempfile::tempdir().unwrap();
    let marked = Command::new("sleep").arg("600").env("SLUICE_OWNER", "other/r1").spawn().unwrap();
    let mut bystander = Bystander(marked);
    let pid = bystander.0.id();
    eventually("the mark can be read", || {
        let environment = std::fs::read_to_string(format!("/proc/{pid}/environ")).ok()?;
        environment.contains("SLUICE_OWNER=other/r1").then_some(())
    });
    dead_instance(place.path(), &record_of(pid, stat_field(pid, 22)));
    drop(open(place.path()));
    assert!(bystander.is_well());
}

#[test]
fn a_recorded_process_that_wrote_over_its_environment_is_reclaimed() {
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new("sleep");
    let mut leftover = Bystander(command.arg("600").env_clear().spawn().unwrap());
    let pid = leftover.0.id();
    dead_instance(place.path(), &record_of(pid, stat_field(pid, 22)));
    drop(open(place.path()));
    eventually("it was ended", || (!leftover.is_well()).then_some(()));
}

#[test]
fn a_stop_command_runs_for_what_outlived_a_killed_sluice() {
    let place = tempfile::tempdir().unwrap();
    let note = place.path().join("note");
    let record = serde_json::json!({
        "replica": 1, "model": "m", "port": 1, "leader": null, "members": [],
        "stop": {
            "arguments": ["sh", "-c", format!("echo stopped > {}", note.display())],
            "directory": null, "deadline_ms": 10_000,
        },
    });
    let instance = dead_instance(place.path(), &record);
    drop(open(place.path()));
    assert_eq!(std::fs::read_to_string(note).unwrap(), "stopped\n");
    assert!(!instance.exists());
}

#[test]
fn what_is_no_instances_in_the_state_directory_stays() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    let (half_made, strange) = (state.join("f".repeat(32)), state.join("journal"));
    std::fs::create_dir_all(&half_made).unwrap();
    std::fs::create_dir_all(&strange).unwrap();
    std::fs::write(strange.join("file"), "kept").unwrap();
    drop(open(place.path()));
    assert!(!half_made.exists());
    assert_eq!(std::fs::read_to_string(strange.join("file")).unwrap(), "kept");
}

#[test]
fn a_state_directory_that_others_can_write_to_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let options = LocalOptions { state_directory: Some(place.path().to_owned()), ..LocalOptions::default() };
    let error = LocalBackend::open(options).err().unwrap().to_string();
    assert!(error.contains("can be written to by others"), "{error}");
}

#[test]
fn fc_31_as_process_1_nothing_stays_unreaped() {
    let place = tempfile::tempdir().unwrap();
    let namespaces = ["-Upfr", "--mount-proc"];
    let permitted = Command::new("unshare").args(namespaces).arg("true").output();
    if !permitted.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: this system does not permit a process-id namespace");
        return;
    }
    let inner = small("init", place.path());
    let mut command = Command::new("unshare");
    // An orphan that Sluice did not start ends up with process 1 as well.
    let before = "(sleep 0.2 &); exec \"$@\"";
    command.args(namespaces).args(["sh", "-c", before, "sh"]).arg(inner.get_program()).args(inner.get_args());
    command.env(ROLE, "init").env(PLACE, place.path());
    let output = command.output().unwrap();
    let verdict = std::fs::read_to_string(place.path().join("verdict")).unwrap_or_default();
    assert_eq!(verdict, "good", "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn records_are_kept_while_a_replica_lives_and_no_longer() {
    let mut bench = Bench::new();
    bench.launch("m", Launch::Process(replica(&[])));
    let id = bench.start(1, "m");
    bench.ready(id).await;
    let state = bench.path("state");
    let count = || {
        let instances = std::fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().path());
        let files = instances.filter(|path| path.is_dir()).flat_map(|path| std::fs::read_dir(path).unwrap());
        files.filter(|file| file.as_ref().unwrap().file_name().to_str().unwrap().starts_with("r1")).count()
    };
    assert_eq!(count(), 1);
    bench.stop(id).await;
    assert_eq!(count(), 0);
}
