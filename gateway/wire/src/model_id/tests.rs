// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;

use super::*;

fn model(body: &str) -> Result<String, BadBody> {
    find_model(body.as_bytes()).map(Cow::into_owned)
}

fn code(body: &[u8]) -> &'static str {
    find_model(body).map_or_else(|e| e.code(), |_| "found")
}

#[test]
fn the_top_level_model_is_found_wherever_it_stands() {
    let prompt = "x".repeat(1 << 20);
    for body in [
        r#"{"model":"m"}"#.to_owned(),
        r#" { "a" : [ 1 , { "model" : "no" } ] , "model" : "m" , "b" : null } "#.to_owned(),
        format!(r#"{{"messages":[{{"role":"user","content":"{prompt}\"model\":\"no\""}}],"model":"m"}}"#),
        r#"{"mod\u0065l":"m"}"#.to_owned(),
        r#"{"model":"\u006d"}"#.to_owned(),
        r#"{"":1,"modell":2,"mode":3,"model":"m"}"#.to_owned(),
    ] {
        assert_eq!(model(&body), Ok("m".into()), "{}", &body[..body.len().min(80)]);
    }
    assert_eq!(model(r#"{"model":"org/sub/m:q4"}"#), Ok("org/sub/m:q4".into()));
    assert_eq!(model(r#"{"model":"\ud83d\ude00 ü"}"#), Ok("😀 ü".into()));
}

#[test]
fn a_name_without_escapes_is_borrowed_from_the_body() {
    assert!(matches!(find_model(br#"{"model":"m"}"#), Ok(Cow::Borrowed("m"))));
}

#[test]
fn fc_05_blank_lines_and_a_byte_order_mark_may_stand_before_the_object() {
    for start in ["\r\n\r\n", "\n\n\t ", "\u{feff}", "\u{feff}\n\n"] {
        assert_eq!(model(&format!("{start}{{\"model\":\"m\"}}\n")), Ok("m".into()), "{start:?}");
    }
    assert_eq!(code("\n\u{feff}{\"model\":\"m\"}".as_bytes()), "invalid_json");
    assert_eq!(code("\u{feff}\u{feff}{\"model\":\"m\"}".as_bytes()), "invalid_json");
}

#[test]
fn fc_07_each_fault_has_its_own_answer() {
    let deep = [br#"{"model":"m","a":"#, "[".repeat(100_000).as_bytes()].concat();
    let closed = format!(r#"{{"model":"m","a":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let bare = "[".repeat(100_000);
    let prompt = "p".repeat(1 << 20);
    let after_a_long_prompt = format!(r#"{{"model":"cheap","prompt":"{prompt}","model":"big"}}"#);
    for (body, expected) in [
        (&b""[..], "empty_body"),
        (b" \r\n\t", "empty_body"),
        ("\u{feff}".as_bytes(), "empty_body"),
        (b"{}", "missing_model"),
        (br#"{"a":{"model":"m"}}"#, "missing_model"),
        (br#"{"Model":"m"}"#, "missing_model"),
        (br#"{"model":null}"#, "invalid_model"),
        (br#"{"model":123}"#, "invalid_model"),
        (br#"{"model":-1}"#, "invalid_model"),
        (br#"{"model":1.5}"#, "invalid_model"),
        (br#"{"model":true}"#, "invalid_model"),
        (br#"{"model":["m"]}"#, "invalid_model"),
        (br#"{"model":{"model":"m"}}"#, "invalid_model"),
        (br#"{"model":""}"#, "invalid_model"),
        (b"[]", "invalid_json"),
        (br#""x""#, "invalid_json"),
        (b"model=m", "invalid_json"),
        (br#"{"model":"m""#, "invalid_json"),
        (br#"{"model":"m"#, "invalid_json"),
        (br#"{"model":"m","a":"\"#, "invalid_json"),
        (br#"{"model":"m","a":"b\"}"#, "invalid_json"),
        (br#"{"model":"m",}"#, "invalid_json"),
        (br#"{"model":"m"}}"#, "invalid_json"),
        (br#"{"model":"m"} x"#, "invalid_json"),
        (br#"{"model":"m"}{"model":"n"}"#, "invalid_json"),
        (b"{\"model\":\"m\"}\0", "invalid_json"),
        (br#"{'model':'m'}"#, "invalid_json"),
        (br#"{model:"m"}"#, "invalid_json"),
        (br#"{"model":"m","a":01}"#, "invalid_json"),
        (br#"{"model":"m","a":NaN}"#, "invalid_json"),
        (br#"{"model":"m","a":"\x"}"#, "invalid_json"),
        (br#"{"model":"\ud800"}"#, "invalid_json"),
        (b"{\"model\":\"m\",\"a\":\"\n\"}", "invalid_json"),
        (b"{\"model\":\"m\",\"a\":[}", "invalid_json"),
        (b"{\"model\":\"m\xff\"}", "invalid_utf8"),
        (b"{\"model\":\"m\",\"a\":\"\xc3\"}", "invalid_utf8"),
        (&deep, "nesting_too_deep"),
        (closed.as_bytes(), "nesting_too_deep"),
        (bare.as_bytes(), "invalid_json"),
        (br#"{"model":"m","model":"m"}"#, "duplicate_model"),
        (br#"{"model":"m","mod\u0065l":"n"}"#, "duplicate_model"),
        (br#"{"model":"m","MODEL":"n"}"#, "duplicate_model"),
        (br#"{"Model":"m","model":"n"}"#, "duplicate_model"),
        (br#"{"model":1,"model":"n"}"#, "duplicate_model"),
        (after_a_long_prompt.as_bytes(), "duplicate_model"),
    ] {
        assert_eq!(code(body), expected, "{}", String::from_utf8_lossy(&body[..body.len().min(60)]));
    }
}

#[test]
fn depth_counts_brackets_outside_of_strings() {
    let nested =
        |levels: usize| format!(r#"{{"model":"m","a":{}{}}}"#, "[".repeat(levels), "]".repeat(levels));
    assert_eq!(model(&nested(DEPTH_MAX - 1)), Ok("m".into()));
    assert_eq!(model(&nested(DEPTH_MAX)), Err(BadBody::TooDeep { at: 17 + DEPTH_MAX - 1 }));
    let quoted = format!(r#"{{"a":"\\\"{}","model":"m","b":[{}0]}}"#, "[{".repeat(100), "[],".repeat(100));
    assert_eq!(model(&quoted), Ok("m".into()));
    let objects = format!(r#"{{"model":"m","a":{}1{}}}"#, r#"{"a":"#.repeat(64), "}".repeat(64));
    assert!(matches!(model(&objects), Err(BadBody::TooDeep { .. })));
}

#[test]
fn a_message_tells_where_and_never_what() {
    let secret = "tell nobody";
    for (body, message) in [
        (
            format!("{{\"model\":\"m\",\n\"prompt\":\"{secret}\",]"),
            "the request body is not valid JSON at line 2 column 24",
        ),
        (
            format!("{{\"prompt\":\"{secret}"),
            "the request body ends before its JSON does, at line 1 column 22",
        ),
        (format!("{{\"model\":[\"{secret}\"]}}"), "\"model\" is an array and must be a string"),
        (format!("{{\"a\":\"{secret}\",\"model\":\"\"}}"), "\"model\" must not be empty"),
        (format!("\"{secret}\""), "the request body is not a JSON object; send one with a \"model\""),
    ] {
        assert_eq!(model(&body).unwrap_err().to_string(), message, "{body}");
    }
    let error = find_model(b"{\"model\":\"m\",\"a\":\"tell nobody\xff\"}").unwrap_err();
    assert_eq!(error, BadBody::NotUtf8 { at: 29 });
    assert_eq!((error.param(), BadBody::MissingModel.param()), (None, Some("model")));
}

/// The top-level members of a body, in order, as any standard reader sees them.
struct Members(Vec<(String, serde_json::Value)>);

impl<'a> serde::Deserialize<'a> for Members {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'a> Visitor<'a> for Collect {
            type Value = Members;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

fn members_of(body: &str) -> Vec<(String, serde_json::Value)> {
    serde_json::from_str::<Members>(body).expect("forwarded bodies are JSON").0
}

/// A JSON string, with some characters escaped.
fn json_string(text: String) -> impl Strategy<Value = String> {
    proptest::collection::vec(0u8..6, text.chars().count()).prop_map(move |how| {
        let spelled = text.chars().zip(how).map(|(c, how)| match (c, how) {
            (_, 0) => format!("\\u{:04x}", c as u32),
            (_, 1) => format!("\\u{:04X}", c as u32),
            _ => c.to_string(),
        });
        format!("\"{}\"", spelled.collect::<String>())
    })
}

fn member() -> impl Strategy<Value = String> {
    let key = prop_oneof![
        6 => Just("model"),
        1 => Just("Model"),
        1 => Just("modeL "),
        4 => Just("messages"),
        2 => Just("prompt"),
        1 => Just("mode"),
    ]
    .prop_flat_map(|key| json_string(key.to_owned()));
    let name = prop_oneof![Just("cheap"), Just("big"), Just("org/m:q4")]
        .prop_flat_map(|n| json_string(n.to_owned()));
    let value = prop_oneof![
        6 => name.clone(),
        1 => Just("1".to_owned()),
        1 => Just("null".to_owned()),
        2 => name.clone().prop_map(|n| format!(r#"[{{"model":{n},"content":"\"model\":\"big\""}}]"#)),
        1 => name.prop_map(|n| format!(r#"{{"model":{n}}}"#)),
        1 => Just(format!("\"{}\"", "p".repeat(300))),
    ];
    (key, value).prop_map(|(key, value)| format!("{key}:{value}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn fc_04_first_wins_and_last_wins_parsers_agree_with_the_route(
        members in proptest::collection::vec(member(), 0..5),
    ) {
        let body = format!("{{{}}}", members.join(","));
        let seen = members_of(&body);
        let named: Vec<_> = seen.iter().filter(|(key, _)| key == "model").map(|(_, value)| value).collect();
        let alike = seen.iter().filter(|(key, _)| key.eq_ignore_ascii_case("model")).count();
        let expected = match (named.first(), alike) {
            (None, _) => Err("missing_model"),
            (Some(_), 2..) => Err("duplicate_model"),
            (Some(serde_json::Value::String(name)), _) => Ok(name.clone()),
            (Some(_), _) => Err("invalid_model"),
        };
        let routed = model(&body);
        if let Ok(routed) = &routed {
            let (first, last) = (named.first(), named.last());
            prop_assert_eq!(first.and_then(|v| v.as_str()), Some(routed.as_str()), "first wins: {}", body);
            prop_assert_eq!(last.and_then(|v| v.as_str()), Some(routed.as_str()), "last wins: {}", body);
        }
        prop_assert_eq!(routed.map_err(|e| e.code()), expected, "{}", body);
    }

    /// What is accepted is JSON to the standard reader as well, with that model; what it accepts with one
    /// sound model is accepted.
    #[test]
    fn damaged_bodies_are_judged_as_the_standard_reader_judges_them(
        members in proptest::collection::vec(member(), 1..4),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..3), 0..3),
    ) {
        let mut body = format!("{{{}}}", members.join(",")).into_bytes();
        for (at, byte, how) in damage {
            let at = at.index(body.len());
            match how {
                0 => body[at] = byte,
                1 => body.insert(at, byte),
                _ => body.truncate(at.max(1)),
            }
        }
        let standard = serde_json::from_slice::<Members>(&body);
        match find_model(&body) {
            Ok(routed) => {
                let mut seen = members_of(std::str::from_utf8(&body).unwrap());
                seen.retain(|(key, _)| key == "model");
                prop_assert_eq!(seen, [("model".to_owned(), serde_json::Value::from(routed.as_ref()))]);
            }
            Err(error) if error.code() == "invalid_json" => prop_assert!(standard.is_err()),
            Err(_) => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// From pieces that make something like JSON often enough, and the quick pass knows nothing that the reader does not.
    #[test]
    fn what_the_quick_pass_finds_the_reader_finds(
        pieces in proptest::collection::vec(prop::sample::select(PIECES), 0..14),
    ) {
        let inside: String = pieces.concat();
        for json in [inside.clone(), format!("{{\"model\":\"m\",\"a\":{inside}}}")] {
            if let Some(name) = quick::model(&json) {
                prop_assert_eq!(read(&json, &json), Ok(Cow::Borrowed(name)), "{}", json);
            }
        }
    }
}

const PIECES: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "{}",
    "[]",
    ",",
    ":",
    " ",
    "\n",
    "\t",
    "\u{b}",
    "\"",
    "\"a\"",
    "\"a\":",
    "\"model\":",
    "\"model\"",
    "\"Model\":",
    "\"m\"",
    "\"\"",
    "\\",
    "\\n",
    "\\u00e9",
    "\\u00",
    "\"\\\"\"",
    "\"\\x\"",
    "\"\u{1f}\"",
    "\"ü\"",
    "0",
    "-",
    "-0",
    "01",
    "1.5",
    "1.",
    "2e9",
    "2E+",
    "2e-7",
    "true",
    "false",
    "null",
    "nul",
    "[1,2]",
    "{\"b\":[{}]}",
];

#[test]
fn the_quick_pass_takes_ordinary_bodies_and_leaves_the_rest() {
    let deep = |levels: usize| {
        format!(r#"{{"model":"m","a":{}{}}}"#, "[".repeat(levels - 1), "]".repeat(levels - 1))
    };
    let prompt = "x\\n\\u00e9 ".repeat(1_000);
    for body in [
        r#"{"model":"m"}"#.to_owned(),
        " {\n \"a\" : [ 1 , {\"model\":2} , [ ] , { } ] ,\r\t\"model\" : \"m\" }\n".to_owned(),
        r#"{"a":-0.5e+3,"b":true,"c":false,"d":null,"e":{"f":{},"g":"h"},"model":"m"}"#.to_owned(),
        format!(r#"{{"messages":[{{"role":"user","content":"{prompt}"}}],"model":"m","stream":true}}"#),
        deep(DEPTH_MAX),
    ] {
        assert_eq!(quick::model(&body), Some("m"), "{}", &body[..body.len().min(80)]);
        assert_eq!(read(&body, &body), Ok("m".into()));
    }
    for body in [
        r#"{"model":"m"} x"#,
        r#"{"model":"m",}"#,
        r#"{"model":"m","model":"m"}"#,
        r#"{"model":"m","MODEL":1}"#,
        r#"{"model":"m","a":[1}"#,
        r#"{"model":"m","a":{"b":1]}"#,
        r#"{"model":"m","a":{"b"}}"#,
        r#"{"model":"m","a":01}"#,
        r#"{"model":"","a":1}"#,
        r#"{"model":"\u006d"}"#,
        r#"{"mod\u0065l":"m"}"#,
        "{\"model\":\"m\",\"a\":\"\u{1}\"}",
        r#"{"a":1}"#,
        r#"{}"#,
        "",
        &deep(DEPTH_MAX + 1),
    ] {
        assert_eq!(quick::model(body), None, "{body}");
    }
}

#[test]
fn a_name_that_no_model_can_have_is_found_all_the_same() {
    // It is unknown, like every other name that nobody configured; that is said by whoever looks it up.
    let long = "m".repeat(4096);
    assert_eq!(model(&format!(r#"{{"model":"{long}"}}"#)), Ok(long));
    assert_eq!(model(r#"{"model":"a\nb"}"#), Ok("a\nb".into()));
}
