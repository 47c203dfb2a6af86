// SPDX-License-Identifier: Apache-2.0
//! What shells and `man` get: completion in a real bash, and pages that a real formatter has nothing to say about.

use std::path::Path;
use std::process::Command;

use sluice_tests::harness::{Gateway, sluice_binary};

use super::support::{fleet, model};
use super::terminal::Screen;

#[tokio::test(flavor = "multi_thread")]
async fn bash_completes_commands_options_and_names_of_models() {
    let gw = Gateway::start(&fleet(&[model("gemma", "{}", &[]), model("granite", "{}", &[])])).await;
    tokio::task::block_in_place(|| {
        let binary = sluice_binary();
        let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
        let mut shell = Screen::open(Path::new("bash"), |command| {
            command.args(["--noprofile", "--norc", "-i"]).env("PATH", path).env("PS1", "ready> ");
            command.env("SLUICE_ADMIN", gw.admin.to_string()).env("INPUTRC", "/dev/null");
        });
        shell.shows("ready> ");
        shell.press("source <(sluice completion bash); echo 1 so''urced\n");
        shell.shows("1 sourced");
        // Two tabs list what is possible, one completes what is certain.
        shell.press("sluice \t\t");
        shell.shows("describe");
        shell.shows("explain");
        shell.press("expl\t");
        shell.shows("ready> sluice explain ");
        shell.press("\t\t");
        shell.shows("granite");
        shell.press("ge\t");
        shell.shows("sluice explain gemma ");
        shell.press("--las\t");
        shell.shows("sluice explain gemma --last");
    });
}

#[test]
fn manual_pages_are_well_formed() {
    let dir = tempfile::tempdir().unwrap();
    assert!(Command::new(sluice_binary()).arg("man").arg(dir.path()).status().unwrap().success());
    let mut pages: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|page| page.unwrap().path()).collect();
    pages.sort();
    assert!(pages.len() > 20, "{pages:?}");
    let linters: [&[&str]; 2] = [&["groff", "-man", "-Tutf8", "-ww", "-z"], &["mandoc", "-Tlint", "-Werror"]];
    let is_there = |linter: &&&[&str]| Command::new(linter[0]).arg("--version").output().is_ok();
    let mut used = 0;
    for linter in linters.iter().filter(is_there) {
        let output = Command::new(linter[0]).args(&linter[1..]).args(&pages).output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success() && said.is_empty(), "{linter:?}: {said}");
        used += 1;
    }
    if used == 0 {
        eprintln!("skipped: neither groff nor mandoc is installed");
    }
}
