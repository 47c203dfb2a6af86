// SPDX-License-Identifier: Apache-2.0
//! A JSON body: what is found is a name, and neither white space nor a byte order mark around it
//! matters.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_wire::model_id::find_model;

fuzz_target!(|body: &[u8]| {
    let found = find_model(body);
    if let Err(error) = &found {
        assert!(!error.code().is_empty() && !error.to_string().is_empty());
        return;
    }
    let name = found.expect("checked above");
    assert!(!name.is_empty());
    let text = std::str::from_utf8(body).expect("accepted bodies are text");
    let bare = text.strip_prefix('\u{feff}').unwrap_or(text);
    for around in [format!("\u{feff}{bare}"), format!("\r\n {bare}\n")] {
        assert_eq!(find_model(around.as_bytes()).as_deref(), Ok(&*name));
    }
    // Whatever is put in as another member is a repetition, or changes nothing.
    let inside = bare.trim_start().strip_prefix('{').expect("accepted bodies are objects");
    let twice = format!("{{\"mod\\u0065l\":\"other\",{inside}");
    assert_eq!(find_model(twice.as_bytes()).map_err(|e| e.code()), Err("duplicate_model"));
    let beside = format!("{{\"a\":{{\"model\":\"other\"}},{inside}");
    assert_eq!(find_model(beside.as_bytes()).as_deref(), Ok(&*name));
    let whole = text.trim_end().len();
    for end in [whole / 2, whole - 1] {
        assert!(find_model(&body[..end]).is_err(), "an object has one end");
    }
});
