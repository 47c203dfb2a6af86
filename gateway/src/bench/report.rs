// SPDX-License-Identifier: Apache-2.0
//! The result as text or JSON (pure).

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::Form;
use super::tally::{Tally, Times};

const PERCENTILES: [(&str, f64); 4] = [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9)];

/// The result of a load that was begun for `duration`.
pub fn render(tally: &Tally, duration: Duration, form: Form) -> String {
    match form {
        Form::Table => table(tally, duration),
        Form::Json => document(tally, duration).to_string(),
    }
}

fn rows(tally: &Tally) -> [(&'static str, &Times); 3] {
    [("first byte", &tally.first), ("total", &tally.total), ("gap", &tally.gaps)]
}

fn table(tally: &Tally, duration: Duration) -> String {
    let seconds = duration.as_secs_f64().max(1e-9);
    let failed: u64 = tally.failures.values().sum();
    let mut out = format!(
        "requests   {} answered, {failed} not; {:.1} answers a second\nevents     {}, {:.1} a second\nbytes      {}\n",
        tally.answered,
        tally.answered as f64 / seconds,
        tally.events,
        tally.events as f64 / seconds,
        tally.bytes,
    );
    for (kind, count) in &tally.failures {
        let _ = writeln!(out, "failed     {count} x {kind}");
    }
    let _ = write!(out, "\n{:<12}", "ms");
    for (name, _) in PERCENTILES {
        let _ = write!(out, "{name:>11}");
    }
    let _ = writeln!(out, "{:>11}{:>10}", "max", "count");
    for (name, times) in rows(tally) {
        let _ = write!(out, "{name:<12}");
        for (_, percent) in PERCENTILES {
            let _ = write!(out, "{:>11.2}", times.percentile_ms(percent));
        }
        let _ = writeln!(out, "{:>11.2}{:>10}", times.max_ms(), times.count());
    }
    out.truncate(out.trim_end().len());
    out
}

fn document(tally: &Tally, duration: Duration) -> Value {
    let times = |times: &Times| {
        let mut all = serde_json::Map::new();
        for (name, percent) in PERCENTILES {
            all.insert(name.to_owned(), json!(times.percentile_ms(percent)));
        }
        all.insert("max".to_owned(), json!(times.max_ms()));
        all.insert("count".to_owned(), json!(times.count()));
        Value::Object(all)
    };
    json!({
        "durationSeconds": duration.as_secs_f64(),
        "answered": tally.answered,
        "failures": tally.failures,
        "events": tally.events,
        "bytes": tally.bytes,
        "firstByteMs": times(&tally.first),
        "totalMs": times(&tally.total),
        "gapMs": times(&tally.gaps),
    })
}
