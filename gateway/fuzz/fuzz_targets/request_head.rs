// SPDX-License-Identifier: Apache-2.0
//! A request head: cuts change no verdict, what is forwarded would be accepted unchanged, every target has a
//! route.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_wire::head::{self, Forward, Method, Refused, RequestFraming, RequestHead, Rules};
use sluice_wire::target::{self, Route};

type Verdict = Result<Option<(RequestHead, Vec<u8>, Vec<u8>)>, Refused>;

fn judge(input: &[u8]) -> Verdict {
    let mut out = Forward::default();
    Ok(head::request(input, &Rules::default(), &mut out)?.map(|head| (head, out.head, out.credentials)))
}

fuzz_target!(|input: &[u8]| {
    let whole = judge(input);
    for end in [input.len() / 3, input.len() / 2, input.len().saturating_sub(1)] {
        match judge(&input[..end]) {
            Ok(None) => {}
            given => assert_eq!(given, whole, "cut at {end}"),
        }
    }
    let Ok(Some((head, sent, _))) = whole else { return };
    assert!(head.len <= input.len());
    let message = [&sent[..], b"\r\n"].concat();
    let mut out = Forward::default();
    // A host may have been added to a head that was at its limits.
    let wider = Rules { fields_max: head::FIELDS_MAX, head_bytes_max: 80 << 10, ..Rules::default() };
    let again = head::request(&message, &wider, &mut out).expect("accepted").expect("whole");
    assert_eq!((again.len, again.method, again.framing), (message.len(), head.method, RequestFraming::None));
    assert!(out.credentials.is_empty() && !again.http10 && again.websocket == head.websocket);
    if head.max_forwards.is_none() {
        assert_eq!(out.head, sent);
    }
    for (name, value) in head::fields(&sent) {
        assert!(!name.is_empty() && !name.contains(&b' ') && !value.contains(&b'\n'));
        assert!(!name.to_ascii_lowercase().starts_with(b"x-sluice-"));
    }
    for method in [Method::Get, Method::Post, Method::Options] {
        match target::classify(method, out.target()) {
            Route::ModelInfo(name) | Route::V2ModelInfo(name) | Route::V2ModelReady(name) => {
                assert!(method == Method::Get && sluice_wire::model_name::is_sound(&name));
            }
            Route::Path { model, .. } => {
                assert!(method == Method::Post && sluice_wire::model_name::is_sound(&model));
            }
            _ => {}
        }
    }
    target::family(out.target());
});
