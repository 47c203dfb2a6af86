// SPDX-License-Identifier: Apache-2.0
//! A response head: cuts change no verdict, and what is relayed would be relayed unchanged. The first byte
//! chooses the request that it answers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_wire::head::{self, BadResponse, Method, ResponseFraming, ResponseHead};

fn judge(
    input: &[u8],
    method: Method,
    upgrade: bool,
) -> Result<Option<(ResponseHead, Vec<u8>)>, BadResponse> {
    let mut out = Vec::new();
    Ok(head::response(input, method, upgrade, &mut out)?.map(|head| (head, out)))
}

fuzz_target!(|input: &[u8]| {
    let Some((choice, input)) = input.split_first() else { return };
    let method = [Method::Get, Method::Head, Method::Post][usize::from(choice % 3)];
    let upgrade = choice & 0x80 != 0;
    let whole = judge(input, method, upgrade);
    for end in [input.len() / 3, input.len() / 2, input.len().saturating_sub(1)] {
        match judge(&input[..end], method, upgrade) {
            Ok(None) => {}
            given => assert_eq!(given, whole, "cut at {end}"),
        }
    }
    let Ok(Some((head, sent))) = whole else { return };
    assert!(head.len <= input.len() && (100..600).contains(&head.status));
    assert!(head.status != 101 || upgrade);
    assert!(!head.reusable || head.framing != ResponseFraming::Close);
    let message = [&sent[..], b"\r\n"].concat();
    let (again, resent) = judge(&message, method, upgrade).expect("accepted").expect("whole");
    assert_eq!(
        (again.len, again.status, again.event_stream),
        (message.len(), head.status, head.event_stream)
    );
    assert_eq!(resent, sent);
    for (name, value) in head::fields(&sent) {
        assert!(!name.is_empty() && !value.contains(&b'\n') && !value.contains(&b'\r'));
    }
});
