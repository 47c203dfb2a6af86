// SPDX-License-Identifier: Apache-2.0
//! Field cases about credentials and about faults that are the client's.

use serde_json::json;
use sluice_tests::client::Request;
use sluice_tests::engine::journal::Event;
use sluice_tests::harness::{Cost, Gateway, Replica, eventually, turn};

use crate::support::{fleet, model, secs};

#[tokio::test]
async fn fc_46_client_credentials_stay_here() {
    let _turn = turn(Cost::Light).await;
    let keys = ["idleAfter: 1s"];
    let with_key = [keys.as_slice(), &["backendKey: K2"]].concat();
    let passing = [keys.as_slice(), &["passCredentials: true"]].concat();
    let gw = Gateway::start(&fleet(&[
        model("a", "{}", &with_key),
        model("b", "{}", &keys),
        model("c", "{}", &passing),
    ]))
    .await;
    for (name, expected) in [("a", Some("Bearer K2")), ("b", None), ("c", Some("Bearer K1"))] {
        let request = Request::chat(name)
            .field("authorization", "Bearer K1")
            .field("x-api-key", "K1")
            .field("api-key", "K1");
        gw.send(request).await.expect(200);
        let engines = gw.engines().of(name);
        let seen = engines.requests().pop().unwrap();
        assert_eq!(seen.get("authorization"), expected, "{name}");
        let leaked = seen.headers.iter().any(|(_, v)| v.contains("K1"));
        assert_eq!(leaked, name == "c", "{name}: {:?}", seen.headers);
    }
    gw.leak_check().await;
}

#[tokio::test]
async fn fc_47_probes_carry_the_key() {
    let _turn = turn(Cost::Light).await;
    let script = r#"{"key": "K2"}"#;
    let keys = ["idleAfter: 1s", "startDeadline: 2s", "startAttempts: 1", "backoff: {first: 5s, max: 10s}"];
    let right = [keys.as_slice(), &["backendKey: K2"]].concat();
    let wrong = [keys.as_slice(), &["backendKey: K3"]].concat();
    let gw = Gateway::start(&fleet(&[
        model("right", script, &right),
        model("wrong", script, &wrong),
        model("none", script, &keys),
    ]))
    .await;
    gw.send(Request::chat("right")).await.expect(200);
    let probe = |name: &str| {
        let headers =
            |e: &Event| if let Event::Probe { headers, .. } = e { Some(headers.clone()) } else { None };
        gw.engines().of(name).0.iter().find_map(|r| headers(&r.event)).unwrap()
    };
    let sent = |name: &str| {
        probe(name).into_iter().find(|(n, _)| n.eq_ignore_ascii_case("authorization")).map(|(_, v)| v)
    };
    assert_eq!(sent("right").as_deref(), Some("Bearer K2"));
    for name in ["wrong", "none"] {
        let answer = gw.send(Request::chat(name)).await;
        assert!(matches!(answer.status, 502 | 503), "{}", answer.brief());
        assert!(answer.text().contains("401"), "the cause is named: {}", answer.text());
        assert!(!answer.text().contains("K3"), "{}", answer.text());
        assert!(answer.took() < 2.0 + 0.5, "{} s", answer.took());
    }
    assert_eq!((sent("wrong").as_deref(), sent("none")), (Some("Bearer K3"), None));
    gw.leak_check().await;
}

#[tokio::test]
async fn fc_48_refusals_of_the_replica_are_not_its_faults() {
    let _turn = turn(Cost::Light).await;
    let mut replica = Replica::start("m", &json!({})).await;
    let yaml = format!(
        "models:\n  - name: m\n    url: http://{}\n    readiness: {{readyPeriod: 200ms, failures: 2}}\n    timeouts: {{coldStart: 10s, connect: 500ms}}\n",
        replica.at
    );
    let gw = Gateway::start(&yaml).await;
    gw.settled("m", 1).await;
    let statuses = [400, 401, 404, 413, 422];
    for n in 0..220 {
        let status = if n % 11 == 10 { 200 } else { statuses[n % 5] };
        let body = format!(r#"{{"error":{{"message":"number {n}","code":{n}}}}}"#);
        let act = json!({"status": status, "body": body, "headers": [["x-number", n.to_string()], ["content-type", "text/odd"]]});
        let answer = gw.send(Request::chat("m").act(act)).await;
        assert_eq!(answer.expect(status).text(), body);
        assert_eq!(
            (answer.get("x-number"), answer.get("content-type")),
            (Some(n.to_string().as_str()), Some("text/odd"))
        );
        if n % 20 == 0 {
            assert_eq!(gw.model("m").await["ready"], 1);
        }
    }
    assert_eq!(replica.log().handled(), 220, "nothing is retried");
    assert_eq!(gw.model("m").await["ready"], 1, "health is unchanged");
    replica.kill();
    for _ in 0..5 {
        let answer = gw.send(Request::chat("m").limit(secs(1.0))).await;
        assert_ne!(answer.status, 200);
    }
    eventually("real faults are noticed", secs(3.0), async || {
        (gw.model("m").await["ready"] == 0).then_some(())
    })
    .await;
    replica.again(&json!({})).await;
    eventually("it returns when it recovers", secs(3.0), async || {
        (gw.model("m").await["ready"] == 1).then_some(())
    })
    .await;
    gw.warm("m").await;
    gw.leak_check().await;
}
