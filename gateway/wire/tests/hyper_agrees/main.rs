// SPDX-License-Identifier: Apache-2.0
//! Whatever this crate accepts, another reader of HTTP/1 understands the same way: method, target, fields,
//! body and where the message ends. hyper is that reader; messages are generated, and some are damaged.
//!
//! The other direction does not hold and need not: hyper takes more than we do.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod generate;
mod requests;
mod responses;

use std::future::Future;
use std::time::Duration;

use hyper::HeaderMap;
use sluice_wire::chunk::Chunked;
use sluice_wire::fields;

/// Messages per test.
const CASES: u64 = 20_000;

/// Fields with lower-case names, sorted by name; the order under one name stays.
type Fields = Vec<(String, Vec<u8>)>;

fn sorted(mut fields: Fields) -> Fields {
    fields.sort_by(|a, b| a.0.cmp(&b.0));
    fields
}

fn of_hyper(map: &HeaderMap) -> Fields {
    sorted(map.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec())).collect())
}

fn of_lines<'a>(lines: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Fields {
    sorted(
        lines.map(|(name, value)| (String::from_utf8_lossy(name).to_lowercase(), value.to_vec())).collect(),
    )
}

/// Takes out what ends at this hop or is ours, by rules written down a second time.
fn end_to_end(all: &Fields, switches: bool) -> Fields {
    const HOP: [&str; 12] = [
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "content-length",
        "expect",
        "x-request-id",
        "forwarded",
        "x-real-ip",
    ];
    let named: Vec<String> = all
        .iter()
        .filter(|(name, _)| name == "connection")
        .flat_map(|(_, value)| {
            String::from_utf8_lossy(value)
                .to_lowercase()
                .split(',')
                .map(|t| t.trim().to_owned())
                .collect::<Vec<_>>()
        })
        .collect();
    let stays = |name: &str| match name {
        "upgrade" => switches,
        _ => {
            !HOP.contains(&name)
                && !name.starts_with("x-sluice-")
                && !name.starts_with("x-forwarded-")
                && !named.iter().any(|n| n == name)
        }
    };
    all.iter().filter(|(name, _)| stays(name)).cloned().collect()
}

/// A chunked body read by us: its content, what is relayed, its trailers and the bytes it takes. `None`:
/// unsound.
struct Body {
    data: Vec<u8>,
    relayed: Vec<u8>,
    trailers: Fields,
    taken: usize,
}

fn chunked(bytes: &[u8]) -> Option<Body> {
    let (mut decoder, mut data) = (Chunked::default(), Vec::new());
    let fed = decoder.feed(bytes, |d| data.extend_from_slice(d)).ok()?;
    if !decoder.done() {
        return None;
    }
    let mut relayed = bytes[..fed.pass].to_vec();
    if fed.crlf {
        relayed.extend_from_slice(decoder.trailers());
        relayed.extend_from_slice(b"\r\n");
    }
    Some(Body { data, relayed, trailers: of_lines(fields::lines(decoder.trailers())), taken: fed.taken })
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(20), work).await.expect("hyper waits for more")
    })
}
