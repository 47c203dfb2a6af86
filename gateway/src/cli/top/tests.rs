// SPDX-License-Identifier: Apache-2.0
//! The screen without a terminal: what keys do, and what is drawn.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::render::draw;
use super::state::{Ask, HISTORY, News, Prompt, State, Totals, View};
use crate::admin::api::{self, Model, Replica};
use crate::admin::clock::Moment;
use crate::admin::decisions::{Decision, Inputs};
use crate::admin::events::Event;
use crate::admin::fakes::{broken, cold, replica, warm};

fn models() -> Vec<Model> {
    let mut models: Vec<Model> = [warm("chat"), cold("embed"), broken("org/vision", 2)]
        .iter()
        .map(|model| api::model(model, None, Moment::now()))
        .collect();
    (models[0].in_flight, models[0].queued) = (Some(3), Some(2));
    models
}

fn look(requests: f64, at: u64) -> News {
    let mut one: Replica = api::replica(&replica("chat"), None, Moment::now());
    (one.age_ms, one.in_flight) = (96_000, Some(3));
    let totals = Totals { requests, started: Some(0.0) };
    News::Look { models: models(), replicas: vec![one], totals, at: Duration::from_secs(at) }
}

fn decision(model: &str) -> Decision {
    Decision {
        number: 1,
        at: "2031-05-06T07:08:09.123Z".into(),
        model: model.into(),
        before: 0,
        after: 1,
        rule: "demand".into(),
        inputs: Inputs {
            in_flight: Some(0),
            queued: Some(2),
            idle_ms: None,
            ready: 0,
            starting: 0,
            leaving: 0,
        },
        sized: None,
        kpa: None,
        limits: Vec::new(),
        deeds: Vec::new(),
    }
}

fn seen() -> State {
    let mut state = State::new("127.0.0.1:8081");
    state.take(look(100.0, 60));
    state.take(look(125.0, 62));
    state.take(News::Decisions("chat".to_owned(), vec![decision("chat")]));
    let event = Event { model: Some("chat".to_owned()), ..Event::reload("chat: ready 0 -> 1", &[]) };
    state.take(News::Event(Box::new(event)));
    state
}

fn press(state: &mut State, code: KeyCode) -> Option<Ask> {
    state.take(News::Key(KeyEvent::new(code, KeyModifiers::NONE)))
}

fn write(state: &mut State, text: &str) -> Option<Ask> {
    text.chars().filter_map(|letter| press(state, KeyCode::Char(letter))).last()
}

fn screen(state: &State, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(state, frame)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let rows = buffer.content().chunks(usize::from(width));
    rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()).collect()
}

fn assert_shows(state: &State, text: &str) {
    let all = screen(state, 80, 24).join("\n");
    assert!(all.contains(text), "{text:?} is not in\n{all}");
}

#[test]
fn the_list_has_totals_models_and_what_comes_next() {
    let lines = screen(&seen(), 80, 24);
    assert_eq!(lines[0], " sluice 127.0.0.1:8081  up 62s  3 in flight  2 waiting  1 ready  0 starting  12.");
    assert!(lines[4].contains("models (3)"), "{lines:#?}");
    let text = lines.join("\n");
    for part in [
        "MODEL",
        "NEXT",
        ">chat",
        "1/0/1",
        "starts on the next request",
        "org/vision",
        "r7  ready for 96s",
        "127.0.0.1:41000",
        "3 in flight",
        "chat: ready 0 -> 1",
        "desired 0 -> 1: demand; load 0 in flight, 2 waiting",
        "q quit",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(screen(&seen(), 100, 24)[0].ends_with("12.5 req/s"));
}

#[test]
fn every_size_can_be_drawn() {
    for view in [View::Models, View::Detail, View::Help, View::Logs(vec!["x".repeat(300); 9])] {
        let mut state = seen();
        state.view = view;
        for (width, height) in [(1, 1), (20, 5), (80, 24), (300, 90)] {
            screen(&state, width, height);
        }
    }
    screen(&State::new("a:1"), 80, 24);
}

#[test]
fn arrows_choose_and_enter_shows_all_about_one() {
    let mut state = seen();
    press(&mut state, KeyCode::Up);
    assert_eq!(state.selected.as_deref(), Some("chat"));
    press(&mut state, KeyCode::End);
    press(&mut state, KeyCode::Down);
    assert_eq!(state.selected.as_deref(), Some("org/vision"));
    press(&mut state, KeyCode::Enter);
    assert_shows(&state, "no such file: weights.gguf");
    assert_eq!(press(&mut state, KeyCode::Char('q')), None);
    assert_eq!(state.view, View::Models);
    assert_eq!(press(&mut state, KeyCode::Char('q')), Some(Ask::Quit));
}

#[test]
fn a_filter_narrows_the_list_and_the_choice() {
    let mut state = seen();
    write(&mut state, "/emb");
    assert_shows(&state, "/emb_");
    press(&mut state, KeyCode::Enter);
    assert_eq!((state.selected.as_deref(), state.shown().len()), (Some("embed"), 1));
    assert_shows(&state, "models (1 of 3) with \"emb\"");
    write(&mut state, "/");
    press(&mut state, KeyCode::Esc);
    assert_eq!((state.shown().len(), state.prompt.clone()), (3, Prompt::None));
}

#[test]
fn orders_ask_once() {
    let mut state = seen();
    assert_eq!(write(&mut state, "w"), None);
    assert_shows(&state, "wake chat? y orders it");
    assert_eq!(write(&mut state, "n"), None);
    assert_shows(&state, "not ordered");
    let order = |path: &str, body| Some(Ask::Order { path: path.to_owned(), body });
    assert_eq!(write(&mut state, "sy"), order("/api/v1/models/chat:sleep", None));
    let two = serde_json::json!({ "replicas": 2 });
    assert_eq!(write(&mut state, "+y"), order("/api/v1/models/chat:scale", Some(two)));
    press(&mut state, KeyCode::End);
    assert_eq!(write(&mut state, "wy"), order("/api/v1/models/org%2Fvision:wake", None));
}

#[test]
fn a_lost_connection_is_seen_and_its_return_too() {
    let mut state = seen();
    state.take(News::Lost("cannot connect to sluice at a:1: refused\nis it running?".to_owned()));
    assert_shows(&state, "NO CONNECTION, trying again: cannot connect to sluice at a:1: refused");
    assert_shows(&state, ">chat");
    state.take(look(130.0, 70));
    assert_shows(&state, "3 in flight  2 waiting");
    assert_eq!(state.rate, None);
}

#[test]
fn what_is_kept_has_a_bound() {
    let mut state = seen();
    for at in 0..HISTORY as u64 + 10 {
        state.take(look(0.0, at));
    }
    assert_eq!((state.history.len(), state.history[0]), (HISTORY, (3, 2)));
}

#[test]
fn decisions_of_another_model_are_not_shown() {
    let mut state = seen();
    assert_eq!(state.decided().len(), 1);
    press(&mut state, KeyCode::Down);
    assert!(state.decided().is_empty());
    state.take(News::Decisions("chat".to_owned(), vec![decision("chat"); 2]));
    assert!(state.decided().is_empty());
    state.take(News::Decisions("embed".to_owned(), vec![decision("embed")]));
    assert_eq!(state.decided().len(), 1);
}

#[test]
fn logs_are_fetched_and_cannot_steer_the_terminal() {
    let mut state = seen();
    assert_eq!(write(&mut state, "l"), Some(Ask::Logs("chat".to_owned())));
    state.take(News::Lines("embed".to_owned(), vec!["late".to_owned()]));
    assert_eq!(state.view, View::Models);
    state.take(News::Lines("chat".to_owned(), vec!["r7 a\u{1b}[2Jb".to_owned()]));
    assert_shows(&state, "r7 a [2Jb");
}

#[test]
fn totals_are_sums_over_series() {
    let text = "# HELP x\nsluice_requests_total{model=\"a b\",code=\"200\"} 3\n\
                sluice_requests_total{model=\"c\"} 4\nprocess_start_time_seconds 1.5e3\n";
    assert_eq!(Totals::of(text), Totals { requests: 7.0, started: Some(1500.0) });
}
