// SPDX-License-Identifier: Apache-2.0
//! What the API promises, answer by answer: orders, pages, keys, the watch, roles, and every documented status.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use sluice_core::{ModelState, ModelStatus, ReplicaId};
use sluice_scaler::{Command, CommandError};
use tower::ServiceExt;

use super::auth::{self, Role, Tokens};
use super::events::Event;
use super::fakes::{Fake, broken, cold, replica, warm};
use super::openapi::Operation;
use super::operations::operations;
use super::problem::Kind;
use super::tests::{ask, document, problem, router, text};
use super::{Access, ChangeError};

/// No awaited thing is late by less than this.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request with a head and a body.
async fn send(
    router: &Router,
    method: &str,
    path: &str,
    head: &[(&str, &str)],
    body: &str,
) -> Response<Body> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in head {
        request = request.header(*name, *value);
    }
    router.clone().oneshot(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap()
}

/// A fake whose orders are written down.
fn listening(models: Vec<ModelStatus>) -> (Fake, mpsc::Receiver<Command>) {
    let (seen, orders) = mpsc::channel();
    let on = Box::new(move |command: &Command, _: &_| {
        seen.send(command.clone()).unwrap();
        Ok(())
    });
    (Fake::with(models, vec![replica("m")], on), orders)
}

#[tokio::test]
async fn numbers_and_drains_are_ordered() {
    let (fake, orders) = listening(vec![warm("m")]);
    let router = router(&fake);
    let scale = "/api/v1/models/m:scale";
    for (body, count) in [(r#"{"replicas": 3}"#, Some(3)), (r#"{"replicas": null}"#, None)] {
        let response = send(&router, "POST", scale, &[], body).await;
        assert_eq!(response.status(), StatusCode::ACCEPTED);
        assert_eq!(document(response).await["name"], "m");
        assert_eq!(orders.try_recv().unwrap(), Command::Scale("m".into(), count));
    }
    assert_eq!(ask(&router, "POST", "/api/v1/models/m:drain").await.status(), StatusCode::ACCEPTED);
    assert_eq!(orders.try_recv().unwrap(), Command::DrainModel("m".into()));
    let drained = ask(&router, "POST", "/api/v1/replicas/r7:drain").await;
    assert_eq!(drained.status(), StatusCode::ACCEPTED);
    assert_eq!(document(drained).await["id"], "r7");
    assert_eq!(orders.try_recv().unwrap(), Command::Drain(ReplicaId(7)));

    for body in ["", "{}", "[]", r#"{"replicas": -1}"#, r#"{"replicas": 1, "x": 2}"#] {
        problem(send(&router, "POST", scale, &[], body).await, Kind::InvalidBody).await;
    }
    let plain = [("content-type", "text/plain")];
    problem(send(&router, "POST", scale, &plain, r#"{"replicas": 1}"#).await, Kind::UnsupportedType).await;
    problem(ask(&router, "POST", "/api/v1/replicas/r8:drain").await, Kind::UnknownReplica).await;
    problem(send(&router, "POST", scale, &[], &" ".repeat(2 << 20)).await, Kind::TooLarge).await;
    assert!(orders.try_recv().is_err());
}

#[tokio::test]
async fn a_number_above_the_maximum_is_a_conflict() {
    let on = Box::new(|command: &Command, _: &_| match command {
        Command::Scale(model, Some(asked)) => {
            Err(CommandError::AboveMax { model: model.clone(), asked: *asked, most: 2 })
        }
        _ => Ok(()),
    });
    let router = router(&Fake::with(vec![warm("m")], vec![], on));
    let refused = send(&router, "POST", "/api/v1/models/m:scale", &[], r#"{"replicas": 3}"#).await;
    let detail = problem(refused, Kind::AboveMaximum).await;
    assert_eq!(detail, "model m may have at most 2 replicas (maxReplicas), and 3 were asked for");
}

#[tokio::test]
async fn a_dry_run_gives_no_order() {
    let (fake, orders) = listening(vec![warm("m")]);
    let router = router(&fake);
    for path in ["/api/v1/models/m:sleep?dryRun=true", "/api/v1/replicas/r7:drain?dryRun=true"] {
        let response = ask(&router, "POST", path).await;
        assert_eq!(response.status(), StatusCode::OK);
        let effects = document(response).await;
        assert_eq!(
            (&effects["model"]["name"], &effects["starts"], &effects["leave"]),
            (&json!("m"), &json!({}), &json!([]))
        );
    }
    assert!(orders.try_recv().is_err() && fake.events.last() == 0);
}

#[tokio::test]
async fn waiting_ends_when_it_is_so_or_time_is_up_or_starts_fail() {
    let fake = Fake::new(vec![cold("m"), warm("n")], vec![]);
    let router = router(&fake);
    assert_eq!(ask(&router, "POST", "/api/v1/models/n:wake?wait=60").await.status(), StatusCode::OK);
    assert_eq!(ask(&router, "POST", "/api/v1/models/m:wake?wait=0").await.status(), StatusCode::ACCEPTED);
    problem(ask(&router, "POST", "/api/v1/models/m:wake?wait=301").await, Kind::InvalidParameter).await;

    let handle = fake.handle.clone();
    let waiting = {
        let router = router.clone();
        tokio::spawn(async move { ask(&router, "POST", "/api/v1/models/m:wake?wait=60").await })
    };
    while fake.events.last() == 0 {
        tokio::task::yield_now().await;
    }
    Fake::set(&handle, warm("m"));
    let woken = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
    assert_eq!(woken.status(), StatusCode::OK);
    assert_eq!(document(woken).await["state"], "ready");

    let on = Box::new(|_: &Command, handle: &_| {
        Fake::set(handle, broken("m", 3));
        Ok(())
    });
    let failing = super::tests::router(&Fake::with(vec![cold("m")], vec![], on));
    let failed = ask(&failing, "POST", "/api/v1/models/m:wake?wait=60").await;
    assert!(problem(failed, Kind::StartFailed).await.contains("weights.gguf"));
}

#[tokio::test]
async fn the_same_key_carries_an_order_out_once() {
    let (fake, orders) = listening(vec![warm("m")]);
    let router = router(&fake);
    let key = [("idempotency-key", "one")];
    let first = send(&router, "POST", "/api/v1/models/m:wake", &key, "").await;
    assert!(!first.headers().contains_key("idempotency-replayed"));
    let first = text(first).await;
    let again = send(&router, "POST", "/api/v1/models/m:wake", &key, "").await;
    assert_eq!(
        (again.status(), &again.headers()["idempotency-replayed"]),
        (StatusCode::ACCEPTED, &"true".parse().unwrap())
    );
    assert_eq!(text(again).await, first);
    assert_eq!(orders.try_iter().count(), 1);
    let other = send(&router, "POST", "/api/v1/models/m:sleep", &key, "").await;
    problem(other, Kind::IdempotencyReused).await;
    let refused = send(&router, "POST", "/api/v1/models/n:wake", &[("idempotency-key", "two")], "").await;
    problem(refused, Kind::UnknownModel).await;
    let long = "k".repeat(256);
    let refused = send(&router, "POST", "/api/v1/models/m:wake", &[("idempotency-key", &long)], "").await;
    problem(refused, Kind::InvalidParameter).await;
}

#[tokio::test]
async fn a_key_in_use_is_a_conflict_and_a_failure_is_not_remembered() {
    let stopped = Arc::new(Mutex::new(true));
    let (gate, first) = (stopped.clone(), stopped.clone());
    let on = Box::new(move |_: &Command, _: &_| match *gate.lock().unwrap() {
        true => Err(CommandError::Stopped),
        false => Ok(()),
    });
    let router = router(&Fake::with(vec![cold("m")], vec![], on));
    let key = [("idempotency-key", "k")];
    problem(send(&router, "POST", "/api/v1/models/m:wake?wait=60", &key, "").await, Kind::ScalerStopped)
        .await;
    *first.lock().unwrap() = false;
    let waiting = {
        let router = router.clone();
        tokio::spawn(async move {
            send(&router, "POST", "/api/v1/models/m:wake?wait=60", &[("idempotency-key", "k")], "").await
        })
    };
    tokio::task::yield_now().await;
    let meanwhile = send(&router, "POST", "/api/v1/models/m:wake?wait=60", &key, "").await;
    problem(meanwhile, Kind::IdempotencyConflict).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    // Nobody is left who would answer: the key is free again.
    let after = send(&router, "POST", "/api/v1/models/m:wake?wait=0", &key, "").await;
    assert_eq!(after.status(), StatusCode::ACCEPTED);
}

#[tokio::test]
async fn lists_come_in_pages_and_by_state() {
    let names: Vec<String> = (0..5).map(|n| format!("m{n}")).collect();
    let models = names.iter().map(|name| if name == "m3" { warm(name) } else { cold(name) }).collect();
    let router = router(&Fake::new(models, vec![replica("m0")]));
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = document(ask(&router, "GET", &format!("/api/v1/models?limit=2{cursor}")).await).await;
        seen.extend(
            page["items"].as_array().unwrap().iter().map(|model| model["name"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["nextCursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(seen, names);
    let ready = document(ask(&router, "GET", "/api/v1/models?state=ready").await).await;
    assert_eq!(ready["items"][0]["name"], "m3");
    assert_eq!(ready["items"].as_array().unwrap().len(), 1);
    let ready = document(ask(&router, "GET", "/api/v1/replicas?phase=draining").await).await;
    assert_eq!(ready, json!({"items": []}));
    for wrong in [
        "models?limit=0",
        "models?cursor=%20",
        "models?state=odd",
        "replicas?phase=odd",
        "replicas?cursor=bTA",
    ] {
        problem(ask(&router, "GET", &format!("/api/v1/{wrong}")).await, Kind::InvalidParameter).await;
    }
}

/// One event of a stream: id, kind, data.
type Told = (String, String, Value);

/// A stream of events that is read.
struct Stream(Body, String);

impl Stream {
    async fn open(router: &Router, query: &str, last: Option<&str>) -> Stream {
        let head: Vec<(&str, &str)> = last.iter().map(|last| ("last-event-id", *last)).collect();
        let response = send(router, "GET", &format!("/api/v1/watch{query}"), &head, "").await;
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
        Stream(response.into_body(), String::new())
    }

    /// The next block of lines; `None` at the end.
    async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.1.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.1 = rest;
                return Some(block);
            }
            let frame = tokio::time::timeout(PATIENCE, self.0.frame()).await.expect("an event in time")?;
            self.1.push_str(std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap());
        }
    }

    async fn next(&mut self) -> Told {
        let block = self.block().await.expect("an event");
        let field = |name: &str| {
            let line = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            line.unwrap_or_default().to_owned()
        };
        (field("id"), field("event"), serde_json::from_str(&field("data")).expect("data"))
    }
}

#[tokio::test]
async fn the_watch_begins_with_a_snapshot_and_goes_on_where_it_was_left() {
    let fake = Fake::new(vec![cold("m"), cold("n")], vec![replica("m")]);
    let router = router(&fake);
    let mut stream = Stream::open(&router, "", None).await;
    let (id, kind, snapshot) = stream.next().await;
    assert_eq!((kind.as_str(), snapshot["models"].as_array().unwrap().len()), ("snapshot", 2));
    assert_eq!((&snapshot["replicas"][0]["id"], &snapshot["config"]["file"]), (&json!("r7"), &json!("")));

    Fake::set(&fake.handle, ModelStatus { state: ModelState::Starting, desired: 1, ..cold("m") });
    let (_, kind, event) = stream.next().await;
    assert_eq!((kind.as_str(), &event["changed"]), ("model", &json!(["state", "desired"])));
    assert_eq!((&event["model"], &event["modelNow"]["state"]), (&json!("m"), &json!("starting")));
    ask(&router, "POST", "/api/v1/models/n:wake").await;
    fake.events.add(Event::reload("nothing changed", &[]));
    let (third, _, order) = stream.next().await;
    assert_eq!(
        (&order["kind"], &order["text"], &order["by"]),
        (&json!("order"), &json!("n: wake ordered"), &json!(null))
    );

    let mut again = Stream::open(&router, "", Some(&id)).await;
    assert_eq!(again.next().await.2, event, "what was missed, and no snapshot");
    assert_eq!(again.next().await.0, third);
    assert_eq!(again.next().await.2["changed"], json!(["applied"]));

    let mut only = Stream::open(&router, "?model=m", Some(&id)).await;
    assert_eq!(
        (only.next().await.2["model"].clone(), only.next().await.2["kind"].clone()),
        (json!("m"), json!("reload"))
    );
    problem(ask(&router, "GET", "/api/v1/watch?model=x").await, Kind::UnknownModel).await;
    problem(ask(&router, "GET", "/api/v1/watch?modle=m").await, Kind::InvalidParameter).await;
}

#[tokio::test]
async fn what_is_no_longer_kept_is_said_and_a_snapshot_follows() {
    let fake = Fake::new(vec![cold("m")], vec![]);
    let router = router(&fake);
    for last in ["0-1", "nonsense", &fake.events.id(99)] {
        let mut stream = Stream::open(&router, "", Some(last)).await;
        let (id, kind, data) = stream.next().await;
        assert_eq!((id.as_str(), kind.as_str()), ("", "reset"));
        assert!(data["reason"].as_str().unwrap().contains("no longer kept"));
        assert_eq!(stream.next().await.1, "snapshot");
    }
    // A reader that stops reading while the log turns over.
    let mut slow = Stream::open(&router, "", None).await;
    assert_eq!(slow.next().await.1, "snapshot");
    for _ in 0..10_000 {
        fake.events.add(Event::reload("", &[]));
    }
    let mut kinds = BTreeSet::new();
    while kinds.len() < 2 {
        kinds.extend(Some(slow.next().await.1).filter(|kind| kind != "reload"));
    }
    assert_eq!(kinds, BTreeSet::from(["reset".to_owned(), "snapshot".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_shows_that_it_lives() {
    let router = router(&Fake::new(vec![], vec![]));
    let mut stream = Stream::open(&router, "", None).await;
    assert_eq!(stream.next().await.1, "snapshot");
    assert_eq!(stream.block().await.as_deref(), Some(": keep-alive"));
}

/// A token for each role, and a fake that wants them.
fn guarded(models: Vec<ModelStatus>) -> (Fake, Vec<(Role, String)>) {
    let made = [Role::Viewer, Role::Operator, Role::Admin]
        .map(|role| (role, auth::create(role.as_str(), role).unwrap()));
    let file = tempfile::NamedTempFile::new().unwrap();
    let lines: Vec<&str> = made.iter().map(|(_, (_, line))| line.as_str()).collect();
    std::fs::write(file.path(), lines.join("\n")).unwrap();
    let mut fake = Fake::new(models, vec![replica("m")]);
    fake.access = Access::with(Tokens::read(file.path(), false).unwrap());
    (fake, made.into_iter().map(|(role, (token, _))| (role, token)).collect())
}

/// The path of an operation with names filled in.
fn filled(path: &str) -> String {
    path.replace("{model}", "m").replace("{replica}", "r7")
}

#[tokio::test]
async fn each_operation_needs_the_role_that_the_document_names() {
    let (fake, tokens) = guarded(vec![warm("m")]);
    let router = router(&fake);
    for operation in operations() {
        let (method, path) = (operation.method.to_uppercase(), filled(operation.path));
        let without = ask(&router, &method, &path).await;
        let Some(needed) = operation.role else {
            assert!(without.status() != StatusCode::UNAUTHORIZED, "{path}");
            continue;
        };
        assert_eq!(without.headers()[header::WWW_AUTHENTICATE], "Bearer realm=\"sluice\"", "{path}");
        problem(without, Kind::Unauthenticated).await;
        for (role, token) in &tokens {
            let head = [("authorization", format!("Bearer {token}"))];
            let head: Vec<(&str, &str)> = head.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let response = send(&router, &method, &path, &head, "").await;
            match *role >= needed {
                true => assert_ne!(response.status(), StatusCode::FORBIDDEN, "{path} as {role:?}"),
                false => {
                    let detail = problem(response, Kind::Forbidden).await;
                    assert!(detail.contains(needed.as_str()), "{detail}");
                }
            }
        }
    }
}

#[tokio::test]
async fn an_order_is_told_with_the_name_of_its_token() {
    let (fake, tokens) = guarded(vec![warm("m")]);
    let router = router(&fake);
    let bearer = format!("Bearer {}", tokens[1].1);
    let response = send(&router, "POST", "/api/v1/models/m:wake", &[("authorization", &bearer)], "").await;
    assert_eq!(response.status(), StatusCode::ACCEPTED);
    let (_, event) = fake.events.since(0, 1).unwrap().remove(0);
    assert_eq!((event.by.as_deref(), event.text.as_str()), (Some("operator"), "m: wake ordered by operator"));
}

#[tokio::test]
async fn settings_are_shown_patched_and_set_back() {
    let fake = Fake::new(vec![warm("m")], vec![]);
    let router = router(&fake);
    let shown = ask(&router, "GET", "/api/v1/models/m/settings").await;
    assert_eq!(shown.headers()[header::ETAG], "\"v1\"");
    assert_eq!(document(shown).await, json!({"model": "m", "settings": {"window": "60s"}, "origins": {}}));
    let head = [("content-type", "application/merge-patch+json"), ("if-match", "\"v0\", \"v1\"")];
    let patched = send(&router, "PATCH", "/api/v1/models/m?dryRun=true", &head, r#"{"window": "9s"}"#).await;
    assert_eq!(
        (patched.status(), &patched.headers()[header::ETAG]),
        (StatusCode::OK, &"\"v1\"".parse().unwrap())
    );
    let expected = json!({
        "model": "m", "settings": {"window": "60s"}, "origins": {}, "changed": ["window"], "restarts": ["r7"], "dryRun": true,
    });
    assert_eq!(document(patched).await, expected);
    let head = [("if-match", "*")];
    assert_eq!(
        send(&router, "DELETE", "/api/v1/models/m/settings", &head, "").await.status(),
        StatusCode::OK
    );
    let asked = fake.settings.asked.lock().unwrap().clone();
    assert_eq!((&asked[0].patch, asked[0].dry_run), (&Some(json!({"window": "9s"})), true));
    assert_eq!(asked[0].if_match, Some(vec!["v0".to_owned(), "v1".to_owned()]));
    assert_eq!((&asked[1].patch, &asked[1].if_match, asked[1].dry_run), (&None, &None, false));

    for body in ["[]", "1", r#"{"name": "n"}"#, "{"] {
        problem(send(&router, "PATCH", "/api/v1/models/m", &[], body).await, Kind::InvalidBody).await;
    }
    let weak = send(&router, "PATCH", "/api/v1/models/m", &[("if-match", "v1")], "{}").await;
    problem(weak, Kind::InvalidParameter).await;
    problem(ask(&router, "GET", "/api/v1/models/n/settings").await, Kind::UnknownModel).await;
}

#[tokio::test]
async fn keys_of_what_runs_are_for_admins() {
    let (fake, tokens) = guarded(vec![warm("m")]);
    let router = router(&fake);
    fake.settings.origins.lock().unwrap().insert("env.A".to_owned(), "api".to_owned());
    for (method, path, body, role, status) in [
        ("PATCH", "/api/v1/models/m", r#"{"window": "9s", "queue": {"length": 1}}"#, 1, 200),
        ("PATCH", "/api/v1/models/m", r#"{"window": "9s", "command": ["sh"]}"#, 1, 403),
        ("PATCH", "/api/v1/models/m/settings", r#"{"env": {"A": "b"}}"#, 1, 403),
        ("PATCH", "/api/v1/models/m/settings", r#"{"env": {"A": "b"}}"#, 2, 200),
        ("DELETE", "/api/v1/models/m/settings", "", 1, 403),
        ("DELETE", "/api/v1/models/m/settings", "", 2, 200),
    ] {
        let bearer = format!("Bearer {}", tokens[role].1);
        let response = send(&router, method, path, &[("authorization", &bearer)], body).await;
        assert_eq!(response.status(), status, "{method} {path} {body}");
    }
    // Without tokens nobody is admin.
    let open = super::tests::router(&Fake::new(vec![warm("m")], vec![]));
    let refused = send(&open, "PATCH", "/api/v1/models/m", &[], r#"{"url": "http://127.0.0.1:1"}"#).await;
    assert!(problem(refused, Kind::Forbidden).await.starts_with("url: this needs the role admin"));
}

/// A fake in which the model's name decides what becomes of an order.
fn obstinate(kind: Kind) -> Fake {
    let on = Box::new(move |_: &Command, handle: &_| match kind {
        Kind::FixedModel => Err(CommandError::FixedModel("m".into())),
        Kind::ScalerStopped => Err(CommandError::Stopped),
        Kind::AboveMaximum => Err(CommandError::AboveMax { model: "m".into(), asked: 9, most: 1 }),
        Kind::UnknownModel => Err(CommandError::UnknownModel("m".into())),
        Kind::StartFailed => {
            Fake::set(handle, broken("m", 3));
            Ok(())
        }
        _ => Ok(()),
    });
    let fake = Fake::with(vec![cold("m")], vec![replica("m")], on);
    *fake.settings.refuse.lock().unwrap() = match kind {
        Kind::PreconditionFailed => Some(ChangeError::OtherVersion("v2".to_owned())),
        Kind::InvalidSettings => Some(ChangeError::Invalid(Vec::new())),
        Kind::ScalerStopped => Some(ChangeError::Stopping),
        _ => None,
    };
    fake
}

/// Has `operation` answer with this problem; `None` where another test does.
async fn provoked(operation: &Operation, kind: Kind) -> Option<Response<Body>> {
    let mut fake = obstinate(kind);
    let (method, mut path) = (operation.method.to_uppercase(), filled(operation.path));
    let (mut head, mut body): (Vec<(&str, &str)>, _) = (Vec::new(), body_of(operation).to_owned());
    match kind {
        // Made by the layers around every operation in the same way.
        Kind::Internal | Kind::Overloaded | Kind::Timeout | Kind::IdempotencyConflict => return None,
        Kind::Unauthenticated => fake.access = Access::with(Tokens::default()),
        Kind::Forbidden => return None,
        Kind::ForeignOrigin => head.push(("host", "rebound.example")),
        Kind::UnknownModel if operation.path.contains("{replica}") => {}
        Kind::UnknownModel if operation.path.contains("{model}") => {
            path = path.replace("/m", "/nobody").replace("/nobodyodels", "/models")
        }
        Kind::UnknownModel => path += "?model=nobody",
        Kind::UnknownReplica => path = path.replace("r7", "r99"),
        Kind::InvalidParameter => path += "?tail=x&nonsense=1",
        Kind::InvalidBody if operation.body.is_some() => body = "[".to_owned(),
        // Only a body that breaks off.
        Kind::InvalidBody => return None,
        Kind::UnsupportedType => head.push(("content-type", "text/plain")),
        Kind::TooLarge => body = " ".repeat(2 << 20),
        Kind::StartFailed => path += "?wait=60",
        Kind::IdempotencyReused => {
            head.push(("idempotency-key", "k"));
            let router = router(&fake);
            send(&router, &method, &path, &head, &body).await;
            return Some(send(&router, &method, &format!("{path}?dryRun=true"), &head, &body).await);
        }
        Kind::ScalerStopped if operation.id == "getJournal" => fake.handle = sluice_scaler::Handle::new().0,
        _ => {}
    }
    Some(send(&router(&fake), &method, &path, &head, &body).await)
}

/// A body that the operation takes.
fn body_of(operation: &Operation) -> &'static str {
    match operation.id {
        "scaleModel" => r#"{"replicas": 1}"#,
        "patchModel" | "patchSettings" => r#"{"window": "9s"}"#,
        _ => "",
    }
}

#[tokio::test]
async fn every_documented_problem_is_answered_as_documented() {
    let mut provoked_problems = 0;
    for operation in operations() {
        for kind in operation.problems.clone() {
            if let Some(response) = provoked(&operation, kind).await {
                assert_eq!(response.status(), kind.status(), "{} {kind:?}", operation.id);
                problem(response, kind).await;
                provoked_problems += 1;
            }
        }
    }
    assert!(provoked_problems > 80, "{provoked_problems}");
}

#[tokio::test]
async fn every_documented_success_is_answered_as_documented() {
    for operation in operations() {
        for answer in &operation.answers {
            let fake = Fake::new(vec![warm("m")], vec![replica("m")]);
            if answer.status == 200 {
                fake.readiness.ready();
            }
            let changes = operation.method == "post";
            let query = if changes && answer.status == 200 { "?dryRun=true" } else { "" };
            let path = filled(operation.path) + query;
            let method = operation.method.to_uppercase();
            let response = send(&router(&fake), &method, &path, &[], body_of(&operation)).await;
            assert_eq!(response.status().as_u16(), answer.status, "{}", operation.id);
            let content = response.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
            assert!(content.starts_with(answer.content), "{}: {content}", operation.id);
        }
    }
}
