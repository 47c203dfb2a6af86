// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use super::*;

const HERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);
const THERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 2);

fn probe(successes: u32, failures: u32) -> Probe {
    Probe {
        path: "/".to_owned(),
        period: Duration::from_millis(500),
        ready_period: Duration::from_secs(5),
        timeout: Duration::from_secs(1),
        successes,
        failures,
        headers: Vec::new(),
    }
}

fn status(code: u16) -> Result<SocketAddr, Failure> {
    Err(Failure::Status(StatusCode::from_u16(code).unwrap()))
}

/// Answers a quarter of a second apart.
struct Told(Count, Probe, Instant);

impl Told {
    fn new(probe: Probe) -> Told {
        Told(Count::default(), probe, Instant::now())
    }

    fn take(&mut self, answer: Result<SocketAddr, Failure>) -> Option<Change> {
        self.2 += Duration::from_millis(250);
        self.0.take(answer, &self.1, self.2)
    }

    fn pause(&self) -> Duration {
        self.0.pause(&self.1)
    }
}

#[test]
fn successes_count_in_a_row_only() {
    let mut told = Told::new(probe(2, 1));
    assert_eq!(told.take(Ok(HERE)), None);
    assert!(matches!(told.take(status(503)), Some(Change::NotYet(_))));
    assert_eq!(told.take(Ok(HERE)), None);
    assert_eq!(told.take(Ok(HERE)), Some(Change::Ready(HERE)));
    assert_eq!(told.take(Ok(HERE)), None);
}

#[test]
fn failures_count_in_a_row_only_and_the_last_one_is_named() {
    let mut told = Told::new(probe(1, 2));
    told.take(Ok(HERE));
    assert_eq!(told.take(Err(Failure::Refused)), None);
    assert_eq!(told.take(Ok(HERE)), None);
    assert_eq!(told.take(Err(Failure::Refused)), None);
    let why = "readiness probe answered 503 Service Unavailable".to_owned();
    assert_eq!(told.take(status(503)), Some(Change::NotReady(why)));
    assert_eq!(told.take(status(503)), None, "told once");
    assert_eq!(told.take(Ok(HERE)), Some(Change::Ready(HERE)));
}

#[test]
fn another_address_behind_the_name_is_told() {
    let mut told = Told::new(probe(1, 2));
    told.take(Ok(HERE));
    assert_eq!(told.take(Ok(THERE)), Some(Change::Ready(THERE)));
}

#[test]
fn a_reason_for_not_being_ready_yet_is_told_when_new_and_then_now_and_then() {
    let mut told = Told::new(probe(1, 1));
    let answers: Vec<bool> = (0..9).map(|_| told.take(Err(Failure::Refused)).is_some()).collect();
    assert_eq!(answers, [true, false, false, false, true, false, false, false, true]);
    assert!(told.take(status(503)).is_some());
}

#[test]
fn a_start_is_given_up_after_denials_in_a_row_over_some_time() {
    let mut told = Told::new(probe(1, 1));
    for _ in 0..8 {
        assert!(!matches!(told.take(status(401)), Some(Change::Denied(_))));
    }
    told.take(status(503));
    for _ in 0..8 {
        assert!(!matches!(told.take(status(403)), Some(Change::Denied(_))));
    }
    assert!(matches!(told.take(status(403)), Some(Change::Denied(_))));
}

#[test]
fn a_replica_that_was_ready_is_not_given_up_over_denials() {
    let mut told = Told::new(probe(1, 1));
    told.take(Ok(HERE));
    assert!(matches!(told.take(status(401)), Some(Change::NotReady(_))));
    assert!((0..50).all(|_| told.take(status(401)).is_none()));
}

#[test]
fn pauses_follow_the_state() {
    let mut told = Told::new(probe(1, 2));
    told.take(Err(Failure::Refused));
    assert_eq!(told.pause(), REFUSED_PAUSE);
    told.take(status(503));
    assert_eq!(told.pause(), Duration::from_millis(500));
    told.take(Ok(HERE));
    assert_eq!(told.pause(), Duration::from_secs(5));
    told.take(Err(Failure::Refused));
    assert_eq!(told.pause(), Duration::from_secs(5));
}

#[test]
fn the_host_field_names_the_port_unless_it_is_the_schemes_own() {
    let origin = |tls, host: &str, port| authority(&Origin { tls, host: host.to_owned(), port });
    assert_eq!(origin(true, "a.example", 443), "a.example");
    assert_eq!(origin(false, "a.example", 80), "a.example");
    assert_eq!(origin(false, "a.example", 443), "a.example:443");
    assert_eq!(origin(false, "::1", 8000), "[::1]:8000");
}

#[test]
fn a_header_field_that_cannot_be_sent_is_a_failure_without_its_value() {
    let mut probe = probe(1, 1);
    probe.headers = vec![("authorization".to_owned(), Secret("Bearer top\nsecret".to_owned()))];
    let failure = request("a", &probe).unwrap_err().to_string();
    assert!(failure.contains("header") && !failure.contains("top"), "{failure}");
}
