// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;

use super::*;

/// What came of a body that was fed in pieces.
#[derive(Debug, PartialEq)]
struct Read {
    data: Vec<u8>,
    /// What a relay sends on, without trailers.
    relayed: Vec<u8>,
    trailers: Vec<u8>,
    taken: usize,
    done: bool,
}

fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Read, BadChunk> {
    let mut decoder = Chunked::default();
    let (mut data, mut relayed, mut taken) = (Vec::new(), Vec::new(), 0);
    for piece in pieces {
        let fed = decoder.feed(piece, |d| data.extend_from_slice(d))?;
        assert!(fed.pass <= fed.taken && fed.taken <= piece.len());
        assert!(fed.taken == piece.len() || decoder.done());
        relayed.extend_from_slice(&piece[..fed.pass]);
        if fed.crlf {
            assert!(decoder.done());
            relayed.extend_from_slice(b"\r\n");
        }
        taken += fed.taken;
    }
    Ok(Read { data, relayed, trailers: decoder.trailers().to_vec(), taken, done: decoder.done() })
}

fn whole(body: &[u8]) -> Result<Read, BadChunk> {
    read([body])
}

#[test]
fn data_is_taken_out_and_framing_is_passed_through() {
    let body = b"3\r\nabc\r\n0A;x=\"1;\xe9\"\r\n0123456789\r\n000\r\n\r\n";
    for step in 1..body.len() {
        let got = read(body.chunks(step)).unwrap();
        assert_eq!(got.data, b"abc0123456789");
        assert_eq!(got.relayed, body, "step {step}");
        assert!(got.done && got.trailers.is_empty());
    }
}

#[test]
fn f13_f14_f16_u16_malformed_framing_is_refused() {
    for (row, body) in [
        ("F13", &b"0x2\r\nab\r\n"[..]),
        ("F13", b"+2\r\nab\r\n"),
        ("F13", b"-2\r\nab\r\n"),
        ("F13", b" 2\r\nab\r\n"),
        ("F13", b"\r\n"),
        ("F13", b";x\r\n"),
        ("F13", b"g\r\n"),
        ("F13", b"1000000000000000\r\n"),
        ("F13", b"ffffffffffffffffff\r\n"),
        ("F14", b"3 \r\nabc\r\n"),
        ("F14", b"3\t\r\nabc\r\n"),
        ("F14", b"3 ;a\r\nabc\r\n"),
        ("F14", b"3;a\nabc\r\n"),
        ("F14", b"3\nabc\r\n"),
        ("F14", b"3;a\rb\r\nabc\r\n"),
        ("F14", b"3;a\0\r\nabc\r\n"),
        ("F14", b"3\r\rabc\r\n"),
        ("F16", b"3\r\nabcd\r\n"),
        ("F16", b"3\r\nabc\n"),
        ("F16", b"3\r\nabc\r\r\n"),
        ("F16", b"3\r\nabc3\r\n"),
        ("U16", b"0\r\n\n"),
        ("U16", b"0\r\n\r\r\n"),
        ("F20", b"0\r\nno colon\r\n\r\n"),
        ("F20", b"0\r\nx : 1\r\n\r\n"),
        ("F20", b"0\r\n: 1\r\n\r\n"),
        ("F20", b"0\r\n x: 1\r\n\r\n"),
        ("F20", b"0\r\nx: 1\r\n folded\r\n\r\n"),
        ("F20", b"0\r\nx: 1\ny: 2\r\n\r\n"),
        ("F20", b"0\r\nx: 1\ry: 2\r\n\r\n"),
        ("F20", b"0\r\nx: \0\r\n\r\n"),
        ("F20", b"0\r\n\tx: 1\r\n\r\n"),
    ] {
        assert!(whole(body).is_err(), "{row} {:?}", String::from_utf8_lossy(body));
        assert!(read(body.chunks(1)).is_err(), "{row} {:?}", String::from_utf8_lossy(body));
    }
}

#[test]
fn f15_extensions_are_bounded_over_the_whole_message() {
    let one = format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(EXTENSIONS_MAX));
    assert!(whole(one.as_bytes()).unwrap().done);
    let longer = format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(EXTENSIONS_MAX + 1));
    assert!(whole(longer.as_bytes()).is_err());
    let chunk = format!("1;{}\r\na\r\n", "x".repeat(1 << 10));
    assert!(whole(chunk.repeat(8).as_bytes()).is_ok());
    assert!(whole(chunk.repeat(9).as_bytes()).is_err());
}

#[test]
fn f20_allowed_trailers_are_kept_apart_and_the_rest_is_dropped() {
    let body = b"1\r\na\r\n0\r\nX-Sum: 1\r\ncontent-length: 9\r\nTransfer-Encoding: chunked\r\nHost: b\r\n\
        Authorization: s\r\nX-Forwarded-For: 1\r\nx-sluice-model: m\r\nContent-Type: a\r\nSet-Cookie: c\r\n\
        content_length: 9\r\nx_api_key: k\r\nConnection: close\r\ngrpc-status:  0 \r\n\r\n";
    for step in 1..body.len() {
        let got = read(body.chunks(step)).unwrap();
        assert_eq!(got.trailers, b"X-Sum: 1\r\ngrpc-status: 0\r\n");
        assert_eq!(got.relayed, b"1\r\na\r\n0\r\n\r\n", "step {step}");
        assert_eq!((got.taken, got.done), (body.len(), true));
    }
}

#[test]
fn trailers_are_bounded() {
    let lines = |bytes: usize| format!("0\r\nx: {}\r\n\r\n", "a".repeat(bytes - 5));
    assert!(whole(lines(TRAILERS_MAX).as_bytes()).unwrap().done);
    assert!(whole(lines(TRAILERS_MAX + 1).as_bytes()).is_err());
    assert!(whole(format!("0\r\n{}\r\n", "x: 1\r\n".repeat(33)).as_bytes()).is_err());
}

#[test]
fn an_unfinished_body_shows_no_trailers() {
    let got = whole(b"0\r\nx: 1\r\n").unwrap();
    assert!(!got.done && got.trailers.is_empty());
}

#[test]
fn f21_what_follows_the_last_chunk_is_left_alone() {
    let got = whole(b"0\r\n\r\nGET / HTTP/1.1\r\n").unwrap();
    assert_eq!((got.taken, got.done), (5, true));
    let mut decoder = Chunked::default();
    decoder.feed(b"0\r\n\r\n", |_| {}).unwrap();
    let again = decoder.feed(b"1\r\na\r\n", |_| panic!("data behind the end")).unwrap();
    assert_eq!(again, Fed { taken: 0, pass: 0, crlf: false });
}

#[test]
fn f26_data_is_counted_as_it_comes() {
    let (mut decoder, mut count) = (Chunked::default(), 0);
    for piece in [&b"ff\r\nabc"[..], b"def"] {
        decoder.feed(piece, |d| count += d.len()).unwrap();
    }
    assert_eq!(count, 6, "long before the chunk is whole");
}

#[test]
fn sizes_are_written_as_they_are_read() {
    let mut room = [0; 18];
    for (len, line) in
        [(1, "1\r\n"), (15, "f\r\n"), (16, "10\r\n"), (4096, "1000\r\n"), (u64::MAX, "ffffffffffffffff\r\n")]
    {
        assert_eq!(chunk_head(len, &mut room), line.as_bytes());
    }
    for len in [1usize, 9, 10, 255, 256, 65_535, 65_536] {
        let body = [chunk_head(len as u64, &mut room), &vec![b'a'; len], b"\r\n0\r\n\r\n"].concat();
        assert_eq!(whole(&body).unwrap().data.len(), len);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Any data in any chunks comes back; what a relay sends on reads the same and is passed unchanged.
    #[test]
    fn any_body_is_read_and_relayed(
        chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..5),
        trailers in "([a-z]{1,6}: [a-z ]{0,6}[a-z]\r\n){0,3}",
        step in 1usize..20,
    ) {
        let mut body = Vec::new();
        let mut room = [0; 18];
        for chunk in &chunks {
            body.extend_from_slice(chunk_head(chunk.len() as u64, &mut room));
            body.extend_from_slice(chunk);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(format!("0\r\n{trailers}\r\n").as_bytes());
        let got = read(body.chunks(step)).unwrap();
        prop_assert!(got.done && got.taken == body.len());
        prop_assert_eq!(&got.data, &chunks.concat());
        let again = whole(&got.relayed).unwrap();
        prop_assert_eq!(&again.relayed, &got.relayed);
        prop_assert_eq!(again.data, got.data);
    }

    /// Damage never panics, and where the bytes are cut never matters.
    #[test]
    fn cuts_change_nothing(
        start in prop_oneof![
            Just(&b"5\r\nhello\r\nA;x=y\r\n0123456789\r\n0\r\nt: 1\r\n\r\n"[..]),
            Just(&b"1;a\r\nb\r\n0\r\n\r\nrest"[..]),
            Just(&b"0\r\na: b\r\ncontent-length: 3\r\n\r\n"[..]),
        ],
        damage in proptest::collection::vec((any::<prop::sample::Index>(), 0usize..24, 0u8..4), 0..4),
        step in 1usize..20,
    ) {
        const BYTES: &[u8; 24] = b"\r\n \t;:=0123fF\0\x7f\xffxgG\"-+._";
        let mut body = start.to_vec();
        for (at, byte, how) in damage {
            let at = at.index(body.len());
            match how {
                0 => body[at] = BYTES[byte],
                1 => body.insert(at, BYTES[byte]),
                2 if body.len() > 1 => drop(body.remove(at)),
                _ => body.truncate(at.max(1)),
            }
        }
        let (once, cut, single) = (whole(&body), read(body.chunks(step)), read(body.chunks(1)));
        match once {
            Ok(once) => {
                prop_assert_eq!(Some(&once.data), cut.as_ref().ok().map(|c| &c.data));
                prop_assert_eq!(&cut, &single);
                if once.done {
                    prop_assert_eq!(Ok(&once), cut.as_ref());
                }
            }
            Err(reason) => {
                prop_assert_eq!(cut.err(), Some(reason));
                prop_assert_eq!(single.err(), Some(reason));
            }
        }
    }
}
