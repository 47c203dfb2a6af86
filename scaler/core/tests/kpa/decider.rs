// SPDX-License-Identifier: Apache-2.0
//! Every recorded line of the decider: target resolution, windows, averages, decisions, through the step that the live
//! loop takes.

use serde_json::Value;
use sluice_core::kpa::{Algorithm, Autoscaler, Averages, Report, Settings, Verdict, decider, zero};
use sluice_core::{Core, Elsewhere, Event, Micros, Source};

use crate::{live, records};

pub const FILES: [&str; 2] = ["decider.jsonl.gz", "decider-more.jsonl.gz"];

#[test]
fn targets_windows_and_rates_resolve_as_recorded() {
    for line in records::lines(&FILES) {
        let (settings, want) = (records::settings(&line["config"]), &line["resolved"]);
        let target = settings.resolve();
        let got = serde_json::json!({
            "target": target.target,
            "total": target.total,
            "tbc": settings.target_burst_capacity,
            "panic_threshold": settings.panic_threshold(),
            "stable_window_s": settings.window.0 / 1_000_000,
            "panic_window_s": settings.panic_window().0 / 1_000_000,
            "max_scale_up_rate": settings.max_scale_up_rate,
            "max_scale_down_rate": settings.max_scale_down_rate,
            "scale_down_delay_s": settings.scale_down_delay.0 / 1_000_000,
            "activation_scale": settings.activation_scale,
            "initial_scale": settings.initial_scale,
            "min_scale": if settings.reachable() { settings.min_scale } else { 0 },
            "max_scale": settings.max_scale,
            "activator_capacity": settings.activator_capacity,
            "ebc_at_creation": decider::excess_at_creation(&settings),
        });
        for (key, value) in got.as_object().unwrap() {
            assert_eq!(value.as_f64(), want[key].as_f64(), "{}: {key}", line["id"]);
        }
        assert_eq!(settings.reachable(), want["reachable"].as_bool().unwrap(), "{}", line["id"]);
        assert_eq!(settings.scraped(), want["scraped"].as_bool().unwrap(), "{}", line["id"]);
    }
}

#[test]
fn every_recorded_decision_is_taken_again() {
    let (mut lines, mut own_pace, mut decisions) = (0, 0, 0);
    for line in records::lines(&FILES).iter().filter(|line| line["kind"] != "loop") {
        let run = replay(line);
        decisions += run.decisions.len();
        own_pace += usize::from(run.own_pace);
        lines += 1;
    }
    assert_eq!((lines, own_pace, decisions), (1_243, 481, 66_424));
}

/// What happens at one millisecond, in the order that the recording prescribes.
#[derive(Clone, PartialEq, PartialOrd)]
enum Input {
    Change(usize),
    Create,
    Ready(i64),
    Report(usize),
    Given(usize),
    Decide(usize),
}

/// Lives through a line and compares everything that was recorded.
pub fn replay(line: &Value) -> Run<'_> {
    let decisions = list(&line["out"], "ms");
    let created = line["create_ms"].as_f64().unwrap();
    let due = (1..).map(|k| created + 2_000.0 * f64::from(k));
    let mut run = Run {
        line,
        settings: records::settings(&line["config"]),
        core: Core::new(),
        created: false,
        own_pace: due.zip(decisions).all(|(due, ms)| ms.as_f64() == Some(due)),
        early: Vec::new(),
        ready: 0,
        now: Micros::ZERO,
        decisions: Vec::new(),
    };
    for (ms, input) in inputs(line) {
        run.now = Micros((ms * 1_000.0).round() as u64);
        run.take(&input);
    }
    run
}

fn list<'a>(line: &'a Value, key: &str) -> &'a [Value] {
    line[key].as_array().map_or(&[], Vec::as_slice)
}

/// All inputs in the order of time. A late report comes right after the report before it.
fn inputs(line: &Value) -> Vec<(f64, Input)> {
    let mut all = vec![(line["create_ms"].as_f64().unwrap(), Input::Create)];
    let changes = list(line, "changes").iter().enumerate();
    all.extend(changes.map(|(i, change)| (change["ms"].as_f64().unwrap(), Input::Change(i))));
    let ready = list(line, "ready").iter();
    all.extend(ready.map(|pair| (pair[0].as_f64().unwrap(), Input::Ready(pair[1].as_i64().unwrap()))));
    let mut latest = f64::MIN;
    for (i, report) in list(line, "rec").iter().enumerate() {
        latest = latest.max(report[0].as_f64().unwrap() * 1_000.0);
        all.push((latest, Input::Report(i)));
    }
    let given = list(line, "forced").iter().enumerate();
    all.extend(given.map(|(i, triple)| (triple[0].as_f64().unwrap() * 1_000.0, Input::Given(i))));
    let decisions = list(&line["out"], "ms").iter().enumerate();
    all.extend(decisions.map(|(i, ms)| (ms.as_f64().unwrap(), Input::Decide(i))));
    all.sort_by(|a, b| a.partial_cmp(b).unwrap());
    all
}

/// One line, lived through by a core that is told of replicas elsewhere. Where the decisions keep the core's own pace,
/// every two seconds from the creation on, only time is told; otherwise each decision is asked for.
pub struct Run<'a> {
    line: &'a Value,
    settings: Settings,
    core: Core,
    created: bool,
    own_pace: bool,
    /// Reports from before the creation: the collector is there from the start.
    early: Vec<Event>,
    ready: i64,
    now: Micros,
    /// What was decided, by the millisecond.
    pub decisions: Vec<(u64, Verdict)>,
}

impl Run<'_> {
    fn take(&mut self, input: &Input) {
        match *input {
            Input::Change(i) => {
                self.settings = records::settings(&self.line["changes"][i]["config"]);
                if self.created {
                    self.configure();
                }
            }
            Input::Create => {
                self.created = true;
                self.configure();
                self.step(&elsewhere(Elsewhere::Ready(self.counted())));
                for early in std::mem::take(&mut self.early) {
                    self.step(&early);
                }
            }
            Input::Ready(n) => {
                self.ready = n;
                if self.created {
                    self.step(&elsewhere(Elsewhere::Ready(self.counted())));
                }
            }
            Input::Report(i) => self.report(&self.line["rec"][i]),
            Input::Given(i) => {
                let triple = &self.line["forced"][i];
                let averages =
                    Averages { stable: triple[1].as_f64().unwrap(), panic: triple[2].as_f64().unwrap() };
                self.step(&elsewhere(Elsewhere::Averages(averages)));
            }
            Input::Decide(i) => self.decide(i),
        }
    }

    fn configure(&mut self) {
        let fleet = live::fleet(self.settings.clone(), Source::Elsewhere);
        self.step(&Event::Configure(fleet));
    }

    fn step(&mut self, event: &Event) {
        self.core.step(self.now, event, &mut Vec::new());
    }

    /// -1: the lookup fails; -2: it finds nothing.
    fn counted(&self) -> Option<u32> {
        (self.ready != -1).then(|| self.ready.max(0) as u32)
    }

    fn report(&mut self, entry: &Value) {
        let at = |i: usize| entry[i].as_f64().unwrap();
        let second = at(0).floor() as i64;
        let report = match entry.as_array().unwrap().len() {
            2 => Report { concurrency: at(1), count: at(1), ..Report::default() },
            _ => {
                Report { concurrency: at(1), proxied_concurrency: at(2), count: at(3), proxied_count: at(4) }
            }
        };
        let told = elsewhere(Elsewhere::Report { second, report });
        match self.created {
            true => self.step(&told),
            false => self.early.push(told),
        }
    }

    fn decide(&mut self, i: usize) {
        let (out, id) = (&self.line["out"], &self.line["id"]);
        let told = |key: &str| out[key][i].as_f64().unwrap();
        match self.own_pace {
            true => self.step(&Event::Tick),
            false => self.step(&elsewhere(Elsewhere::Decide)),
        }
        let live = self.core.kpa(&live::MODEL.into()).unwrap();
        let (verdict, decider) = (live.verdict().unwrap(), live.autoscaler().decider());
        let context = format!("{id} at {} ms: {verdict:?}", out["ms"][i]);
        let averages = match verdict {
            Verdict::Decided(decision) => {
                assert_eq!(told("valid"), 1.0, "{context}");
                assert_eq!(told("desired"), f64::from(decision.desired), "{context}");
                assert_eq!(told("ebc"), f64::from(decision.excess_burst_capacity), "{context}");
                Some(decision.averages)
            }
            Verdict::NoData(_) | Verdict::ReadyUnknown => {
                assert_eq!((told("valid"), told("desired")), (0.0, -1.0), "{context}");
                None
            }
        };
        if let Some(averages) = averages {
            let same = |a: f64, b: f64| match self.settings.algorithm {
                Algorithm::Linear => a == b,
                Algorithm::WeightedExponential => (a - b).abs() <= 1e-12 * a.abs().max(b.abs()),
            };
            assert!(same(averages.stable, told("stable")), "{context}: stable {}", told("stable"));
            assert!(same(averages.panic, told("panic")), "{context}: panic {}", told("panic"));
        }
        assert_eq!(told("in_panic") == 1.0, decider.in_panic(), "{context}");
        assert_eq!(told("panic_memory"), f64::from(decider.panic_memory()), "{context}");
        let activators = decider::activators(&self.settings, self.ready.max(0) as u32);
        assert_eq!(told("activators"), f64::from(activators), "{context}");
        let verdict = verdict.clone();
        if let Some(bounded) = out["bounded"][i].as_f64().filter(|&n| n >= 0.0) {
            self.check_bounded(bounded, &context);
        }
        self.decisions.push((self.now.as_millis(), verdict));
    }

    /// Closed loops know the count after bounds too; the model's way to zero is another file's matter.
    fn check_bounded(&self, bounded: f64, context: &str) {
        let status = self.core.status(self.now);
        let desired = status.models.first().unwrap().desired;
        let live = self.core.kpa(&live::MODEL.into()).unwrap();
        if matches!(live.rule(), zero::Rule::Decider | zero::Rule::MinScale | zero::Rule::MaxScale) {
            assert_eq!(bounded, f64::from(desired), "{context}");
        }
    }
}

fn elsewhere(told: Elsewhere) -> Event {
    Event::Elsewhere(live::MODEL.into(), told)
}

#[test]
fn the_loop_decides_every_two_seconds_and_at_pokes_and_tells_what_is_news() {
    let lines = records::lines(&FILES);
    let lines: Vec<_> = lines.iter().filter(|line| line["kind"] == "loop").collect();
    assert_eq!(lines.len(), 10);
    for line in lines {
        let (decisions, wakes) = run_loop(line);
        let told = |key: &str| line[key].as_array().cloned().unwrap_or_default();
        assert_eq!(decisions, told("decisions"), "{}", line["id"]);
        assert_eq!(wakes, told("wakes"), "{}", line["id"]);
    }
}

/// Decisions and wake-ups as the recording writes them.
fn run_loop(line: &Value) -> (Vec<Value>, Vec<Value>) {
    let number = |value: &Value| value.as_f64().unwrap();
    let (created, end) = (number(&line["create_ms"]), number(&line["end_ms"]));
    // 0 is readiness, 1 a report, 2 a poke, 3 a tick.
    let mut inputs: Vec<(f64, u8, usize)> = Vec::new();
    inputs.extend(list(line, "ready").iter().enumerate().map(|(i, pair)| (number(&pair[0]), 0, i)));
    inputs.extend(list(line, "rec").iter().enumerate().map(|(i, pair)| (number(&pair[0]) * 1e3, 1, i)));
    inputs.extend(list(line, "pokes").iter().enumerate().map(|(i, poke)| (number(&poke[0]), 2, i)));
    let ticks = (1..).map(|k| created + 2_000.0 * f64::from(k)).take_while(|&at| at <= end);
    inputs.extend(ticks.map(|at| (at, 3, 0)));
    inputs.sort_by(|a, b| a.partial_cmp(b).unwrap());
    let micros = |ms: f64| Micros((ms * 1e3).round() as u64);
    let report = |value: f64| Report { concurrency: value, count: value, ..Report::default() };
    let mut ready = line["ready"][0][1].as_u64().unwrap() as u32;
    let mut scaler = Autoscaler::new(records::settings(&line["config"]), micros(created), ready);
    let (mut decisions, mut wakes) = (Vec::new(), Vec::new());
    for (ms, what, i) in inputs {
        let decide = match what {
            0 => {
                ready = line["ready"][i][1].as_u64().unwrap() as u32;
                false
            }
            1 => {
                let second = number(&line["rec"][i][0]).floor() as i64;
                scaler.record(second, &report(number(&line["rec"][i][1])));
                false
            }
            2 => {
                let poke = report(number(&line["pokes"][i][1]));
                match line["pokes"][i][2] == 1 {
                    true => scaler.poke(micros(ms), &poke),
                    false => scaler.pokeable(&poke),
                }
            }
            _ => true,
        };
        if !decide {
            continue;
        }
        let (verdict, news) = scaler.decide(micros(ms), Some(ready));
        let (valid, desired, ebc) = match &verdict {
            Verdict::Decided(d) => (1, d.desired, d.excess_burst_capacity),
            _ => (0, 0, 0),
        };
        decisions.push(serde_json::json!([ms as u64, valid, desired, ebc]));
        if news {
            wakes.push(serde_json::json!([ms as u64, desired, ebc]));
        }
    }
    (decisions, wakes)
}
