// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;

use super::*;

fn get(target: &str) -> Route<'_> {
    classify(Method::Get, target.as_bytes())
}

fn post(target: &str) -> Route<'_> {
    classify(Method::Post, target.as_bytes())
}

fn path(model: &str, action: Action) -> Route<'_> {
    Route::Path { model: model.into(), action }
}

#[test]
fn what_sluice_answers_itself_is_recognised_in_every_spelling() {
    for method in [Method::Get, Method::Head] {
        for (target, route) in [
            ("/v1/models", Route::ModelList),
            ("/v1/models/", Route::ModelList),
            ("/v1/models?limit=2", Route::ModelList),
            ("/%76%31/m%6fdels", Route::ModelList),
            ("/v1/./models", Route::ModelList),
            ("/x/../v1/models", Route::ModelList),
            ("/v2", Route::V2Server),
            ("/v2/", Route::V2Server),
            ("/v2/health/live", Route::Live),
            ("/v2/health/ready", Route::Ready),
            ("/v2/models/m/ready", Route::V2ModelReady("m".into())),
            ("/v2/models/m/versions/3/ready", Route::V2ModelReady("m".into())),
            ("/v2/models/m", Route::V2ModelInfo("m".into())),
            ("/v2/models/m/versions/3", Route::V2ModelInfo("m".into())),
            ("/v2/models/org/m-7b/ready", Route::V2ModelReady("org/m-7b".into())),
            ("/v2/models/org%2Fready", Route::V2ModelInfo("org/ready".into())),
        ] {
            assert_eq!(classify(method, target.as_bytes()), route, "{method:?} {target}");
        }
    }
}

#[test]
fn fc_06_every_spelling_of_an_id_is_the_same_model_and_a_double_encoding_is_not() {
    for id in ["org/m-7b", "org%2Fm-7b", "org%2fm-7b", "%6Frg/m%2D7b", "org/./m-7b"] {
        assert_eq!(get(&format!("/v1/models/{id}")), Route::ModelInfo("org/m-7b".into()), "{id}");
    }
    for id in ["org/sub/m:q4", "org/sub/m%3Aq4", "org%2Fsub%2Fm%3aq4"] {
        assert_eq!(get(&format!("/v1/models/{id}")), Route::ModelInfo("org/sub/m:q4".into()), "{id}");
        let predict = format!("/v1/models/{id}:predict");
        assert_eq!(post(&predict), path("org/sub/m:q4", Action::Predict));
    }
    assert_eq!(get("/v1/models/org%252Fm-7b"), Route::ModelInfo("org%2Fm-7b".into()));
    assert_eq!(get("/v1/models/m%2541"), Route::ModelInfo("m%41".into()));
}

#[test]
fn calls_name_their_model_in_the_path() {
    for (target, route) in [
        ("/v1/models/m:predict", path("m", Action::Predict)),
        ("/v1/models/m%3Apredict", path("m", Action::Predict)),
        ("/v1/models/m%3aexplain?x=1", path("m", Action::Explain)),
        ("/v1/models/a%3Ab:explain", path("a:b", Action::Explain)),
        ("/v2/models/m/infer", path("m", Action::Infer)),
        ("/v2/models/m/versions/1/infer", path("m", Action::Infer)),
        ("/v2/models/org/m/generate", path("org/m", Action::Generate)),
        ("/v2/models/org%2Fm/generate_stream", path("org/m", Action::GenerateStream)),
        ("/v2/models/versions/infer", path("versions", Action::Infer)),
        ("/v2/models/a/versions/b/versions/c/infer", path("a/versions/b", Action::Infer)),
    ] {
        assert_eq!(post(target), route, "{target}");
    }
}

#[test]
fn other_calls_name_it_in_the_body() {
    for method in [Method::Post, Method::Put, Method::Patch] {
        for target in [
            "/v1/chat/completions",
            "/v1/messages",
            "/tokenize",
            "/",
            "/v2/rerank",
            "/v1/modelsx",
            "//v1/models",
        ] {
            assert_eq!(classify(method, target.as_bytes()), Route::Body, "{method:?} {target}");
        }
    }
    for target in ["/v1/chat/completions", "/metrics", "/", "/v2/models", "/v2/repository/index"] {
        assert_eq!(get(target), Route::Unknown, "{target}");
    }
    assert_eq!(classify(Method::Delete, b"/v1/files/1"), Route::Unknown);
    assert_eq!(post("/v2/repository/index"), Route::Unknown);
}

#[test]
fn a_known_path_tells_which_methods_it_has() {
    let read = Route::MethodNotAllowed { allow: "GET, HEAD, OPTIONS" };
    let call = Route::MethodNotAllowed { allow: "POST, OPTIONS" };
    for target in
        ["/v1/models", "/v1/models/m", "/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/m/ready"]
    {
        assert_eq!(post(target), read, "{target}");
        assert_eq!(classify(Method::Delete, target.as_bytes()), read, "{target}");
    }
    assert_eq!(get("/v2/models/m/infer"), call);
    assert_eq!(classify(Method::Put, b"/v1/models/m:predict"), call);
}

#[test]
fn l16_h14_options_is_answered_for_any_path() {
    for target in ["*", "/", "/v1/models", "/v1/chat/completions"] {
        assert_eq!(classify(Method::Options, target.as_bytes()), Route::Preflight, "{target}");
    }
}

#[test]
fn engines_control_surfaces_are_blocked_in_every_spelling() {
    for target in [
        "/sleep",
        "/sleep?level=1",
        "/sleep/",
        "/Sleep",
        "//sleep",
        "/./sleep",
        "/x/../sleep",
        "/x//../sleep",
        "/x//../../sleep",
        "/%73leep",
        "/sl%65ep",
        "/%2573leep",
        "/%252573leep",
        "/%2Fsleep",
        "/x%2F..%2Fsleep",
        "/x/%2e%2e/sleep",
        "/x/%252e%252e/sleep",
        "/%252e%252e/sleep",
        "/sleep;a=b",
        "/x\\..\\sleep",
        "/sleep/.",
        "/sleep/x/..",
        "/v1//sleep",
        "/wake_up",
        "/wake%5Fup",
        "/is_sleeping",
        "/collective_rpc",
        "/reset_prefix_cache",
        "/v1/load_lora_adapter",
        "/slots/0?action=save",
        "/v2/repository/models/m/load",
        "/v2/repository/models/org/m/unload",
        "/v2/repository/models/m/%6Coad",
        "/v2//repository/models/m/unload/",
        "/v2/systemsharedmemory/status",
        "/v2/systemsharedmemory/region/r/register",
        "/v2/cudasharedmemory/status",
        "/v2/trace/setting",
        "/v2/logging",
        "/v2//../logging",
    ] {
        for method in [Method::Get, Method::Head, Method::Post, Method::Put, Method::Delete, Method::Options]
        {
            assert_eq!(classify(method, target.as_bytes()), Route::Blocked, "{method:?} {target}");
        }
    }
    for target in ["/sleeper", "/v1/models/sleep", "/v2/models/sleep/ready", "/v1/chat/sleep", "/v3/sleep"] {
        assert_ne!(get(target), Route::Blocked, "{target}");
    }
}

#[test]
fn l15_a_path_above_the_root_and_a_broken_escape_are_refused() {
    for target in [
        "/..",
        "/../v1/models",
        "/a/../../v1/models",
        "/%2e%2e/v1/models",
        "/a/%2E./../b",
        "/v1/models/%",
        "/v1/models/a%2",
        "/v1/models/a%zz",
        "/v1/models/%2%35",
        "/v1/models/%ff",
        "/v1/models/a%00b",
        "/v2/models//ready",
        "/v1/models/:predict",
    ] {
        let method = if target.ends_with("predict") { Method::Post } else { Method::Get };
        assert!(matches!(classify(method, target.as_bytes()), Route::Bad(_)), "{target}: {:?}", get(target));
    }
    let long = format!("/v1/models/{}", "m".repeat(513));
    assert!(matches!(get(&long), Route::Bad(_)));
    assert_eq!(get("/a/../v1/models"), Route::ModelList);
    assert_eq!(get("/a/%2e%2e/v1/models"), Route::ModelList);
}

#[test]
fn errors_take_the_shape_that_callers_of_the_path_expect() {
    for (target, shape) in [
        ("/v1/chat/completions", Family::OpenAi),
        ("/v1/models", Family::OpenAi),
        ("/v1/models/m", Family::OpenAi),
        ("/v1/messages", Family::Anthropic),
        ("/v1/messages/count_tokens?beta=true", Family::Anthropic),
        ("/v1/messagesx", Family::OpenAi),
        ("/v1/models/m:predict", Family::Kserve),
        ("/v1/models/m%3Aexplain", Family::Kserve),
        ("/v2/models/m/infer", Family::Kserve),
        ("/v2/health/ready", Family::Kserve),
        ("/v2/repository/index", Family::Kserve),
        ("/v2", Family::Kserve),
        ("/v2/rerank", Family::OpenAi),
        ("*", Family::OpenAi),
    ] {
        assert_eq!(family(target.as_bytes()), shape, "{target}");
    }
}

proptest! {
    /// Encoding any bytes of a path once changes neither what it is for nor the name in it.
    #[test]
    fn encoding_once_changes_nothing(
        name in "[a-zA-Z0-9_.:@+ -]{0,8}[a-zA-Z0-9_:@+-]",
        at in proptest::collection::vec(any::<bool>(), 64),
        kind in 0usize..5,
    ) {
        let encode = |text: &str| -> String {
            let mut at = at.iter().cycle();
            text.chars()
                .map(|c| match c {
                    _ if c != '/' && (c == ' ' || *at.next().unwrap()) => format!("%{:02X}", c as u32),
                    _ => c.into(),
                })
                .collect()
        };
        let (method, before, after, route) = match kind {
            0 => (Method::Get, "/v1/models/", "", Route::ModelInfo(name.as_str().into())),
            1 => (Method::Post, "/v1/models/", ":predict", path(&name, Action::Predict)),
            2 => (Method::Get, "/v2/models/", "/ready", Route::V2ModelReady(name.as_str().into())),
            3 => (Method::Post, "/v2/models/", "/versions/1/infer", path(&name, Action::Infer)),
            _ => (Method::Post, "/v2/models/", "/generate", path(&name, Action::Generate)),
        };
        let after = if kind == 1 { after.into() } else { encode(after) };
        let target = format!("{}{}{after}", encode(before), encode(&name));
        prop_assert_eq!(classify(method, target.as_bytes()), route, "{}", target);
    }

    /// Any bytes give a verdict.
    #[test]
    fn any_bytes_are_classified(
        target in proptest::collection::vec(any::<u8>(), 0..64),
        slash in any::<bool>(),
    ) {
        let target = if slash { [b"/", &target[..]].concat() } else { target };
        let _ = (classify(Method::Get, &target), classify(Method::Post, &target), family(&target));
    }
}
