// SPDX-License-Identifier: Apache-2.0
//! Tables for people: aligned columns, short times, nothing that could steer a terminal.

use std::io::{self, Write};

use clap::builder::styling::Style;

/// One cell; its text has no control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// A cell without colour; empty text becomes `-`.
    pub fn new(text: impl AsRef<str>) -> Cell {
        Self::styled(text, Style::new())
    }

    /// A cell in this style, where colours are wanted.
    pub fn styled(text: impl AsRef<str>, style: Style) -> Cell {
        let text = text.as_ref();
        let text = if text.is_empty() { "-" } else { text };
        let text = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        Cell { text, style }
    }
}

/// Columns with a width that only grows, so that rows printed later stay aligned.
#[derive(Clone, Debug)]
pub struct Table {
    header: &'static [&'static str],
    widths: Vec<usize>,
}

impl Table {
    /// A table with these column names.
    pub fn new(header: &'static [&'static str]) -> Table {
        Table { header, widths: header.iter().map(|name| name.chars().count()).collect() }
    }

    /// Writes the header.
    pub fn header(&mut self, rows: &[Vec<Cell>], out: &mut dyn Write) -> io::Result<()> {
        self.fit(rows);
        let names: Vec<Cell> = self.header.iter().map(Cell::new).collect();
        self.row(&names, false, out)
    }

    /// Writes rows.
    pub fn rows(&mut self, rows: &[Vec<Cell>], colour: bool, out: &mut dyn Write) -> io::Result<()> {
        self.fit(rows);
        rows.iter().try_for_each(|row| self.row(row, colour, out))
    }

    fn fit(&mut self, rows: &[Vec<Cell>]) {
        for row in rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
    }

    fn row(&self, row: &[Cell], colour: bool, out: &mut dyn Write) -> io::Result<()> {
        let last = row.len().saturating_sub(1);
        for (column, (cell, width)) in row.iter().zip(&self.widths).enumerate() {
            if colour {
                write!(out, "{}{}{}", cell.style.render(), cell.text, cell.style.render_reset())?;
            } else {
                out.write_all(cell.text.as_bytes())?;
            }
            if column < last {
                let gap = width - cell.text.chars().count() + 2;
                write!(out, "{:gap$}", "")?;
            }
        }
        out.write_all(b"\n")
    }
}

/// A duration in one unit: `250ms`, `1.4s`, `96s`, `14m`, `3h`, `5d`.
pub fn short(ms: u64) -> String {
    let seconds = ms / 1_000;
    match seconds {
        0 => format!("{ms}ms"),
        1..=9 => format!("{}.{}s", seconds, ms % 1_000 / 100),
        10..=119 => format!("{seconds}s"),
        120..=7_199 => format!("{}m", seconds / 60),
        7_200..=172_799 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::builder::styling::AnsiColor;

    use super::*;

    #[test]
    fn times_are_short() {
        let cases = [
            (0, "0ms"),
            (999, "999ms"),
            (1_449, "1.4s"),
            (9_999, "9.9s"),
            (96_000, "96s"),
            (120_000, "2m"),
            (7_200_000, "2h"),
            (172_800_000, "2d"),
        ];
        for (ms, text) in cases {
            assert_eq!(short(ms), text);
        }
    }

    #[test]
    fn columns_align_and_the_last_is_not_padded() {
        let rows = vec![
            vec![Cell::new("größer"), Cell::styled("ready", AnsiColor::Green.on_default())],
            vec![Cell::new(""), Cell::new("x\u{1b}[2J")],
        ];
        let mut out = Vec::new();
        let mut table = Table::new(&["NAME", "STATE"]);
        table.header(&rows, &mut out).unwrap();
        table.rows(&rows, false, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "NAME    STATE\ngrößer  ready\n-       x [2J\n");
    }

    #[test]
    fn colour_surrounds_the_text_only() {
        let mut out = Vec::new();
        let row = vec![vec![Cell::styled("ready", AnsiColor::Green.on_default()), Cell::new("x")]];
        Table::new(&["STATE", "X"]).rows(&row, true, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "\u{1b}[32mready\u{1b}[0m  x\n");
    }
}
