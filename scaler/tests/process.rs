// SPDX-License-Identifier: Apache-2.0
//! Child processes as replicas: start, readiness, end, and what is told about each.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::time::{Duration, Instant};

use sluice_core::{ModelName, ReplicaEvent, ReplicaId};
use sluice_scaler::launch::Launch;
use sluice_scaler::logs::Stream;
use sluice_scaler::{Backend, LocalOptions};
use support::{Bench, alive, eventually_async, number, process, replica, secret, shell, state};

#[tokio::test]
async fn starts_becomes_ready_and_stops() {
    let mut bench = Bench::new();
    let log = bench.path("log");
    bench.launch("m", Launch::Process(replica(&["--log", log.to_str().unwrap()])));
    let id = bench.start(1, "m");
    let address = bench.ready(id).await;
    assert!(address.socket.ip().is_loopback() && address.host.is_none() && !address.tls);
    assert!(tokio::net::TcpStream::connect(address.socket).await.is_ok());
    assert!(bench.text("log").contains("path /health"));
    let pid = bench.text("log").lines().find_map(|l| l.strip_prefix("leader ")?.parse().ok()).unwrap();
    assert_eq!(bench.stop(id).await, "stopped");
    assert_eq!(state(pid), None);
    assert!(std::net::TcpListener::bind(address.socket).is_ok());
}

#[tokio::test]
async fn two_replicas_have_two_ports() {
    let mut bench = Bench::new();
    bench.launch("m", Launch::Process(replica(&[])));
    let (one, two) = (bench.start(1, "m"), bench.start(2, "m"));
    let mut ports = std::collections::BTreeSet::new();
    while ports.len() < 2 {
        if let (_, ReplicaEvent::Ready(address)) = bench.event().await {
            ports.insert(address.socket.port());
        }
    }
    bench.backend.stop(one);
    bench.backend.stop(two);
}

#[tokio::test]
async fn a_start_of_a_living_replica_and_a_stop_of_an_absent_one_change_nothing() {
    let mut bench = Bench::new();
    let log = bench.path("log");
    bench.launch("m", Launch::Process(replica(&["--log", log.to_str().unwrap()])));
    let id = bench.start(1, "m");
    bench.start(1, "m");
    bench.backend.stop(ReplicaId(99));
    bench.ready(id).await;
    bench.start(1, "m");
    bench.stop(id).await;
    bench.backend.stop(id);
    assert_eq!(bench.text("log").matches("leader").count(), 1);
    bench.start(2, "m");
    bench.ready(ReplicaId(2)).await;
}

#[tokio::test]
async fn a_model_that_is_not_configured_is_gone_at_once() {
    let mut bench = Bench::new();
    let id = bench.start(1, "nobody");
    assert!(bench.gone(id).await.contains("nobody is not configured"));
}

#[tokio::test]
async fn readiness_is_followed_both_ways() {
    let mut bench = Bench::new();
    let status = bench.path("status");
    std::fs::write(&status, "503").unwrap();
    bench.launch("m", Launch::Process(replica(&["--status-file", status.to_str().unwrap()])));
    let id = bench.start(1, "m");
    let mut told = String::new();
    while !told.contains("answered 503") {
        told = bench.not_ready(id).await;
    }
    std::fs::write(&status, "204").unwrap();
    bench.ready(id).await;
    std::fs::write(&status, "302").unwrap();
    assert_eq!(bench.not_ready(id).await, "readiness probe answered 302 Found");
    std::fs::write(&status, "200").unwrap();
    bench.ready(id).await;
}

#[tokio::test]
async fn readiness_takes_as_many_successes_in_a_row_as_asked_for() {
    let mut bench = Bench::new();
    let log = bench.path("log");
    let mut launch = replica(&["--log", log.to_str().unwrap()]);
    launch.probe.successes = 4;
    launch.probe.ready_period = Duration::from_secs(600);
    bench.launch("m", Launch::Process(launch));
    let id = bench.start(1, "m");
    bench.ready(id).await;
    assert_eq!(bench.text("log").matches("path /health").count(), 4);
}

#[tokio::test]
async fn fc_29_slow_probes_do_not_stack() {
    let mut bench = Bench::new();
    let log = bench.path("log");
    let mut launch = replica(&["--answer-after", "0.3", "--log", log.to_str().unwrap()]);
    (launch.probe.period, launch.probe.successes) = (Duration::from_millis(10), 4);
    bench.launch("m", Launch::Process(launch));
    let id = bench.start(1, "m");
    bench.ready(id).await;
    let log = bench.text("log");
    let most = log.lines().filter_map(|line| line.strip_prefix("concurrent ")).max();
    assert_eq!(most, Some("1"), "{log}");
}

#[tokio::test]
async fn a_hung_replica_is_not_ready_any_more() {
    let mut bench = Bench::new();
    let log = bench.path("log");
    let mut launch = replica(&["--log", log.to_str().unwrap()]);
    launch.probe.timeout = Duration::from_millis(300);
    bench.launch("m", Launch::Process(launch));
    let id = bench.start(1, "m");
    bench.ready(id).await;
    let pid = bench.text("log").lines().find_map(|l| l.strip_prefix("leader ")?.parse().ok()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    assert_eq!(bench.not_ready(id).await, "readiness probe timed out after 300ms");
    bench.stop(id).await;
}

#[tokio::test]
async fn fc_28_a_failed_launch_tells_status_and_last_words_but_no_secret() {
    let mut bench = Bench::new();
    let mut launch =
        shell("echo \"loading with $TOKEN\" >&2; printf '\\033[31mno such weights\\033[0m\\n' >&2; exit 3");
    launch.env.insert("TOKEN".to_owned(), secret("hf_abcdefgh12345"));
    bench.launch("m", Launch::Process(launch));
    let id = bench.start(1, "m");
    let cause = bench.gone(id).await;
    assert_eq!(cause, "exited with status 3 before it was ready: loading with [secret] | no such weights");
    let lines = bench.backend.logs().tail(&"m".into(), 10);
    assert!(lines.iter().all(|line| !line.text.contains("hf_")), "{lines:?}");
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named() {
    let mut bench = Bench::new();
    bench.launch("m", Launch::Process(process(&["/no/such/program"])));
    bench.start(1, "m");
    let cause = bench.gone(ReplicaId(1)).await;
    assert!(cause.starts_with("cannot run \"/no/such/program\": No such file"), "{cause}");
    let mut launch = shell("true");
    launch.working_directory = Some("/no/such/place".into());
    bench.launch("m", Launch::Process(launch));
    bench.start(2, "m");
    let cause = bench.gone(ReplicaId(2)).await;
    assert_eq!(cause, "working directory \"/no/such/place\" does not exist");
}

#[tokio::test]
async fn a_signal_that_killed_it_is_named() {
    let mut bench = Bench::new();
    bench.launch("m", Launch::Process(shell("kill -9 $$")));
    bench.start(1, "m");
    let cause = bench.gone(ReplicaId(1)).await;
    assert!(cause.starts_with("was killed by") && cause.contains("KILL"), "{cause}");
}

#[tokio::test]
async fn fc_30_the_death_of_a_ready_replica_is_seen_without_a_probe() {
    let mut bench = Bench::new();
    let log = bench.path("log");
    let mut launch = replica(&["--log", log.to_str().unwrap()]);
    launch.probe.ready_period = Duration::from_secs(600);
    bench.launch("m", Launch::Process(launch));
    let id = bench.start(1, "m");
    bench.ready(id).await;
    let pid = bench.text("log").lines().find_map(|l| l.strip_prefix("leader ")?.parse().ok()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::SEGV).unwrap();
    let cause = bench.gone(id).await;
    assert!(cause.starts_with("was killed by") && cause.contains("SEGV"), "{cause}");
}

#[tokio::test]
async fn fc_39_a_family_that_ignores_sigterm_is_killed_at_the_deadline() {
    let mut bench = Bench::new();
    let log = bench.path("log");
    let mut launch = replica(&["--ignore-term", "--child", "--log", log.to_str().unwrap()]);
    launch.stop_deadline = Duration::from_millis(700);
    bench.launch("m", Launch::Process(launch));
    let id = bench.start(1, "m");
    let address = bench.ready(id).await;
    let _open = [
        std::net::TcpStream::connect(address.socket).unwrap(),
        std::net::TcpStream::connect(address.socket).unwrap(),
    ];
    let text = bench.text("log");
    let pid_of = |who: &str| text.lines().find_map(|l| l.strip_prefix(who)?.trim().parse().ok()).unwrap();
    let (leader, child): (i32, i32) = (pid_of("leader"), pid_of("child"));
    let begun = Instant::now();
    bench.stop(id).await;
    assert!(begun.elapsed() >= Duration::from_millis(700), "killed before the deadline");
    assert_eq!((state(leader), state(child)), (None, None));
    assert!(std::net::TcpListener::bind(address.socket).is_ok());
}

#[tokio::test]
async fn a_family_that_obeys_is_not_killed() {
    let mut bench = Bench::new();
    let note = bench.path("note");
    let script = format!(
        "sh -c 'trap \"sleep 0.3; echo done >> {0}; exit\" TERM; echo up > {0}; while :; do sleep 0.05; done' &\n\
         trap 'exit 0' TERM; while :; do sleep 0.05; done",
        note.display()
    );
    bench.launch("m", Launch::Process(shell(&script)));
    let id = bench.start(1, "m");
    eventually_async("the grandchild is up", || bench.text("note").contains("up").then_some(())).await;
    bench.stop(id).await;
    assert!(bench.text("note").contains("done"), "the grandchild was not given its time");
}

#[tokio::test]
async fn fc_31_what_a_dead_launcher_left_is_killed_wherever_it_went() {
    let mut bench = Bench::new();
    let [grouped, strayed, hidden] = ["grouped", "strayed", "hidden"].map(|name| bench.path(name));
    let script = format!(
        "sleep 600 & echo $! > {0}; setsid sh -c 'echo $$ > {1}; exec sleep 600' & \
         env -i sleep 600 & echo $! > {2}; \
         while [ ! -s {1} ]; do sleep 0.01; done; exit 2",
        grouped.display(),
        strayed.display(),
        hidden.display()
    );
    bench.launch("m", Launch::Process(shell(&script)));
    let id = bench.start(1, "m");
    let cause = bench.gone(id).await;
    assert_eq!(cause, "exited with status 2 before it was ready");
    for path in [grouped, strayed, hidden] {
        let pid = number(&path).unwrap();
        assert!(!alive(pid), "{path:?} is left");
    }
}

#[tokio::test]
async fn a_stop_reaches_what_left_group_and_environment() {
    let mut bench = Bench::new();
    let pid = bench.path("pid");
    let script = format!(
        "env -i setsid sh -c 'echo $$ > {0}; exec sleep 600' & trap 'exit 0' TERM; while :; do sleep 0.05; done",
        pid.display()
    );
    bench.launch("m", Launch::Process(shell(&script)));
    let id = bench.start(1, "m");
    let stray = eventually_async("the stray is up", || number(&pid)).await;
    bench.stop(id).await;
    assert!(!alive(stray));
}

#[tokio::test]
async fn the_stop_command_comes_before_sigterm_and_knows_port_and_pid() {
    let mut bench = Bench::new();
    let note = bench.path("note");
    let note = note.to_str().unwrap();
    let mut launch = shell(&format!(
        "echo \"run $$ $PORT\" >> {note}; trap 'echo term >> {note}; exit 0' TERM; while :; do sleep 0.05; done"
    ));
    launch.env.insert("KEY".to_owned(), secret("key-of-${PORT}"));
    let stop = ["sh", "-c", &format!("sleep 0.1; echo \"stop ${{PID}} ${{PORT}} $KEY\" >> {note}; echo bye")];
    launch.stop_command = Some(stop.map(str::to_owned).to_vec());
    bench.launch("m", Launch::Process(launch));
    let id = bench.start(1, "m");
    eventually_async("it runs", || bench.text("note").contains("run").then_some(())).await;
    bench.stop(id).await;
    let text = bench.text("note");
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
    let [run, stop, term] = lines.as_slice() else { panic!("{text}") };
    assert_eq!(term, &["term"]);
    assert_eq!(stop[..3], ["stop", run[1], run[2]]);
    assert_eq!(stop[3], format!("key-of-{}", run[2]));
    let lines = bench.backend.logs().tail(&"m".into(), 10);
    assert!(lines.iter().any(|line| &*line.text == "bye"), "{lines:?}");
}

#[tokio::test]
async fn a_stop_command_that_hangs_does_not_hold_up_the_end() {
    let mut bench = Bench::new();
    let pid = bench.path("pid");
    let mut launch = shell("sleep 600");
    launch.stop_deadline = Duration::from_millis(300);
    let stop = format!("echo $$ > {}; sleep 600", pid.display());
    launch.stop_command = Some(["sh", "-c", &stop].map(str::to_owned).to_vec());
    bench.launch("m", Launch::Process(launch));
    let id = bench.start(1, "m");
    bench.stop(id).await;
    assert!(!alive(number(&pid).unwrap()));
}

#[tokio::test]
async fn a_stop_command_runs_when_the_client_of_a_container_has_died() {
    let mut bench = Bench::new();
    let note = bench.path("note");
    let mut launch = shell("exit 1");
    let stop = format!("echo stopped > {}", note.display());
    launch.stop_command = Some(["sh", "-c", &stop].map(str::to_owned).to_vec());
    bench.launch("m", Launch::Process(launch));
    let id = bench.start(1, "m");
    bench.gone(id).await;
    assert_eq!(bench.text("note"), "stopped\n");
}

#[tokio::test]
async fn children_get_port_directory_environment_limit_and_nothing_else() {
    let mut bench = Bench::with(LocalOptions { open_files: Some(321), ..LocalOptions::default() });
    let leak = std::fs::File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&leak, rustix::io::FdFlags::empty()).unwrap();
    let mut launch = shell(
        "echo \"$PORT ${PORT} $FROM\"; pwd; ulimit -n; readlink /proc/self/fd/0; ls /proc/self/fd | wc -w; \
         ps -o pgid= -p $$ >/dev/null; echo \"$$ $(cut -d' ' -f5 /proc/$$/stat)\"",
    );
    launch.env.insert("FROM".to_owned(), secret("p${PORT}"));
    launch.working_directory = Some(bench.directory.path().to_owned());
    bench.launch("m", Launch::Process(launch));
    let id = bench.start(1, "m");
    bench.gone(id).await;
    let lines = bench.backend.logs().tail(&ModelName::from("m"), 10);
    let texts: Vec<&str> = lines.iter().map(|line| &*line.text).collect();
    let [ports, directory, limit, stdin, descriptors, ids] = texts.as_slice() else { panic!("{texts:?}") };
    let ports: Vec<&str> = ports.split(' ').collect();
    assert_eq!(ports[0], ports[1]);
    // The value of an environment entry counts as a secret.
    assert_eq!(ports[2], "[secret]");
    assert_eq!(*directory, bench.directory.path().canonicalize().unwrap().to_str().unwrap());
    assert_eq!(*limit, "321");
    assert_eq!(*stdin, "/dev/null");
    // Three streams, and the listing's own.
    assert_eq!(*descriptors, "4");
    let (pid, group) = ids.split_once(' ').unwrap();
    assert_eq!(pid, group);
}

#[tokio::test]
async fn output_is_kept_and_can_be_followed() {
    let mut bench = Bench::new();
    let model = ModelName::from("m");
    bench.launch("m", Launch::Process(shell("echo out; echo err >&2; exec sleep 600")));
    let mut follower = bench.backend.logs().follow(&model);
    let id = bench.start(7, "m");
    let mut seen = [follower.recv().await.unwrap(), follower.recv().await.unwrap()];
    seen.sort_by_key(|line| line.text.to_string());
    assert_eq!((&*seen[0].text, seen[0].stream, seen[0].replica), ("err", Stream::Stderr, id));
    assert_eq!((&*seen[1].text, seen[1].stream), ("out", Stream::Stdout));
    assert_eq!(bench.backend.logs().tail(&model, 10).len(), 2);
    bench.stop(id).await;
}

#[tokio::test]
async fn a_flood_of_output_does_not_block_the_child() {
    let mut bench = Bench::new();
    let script = "head -c 3000000 /dev/zero | tr '\\0' x; yes | head -n 50000 >&2; echo end >&2; exit 4";
    bench.launch("m", Launch::Process(shell(script)));
    let id = bench.start(1, "m");
    let cause = bench.gone(id).await;
    assert!(cause.starts_with("exited with status 4") && cause.ends_with("| y | end"), "{cause}");
    assert!(cause.len() < 600);
}

#[tokio::test]
async fn fc_47_a_refused_probe_is_named_and_the_key_is_sent() {
    let mut bench = Bench::new();
    let with_key = |key: Option<&str>| {
        let mut launch = replica(&["--key", "k2-secret"]);
        let headers = key.map(|key| ("authorization".to_owned(), secret(&format!("Bearer {key}"))));
        launch.probe.headers = headers.into_iter().collect();
        Launch::Process(launch)
    };
    bench.launch("right", with_key(Some("k2-secret")));
    bench.launch("wrong", with_key(Some("other-secret")));
    bench.launch("none", with_key(None));
    let right = bench.start(1, "right");
    bench.ready(right).await;
    bench.stop(right).await;
    for (id, model) in [(2, "wrong"), (3, "none")] {
        let id = bench.start(id, model);
        let cause = bench.gone(id).await;
        assert!(cause.starts_with("readiness probe answered 401 Unauthorized"), "{cause}");
    }
}

#[tokio::test]
async fn a_start_that_is_called_off_tells_what_it_waited_for() {
    let mut bench = Bench::new();
    bench.launch("m", Launch::Process(shell("echo still loading >&2; exec sleep 600")));
    let id = bench.start(1, "m");
    let mut told = String::new();
    while told != "readiness probe: connection refused: still loading" {
        told = bench.not_ready(id).await;
    }
    let cause = bench.stop(id).await;
    assert_eq!(cause, "stopped before it was ready; readiness probe: connection refused: still loading");
}

#[tokio::test]
async fn a_backend_that_is_dropped_takes_everything_with_it() {
    let mut bench = Bench::new();
    let pid = bench.path("pid");
    let script =
        format!("setsid sh -c 'echo $$ > {0}; exec sleep 600' & echo $$ >> {0}.leader; wait", pid.display());
    bench.launch("m", Launch::Process(shell(&script)));
    bench.start(1, "m");
    let stray = eventually_async("the stray is up", || number(&pid)).await;
    let leader = eventually_async("the leader is up", || number(&bench.path("pid.leader"))).await;
    let Bench { backend, events, directory, .. } = bench;
    tokio::task::spawn_blocking(move || drop(backend)).await.unwrap();
    eventually_async("both are gone", || (state(stray).is_none() && state(leader).is_none()).then_some(()))
        .await;
    drop((events, directory));
}
