// SPDX-License-Identifier: Apache-2.0
//! Every recorded reconcile: bounds, initial scale, scale to zero, conditions, path.

use serde_json::Value;
use sluice_core::Micros;
use sluice_core::kpa::{Activity, Answer, Outcome, Path, Settings, Sight, Standing};

use crate::records;

/// In it the path belongs to another model, which nothing in its input tells: a refusal of Kubernetes objects.
const NOT_OWNED: &str = "missing/sks-not-owned";

#[test]
fn every_recorded_reconcile_is_decided_again() {
    let mut count = 0;
    for line in records::lines(&["scale-to-zero.jsonl.gz"]) {
        let mut settings = vec![(0.0, records::settings(&line["config"]))];
        for change in line["changes"].as_array().into_iter().flatten() {
            settings.push((change["ms"].as_f64().unwrap(), records::settings(&change["config"])));
        }
        let mut former = None;
        for step in line["steps"].as_array().unwrap() {
            if line["id"] != NOT_OWNED {
                let ms = step["in"]["ms"].as_f64().unwrap();
                let (_, settings) = settings.iter().rfind(|(from, _)| *from <= ms).unwrap();
                former = Some(replay(&line["id"], settings, step, former));
                count += 1;
            }
        }
    }
    assert_eq!(count, 7_461);
}

/// Time zero of a line: states may have begun before it.
const ORIGIN: Micros = Micros::from_secs(10_000);

fn replay(id: &Value, settings: &Settings, step: &Value, former: Option<Standing>) -> Standing {
    let found = found(&step["in"]);
    if let Some(former) = former {
        // What the machine itself remembers is what the next reconcile found.
        let since = if former.activity.is_none() { found.since } else { former.since };
        assert_eq!(Standing { since, ..former }, found, "{id} at {} ms", step["in"]["ms"]);
    }
    let (outcome, standing) = reconcile(settings, step);
    check(id, step, &outcome, &standing);
    standing
}

/// What a recorded reconcile found.
fn found(seen: &Value) -> Standing {
    let now = ORIGIN.after(micros(&seen["ms"]));
    Standing {
        activity: match (seen["active"].as_str().unwrap(), seen["reason"].as_str()) {
            ("", _) => None,
            ("True", _) => Some(Activity::Active),
            ("Unknown", _) => Some(Activity::Activating),
            (_, Some("TimedOut")) => Some(Activity::TimedOut),
            _ => Some(Activity::Idle),
        },
        since: now.since(micros(&seen["in_state_ms"])),
        initialized: seen["initialized"].as_bool().unwrap(),
        reported: seen["status_desired"].as_i64().map(|n| u32::try_from(n).ok()),
    }
}

/// One recorded reconcile, decided again.
pub fn reconcile(settings: &Settings, step: &Value) -> (Outcome, Standing) {
    let seen = &step["in"];
    let mut standing = found(seen);
    let sight = Sight {
        answer: Answer {
            desired: u32::try_from(seen["decider_desired"].as_i64().unwrap()).ok(),
            excess_burst_capacity: seen["decider_ebc"].as_i64().unwrap() as i32,
        },
        ready: seen["ready"].as_u64().unwrap() as u32,
        asked: seen["replicas"].as_u64().unwrap() as u32,
        path_known: seen["sks_private"] == true,
        path: if seen["sks_mode"] == "Serve" { Path::Serve } else { Path::Proxy },
        backed: if seen["backed_ms"] == -1 { Micros::ZERO } else { micros(&seen["backed_ms"]) },
        probe: seen["probe"] == "ok",
    };
    let outcome = standing.reconcile(settings, ORIGIN.after(micros(&seen["ms"])), &sight);
    (outcome, standing)
}

fn check(id: &Value, step: &Value, outcome: &Outcome, standing: &Standing) {
    let (seen, out) = (&step["in"], &step["out"]);
    let (active, reason) = match standing.activity.unwrap() {
        Activity::Active => ("True", None),
        Activity::Activating => ("Unknown", Some("Queued")),
        Activity::Idle => ("False", Some("NoTraffic")),
        Activity::TimedOut => ("False", Some("TimedOut")),
    };
    let failed = outcome.probed == Some(false);
    let got = serde_json::json!({
        "patch": outcome.patch,
        "active": active,
        "reason": reason,
        "initialized": standing.initialized,
        "status_desired": standing.reported.unwrap().map_or(-1, i64::from),
        "sks_mode": if outcome.path == Path::Serve { "Serve" } else { "Proxy" },
        "activators": outcome.activators,
        "enqueue_after_ms": outcome.again.map(|after| vec![after.as_millis()]),
        "sync_probes": outcome.probed.map(|_| 1),
        "async_probe_started": (failed && seen["async_probe_running"] != true).then_some(true),
    });
    for (key, value) in got.as_object().unwrap() {
        assert_eq!(*value, out[key], "{id} at {} ms: {key} of {outcome:?}", seen["ms"]);
    }
}

fn micros(ms: &Value) -> Micros {
    Micros((ms.as_f64().unwrap() * 1_000.0).round() as u64)
}
