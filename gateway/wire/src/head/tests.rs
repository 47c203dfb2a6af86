// SPDX-License-Identifier: Apache-2.0
//! The edge-input rows that a head decides, each under its id, and what must hold for any input.
//!
//! Rows of the same lists that no codec can decide, and where they are kept:
//!
//! | rows | place |
//! |---|---|
//! | F13–F16, F20, U16 | `chunk` |
//! | L15, part of H14 | `target` |
//! | F17, L27, L28, U24, U25 | deadlines of the connection guard and the exchange |
//! | F25, F26 | body limit of the exchange, by `RequestFraming::Length` and by the count of chunk data |
//! | L26 | protocol detection of the connection guard |
//! | H09, H12, H13 | exchange: adds `via`, knows which routes take WebSockets, relays after 101 |
//! | U04, U14 (close without a byte), U15, U22 (the body), U23, U26, U27, U28 | exchange |

#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;

mod any_input;
mod requests;
mod responses;

fn read(input: &[u8]) -> Result<Option<(RequestHead, Forward)>, Refused> {
    let mut out = Forward::default();
    Ok(request(input, &Rules::default(), &mut out)?.map(|head| (head, out)))
}

fn accepted(input: &str) -> (RequestHead, Forward) {
    match read(input.as_bytes()) {
        Ok(Some(read)) => read,
        other => panic!("{input:?}: {:?}", other.map(|_| "unfinished")),
    }
}

fn status_of(input: &[u8]) -> u16 {
    match read(input) {
        Ok(Some(_)) => 200,
        Ok(None) => 0,
        Err(refused) => refused.status,
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}
