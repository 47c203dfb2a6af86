// SPDX-License-Identifier: Apache-2.0
//! What people meet first: the shipped demo configuration, as it is but for ports and times.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::SocketAddr;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use sluice_tests::client::Request;
use sluice_tests::clock::ms;
use sluice_tests::harness::{Cost, Gateway, eventually, turn};

/// deploy/local/demo.yaml with other words in some places, each of which must be there.
fn demo(changes: &[(&str, &str)]) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/local/demo.yaml");
    let mut text = std::fs::read_to_string(path).unwrap();
    for (from, to) in changes {
        assert!(text.contains(from), "{from} does not stand in demo.yaml");
        text = text.replace(from, to);
    }
    text
}

fn post(path: &str, body: Value) -> Request {
    Request::post(path, body.to_string())
}

fn stream(model: &str, tokens: u32) -> Request {
    let messages = json!([{"role": "user", "content": "one two"}]);
    post(
        "/v1/chat/completions",
        json!({"model": model, "stream": true, "max_tokens": tokens, "messages": messages}),
    )
}

/// Process id and address of the one demo engine.
fn engine(gateway: &Gateway) -> (u32, SocketAddr) {
    let processes = gateway.offspring();
    assert_eq!(processes.len(), 1, "{processes:?}");
    let port = processes[0].command.split("--port=").nth(1).unwrap();
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();
    (processes[0].pid, SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap())))
}

#[tokio::test]
async fn the_demo_goes_from_zero_to_answers_and_back() {
    let _turn = turn(Cost::Light).await;
    let quick = [("--load-time=2s", "--load-time=200ms"), ("--token-rate=20 ", "--token-rate=500 ")];
    let gateway = Gateway::start(&demo(&[quick[0], quick[1], ("idleAfter: 30s", "idleAfter: 1s")])).await;

    let list = gateway.send(Request::get("/v1/models")).await;
    assert_eq!(list.expect(200).json()["models"], json!(["chat-demo", "embed-demo"]));
    assert!(gateway.offspring().is_empty(), "listing started something");

    let chat = gateway.send(Request::chat("chat-demo")).await;
    let said = chat.expect(200).json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    assert!(said.contains("chat-demo, not a language model"), "{said}");
    let events = gateway.send(stream("chat-demo", 3)).await.expect(200).events();
    assert_eq!(events.len(), 1 + 3 + 1 + 1);
    assert_eq!(events.last().unwrap().text, "data: [DONE]");
    let embed = gateway.send(post("/v1/embeddings", json!({"model": "embed-demo", "input": "a"}))).await;
    assert_eq!(embed.expect(200).json()["data"][0]["embedding"].as_array().unwrap().len(), 16);
    let tensor = json!({"name": "x", "shape": [2], "datatype": "FP32", "data": [1.0, 2.5]});
    let infer = gateway.send(post("/v2/models/embed-demo/infer", json!({"inputs": [tensor]}))).await;
    assert_eq!(infer.expect(200).json()["outputs"], json!([tensor]));
    let predict = gateway.send(post("/v1/models/embed-demo:predict", json!({"instances": [[1, 2]]}))).await;
    assert_eq!(predict.expect(200).json(), json!({"predictions": [3.0]}));

    eventually("both models are at zero", ms(15_000), async || gateway.offspring().is_empty().then_some(()))
        .await;
}

#[tokio::test]
async fn a_demo_engine_that_is_told_to_stop_finishes_what_it_has() {
    let _turn = turn(Cost::Light).await;
    let changes = [("--load-time=2s", "--load-time=0s"), ("--concurrency=4 ", "--concurrency=1 ")];
    let gateway = Gateway::start(&demo(&changes)).await;
    gateway.send(stream("chat-demo", 1)).await.expect(200);
    let (engine, at) = engine(&gateway);

    let told = async {
        eventually("one request runs and one waits", ms(10_000), async || {
            let text = Request::get("/metrics").send(at).await.text();
            let both = ["running", "waiting"]
                .map(|what| format!("num_requests_{what}{{model_name=\"chat-demo\"}} 1"));
            both.iter().all(|line| text.contains(line)).then_some(())
        })
        .await;
        kill(Pid::from_raw(engine as i32), Signal::SIGTERM).unwrap();
    };
    let (first, second, ()) =
        tokio::join!(gateway.send(stream("chat-demo", 30)), gateway.send(stream("chat-demo", 30)), told);
    for answer in [first, second] {
        assert_eq!(answer.expect(200).events().last().unwrap().text, "data: [DONE]");
    }
    eventually("the engine is gone", ms(10_000), async || {
        gateway.offspring().iter().all(|process| process.pid != engine).then_some(())
    })
    .await;
}
