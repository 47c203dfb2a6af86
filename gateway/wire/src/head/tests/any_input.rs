// SPDX-License-Identifier: Apache-2.0
//! What holds for every input: no panic, no dependence on cuts, and our own output is accepted unchanged.

use proptest::prelude::*;

use super::*;

const REQUESTS: [&[u8]; 6] = [
    b"POST /v1/x?a=1 HTTP/1.1\r\nHost: a:80\r\nContent-Length: 5\r\nConnection: keep-alive, x-a\r\n\
        X-A: 1\r\nTE: trailers\r\n\r\nhello",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n5;a=b\r\n\
        hello\r\n0\r\nt: 1\r\n\r\n",
    b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    b"\r\nGET http://a.b/x HTTP/1.1\r\nHost: a.b:80\r\nAuthorization: s\r\nx-sluice-model: m\r\n\
        x-forwarded-for: 1\r\n\r\n",
    b"GET / HTTP/1.0\r\nx-request-id: r\r\nX: \xe9\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: [::1]:8\r\nMax-Forwards: 3\r\nVia: 1.1 a\r\n\r\n",
];

const RESPONSES: [&[u8]; 5] = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close, x-a\r\nX-A: 1\r\nServer: s\r\n\r\nhi",
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nTrailer: t\r\n\r\n",
    b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n",
    b"HTTP/1.0 304\r\nContent-Length: 4\r\nX: a\r\n b\r\n\tc\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 204 N\r\n\r\n",
];

type Damage = Vec<(prop::sample::Index, usize, u8)>;

fn damage() -> impl Strategy<Value = Damage> {
    proptest::collection::vec((any::<prop::sample::Index>(), 0usize..1000, 0u8..5), 0..5)
}

fn damaged(start: &[u8], damage: Damage) -> Vec<u8> {
    const BYTES: &[u8] = b"\r\n \t:;,0123456789abcdefxX/\x00\x7f\x80\xff-_#%?*@[]\"";
    let mut bytes = start.to_vec();
    for (at, choice, how) in damage {
        let at = at.index(bytes.len());
        match how {
            0 => bytes[at] = BYTES[choice % BYTES.len()],
            1 => bytes.insert(at, BYTES[choice % BYTES.len()]),
            2 if bytes.len() > 1 => drop(bytes.remove(at)),
            3 => {
                // A line twice, or moved to the front of the fields: what tables of single faults do not
                // have.
                let lines: Vec<Vec<u8>> =
                    bytes.split_inclusive(|c| *c == b'\n').map(<[u8]>::to_vec).collect();
                let line = lines[choice % lines.len()].clone();
                let place = 1 + choice % lines.len();
                bytes = [lines[..place].concat(), line, lines[place..].concat()].concat();
            }
            _ => bytes.truncate(at.max(1)),
        }
    }
    bytes
}

type Verdict = Result<Option<(RequestHead, Vec<u8>, Vec<u8>)>, Refused>;

fn judge(input: &[u8]) -> Verdict {
    Ok(read(input)?.map(|(head, out)| (head, out.head, out.credentials)))
}

fn judge_response(input: &[u8], method: Method) -> Result<Option<(ResponseHead, Vec<u8>)>, BadResponse> {
    let mut out = Vec::new();
    Ok(response(input, method, true, &mut out)?.map(|head| (head, out)))
}

/// The verdict on ever longer prefixes: once it is given, more bytes do not change it.
fn by_prefixes<T: PartialEq + std::fmt::Debug, E: PartialEq + std::fmt::Debug>(
    input: &[u8],
    judge: impl Fn(&[u8]) -> Result<Option<T>, E>,
) {
    let whole = judge(input);
    for end in 0..input.len() {
        match judge(&input[..end]) {
            Ok(None) => {}
            given => assert_eq!(given, whole, "after {end} bytes of {:?}", String::from_utf8_lossy(input)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn cuts_change_no_verdict(which in 0usize..6, damage in damage()) {
        by_prefixes(&damaged(REQUESTS[which], damage), judge);
    }

    #[test]
    fn cuts_change_no_verdict_on_responses(which in 0usize..5, damage in damage()) {
        by_prefixes(&damaged(RESPONSES[which], damage), |input| judge_response(input, Method::Get));
    }

    #[test]
    fn what_is_forwarded_would_be_accepted_and_forwarded_unchanged(which in 0usize..6, damage in damage()) {
        let input = damaged(REQUESTS[which], damage);
        if let Ok(Some((head, sent, _))) = judge(&input) {
            prop_assert!(head.len <= input.len());
            let message = [&sent[..], b"\r\n"].concat();
            let (again, resent, credentials) = judge(&message).expect("accepted").expect("whole");
            prop_assert_eq!(again.len, message.len());
            prop_assert!(again.method == head.method && again.websocket == head.websocket && !again.http10);
            prop_assert!(credentials.is_empty() && again.framing == RequestFraming::None);
            if head.max_forwards.is_none() {
                prop_assert_eq!(resent, sent);
            }
        }
    }

    #[test]
    fn what_is_relayed_would_be_relayed_unchanged(
        which in 0usize..5,
        damage in damage(),
        method in prop_oneof![Just(Method::Get), Just(Method::Head)],
    ) {
        let input = damaged(RESPONSES[which], damage);
        if let Ok(Some((head, sent))) = judge_response(&input, method) {
            let message = [&sent[..], b"\r\n"].concat();
            let (again, resent) = judge_response(&message, method).expect("accepted").expect("whole");
            prop_assert_eq!((again.len, again.status), (message.len(), head.status));
            prop_assert_eq!(resent, sent);
        }
    }

    #[test]
    fn any_bytes_get_a_verdict(bytes in proptest::collection::vec(any::<u8>(), 0..200), start in 0usize..3) {
        let start: &[u8] = [&b""[..], b"GET / HTTP/1.1\r\n", b"HTTP/1.1 200 OK\r\n"][start];
        let input = [start, &bytes, b"\r\n\r\n"].concat();
        let _ = (judge(&input), judge_response(&input, Method::Get));
    }
}

#[test]
fn undamaged_examples_are_accepted() {
    for input in REQUESTS {
        assert!(matches!(judge(input), Ok(Some(_))), "{:?}", String::from_utf8_lossy(input));
    }
    for input in RESPONSES {
        assert!(
            matches!(judge_response(input, Method::Get), Ok(Some(_))),
            "{:?}",
            String::from_utf8_lossy(input)
        );
    }
}
