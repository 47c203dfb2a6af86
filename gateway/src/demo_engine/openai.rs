// SPDX-License-Identifier: Apache-2.0
//! The OpenAI side of the demo engine: chat, completions, embeddings and the model list.
//!
//! One choice per request and one prompt per completion; sampling parameters are accepted and change nothing.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use bytes::Bytes;
use http::header;
use http_body::Frame;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::engine::{Engine, Turn};
use super::refusal::{Family, Refusal};
use super::text::{self, Facts};

/// Chat or completion: the two differ in names and in where the text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Api {
    Chat,
    Completion,
}

#[derive(Deserialize)]
struct Generate {
    model: Option<String>,
    messages: Option<Vec<Message>>,
    prompt: Option<Input>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    #[serde(default)]
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    n: Option<u64>,
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

#[derive(Deserialize)]
struct Message {
    content: Option<Content>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
struct Part {
    #[serde(default)]
    text: String,
}

/// Text, or tokens by number, one or many.
#[derive(Deserialize)]
#[serde(untagged)]
enum Input {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u64>),
    TokenLists(Vec<Vec<u64>>),
}

#[derive(Deserialize)]
struct Embed {
    model: Option<String>,
    input: Input,
    #[serde(default)]
    encoding_format: Encoding,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    #[default]
    Float,
    Base64,
}

/// Everything about one generation but its turn.
struct Generation {
    api: Api,
    id: String,
    created: u64,
    model: String,
    prompt_tokens: usize,
    tokens: Vec<String>,
    finish: &'static str,
    include_usage: bool,
}

/// A response body fed by a task; the task learns from its closed channel that the client left.
struct Events(mpsc::Receiver<Bytes>);

pub(super) fn routes() -> Router<Arc<Engine>> {
    Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completion))
        .route("/v1/embeddings", post(embeddings))
        .route("/v1/models", get(models))
}

async fn chat(State(engine): State<Arc<Engine>>, body: Bytes) -> Response {
    generate(engine, Api::Chat, &body).await.unwrap_or_else(|refusal| refusal.to_response(Family::OpenAi))
}

async fn completion(State(engine): State<Arc<Engine>>, body: Bytes) -> Response {
    generate(engine, Api::Completion, &body)
        .await
        .unwrap_or_else(|refusal| refusal.to_response(Family::OpenAi))
}

async fn generate(engine: Arc<Engine>, api: Api, body: &[u8]) -> Result<Response, Refusal> {
    let request: Generate = parse(body)?;
    if request.n.is_some_and(|n| n != 1) {
        return Err(Refusal::Invalid("n must be 1 here".to_owned()));
    }
    let (messages, prompt_tokens) = match api {
        Api::Chat => request.chat_size()?,
        Api::Completion => (1, request.prompt_size()?),
    };
    let turn = engine.turn(request.model.as_deref()).await?;
    turn.count_prompt(prompt_tokens);
    let limit = request.max_completion_tokens.or(request.max_tokens);
    let (length, cut) = engine.length(limit);
    let facts = Facts {
        model: engine.model(),
        messages,
        words: prompt_tokens,
        nth: turn.nth,
        uptime: engine.uptime(),
        waited: turn.waited,
    };
    let generation = Generation {
        api,
        id: format!("{}-{}-{}", api.id_prefix(), engine.created(), turn.nth),
        created: engine.created() + engine.uptime().as_secs(),
        model: engine.model().to_owned(),
        prompt_tokens,
        tokens: text::answer(&facts, length),
        finish: if cut { "length" } else { "stop" },
        include_usage: request.stream_options.is_some_and(|options| options.include_usage),
    };
    match request.stream {
        Some(true) => Ok(generation.streamed(turn)),
        _ => Ok(Json(generation.whole(turn).await).into_response()),
    }
}

async fn embeddings(State(engine): State<Arc<Engine>>, body: Bytes) -> Response {
    match embed(&engine, &body).await {
        Ok(answer) => Json(answer).into_response(),
        Err(refusal) => refusal.to_response(Family::OpenAi),
    }
}

async fn embed(engine: &Arc<Engine>, body: &[u8]) -> Result<Value, Refusal> {
    let request: Embed = parse(body)?;
    let inputs = request.input.into_inputs();
    if inputs.is_empty() {
        return Err(Refusal::Invalid("input is empty".to_owned()));
    }
    let tokens = inputs.iter().map(|(_, tokens)| tokens).sum::<usize>();
    let turn = engine.turn(request.model.as_deref()).await?;
    turn.count_prompt(tokens);
    turn.work(inputs.len()).await;
    let data = inputs.iter().enumerate().map(|(index, (bytes, _))| {
        let vector = text::embedding(bytes, engine.embedding_dim());
        let embedding = match request.encoding_format {
            Encoding::Float => json!(vector),
            Encoding::Base64 => json!(base64_of(&vector)),
        };
        json!({"object": "embedding", "index": index, "embedding": embedding})
    });
    let data: Vec<Value> = data.collect();
    let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
    Ok(json!({"object": "list", "model": engine.model(), "data": data, "usage": usage}))
}

/// One answer in both shapes: OpenAI's `data` and KServe's `models`.
async fn models(State(engine): State<Arc<Engine>>) -> Response {
    let model = json!({
        "id": engine.model(), "object": "model", "created": engine.created(), "owned_by": "sluice-demo-engine",
    });
    Json(json!({"object": "list", "data": [model], "models": [engine.model()]})).into_response()
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body)
        .map_err(|error| Refusal::Invalid(format!("the body is not what this path takes: {error}")))
}

/// Little-endian floats, as the OpenAI clients read them.
fn base64_of(vector: &[f32]) -> String {
    let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

impl Api {
    fn id_prefix(self) -> &'static str {
        match self {
            Self::Chat => "chatcmpl",
            Self::Completion => "cmpl",
        }
    }
}

impl Generate {
    /// Messages and the words in them.
    fn chat_size(&self) -> Result<(usize, usize), Refusal> {
        let messages = self.messages.as_deref().unwrap_or_default();
        if messages.is_empty() {
            return Err(Refusal::Invalid("messages is missing or empty".to_owned()));
        }
        Ok((messages.len(), messages.iter().map(Message::words).sum()))
    }

    fn prompt_size(&self) -> Result<usize, Refusal> {
        match &self.prompt {
            None => Err(Refusal::Invalid("prompt is missing".to_owned())),
            Some(Input::Text(text)) => Ok(text::words(text)),
            Some(Input::Tokens(tokens)) => Ok(tokens.len()),
            Some(Input::Texts(texts)) if texts.len() == 1 => Ok(text::words(&texts[0])),
            Some(Input::TokenLists(lists)) if lists.len() == 1 => Ok(lists[0].len()),
            Some(_) => Err(Refusal::Invalid("only one prompt per request is served here".to_owned())),
        }
    }
}

impl Message {
    fn words(&self) -> usize {
        match &self.content {
            None => 0,
            Some(Content::Text(text)) => text::words(text),
            Some(Content::Parts(parts)) => parts.iter().map(|part| text::words(&part.text)).sum(),
        }
    }
}

impl Input {
    /// Each input's bytes and its count of tokens.
    fn into_inputs(self) -> Vec<(Vec<u8>, usize)> {
        let of_text = |text: String| (text.as_bytes().to_vec(), text::words(&text));
        let of_tokens = |list: Vec<u64>| (list.iter().flat_map(|t| t.to_le_bytes()).collect(), list.len());
        match self {
            Self::Text(text) => vec![of_text(text)],
            Self::Texts(texts) => texts.into_iter().map(of_text).collect(),
            Self::Tokens(list) => vec![of_tokens(list)],
            Self::TokenLists(lists) => lists.into_iter().map(of_tokens).collect(),
        }
    }
}

impl Generation {
    /// The answer in one piece, when its last token is due.
    async fn whole(self, turn: Turn) -> Value {
        for index in 0..self.tokens.len() {
            turn.token(index).await;
        }
        let text = self.tokens.concat();
        let choice = match self.api {
            Api::Chat => json!({
                "index": 0, "message": {"role": "assistant", "content": text}, "logprobs": null,
                "finish_reason": self.finish,
            }),
            Api::Completion => {
                json!({"index": 0, "text": text, "logprobs": null, "finish_reason": self.finish})
            }
        };
        let object = match self.api {
            Api::Chat => "chat.completion",
            Api::Completion => "text_completion",
        };
        json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model, "choices": [choice],
            "usage": self.usage(),
        })
    }

    /// The answer as server-sent events, one a token, each sent when it is due.
    fn streamed(self, turn: Turn) -> Response {
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            tokio::select! {
                () = sender.closed() => {}
                _ = self.send_events(&turn, &sender) => {}
            }
        });
        let headers =
            [(header::CONTENT_TYPE, "text/event-stream; charset=utf-8"), (header::CACHE_CONTROL, "no-cache")];
        (headers, Body::new(Events(receiver))).into_response()
    }

    /// `None` when the client left.
    async fn send_events(&self, turn: &Turn, sender: &mpsc::Sender<Bytes>) -> Option<()> {
        if self.api == Api::Chat {
            let opening = json!({"role": "assistant", "content": ""});
            sender.send(self.event(json!([self.delta(opening, None)]), None)).await.ok()?;
        }
        for (index, token) in self.tokens.iter().enumerate() {
            turn.token(index).await;
            sender.send(self.event(json!([self.piece(token)]), None)).await.ok()?;
        }
        sender.send(self.event(json!([self.last()]), None)).await.ok()?;
        if self.include_usage {
            sender.send(self.event(json!([]), Some(self.usage()))).await.ok()?;
        }
        sender.send(Bytes::from_static(b"data: [DONE]\n\n")).await.ok()
    }

    fn event(&self, choices: Value, usage: Option<Value>) -> Bytes {
        let object = match self.api {
            Api::Chat => "chat.completion.chunk",
            Api::Completion => "text_completion",
        };
        let mut event = json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model, "choices": choices,
        });
        if self.include_usage {
            event["usage"] = usage.unwrap_or(Value::Null);
        }
        Bytes::from(format!("data: {event}\n\n"))
    }

    fn piece(&self, token: &str) -> Value {
        match self.api {
            Api::Chat => self.delta(json!({"content": token}), None),
            Api::Completion => json!({"index": 0, "text": token, "logprobs": null, "finish_reason": null}),
        }
    }

    fn last(&self) -> Value {
        match self.api {
            Api::Chat => self.delta(json!({}), Some(self.finish)),
            Api::Completion => {
                json!({"index": 0, "text": "", "logprobs": null, "finish_reason": self.finish})
            }
        }
    }

    fn delta(&self, delta: Value, finish: Option<&str>) -> Value {
        json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish})
    }

    fn usage(&self) -> Value {
        let (prompt, completion) = (self.prompt_tokens, self.tokens.len());
        json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion})
    }
}

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|event| event.map(|bytes| Ok(Frame::data(bytes))))
    }
}
