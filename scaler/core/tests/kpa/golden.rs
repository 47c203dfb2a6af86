// SPDX-License-Identifier: Apache-2.0
//! Rows worked out by hand from the rules: what each decision must be. The recorded line of the same name has the inputs.
//!
//! Two sources that were made apart from each other, the rules on paper and the program's recording, agree with the
//! product here.

use sluice_core::kpa::{Activity, Path, Settings, Verdict, decider};

use crate::{decider as lines, records, zero};

/// Checkpoints: second, stable and panic average, desired replicas, panic (`P`) or not (`s`), excess burst capacity.
const DECISIONS: &[(&str, &str)] = &[
    ("D01", "2: 5 / 5 -> 1 s EBC -206"),
    ("D02", "2: 7 / 7 -> 1 s EBC -208"),
    ("D03", "2: 7.01 / 7.01 -> 2 P EBC -209"),
    ("D04", "2: 15 / 15 -> 3 s EBC -206"),
    ("D05", "2: 14 / 28 -> 4 P EBC -219"),
    ("D06", "2: 1 / 1 -> 1 s EBC -212"),
    ("D07", "2: 20 / 20 -> 3 P EBC -231"),
    ("D08", "2: 70 / 70 -> 6 P EBC -251"),
    ("D09", "2: 3 / 3 -> 3 s EBC -212"),
    ("D10", "2: 7 / 7 -> 5 s EBC -118"),
    ("D11", "2: 0.5 / 0.5 -> 2 s EBC -162"),
    ("D12", "2: 0 / 0 -> 1 s EBC -181"),
    ("D13", "2: 0 / 0 -> 0 s EBC -201"),
    ("D14", "2: 0 / 0 -> 9 s EBC -111"),
    ("D15", "2: 0 / 0 -> 1 s EBC -191"),
    ("D16", "2: 0 / 0 -> 0 s EBC -111"),
    ("D17", "2: 1 / 1 -> 3 s EBC -212"),
    ("D18", "2: 0.1 / 0.1 -> 3 s EBC -182"),
    ("D19", "2: 0 / 0 -> 0 s EBC -201"),
    ("D20", "2: 3.5 / 3.5 -> 5 s EBC -205"),
    ("D21", "2: 5 / 5 -> 1 s EBC 0"),
    ("D22", "2: 5 / 5 -> 1 s EBC -1"),
    ("D23", "2: 89 / 89 -> 2 s EBC 0"),
    ("D24", "2: 89 / 89.000001 -> 2 s EBC -1"),
    ("D25", "2: 0 / 0 -> 1 s EBC -11"),
    ("D26", "2: 0 / 1 -> 1 s EBC 88"),
    ("D27", "2: 1 / 1 -> 2 P EBC -212"),
    ("D28", "2: 1 / 1 -> 1 s EBC -212"),
    ("D29", "2: 60 / 60 -> 2 P EBC -201"),
    ("D30", "2: 60 / 60 -> 2 s EBC -131"),
    ("D31", "2: 12 / 12 -> 2 P EBC -213"),
    ("D32", "2: 14.5 / 14.5 -> 3 P EBC -216"),
    ("D33", "2: 30 / 50 -> 3 s EBC 0"),
    ("D34", "2: 30 / 50.1 -> 6 P EBC 0"),
    ("D35", "2: 21 / 21 -> 31 s EBC -1"),
    ("D36", "2: 21 / 21 -> 11 s EBC -1"),
    ("D37", "2: 350 / 350 -> 501 P EBC -1"),
    ("D38", "2: 4e-7 / 0 -> 1 s EBC -201"),
    (
        "W01",
        "60: 10 / 10 -> 1 s; 62: 11 / 20 -> 2 P; 64: 12 / 30 -> 3 P; 66: 13 / 40 -> 4 P; 68: 14 / 40 -> 4 P; 70: 15 / 40 -> 4 P; 74: 15 / 20 -> 4 P; 78: 15 / 10 -> 4 P; 126: 12 / 10 -> 4 P; 128: 11 / 10 -> 4 P; 130: 10 / 10 -> 2 s",
    ),
    ("W02", "2: 3 / 3 -> 7 P; 60: 3 / 3 -> 7 P; 62: 3 / 3 -> 3 s"),
    ("W03", "2: 0 / 0 -> 0 s; 4: 0 / 0 -> 0 s"),
    ("W04", "2: no decision"),
    (
        "W05",
        "0: 1 / 1 -> 2 P EBC -212; 2: 0.333333 / 0.333333 -> 2 P EBC -212; 4: 0.25 / 0.25 -> 2 P EBC -212",
    ),
    ("W06", "0: 2 / 2 -> 3 P EBC -213"),
    ("W07", "0: 1 / 1 -> 1 s EBC -212; 2: 30 / 30 -> 30 P EBC -241; 20: 30 / 30 -> 30 P EBC -241"),
    (
        "W08",
        "100: 0.333333 / 0 -> 1 s EBC -201; 110: 0.166667 / 0 -> 1 s EBC -201; 118: 0.033333 / 0 -> 1 s EBC -201; 120: 0 / 0 -> 0 s EBC -201",
    ),
    (
        "W09",
        "60: 10 / 10 -> 10 s; 66: 9 / 0 -> 9 s; 78: 7 / 0 -> 7 s; 90: 5 / 0 -> 5 s; 100: 3.333333 / 0 -> 5 s; 118: 0.333333 / 0 -> 5 s; 120: 0 / 0 -> 5 s",
    ),
    (
        "W10",
        "60: 10 / 10 -> 10 s; 66: 9.818182 / 0 -> 10 s; 78: 9.767442 / 0 -> 10 s; 90: 9.677419 / 0 -> 10 s; 110: 9.090909 / 0 -> 10 s; 114: 8.571429 / 0 -> 9 s; 118: 6.666667 / 0 -> 7 s; 120: 0 / 0 -> 5 s",
    ),
    ("W11", "10: 6 / 6 -> 6 s; 12: 6 / 6 -> 6 s; 14: 6 / 6 -> 6 s; 16: 3 / 6 -> 3 s; 20: 3 / 6 -> 3 s"),
    ("W12", "16: 3 / 3 -> 3 s; 18: 3 / 3 -> 3 s; 20: 3 / 3 -> 3 s; 22: 0 / 0 -> 0 s"),
    ("W13", "100: 0.216667 / 8 -> 1 s"),
    ("W14", "70: 8 / 8 -> 8 s"),
    ("W15", "0: 5 / 5 -> 5 P; 58: 5 / 0 -> 5 P; 60: 0 / 0 -> 5 P; 62: no decision"),
    ("W16", "6: 333.333333 / 200 -> 34 P"),
    ("W17", "0: 110 / 250 -> 25 P; 30: 180 / 400 -> 40 P; 60: 380 / 400 -> 40 P; 62: 390 / 400 -> 39 s"),
    ("W18", "2: 100 / 100 -> 10 P; 100: 100 / 100 -> 10 P; 200: 100 / 100 -> 10 P"),
    (
        "W19",
        "0: 40 / 40 -> 4 s; 2: 30 / 30 -> 4 s; 8: 10 / 10 -> 4 s; 10: 10 / 10 -> 3 s; 12: 10 / 10 -> 1 s; 14: 10 / 10 -> 1 s; 16: 25 / 25 -> 3 s; 18: 0 / 0 -> 3 s",
    ),
    (
        "W20",
        "0: 60 / 60 -> 6 P; 2: 5 / 5 -> 6 P; 60: 5 / 5 -> 6 P; 62: 5 / 5 -> 6 s; 88: 5 / 5 -> 6 s; 90: 5 / 5 -> 3 s; 92: 5 / 5 -> 3 s",
    ),
    ("W21", "0: 80 / 80 -> 8 s; 2: 0 / 0 -> 8 s; 4: 0 / 0 -> 0 s"),
    ("W22", "0: 0 / 0 -> 8 s; 2: 0 / 0 -> 4 s; 4: 0 / 0 -> 2 s; 6: 0 / 0 -> 1 s; 8: 0 / 0 -> 0 s"),
    (
        "W23",
        "60: 50 / 50 -> 5 s; 62: 59.166667 / 141.666667 -> 15 P; 66: 59.166667 / 141.666667 -> 15 P; 68: 59.166667 / 50 -> 15 P; 126: 50 / 50 -> 15 P; 128: 50 / 50 -> 5 s",
    ),
    ("W24", "10: 1 / 1 -> 1 s; 12: 1.333333 / 1 -> 2 s; 16: 1.333333 / 1 -> 2 s; 18: 1 / 1 -> 1 s"),
    (
        "W25",
        "2: 3.6 / 9.535841 -> 4 s; 6: 7.37856 / 9.999 -> 8 s; 10: 8.926258 / 9.999 -> 9 s; 20: 9.884708 / 9.999 -> 10 s; 70: 9.999985 / 9.999 -> 10 s; 72: 6.399985 / 0.463159 -> 7 s; 76: 2.621425 / 0 -> 3 s; 80: 1.073726 / 0 -> 2 s; 90: 0.115277 / 0 -> 1 s; 130: 0 / 0 -> 0 s",
    ),
    (
        "W26",
        "2: 10 / 10 -> 10 s; 20: 10 / 10 -> 10 s; 70: 10 / 10 -> 10 s; 72: 9.666667 / 6.666667 -> 10 s; 76: 9 / 0 -> 9 s; 80: 8.333333 / 0 -> 9 s; 90: 6.666667 / 0 -> 7 s; 130: 0 / 0 -> 0 s",
    ),
    ("W27", "0: 4 / 4 -> 4 P"),
    ("W28", "2: 60 / 60 -> 1 s EBC -71; 6: 60 / 60 -> 1 s EBC -71"),
];

/// Replicas asked for, or `keep`; then the seconds after which to look again.
const RECONCILES: &[(&str, &str)] = &[
    ("R01", "keep"),
    ("R02", "keep 630"),
    ("R03", "2"),
    ("R04", "keep 1"),
    ("R05", "keep 3"),
    ("R06", "keep 1"),
    ("R07", "0"),
    ("R08", "0"),
    ("R09", "keep 80"),
    ("R10", "0"),
    ("R11", "keep 18"),
    ("R12", "0"),
    ("R13", "keep"),
    ("R14", "0"),
    ("R15/True", "1"),
    ("R15/False", "1"),
    ("R15/Unknown", "1"),
    ("R16", "2"),
    ("R17", "0"),
    ("R18", "2"),
    ("R19", "5"),
    ("R20/not-initialized", "3"),
    ("R20/unreachable", "1"),
    ("R20/initialized", "1"),
    ("R21/decider-1", "10"),
    ("R21/decider-20", "5"),
    ("R22", "0"),
    ("R23", "keep"),
    ("R24", "keep"),
];

#[test]
fn rows_d_and_w_decide_as_worked_out() {
    let all = records::lines(&lines::FILES);
    for (id, checkpoints) in DECISIONS {
        let line = all.iter().find(|line| line["id"] == *id).unwrap();
        let taken = lines::replay(line).decisions;
        for checkpoint in checkpoints.split("; ") {
            let (second, want) = checkpoint.split_once(": ").unwrap();
            let ms = second.parse::<u64>().unwrap() * 1_000;
            let (_, verdict) = taken.iter().find(|(at, _)| *at == ms).unwrap();
            check(&format!("{id} at {second} s"), want, verdict);
        }
    }
}

fn check(context: &str, want: &str, verdict: &Verdict) {
    let Verdict::Decided(got) = verdict else {
        return assert_eq!(want, "no decision", "{context}");
    };
    let mut words = want.split([' ', '/']).filter(|word| !word.is_empty());
    let mut number = || words.next().unwrap().parse::<f64>().unwrap();
    let near = |a: f64, b: f64| (a - b).abs() < 1e-6;
    let (stable, panic) = (number(), number());
    assert!(near(stable, got.averages.stable), "{context}: {got:?}");
    assert!(near(panic, got.averages.panic), "{context}: {got:?}");
    assert_eq!(words.next(), Some("->"));
    assert_eq!(words.next(), Some(got.desired.to_string().as_str()), "{context}");
    assert_eq!(words.next(), Some(if got.in_panic { "P" } else { "s" }), "{context}");
    if words.next() == Some("EBC") {
        assert_eq!(words.next(), Some(got.excess_burst_capacity.to_string().as_str()), "{context}");
    }
}

#[test]
fn rows_r_reconcile_as_worked_out() {
    let all = records::lines(&["scale-to-zero.jsonl.gz"]);
    let first = |id: &str| {
        let line = all.iter().find(|line| line["id"] == id).unwrap();
        zero::reconcile(&records::settings(&line["config"]), &line["steps"][0])
    };
    for (id, want) in RECONCILES {
        let (outcome, _) = first(id);
        let count = outcome.patch.map_or("keep".to_owned(), |count| count.to_string());
        let again = outcome.again.map_or(String::new(), |again| format!(" {}", again.as_millis() / 1_000));
        assert_eq!(format!("{count}{again}"), *want, "{id}");
    }
    assert_eq!(first("R05").1.activity, Some(Activity::Idle), "R05 becomes inactive");
    assert_eq!(first("R13").0.probed, Some(false), "R13 waits for probes");
    assert_eq!(first("R14").0.probed, None, "R14 does not probe");
    assert_eq!(first("R22").1.activity, Some(Activity::TimedOut), "R22");
    assert_eq!(first("R24").1.activity, Some(Activity::Activating), "R24");
    let path = |id: &str| first(&format!("R25/{id}")).0.path;
    let paths = ["2,0", "2,-1", "0,5", "-1,inactive,0"].map(path);
    assert_eq!(paths, [Path::Serve, Path::Proxy, Path::Proxy, Path::Proxy], "R25");
}

/// R26 and R27. The sample of replicas to scrape (R28) has no use here: nothing is sampled.
#[test]
fn excess_at_creation_and_activators_are_as_worked_out() {
    let with = |target: Option<f64>, burst: f64| Settings {
        target,
        target_burst_capacity: burst,
        ..Settings::default()
    };
    let excess = [(None, 211.0), (None, 0.0), (None, -1.0), (Some(10.0), 10.5)]
        .map(|(target, burst)| decider::excess_at_creation(&with(target, burst)));
    assert_eq!(excess, [-111, 0, -1, 0], "R26");
    let activators = [(10, None, 211.0), (10, Some(10.0), -1.0), (50, Some(10.0), -1.0), (10, None, 0.0)]
        .map(|(ready, target, burst)| decider::activators(&with(target, burst), ready));
    assert_eq!(activators, [13, 2, 5, 2], "R27");
}
