// SPDX-License-Identifier: Apache-2.0
//! The journal that a Sluice at work has written is decided again, the same and otherwise.

use std::process::{Command, Output};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use sluice_tests::client::{Request, many};
use sluice_tests::harness::{Cost, Gateway, sluice_binary, turn};

use crate::support::{all_ok, fleet, model, secs};

fn replay(gw: &Gateway, args: &[&str]) -> Output {
    let mut command = Command::new(sluice_binary());
    command.arg("replay").args(args).arg("--config").arg(gw.config_path());
    command.env("XDG_STATE_HOME", gw.dir().join("state"));
    command.output().unwrap()
}

#[track_caller]
fn document(output: &Output, code: i32) -> Value {
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{err}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {err}"))
}

async fn six_requests(gw: &Gateway, name: &'static str) {
    let to = gw.data;
    let held = |_| Request::chat(name).act(json!({"events": 20, "gap": 50})).send(to);
    all_ok(&many(6, held).await);
}

#[tokio::test]
async fn a_journal_is_decided_again_the_same_and_with_other_settings() {
    let _turn = turn(Cost::Light).await;
    let own = ["maxReplicas: 6", "scaleTarget: 2", "idleAfter: 1s", "window: 500ms"];
    let kpa = ["compat: kpa", "maxReplicas: 3", "scaleTarget: 1.7", "window: 6s"];
    let mut gw = Gateway::start(&fleet(&[model("org/a.b", "{}", &own), model("k", "{}", &kpa)])).await;
    six_requests(&gw, "k").await;
    six_requests(&gw, "org/a.b").await;
    gw.settled("org/a.b", 0).await;
    gw.end(Signal::SIGKILL).await;
    gw.again().await;
    six_requests(&gw, "org/a.b").await;

    let live = document(&replay(&gw, &["-o", "json"]), 0);
    assert_eq!((&live["equal"], &live["recorded"]), (&true.into(), &live["replayed"]), "{live}");
    assert_eq!(live["runs"], 2, "a kill is between them: {live}");
    assert!(live["decisions"].as_u64().unwrap() >= 4, "{live}");
    let other = document(&replay(&gw, &["--set", "models.org/a.b.scaleTarget=6", "-o", "json"]), 0);
    let (what_if, first) = (&other["whatIf"], &other["whatIf"]["first"]);
    assert_eq!((&first["model"], &first["unchanged"]), (&"org/a.b".into(), &3.into()), "{what_if}");
    assert_eq!(first["supposed"], 1, "{what_if}");
    let words = replay(&gw, &["--set", "models.org/a.b.scaleTarget=6"]);
    let words = String::from_utf8_lossy(&words.stdout).into_owned();
    assert!(words.contains("1 of org/a.b would have been desired in place of 3"), "{words}");
    let unknown = replay(&gw, &["--set", "models.org/a.c.scaleTarget=6"]);
    assert_eq!(unknown.status.code(), Some(2));

    let dump = gw.admin(Request::get("/api/v1/journal").limit(secs(5.0))).await.expect(200).text();
    let file = gw.dir().join("dump");
    std::fs::write(&file, dump).unwrap();
    assert_eq!(document(&replay(&gw, &[file.to_str().unwrap(), "-o", "json"]), 0)["equal"], true);
    gw.end(Signal::SIGTERM).await;
    assert_eq!(document(&replay(&gw, &["-o", "json"]), 0)["equal"], true);
    gw.again().await;
    gw.leak_check().await;
}
