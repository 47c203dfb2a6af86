// SPDX-License-Identifier: Apache-2.0
//! Draws what [`State`] knows. Pure: the same state and size give the same screen. Readable from 80×24 upwards.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Borders, Paragraph, Row, Sparkline, Table, TableState, Wrap};

use super::super::describe::{known, next, one_line};
use super::super::events::line;
use super::super::explain::in_a_line;
use super::super::table::short;
use super::state::{Prompt, State, View};
use crate::admin::api::Model;

const KEYS: &str = "\
up, down, j, k    choose a model
enter, right      all about it
esc, left         back
/                 show only names that contain…
w                 wake it
s                 let it sleep
+ -               one replica more, or one less
l                 what its replicas print
?                 this help
q                 back; from the list: leave

Orders ask once: y gives them, any other key does not.";

/// Decisions beside the list; all that are known stand on the screen of one model.
const DECISIONS: usize = 2;

/// Draws the screen.
pub fn draw(state: &State, frame: &mut Frame<'_>) {
    let parts = [Constraint::Length(1), Constraint::Length(3), Constraint::Min(3), Constraint::Length(1)];
    let [head, lines, body, foot] = Layout::vertical(parts).areas(frame.area());
    header(state, frame, head);
    sparklines(state, frame, lines);
    match &state.view {
        View::Models => {
            let [list, pane] =
                Layout::vertical([Constraint::Percentage(55), Constraint::Percentage(45)]).areas(body);
            models(state, frame, list);
            about(state, frame, pane);
        }
        View::Detail => about(state, frame, body),
        View::Logs(printed) => {
            let name = state.selected.as_deref().unwrap_or_default();
            last_lines(printed, &format!("logs of {name}"), frame, body);
        }
        View::Help => {
            frame.render_widget(Paragraph::new(KEYS).block(framed("keys")), body);
        }
    }
    footer(state, frame, foot);
}

fn header(state: &State, frame: &mut Frame<'_>, area: Rect) {
    let (text, style) = match &state.lost {
        Some(cause) => {
            (format!(" NO CONNECTION, trying again: {cause}"), Style::new().fg(Color::White).bg(Color::Red))
        }
        None => (totals(state), Style::new().add_modifier(Modifier::REVERSED)),
    };
    frame.render_widget(Paragraph::new(plain(&text)).style(style), area);
}

fn totals(state: &State) -> String {
    let (in_flight, queued) = state.load();
    let sum = |of: fn(&Model) -> u32| state.models.iter().map(of).sum::<u32>();
    let up =
        state.uptime.map_or("?".to_owned(), |up| short(u64::try_from(up.as_millis()).unwrap_or(u64::MAX)));
    let rate = state.rate.map_or("?".to_owned(), |rate| format!("{rate:.1}"));
    format!(
        " sluice {}  up {up}  {in_flight} in flight  {queued} waiting  {} ready  {} starting  {rate} req/s",
        state.address,
        sum(|model| model.ready),
        sum(|model| model.starting),
    )
}

fn sparklines(state: &State, frame: &mut Frame<'_>, area: Rect) {
    let [left, right] = Layout::horizontal([Constraint::Percentage(50); 2]).areas(area);
    let both = [("in flight", left, Color::Green), ("waiting", right, Color::Yellow)];
    for (title, area, colour) in both {
        let values = state
            .history
            .iter()
            .map(|(in_flight, queued)| if title == "waiting" { *queued } else { *in_flight });
        let width = usize::from(area.width);
        let values: Vec<u64> = values.skip(state.history.len().saturating_sub(width)).collect();
        let block = Block::new().borders(Borders::TOP).title(title);
        let line = Sparkline::default().data(values).style(Style::new().fg(colour)).block(block);
        frame.render_widget(line, area);
    }
}

fn models(state: &State, frame: &mut Frame<'_>, area: Rect) {
    let shown = state.shown();
    let names = shown.iter().map(|model| model.name.chars().count()).max().unwrap_or(0).clamp(8, 28);
    let rows: Vec<Row<'_>> = shown.iter().map(|model| row(model)).collect();
    let widths = [
        Constraint::Length(u16::try_from(names).unwrap_or(28)),
        Constraint::Length(8),
        Constraint::Length(7),
        Constraint::Length(6),
        Constraint::Length(5),
        Constraint::Length(5),
        Constraint::Min(12),
    ];
    let head = Row::new(["MODEL", "STATE", "R/S/D", "FLIGHT", "QUEUE", "IDLE", "NEXT"]);
    let title = match state.filter.as_str() {
        "" => format!("models ({})", shown.len()),
        filter => format!("models ({} of {}) with {filter:?}", shown.len(), state.models.len()),
    };
    let table = Table::new(rows, widths)
        .header(head.style(Style::new().add_modifier(Modifier::BOLD)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .highlight_symbol(">")
        .block(framed(&title));
    let at = shown.iter().position(|model| Some(&model.name) == state.selected.as_ref());
    frame.render_stateful_widget(table, area, &mut TableState::default().with_selected(at));
}

fn row(model: &Model) -> Row<'static> {
    let colour = match model.state.as_str() {
        _ if model.fault.is_some() => Color::Red,
        "ready" => Color::Green,
        "starting" | "draining" => Color::Yellow,
        _ => Color::DarkGray,
    };
    let cells = [
        plain(&model.name),
        model.state.clone(),
        format!("{}/{}/{}", model.ready, model.starting, model.desired),
        known(model.in_flight),
        known(model.queued),
        model.idle_ms.map_or("-".to_owned(), short),
        plain(&next(model)),
    ];
    Row::new(cells).style(Style::new().fg(colour))
}

/// Replicas and latest events of the selected model.
fn about(state: &State, frame: &mut Frame<'_>, area: Rect) {
    let Some(model) = state.current() else {
        return frame.render_widget(Paragraph::new("no model").block(framed("")), area);
    };
    let mut text: Vec<Line<'_>> = Vec::new();
    if state.view == View::Detail {
        text.push(Line::raw(format!(
            "{}, {}; next: {}",
            model.state,
            plain(&model.reason),
            plain(&next(model))
        )));
        let wanted = known(model.wanted);
        let pinned = model.pinned.map(|n| format!(", {n} ordered")).unwrap_or_default();
        text.push(Line::raw(format!("desired {}, wanted {wanted}{pinned}", model.desired)));
        if let Some(fault) = &model.fault {
            text.push(Line::styled(plain(&fault.cause), Style::new().fg(Color::Red)));
        }
        text.push(Line::raw(""));
    }
    let its = state.replicas.iter().filter(|replica| replica.model == model.name);
    text.extend(its.map(|replica| Line::raw(plain(&one_line(replica)))));
    let decisions = state.decided();
    let most = if state.view == View::Detail { decisions.len() } else { DECISIONS };
    let latest = decisions.iter().skip(decisions.len().saturating_sub(most));
    text.extend(latest.map(|decision| Line::styled(in_a_line(decision), Style::new().fg(Color::Cyan))));
    let room = usize::from(area.height).saturating_sub(2 + text.len());
    let events: Vec<String> =
        state.events.iter().filter(|event| event.model.as_ref() == Some(&model.name)).map(line).collect();
    let latest = events.iter().skip(events.len().saturating_sub(room));
    text.extend(latest.map(|event| Line::styled(event.clone(), Style::new().fg(Color::Gray))));
    frame.render_widget(Paragraph::new(Text::from(text)).block(framed(&plain(&model.name))), area);
}

fn last_lines(lines: &[String], title: &str, frame: &mut Frame<'_>, area: Rect) {
    let room = usize::from(area.height).saturating_sub(2);
    let latest = lines.iter().skip(lines.len().saturating_sub(room));
    let text: Vec<Line<'_>> = latest.map(|line| Line::raw(plain(line))).collect();
    frame.render_widget(Paragraph::new(text).block(framed(title)).wrap(Wrap { trim: false }), area);
}

fn footer(state: &State, frame: &mut Frame<'_>, area: Rect) {
    let text = match &state.prompt {
        Prompt::Confirm { question, .. } => question.clone(),
        Prompt::Filter => format!("/{}_", state.filter),
        Prompt::None if !state.told.is_empty() => state.told.clone(),
        Prompt::None => "enter more  / filter  w wake  s sleep  +/- scale  l logs  ? help  q quit".to_owned(),
    };
    frame.render_widget(Paragraph::new(plain(&text)), area);
}

fn framed(title: &str) -> Block<'static> {
    Block::bordered().title(title.to_owned())
}

/// Without what could steer a terminal.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
