// SPDX-License-Identifier: Apache-2.0
//! Durations, sizes and decimals as people write them.
//!
//! Owns the spelling only; which range is allowed is the key's business.

use std::time::Duration;

const DURATION_UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

const SIZE_UNITS: &[(&str, u64)] = &[
    ("", 1),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
];

/// `250ms`, `30s`, `1m30s`, `1.5h`, `0`; at most microseconds matter.
pub(super) fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let (number, after) = split_number(rest)?;
        let unit_length = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_length);
        let (_, scale) = DURATION_UNITS.iter().find(|(name, _)| *name == unit)?;
        nanos = nanos.checked_add(scaled(number, *scale)?)?;
        rest = next;
    }
    let micros = u64::try_from(nanos / 1_000).ok()?;
    (!text.is_empty()).then(|| Duration::from_micros(micros))
}

/// `1048576`, `512k`, `32Mi`, `1.5Gi`: Kubernetes' quantities of bytes.
pub(super) fn size(text: &str) -> Option<u64> {
    let (number, unit) = split_number(text)?;
    let (_, scale) = SIZE_UNITS.iter().find(|(name, _)| *name == unit)?;
    u64::try_from(scaled(number, *scale)?).ok()
}

/// How a wrongly written size was probably meant: `32MB` → `32M`.
pub(super) fn nearest_size(text: &str) -> Option<String> {
    let (number, unit) = split_number(text)?;
    let unit = unit.trim().to_ascii_lowercase();
    let meant = match unit.strip_suffix('b').unwrap_or(&unit) {
        "k" => "k",
        "m" => "M",
        "g" => "G",
        "t" => "T",
        "ki" => "Ki",
        "mi" => "Mi",
        "gi" => "Gi",
        "ti" => "Ti",
        "" => "",
        _ => return None,
    };
    Some(format!("{number}{meant}"))
}

/// A number with up to three decimals, in thousandths.
pub(super) fn milli(text: &str) -> Option<u64> {
    let (number, rest) = split_number(text)?;
    let decimals = number.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    if !rest.is_empty() || decimals > 3 {
        return None;
    }
    u64::try_from(scaled(number, 1_000)?).ok()
}

/// Thousandths as a person writes them.
pub(super) fn show_milli(milli: u64) -> String {
    let text = format!("{}.{:03}", milli / 1_000, milli % 1_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Digits with at most one point between them, and what follows.
fn split_number(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let well_formed = match number.split_once('.') {
        None => !number.is_empty(),
        Some((whole, fraction)) => !whole.is_empty() && !fraction.is_empty() && !fraction.contains('.'),
    };
    well_formed.then_some((number, rest))
}

/// `number` times `scale`, rounded down.
fn scaled(number: &str, scale: u64) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = whole.parse::<u64>().ok()?;
    let mut sum = u128::from(whole) * u128::from(scale);
    let mut place = u128::from(scale) * 1_000_000_000;
    for digit in fraction.bytes().take(9) {
        place /= 10;
        sum += place * u128::from(digit - b'0') / 1_000_000_000;
    }
    Some(sum)
}
