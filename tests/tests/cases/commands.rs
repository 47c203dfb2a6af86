// SPDX-License-Identifier: Apache-2.0
//! The command line against a running gateway.

use std::process::Command;

use sluice_tests::harness::{Gateway, sluice_binary};

use super::support::{fleet, model};

/// Runs a command of the binary; exit code, stdout, stderr.
async fn sluice(gw: &Gateway, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(sluice_binary());
    command.args(args).env("SLUICE_ADMIN", gw.admin.to_string());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn orders_are_seen_through_and_told() {
    let gw = Gateway::start(&fleet(&[model("m", "{}", &["maxReplicas: 2"])])).await;
    let (code, out, err) = sluice(&gw, &["wake", "m", "--wait"]).await;
    assert_eq!((code, out.as_str()), (0, "m: ready\n"), "{err}");
    let (code, out, err) = sluice(&gw, &["scale", "m", "2", "--wait"]).await;
    assert_eq!((code, out.as_str()), (0, "m: ready\n"), "{err}");
    assert_eq!(sluice(&gw, &["scale", "m", "3"]).await.0, 5, "above maxReplicas");
    let (_, out, _) = sluice(&gw, &["describe", "model", "m"]).await;
    assert!(out.contains("2 ready, 0 starting") && out.contains("m: scale ordered"), "{out}");
    let (_, out, _) = sluice(&gw, &["explain", "m", "-n", "50"]).await;
    assert!(out.contains("desired 0 -> 1: wake order") && out.contains("did       start r0"), "{out}");
    assert_eq!(sluice(&gw, &["explain", "nobody"]).await.0, 4);
    let (code, out, err) = sluice(&gw, &["sleep", "m", "--wait"]).await;
    assert_eq!(code, 0, "{out}{err}");
    let (_, out, _) = sluice(&gw, &["events", "--model", "m"]).await;
    assert!(out.contains("m: sleep ordered"), "{out}");
}
