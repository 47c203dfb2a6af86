// SPDX-License-Identifier: Apache-2.0
//! A chunked body and an event stream: cuts change nothing, and what is relayed reads the same and is relayed
//! unchanged. The first byte chooses the length of the pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_wire::chunk::{BadChunk, Chunked};
use sluice_wire::sse::EventBoundary;

#[derive(Debug, PartialEq)]
struct Read {
    data: Vec<u8>,
    relayed: Vec<u8>,
    trailers: Vec<u8>,
    taken: usize,
    done: bool,
    events: (bool, u64),
}

fn read(body: &[u8], step: usize) -> Result<Read, BadChunk> {
    let (mut decoder, mut events) = (Chunked::default(), EventBoundary::default());
    let (mut data, mut relayed, mut taken) = (Vec::new(), Vec::new(), 0);
    for piece in body.chunks(step) {
        let fed = decoder.feed(piece, |d| {
            events.feed(d);
            data.extend_from_slice(d);
        })?;
        assert!(fed.pass <= fed.taken && (fed.taken == piece.len() || decoder.done()));
        relayed.extend_from_slice(&piece[..fed.pass]);
        if fed.crlf {
            relayed.extend_from_slice(decoder.trailers());
            relayed.extend_from_slice(b"\r\n");
        }
        taken += fed.taken;
    }
    let events = (events.at_boundary(), events.events());
    Ok(Read { data, relayed, trailers: decoder.trailers().to_vec(), taken, done: decoder.done(), events })
}

fuzz_target!(|input: &[u8]| {
    let Some((step, body)) = input.split_first() else { return };
    let whole = read(body, body.len().max(1));
    let cut = read(body, usize::from(*step).max(1));
    let Ok(whole) = whole else {
        assert_eq!(cut, whole);
        return;
    };
    let cut = cut.expect("cuts change no verdict");
    assert_eq!(
        (&cut.data, cut.taken, cut.done, cut.events),
        (&whole.data, whole.taken, whole.done, whole.events)
    );
    let mut once = EventBoundary::default();
    once.feed(&whole.data);
    assert_eq!((once.at_boundary(), once.events()), whole.events);
    if whole.done {
        assert_eq!((&cut.relayed, &cut.trailers), (&whole.relayed, &whole.trailers));
        let again = read(&whole.relayed, whole.relayed.len()).expect("our own output");
        assert_eq!(
            (&again.data, &again.relayed, &again.trailers),
            (&whole.data, &whole.relayed, &whole.trailers)
        );
        assert!(again.done && again.taken == whole.relayed.len());
    }
});
