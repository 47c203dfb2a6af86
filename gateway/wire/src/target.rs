// SPDX-License-Identifier: Apache-2.0
//! Which of the surfaces a request is for, by method and path alone.
//!
//! Owns the paths that Sluice answers, routes by, or refuses. Must not know models, credentials or bodies.
//! Paths are brought to one spelling to be matched; what is sent on stays as it came.

use std::borrow::Cow;

use crate::head::Method;
use crate::model_name;

mod blocked;
mod spelling;

/// What a request is for. Names are decoded once: `%2F` is a slash, `%252F` stays `%2F`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// `GET /v1/models`.
    ModelList,
    /// `GET /v1/models/{id}`.
    ModelInfo(Cow<'a, str>),
    /// `GET /v2`.
    V2Server,
    /// `GET /v2/health/live`.
    Live,
    /// `GET /v2/health/ready`.
    Ready,
    /// `GET /v2/models/{m}[/versions/{v}]/ready`.
    V2ModelReady(Cow<'a, str>),
    /// `GET /v2/models/{m}[/versions/{v}]`.
    V2ModelInfo(Cow<'a, str>),
    /// An inference call that names its model in the path; the body is nobody's business.
    Path {
        /// The model.
        model: Cow<'a, str>,
        /// What is asked of it.
        action: Action,
    },
    /// Any other call with a body: its JSON names the model.
    Body,
    /// `OPTIONS`.
    Preflight,
    /// A control surface of inference engines, which is not for clients.
    Blocked,
    /// A path that exists for other methods.
    MethodNotAllowed {
        /// Those methods, as the `allow` field lists them.
        allow: &'static str,
    },
    /// Nothing that the path tells of.
    Unknown,
    /// A path that cannot be read; the words are for the client, the status is 400.
    Bad(&'static str),
}

/// What a path asks of the model that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// KServe V1 `:predict`.
    Predict,
    /// KServe V1 `:explain`.
    Explain,
    /// V2 `/infer`.
    Infer,
    /// V2 `/generate`.
    Generate,
    /// V2 `/generate_stream`.
    GenerateStream,
}

/// Whose shape of error body the callers of a path expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `{"error":{"message",…}}`.
    OpenAi,
    /// `{"type":"error","error":{…}}`.
    Anthropic,
    /// `{"error":"text"}`: KServe V1, V2.
    Kserve,
}

/// The methods of what is read only.
const READ: &str = "GET, HEAD, OPTIONS";
/// The methods of an inference call.
const CALL: &str = "POST, OPTIONS";

/// Classifies a request by its method and its target in origin-form.
pub fn classify(method: Method, target: &[u8]) -> Route<'_> {
    let raw = path_of(target);
    let path = match spelling::normal(raw) {
        Ok(path) => path,
        // `*`, which the head lets through for this method only.
        Err(_) if method == Method::Options => return Route::Preflight,
        Err(reason) => return Route::Bad(reason),
    };
    if blocked::is_blocked(raw, &path) {
        return Route::Blocked;
    }
    if method == Method::Options {
        return Route::Preflight;
    }
    match path {
        Cow::Borrowed(path) => route(method, path),
        Cow::Owned(path) => owned(route(method, &path)),
    }
}

/// The shape of errors that callers of `target` expect.
pub fn family(target: &[u8]) -> Family {
    let raw = path_of(target);
    let path = spelling::normal(raw).unwrap_or(Cow::Borrowed(raw));
    if below(&path, b"/v1/messages").is_some() {
        return Family::Anthropic;
    }
    let v1_call = path.strip_prefix(b"/v1/models/").and_then(v1_action).is_some();
    let v2 = [&b"/v2/models"[..], b"/v2/health", b"/v2/repository"].iter().any(|p| below(&path, p).is_some());
    if v1_call || v2 || matches!(&*path, b"/v2" | b"/v2/") { Family::Kserve } else { Family::OpenAi }
}

fn path_of(target: &[u8]) -> &[u8] {
    target.split(|c| *c == b'?').next().unwrap_or_default()
}

/// What stands behind `prefix` in `path`, when `prefix` ends with a segment.
fn below<'a>(path: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    path.strip_prefix(prefix).filter(|rest| matches!(rest, [] | [b'/', ..]))
}

fn route(method: Method, path: &[u8]) -> Route<'_> {
    match path {
        b"/v1/models" | b"/v1/models/" => read(method, Route::ModelList),
        b"/v2" | b"/v2/" => read(method, Route::V2Server),
        b"/v2/health/live" => read(method, Route::Live),
        b"/v2/health/ready" => read(method, Route::Ready),
        _ => {
            if let Some(rest) = path.strip_prefix(b"/v1/models/") {
                v1_model(method, rest)
            } else if let Some(rest) = path.strip_prefix(b"/v2/models/") {
                v2_model(method, rest)
            } else if below(path, b"/v2/models").is_some() || below(path, b"/v2/repository").is_some() {
                Route::Unknown
            } else {
                match method {
                    Method::Post | Method::Put | Method::Patch => Route::Body,
                    _ => Route::Unknown,
                }
            }
        }
    }
}

fn read(method: Method, route: Route<'_>) -> Route<'_> {
    match method {
        Method::Get | Method::Head => route,
        _ => Route::MethodNotAllowed { allow: READ },
    }
}

/// `rest`: behind `/v1/models/`.
fn v1_model(method: Method, rest: &[u8]) -> Route<'_> {
    if matches!(method, Method::Get | Method::Head) {
        return named(rest, Route::ModelInfo);
    }
    match v1_action(rest) {
        Some((model, action)) => call(method, model, action),
        None => Route::MethodNotAllowed { allow: READ },
    }
}

/// Cuts `{m}:predict` and `{m}:explain`; the colon may be encoded.
fn v1_action(rest: &[u8]) -> Option<(&[u8], Action)> {
    let (before, action) = if let Some(before) = rest.strip_suffix(b"predict") {
        (before, Action::Predict)
    } else {
        (rest.strip_suffix(b"explain")?, Action::Explain)
    };
    let model = [&b":"[..], b"%3A", b"%3a"].iter().find_map(|colon| before.strip_suffix(*colon))?;
    Some((model, action))
}

/// `rest`: behind `/v2/models/`.
fn v2_model(method: Method, rest: &[u8]) -> Route<'_> {
    const CALLS: [(&[u8], Action); 3] = [
        (b"/infer", Action::Infer),
        (b"/generate", Action::Generate),
        (b"/generate_stream", Action::GenerateStream),
    ];
    for (suffix, action) in CALLS {
        if let Some(model) = rest.strip_suffix(suffix) {
            return call(method, without_version(model), action);
        }
    }
    let route = match rest.strip_suffix(b"/ready") {
        Some(model) => named(without_version(model), Route::V2ModelReady),
        None => named(without_version(rest), Route::V2ModelInfo),
    };
    read(method, route)
}

/// Cuts `/versions/{v}` off the end.
fn without_version(model: &[u8]) -> &[u8] {
    let mut from_end = model.rsplitn(3, |c| *c == b'/');
    match (from_end.next(), from_end.next(), from_end.next()) {
        (Some(version), Some(b"versions"), Some(name)) if !version.is_empty() => name,
        _ => model,
    }
}

fn call(method: Method, model: &[u8], action: Action) -> Route<'_> {
    if method != Method::Post {
        return Route::MethodNotAllowed { allow: CALL };
    }
    named(model, |model| Route::Path { model, action })
}

fn named<'a>(raw: &'a [u8], route: impl FnOnce(Cow<'a, str>) -> Route<'a>) -> Route<'a> {
    match text(spelling::decoded(raw)) {
        Some(name) if model_name::is_sound(&name) => route(name),
        _ => Route::Bad("model name in the path is empty, too long or malformed"),
    }
}

fn text(bytes: Cow<'_, [u8]>) -> Option<Cow<'_, str>> {
    match bytes {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
        Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
    }
}

fn owned(route: Route<'_>) -> Route<'static> {
    let keep = |name: Cow<'_, str>| Cow::Owned(name.into_owned());
    match route {
        Route::ModelInfo(name) => Route::ModelInfo(keep(name)),
        Route::V2ModelReady(name) => Route::V2ModelReady(keep(name)),
        Route::V2ModelInfo(name) => Route::V2ModelInfo(keep(name)),
        Route::Path { model, action } => Route::Path { model: keep(model), action },
        Route::ModelList => Route::ModelList,
        Route::V2Server => Route::V2Server,
        Route::Live => Route::Live,
        Route::Ready => Route::Ready,
        Route::Body => Route::Body,
        Route::Preflight => Route::Preflight,
        Route::Blocked => Route::Blocked,
        Route::MethodNotAllowed { allow } => Route::MethodNotAllowed { allow },
        Route::Unknown => Route::Unknown,
        Route::Bad(reason) => Route::Bad(reason),
    }
}

#[cfg(test)]
mod tests;
