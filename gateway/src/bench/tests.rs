// SPDX-License-Identifier: Apache-2.0
//! The generator against servers whose answers are known.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::SocketAddr;

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::post;
use clap::Parser;
use tokio::net::TcpListener;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    bench: BenchArgs,
}

async fn server(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

async fn bench(to: SocketAddr, flags: &[&str]) -> Tally {
    let url = format!("http://{to}");
    let line = ["bench", "--url", &url].into_iter().chain(flags.iter().copied());
    let args = Line::try_parse_from(line).unwrap().bench;
    let plan = Arc::new(Plan::new(&args).unwrap());
    load(args, plan).await
}

fn events(text: &'static str) -> Router {
    let answer = move || async move { ([("content-type", "text/event-stream")], text).into_response() };
    Router::new().route("/v1/chat/completions", post(answer))
}

#[tokio::test]
async fn every_scheduled_request_is_sent_and_its_events_are_counted() {
    let to = server(events("data: 1\n\ndata: 2\n\ndata: [DONE]\n\n")).await;
    for flags in [
        &["--rate", "100", "--duration", "250ms", "--events", "3"][..],
        &["--http2", "--stages", "100:250ms"],
    ] {
        let tally = bench(to, flags).await;
        assert_eq!((tally.answered, tally.events), (25, 75), "{flags:?} {:?}", tally.failures);
        assert!(tally.is_clean());
        assert_eq!((tally.first.count(), tally.total.count()), (25, 25));
    }
}

#[tokio::test]
async fn what_is_begun_in_the_warm_up_is_not_counted() {
    let to = server(events("data: [DONE]\n\n")).await;
    let tally = bench(to, &["--rate", "100", "--duration", "200ms", "--warmup", "100ms"]).await;
    assert_eq!(tally.answered, 10);
}

#[tokio::test]
async fn failures_are_told_apart() {
    let cases = [
        (events("data: 1\n\n"), "ended without [DONE]"),
        (events("data: 1\n\ndata: [DONE]\n\n"), "2 events instead of 9"),
        (Router::new().route("/v1/chat/completions", post(|| async { "{}" })), "not a stream"),
        (Router::new(), "status 404"),
    ];
    for (router, kind) in cases {
        let to = server(router).await;
        let tally = bench(to, &["--rate", "20", "--duration", "100ms", "--events", "9"]).await;
        assert_eq!(tally.failures, [(kind.to_owned(), 2)].into());
        assert!(!tally.is_clean());
    }
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let tally = bench(free, &["--rate", "20", "--duration", "100ms"]).await;
    assert_eq!(tally.failures, [("no connection".to_owned(), 2)].into());
}

#[tokio::test]
async fn a_server_that_stalls_cannot_slow_the_schedule_and_times_count_from_it() {
    let answer = || async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        ([("content-type", "text/event-stream")], "data: [DONE]\n\n").into_response()
    };
    let to = server(Router::new().route("/v1/chat/completions", post(answer))).await;
    let tally = bench(to, &["--rate", "50", "--duration", "200ms"]).await;
    assert_eq!(tally.answered, 10);
    assert!(tally.first.percentile_ms(0.0) >= 299.0, "{}", tally.first.percentile_ms(0.0));
    let tally = bench(to, &["--rate", "50", "--duration", "200ms", "--max-in-flight", "4"]).await;
    assert_eq!(tally.answered, 4);
    assert_eq!(tally.failures.values().sum::<u64>(), 6, "{:?}", tally.failures);
}

#[tokio::test]
async fn a_fixed_number_of_streams_is_kept_up() {
    let to = server(events("data: [DONE]\n\n")).await;
    let tally = bench(to, &["--concurrency", "3", "--duration", "100ms"]).await;
    assert!(tally.is_clean() && tally.answered >= 3, "{:?}", tally.failures);
}

#[test]
fn the_result_is_a_table_or_json() {
    let mut tally = Tally::default();
    let ms = Duration::from_millis;
    let gaps = vec![ms(5), ms(7)];
    tally.add(&Seen { first: Some(ms(20)), total: Some(ms(40)), gaps, events: 3, bytes: 90, failure: None });
    tally.add(&Seen::failed("status 429"));
    let text = report::render(&tally, Duration::from_secs(2), Form::Table);
    assert!(text.starts_with("requests   1 answered, 1 not; 0.5 answers a second\n"), "{text}");
    assert!(text.contains("\nfailed     1 x status 429\n"), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&report::render(&tally, Duration::from_secs(2), Form::Json)).unwrap();
    assert_eq!((json["answered"].as_u64(), json["failures"]["status 429"].as_u64()), (Some(1), Some(1)));
    assert_eq!(json["gapMs"]["count"], 2);
    assert!((json["firstByteMs"]["p50"].as_f64().unwrap() - 20.0).abs() < 0.1);
}

#[test]
fn wrong_arguments_are_refused() {
    for flags in [
        &["--rate", "-1"][..],
        &["--stages", "5"],
        &["--stages", "5:x"],
        &["--header", "no colon"],
        &["--concurrency", "0"],
        &["--rate", "2", "--concurrency", "2"],
    ] {
        assert!(Line::try_parse_from(["bench"].iter().chain(flags)).is_err(), "{flags:?}");
    }
    let args = Line::try_parse_from(["bench", "--url", "https://x"]).unwrap().bench;
    assert!(Plan::new(&args).is_err());
}
