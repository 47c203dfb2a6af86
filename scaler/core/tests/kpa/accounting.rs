// SPDX-License-Identifier: Apache-2.0
//! Every recorded line of the accountants: the activator's by the product's own, the queue-proxy's by a reference made of
//! the same meter, as nothing stands in front of a replica here.
//!
//! Rows C01 to C07 are lines of that name; C08 (no double count) is row W27 of the windows, C09 (each activator pokes) row
//! W06. Of C11 and C12, who is counted for how long after leaving, the gateway's own cases are tests of the whole.

use serde_json::{Value, json};
use sluice_core::kpa::{Accountant, Load, Meter};

use crate::records;

/// Time zero of a line; events may lie before it.
const ORIGIN: i64 = 10_000_000_000;

/// Nanoseconds, cut off as the recording cut them.
fn nanos(ms: &Value) -> u64 {
    (ORIGIN + (ms.as_f64().unwrap() * 1e6) as i64) as u64
}

#[test]
fn every_recorded_accountant_sends_the_same_again() {
    let lines = records::lines(&["accounting.jsonl.gz"]);
    assert_eq!(lines.len(), 73);
    for line in &lines {
        let sent = match line["kind"].as_str().unwrap() {
            "activator" => activator(line),
            _ => queue_proxy(line),
        };
        let told: Vec<Value> = line["sent"].as_array().cloned().unwrap_or_default();
        assert_eq!(sent.len(), told.len(), "{}: {sent:?}", line["id"]);
        for (got, told) in sent.iter().zip(&told) {
            let numbers = |row: &Value| -> Vec<f64> {
                row.as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).collect()
            };
            assert_eq!(numbers(got), numbers(told), "{}", line["id"]);
        }
    }
}

fn activator(line: &Value) -> Vec<Value> {
    let (mut accountant, mut sent) = (Accountant::default(), Vec::new());
    let mut load = Load::default();
    let mut last = 0;
    for event in line["events"].as_array().unwrap() {
        let now = nanos(&event[0]);
        load.area += load.number * now.saturating_sub(last);
        last = now.max(last);
        let report = match event[1].as_str().unwrap() {
            "in" => {
                load = Load { number: load.number + 1, arrivals: load.arrivals + 1, ..load };
                accountant.look(now, load)
            }
            "out" => {
                load.number -= 1;
                accountant.look(now, load)
            }
            _ => accountant.report(now),
        };
        sent.extend(report.map(|report| json!([event[0], report.concurrency, report.count])));
    }
    sent
}

fn queue_proxy(line: &Value) -> Vec<Value> {
    let period = line["reporting_period_s"].as_f64().unwrap_or(1.0);
    let mut sent = Vec::new();
    let (mut all, mut proxied) = (Meter::new(ORIGIN as u64), Meter::new(ORIGIN as u64));
    let (mut count, mut proxied_count) = (0.0, 0.0);
    for event in line["events"].as_array().unwrap() {
        let now = nanos(&event[0]);
        all.advance(now, None);
        proxied.advance(now, None);
        match event[1].as_str().unwrap() {
            "in" => {
                all.set(all.number() + 1);
                count += 1.0;
            }
            "proxied-in" => {
                all.set(all.number() + 1);
                proxied.set(proxied.number() + 1);
                count += 1.0;
                proxied_count += 1.0;
            }
            "out" => all.set(all.number() - 1),
            "proxied-out" => {
                all.set(all.number() - 1);
                proxied.set(proxied.number() - 1);
            }
            _ => {
                let (average, part) = (all.take(), proxied.take());
                sent.push(json!([event[0], average, part, count / period, proxied_count / period]));
                (count, proxied_count) = (0.0, 0.0);
            }
        }
    }
    sent
}
