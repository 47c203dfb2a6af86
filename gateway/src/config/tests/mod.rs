// SPDX-License-Identifier: Apache-2.0
//! Documents in, settings or problems out: what the tests share.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod always;
mod kpa;
mod right;
mod wrong;

use std::time::Duration;

use sluice_core::ModelSpec;
use sluice_scaler::launch::{Launch, ProcessLaunch};

use super::*;

fn env(name: &str) -> Option<String> {
    match name {
        "SET" => Some("from-env".to_owned()),
        "NUMBER" => Some("3".to_owned()),
        "KEY" => Some("sk-env-secret".to_owned()),
        _ => None,
    }
}

fn load_text(text: &str) -> Result<Loaded, Report> {
    parse(text, "sluice.yaml", &env)
}

#[track_caller]
fn valid(text: &str) -> Loaded {
    load_text(text).unwrap_or_else(|report| panic!("{report}"))
}

/// One model `m` with these lines; its own keys begin on line 4, column 5.
fn model(lines: &str) -> String {
    let lines: String = lines.lines().map(|line| format!("    {line}\n")).collect();
    format!("models:\n  - name: m\n    command: [sh]\n{lines}")
}

fn spec(text: &str) -> ModelSpec {
    valid(text).settings.plan.fleet.models["m"].clone()
}

fn data(text: &str) -> ModelSettings {
    (*valid(text).settings.models["m"]).clone()
}

fn process(text: &str) -> ProcessLaunch {
    match &*valid(text).settings.plan.launches["m"] {
        Launch::Process(process) => process.clone(),
        Launch::Fixed(_) => panic!("not a process"),
    }
}

type At = (&'static str, usize, usize);

fn places(problems: &[Problem]) -> Vec<At> {
    problems.iter().map(|p| (p.code.id(), p.line, p.column)).collect()
}

#[track_caller]
fn errors(text: &str) -> Report {
    match load_text(text) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(report) => report,
    }
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}
