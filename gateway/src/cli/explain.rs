// SPDX-License-Identifier: Apache-2.0
//! `sluice explain`: the last decisions about a model, in words.

use std::fmt::Write;

use clap::{Args, ValueEnum};

use super::args::AdminArgs;
use super::client::Client;
use super::console::Console;
use super::exit::Failure;
use super::table::short;
use crate::admin::api::List;
use crate::admin::decisions::{Decision, Kpa};
use crate::admin::path;

/// `sluice explain`.
#[derive(Clone, Debug, Args)]
#[command(before_help = "\
Examples:
  sluice explain gemma                  why it has the replicas that it has
  sluice explain gemma -n 50            and what was decided before
  sluice explain gemma -o json          with every number, for a script")]
pub struct ExplainArgs {
    /// The model.
    #[arg(value_name = "MODEL", add = super::shell::model_names())]
    pub model: String,
    /// Decisions, the latest last.
    #[arg(short = 'n', long = "last", default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub last: u32,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    pub output: Form,
    /// Where the running Sluice is.
    #[command(flatten)]
    pub admin: AdminArgs,
}

/// Form of the decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// In words.
    Text,
    /// The API's JSON.
    Json,
    /// The same as YAML.
    Yaml,
}

/// Carries out `sluice explain`.
pub async fn explain(args: ExplainArgs, console: &mut Console<'_>) -> Result<(), Failure> {
    let client = Client::new(&args.admin)?;
    let path = format!("/api/v1/decisions?model={}&limit={}", path::encode(&args.model), args.last);
    let list: List<Decision> = client.get(&path).await?;
    match args.output {
        Form::Json => console.json(&list),
        Form::Yaml => console.yaml(&list),
        Form::Text if list.items.is_empty() => {
            console.say("nothing was decided about it yet");
            Ok(())
        }
        Form::Text => {
            let texts: Vec<String> = list.items.iter().map(words).collect();
            console.print(&texts.join("\n"))
        }
    }
}

/// One decision; nothing in it can steer a terminal.
pub(super) fn words(decision: &Decision) -> String {
    let change = match decision.before == decision.after {
        true => format!("stays at {}", decision.after),
        false => format!("{} -> {}", decision.before, decision.after),
    };
    let mut out = format!("{}  desired {change}: {}\n", decision.at, decision.rule);
    let mut line = |name: &str, text: String| {
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let _ = writeln!(out, "  {name:<9} {text}");
    };
    line("load", load(decision));
    if let Some(sized) = &decision.sized {
        let want = sized.want.map_or_else(|| "an unknown number".to_owned(), |n| n.to_string());
        let window = sized.window_largest;
        let target = sized.target;
        line(
            "wants",
            format!("{want} at {target} each, at most {window} in the window; asks for {}", sized.asked),
        );
    }
    if let Some(kpa) = &decision.kpa {
        line(
            "averages",
            format!("{} stable, {} panic; {} each", two(kpa.stable), two(kpa.panic), two(kpa.target)),
        );
        line("wants", kpa_wants(kpa));
    }
    for limit in &decision.limits {
        let why = if limit.why.is_empty() { String::new() } else { format!(" ({})", limit.why) };
        line("limit", format!("{}: {} -> {}{why}", limit.kind, limit.before, limit.after));
    }
    let known = &decision.inputs;
    line(
        "replicas",
        format!("{} ready, {} starting, {} leaving", known.ready, known.starting, known.leaving),
    );
    for deed in &decision.deeds {
        line("did", deed.clone());
    }
    out
}

/// One decision in a line, for a screen.
pub fn in_a_line(decision: &Decision) -> String {
    let change = match decision.before == decision.after {
        true => format!("stays at {}", decision.after),
        false => format!("{} -> {}", decision.before, decision.after),
    };
    let line = format!("{}  desired {change}: {}; load {}", decision.at, decision.rule, load(decision));
    line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// From averages to the decider's answer.
fn kpa_wants(kpa: &Kpa) -> String {
    let held = kpa.held_by_panic.map_or_else(String::new, |held| format!("; panic holds {held}"));
    let [stable, panic, least, most] = [kpa.want_stable, kpa.want_panic, kpa.least, kpa.most].map(two);
    format!(
        "{stable} stable, {panic} panic, from {least} to {most} at a time{held}; asks for {} ({})",
        kpa.desired, kpa.rule
    )
}

/// With at most two digits behind the point, and zero without a sign.
fn two(number: f64) -> f64 {
    (number * 100.0).round() / 100.0 + 0.0
}

fn load(decision: &Decision) -> String {
    let known = &decision.inputs;
    match (known.in_flight, known.queued, known.idle_ms) {
        (Some(0), Some(0), Some(idle)) => format!("none for {}", short(idle)),
        (Some(in_flight), Some(queued), _) => format!("{in_flight} in flight, {queued} waiting"),
        _ => "not known".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::decisions::{Inputs, Limit, Sized};

    fn kpa() -> Kpa {
        Kpa {
            stable: 12.345_678,
            panic: 40.0,
            target: 7.0,
            ready: 2,
            want_stable: 2.0,
            want_panic: 6.0,
            held_by_panic: Some(7),
            most: 2_000.0,
            least: 1.0,
            desired: 7,
            excess_burst_capacity: -200,
            rule: "held by panic".into(),
            min: 0,
            max: 0,
        }
    }

    #[test]
    fn a_decision_is_told_with_its_numbers_and_limits() {
        let decision = Decision {
            number: 7,
            at: "2031-05-06T07:08:09.123Z".into(),
            model: "gemma".into(),
            before: 1,
            after: 2,
            rule: "maxReplicas".into(),
            inputs: Inputs {
                in_flight: Some(4),
                queued: Some(9),
                idle_ms: None,
                ready: 1,
                starting: 1,
                leaving: 0,
            },
            sized: Some(Sized {
                requests: Some(13),
                target: 4.0,
                want: Some(4),
                window_largest: 4,
                asked: 4,
            }),
            kpa: None,
            limits: vec![Limit { kind: "maxReplicas".into(), before: 4, after: 2, why: String::new() }],
            deeds: vec!["start r3".into(), "drain r1: \u{1b}[2J".into()],
        };
        assert_eq!(
            words(&decision),
            "2031-05-06T07:08:09.123Z  desired 1 -> 2: maxReplicas
  load      4 in flight, 9 waiting
  wants     4 at 4 each, at most 4 in the window; asks for 4
  limit     maxReplicas: 4 -> 2
  replicas  1 ready, 1 starting, 0 leaving
  did       start r3
  did       drain r1:  [2J
"
        );
        let by_kpa = Decision { sized: None, kpa: Some(kpa()), ..decision.clone() };
        let text = words(&by_kpa);
        assert!(text.contains("  averages  12.35 stable, 40 panic; 7 each\n"), "{text}");
        let wants = "2 stable, 6 panic, from 1 to 2000 at a time; panic holds 7; asks for 7 (held by panic)";
        assert!(text.contains(&format!("  wants     {wants}\n")), "{text}");
        let nothing = Kpa { stable: -0.0, want_stable: -0.0, ..kpa() };
        assert!(!words(&Decision { sized: None, kpa: Some(nothing), ..decision.clone() }).contains(" -0 "));
        let idle =
            Inputs { in_flight: Some(0), queued: Some(0), idle_ms: Some(300_000), ..decision.inputs.clone() };
        let idle = Decision { before: 0, after: 0, inputs: idle, ..decision };
        assert!(words(&idle).contains("desired stays at 0"));
        assert!(words(&idle).contains("none for 5m"));
    }
}
