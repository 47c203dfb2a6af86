// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used, clippy::expect_used)]
//! What the demo engine answers, asked without a socket, and how it behaves towards clients that wait or leave.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use base64::Engine as _;
use clap::Parser;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::engine::Engine;
use super::{DemoEngineArgs, duration, router, text};

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: DemoEngineArgs,
}

fn loading(flags: &str) -> Arc<Engine> {
    let rate = if flags.contains("--token-rate") { "" } else { "--token-rate 0" };
    let line = format!("demo-engine --port 0 --model demo {rate} {flags}");
    Arc::new(Engine::new(Command::try_parse_from(line.split_whitespace()).unwrap().args))
}

fn ready(flags: &str) -> Arc<Engine> {
    let engine = loading(flags);
    engine.set_ready();
    engine
}

async fn send(engine: &Arc<Engine>, request: Request<Body>) -> (StatusCode, String) {
    let response = router(engine.clone()).oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn get(engine: &Arc<Engine>, path: &str) -> (StatusCode, Value) {
    let (status, body) = send(engine, Request::get(path).body(Body::empty()).unwrap()).await;
    (status, serde_json::from_str(&body).unwrap())
}

async fn post(engine: &Arc<Engine>, path: &str, body: Value) -> (StatusCode, Value) {
    let (status, body) = send(engine, Request::post(path).body(Body::from(body.to_string())).unwrap()).await;
    (status, serde_json::from_str(&body).unwrap())
}

/// The `data:` lines of a stream; every event must be one such line and a blank one.
async fn events(engine: &Arc<Engine>, path: &str, body: Value) -> Vec<String> {
    let (status, text) = send(engine, Request::post(path).body(Body::from(body.to_string())).unwrap()).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let events = text.strip_suffix("\n\n").unwrap().split("\n\n");
    events.map(|event| event.strip_prefix("data: ").unwrap().to_owned()).collect()
}

fn metric(engine: &Engine, name: &str) -> u64 {
    let line = format!("vllm:{name}{{model_name=\"demo\"}} ");
    engine.metrics().lines().find_map(|l| l.strip_prefix(&line)).unwrap().parse().unwrap()
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let patience = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), patience).await.expect(what);
}

fn chat_body() -> Value {
    json!({"model": "demo", "messages": [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "one two three"}]},
    ]})
}

#[tokio::test]
async fn a_chat_answer_counts_what_it_got_and_what_it_sent() {
    let (status, answer) = post(&ready("--tokens 50"), "/v1/chat/completions", chat_body()).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(answer["object"], "chat.completion");
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "stop");
    assert_eq!(choice["message"]["role"], "assistant");
    let said = choice["message"]["content"].as_str().unwrap();
    assert!(said.contains("not a language model"), "{said}");
    assert!(said.contains("2 message(s) with 5 word(s)"), "{said}");
    assert_eq!(text::words(said), 50);
    assert_eq!(answer["usage"], json!({"prompt_tokens": 5, "completion_tokens": 50, "total_tokens": 55}));
}

#[tokio::test]
async fn a_requests_own_limit_cuts_the_answer_and_says_so() {
    let engine = ready("--tokens 10");
    for (field, limit, length, finish) in [
        ("max_tokens", 4, 4, "length"),
        ("max_completion_tokens", 3, 3, "length"),
        ("max_tokens", 99, 10, "stop"),
    ] {
        let mut body = chat_body();
        body[field] = json!(limit);
        let (_, answer) = post(&engine, "/v1/chat/completions", body).await;
        assert_eq!(answer["usage"]["completion_tokens"], length, "{field} {limit}");
        assert_eq!(answer["choices"][0]["finish_reason"], finish, "{field} {limit}");
    }
    assert_eq!(metric(&engine, "generation_tokens_total"), 17);
    assert_eq!(metric(&engine, "prompt_tokens_total"), 15);
}

#[tokio::test]
async fn a_chat_stream_opens_with_the_role_and_ends_with_usage_and_done() {
    let mut body = chat_body();
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let events = events(&ready("--tokens 3"), "/v1/chat/completions", body).await;
    assert_eq!(events.len(), 1 + 3 + 1 + 1 + 1);
    assert_eq!(events.last().unwrap(), "[DONE]");
    let chunks: Vec<Value> = events[..6].iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    assert!(
        chunks
            .iter()
            .all(|chunk| chunk["object"] == "chat.completion.chunk" && chunk["id"] == chunks[0]["id"])
    );
    assert_eq!(chunks[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    let pieces = chunks[1..4].iter().map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().unwrap());
    assert_eq!(pieces.collect::<String>(), "This is the");
    assert_eq!(chunks[4]["choices"][0]["finish_reason"], "stop");
    assert_eq!(chunks[5]["choices"], json!([]));
    assert_eq!(chunks[5]["usage"], json!({"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}));
    assert!(chunks[..5].iter().all(|chunk| chunk["usage"].is_null()));
}

#[tokio::test]
async fn completions_come_whole_and_streamed_without_usage_unless_asked() {
    let engine = ready("--tokens 2");
    let (_, answer) = post(&engine, "/v1/completions", json!({"model": "demo", "prompt": "a b"})).await;
    assert_eq!(answer["object"], "text_completion");
    assert_eq!(answer["choices"][0]["text"], "This is");
    assert_eq!(answer["usage"]["total_tokens"], 4);

    let events = events(&engine, "/v1/completions", json!({"prompt": [7, 8, 9], "stream": true})).await;
    assert_eq!(events.len(), 2 + 1 + 1);
    let first: Value = serde_json::from_str(&events[0]).unwrap();
    assert_eq!(
        first["choices"][0],
        json!({"index": 0, "text": "This", "logprobs": null, "finish_reason": null})
    );
    assert!(first.get("usage").is_none());
}

#[tokio::test]
async fn embeddings_depend_on_the_text_alone_and_base64_holds_the_same_numbers() {
    let engine = ready("--embedding-dim 8");
    let ask =
        |input: Value, format: &str| json!({"model": "demo", "input": input, "encoding_format": format});
    let (_, floats) = post(&engine, "/v1/embeddings", ask(json!(["a b", "c"]), "float")).await;
    let (_, again) = post(&engine, "/v1/embeddings", ask(json!("a b"), "base64")).await;
    assert_eq!(floats["usage"], json!({"prompt_tokens": 3, "total_tokens": 3}));
    let vector = |index: usize| {
        let numbers = floats["data"][index]["embedding"].as_array().unwrap();
        numbers.iter().map(|x| x.as_f64().unwrap() as f32).collect::<Vec<f32>>()
    };
    assert_eq!(vector(0).len(), 8);
    assert_ne!(vector(0), vector(1));
    let norm = vector(0).iter().map(|x| x * x).sum::<f32>();
    assert!((norm - 1.0).abs() < 1e-5, "{norm}");
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(again["data"][0]["embedding"].as_str().unwrap())
        .unwrap();
    let decoded: Vec<f32> =
        bytes.chunks(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect();
    assert_eq!(decoded, vector(0));
}

#[tokio::test]
async fn nothing_but_lists_and_liveness_is_served_while_loading() {
    let engine = loading("");
    assert_eq!(get(&engine, "/health").await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        get(&engine, "/v2/health/ready").await,
        (StatusCode::SERVICE_UNAVAILABLE, json!({"ready": false}))
    );
    assert_eq!(get(&engine, "/v2/health/live").await, (StatusCode::OK, json!({"live": true})));
    assert_eq!(get(&engine, "/v1/models").await.0, StatusCode::OK);
    let (status, refusal) = post(&engine, "/v1/chat/completions", chat_body()).await;
    assert_eq!(
        (status, &refusal["error"]["code"]),
        (StatusCode::SERVICE_UNAVAILABLE, &json!("model_loading"))
    );

    engine.set_ready();
    assert_eq!(get(&engine, "/health").await, (StatusCode::OK, json!({"status": "ok"})));
    assert_eq!(get(&engine, "/v2/health/ready").await, (StatusCode::OK, json!({"ready": true})));
}

#[tokio::test]
async fn the_model_list_has_both_shapes() {
    let (_, list) = get(&ready(""), "/v1/models").await;
    assert_eq!(list["object"], "list");
    assert_eq!(list["data"][0]["id"], "demo");
    assert_eq!(list["models"], json!(["demo"]));
}

#[tokio::test]
async fn kserve_v1_predicts_a_number_per_instance() {
    let engine = ready("");
    assert_eq!(
        get(&engine, "/v1/models/demo").await,
        (StatusCode::OK, json!({"name": "demo", "ready": true}))
    );
    let instances = json!({"instances": [[1, 2, 3.5], {"a": 4, "b": [5, "text"]}]});
    let expected = (StatusCode::OK, json!({"predictions": [6.5, 9.0]}));
    assert_eq!(post(&engine, "/v1/models/demo:predict", instances.clone()).await, expected);
    assert_eq!(post(&engine, "/v1/models/demo%3Apredict", instances.clone()).await, expected);
    let (status, refusal) = post(&engine, "/v1/models/other:predict", instances).await;
    assert_eq!(
        (status, refusal),
        (StatusCode::NOT_FOUND, json!({"error": "model other does not exist here"}))
    );
}

#[tokio::test]
async fn kserve_v2_gives_the_inputs_back() {
    let engine = ready("");
    for path in ["/v2", "/v2/"] {
        assert_eq!(get(&engine, path).await.1["name"], "sluice-demo-engine");
    }
    assert_eq!(get(&engine, "/v2/models/demo/ready").await.1, json!({"name": "demo", "ready": true}));
    assert_eq!(get(&engine, "/v2/models/demo").await.1["versions"], json!(["1"]));
    let tensor = json!({"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [[1.0, 2.0], [3.0, 4.5]]});
    for path in ["/v2/models/demo/infer", "/v2/models/demo/versions/1/infer"] {
        let (status, answer) = post(&engine, path, json!({"id": "7", "inputs": [tensor]})).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(
            answer,
            json!({"model_name": "demo", "model_version": "1", "id": "7", "outputs": [tensor]})
        );
    }
    let short = json!({"name": "x", "shape": [3], "datatype": "INT64", "data": [1, 2]});
    let (status, refusal) = post(&engine, "/v2/models/demo/infer", json!({"inputs": [short]})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(refusal["error"].as_str().unwrap().contains("shape [3]"), "{refusal}");
}

#[tokio::test]
async fn what_it_cannot_serve_is_refused_in_the_callers_shape() {
    let engine = ready("");
    for (path, body, status, code) in [
        (
            "/v1/chat/completions",
            json!({"model": "other", "messages": [{"role": "user"}]}),
            404,
            "model_not_found",
        ),
        ("/v1/chat/completions", json!({"model": "demo"}), 400, "invalid_request"),
        ("/v1/completions", json!({"prompt": ["a", "b"]}), 400, "invalid_request"),
        ("/v1/completions", json!({"prompt": "a", "n": 2}), 400, "invalid_request"),
        ("/v1/embeddings", json!({"input": []}), 400, "invalid_request"),
    ] {
        let (got, refusal) = post(&engine, path, body.clone()).await;
        assert_eq!(
            (got.as_u16(), refusal["error"]["code"].as_str().unwrap()),
            (status, code),
            "{path} {body}"
        );
        assert!(refusal["error"].as_object().unwrap().contains_key("param"));
    }
}

#[tokio::test]
async fn a_key_is_demanded_everywhere_but_on_health_paths() {
    let engine = ready("--api-key secret");
    assert_eq!(get(&engine, "/health").await.0, StatusCode::OK);
    assert_eq!(get(&engine, "/v2/health/ready").await.0, StatusCode::OK);
    assert_eq!(get(&engine, "/v1/models").await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(
        get(&engine, "/v2/models/demo").await.1,
        json!({"error": "wrong or missing key: send authorization: Bearer KEY"})
    );
    for (value, status) in [("Bearer secret", StatusCode::OK), ("Bearer secre", StatusCode::UNAUTHORIZED)] {
        let request = Request::get("/v1/models").header("authorization", value).body(Body::empty()).unwrap();
        assert_eq!(send(&engine, request).await.0, status, "{value}");
    }
}

#[tokio::test]
async fn requests_beyond_the_slots_wait_and_beyond_the_line_are_refused() {
    let engine = ready("--concurrency 1 --max-waiting 1");
    let first = engine.turn(None).await.unwrap();
    let second = tokio::spawn({
        let engine = engine.clone();
        async move { engine.turn(None).await.map(|turn| turn.nth) }
    });
    until("the second request waits", || metric(&engine, "num_requests_waiting") == 1).await;
    assert_eq!(metric(&engine, "num_requests_running"), 1);
    let (status, refusal) = post(&engine, "/v1/chat/completions", chat_body()).await;
    assert_eq!((status, &refusal["error"]["code"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("queue_full")));
    drop(first);
    assert_eq!(second.await.unwrap(), Ok(2));
    assert_eq!((metric(&engine, "num_requests_waiting"), metric(&engine, "num_requests_running")), (0, 0));
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_generation_and_its_waiting() {
    let engine = ready("--concurrency 1 --token-rate 50 --tokens 1000000");
    let mut body = chat_body();
    body["stream"] = json!(true);
    let request = Request::post("/v1/chat/completions").body(Body::from(body.to_string())).unwrap();
    let mut running = router(engine.clone()).oneshot(request).await.unwrap().into_body();
    running.frame().await.unwrap().unwrap();
    let waiting = tokio::spawn({
        let engine = engine.clone();
        async move { post(&engine, "/v1/chat/completions", chat_body()).await }
    });
    until("the second request waits", || metric(&engine, "num_requests_waiting") == 1).await;
    waiting.abort();
    until("the waiting one is gone", || metric(&engine, "num_requests_waiting") == 0).await;
    drop(running);
    until("the running one is gone", || metric(&engine, "num_requests_running") == 0).await;
}

#[test]
fn durations_need_a_unit() {
    assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
    assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
    assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
    for wrong in ["2", "s", "-1s", "2h", ""] {
        assert!(duration(wrong).is_err(), "{wrong:?}");
    }
}
