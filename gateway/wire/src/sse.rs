// SPDX-License-Identifier: Apache-2.0
//! Where a stream of server-sent events may be cut, and how many events it has had.
//!
//! Owns the line and event ends of the event-stream format. Must not know what events say.

/// Watches an event stream go by. A line ends with LF, CRLF or CR, an event with an empty line.
#[derive(Clone, Debug)]
pub struct EventBoundary {
    line: Line,
    /// The last byte was CR: an LF next belongs to the same line end.
    after_cr: bool,
    /// The last line was empty, or there was none yet.
    boundary: bool,
    /// A `data` line stands since the last boundary.
    has_data: bool,
    events: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// This many bytes of the line were read, and all are the start of `data`.
    Data(usize),
    /// Some other line, or a data line whose name is read.
    Rest,
}

const DATA: &[u8] = b"data";

impl Default for EventBoundary {
    fn default() -> Self {
        EventBoundary { line: Line::Data(0), after_cr: false, boundary: true, has_data: false, events: 0 }
    }
}

impl EventBoundary {
    /// Takes the next bytes of the stream.
    pub fn feed(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some((byte, after)) = rest.split_first() {
            rest = after;
            if std::mem::take(&mut self.after_cr) && *byte == b'\n' {
                continue;
            }
            match byte {
                b'\r' | b'\n' => {
                    self.end_line();
                    self.after_cr = *byte == b'\r';
                }
                _ => {
                    self.within_line(*byte);
                    if self.line == Line::Rest {
                        let end = memchr::memchr2(b'\r', b'\n', rest).unwrap_or(rest.len());
                        rest = rest.get(end..).unwrap_or_default();
                    }
                }
            }
        }
    }

    /// Whether nothing is begun: an event written here would stand by itself.
    pub fn at_boundary(&self) -> bool {
        self.boundary
    }

    /// Ended events that have data; comments and bare names are none.
    pub fn events(&self) -> u64 {
        self.events
    }

    fn end_line(&mut self) {
        self.boundary = self.line == Line::Data(0);
        if self.line == Line::Data(DATA.len()) {
            self.has_data = true;
        }
        if self.boundary && std::mem::take(&mut self.has_data) {
            self.events += 1;
        }
        self.line = Line::Data(0);
    }

    fn within_line(&mut self, byte: u8) {
        self.boundary = false;
        self.line = match self.line {
            Line::Data(read) if DATA.get(read) == Some(&byte) => Line::Data(read + 1),
            Line::Data(read) => {
                self.has_data |= read == DATA.len() && byte == b':';
                Line::Rest
            }
            Line::Rest => Line::Rest,
        };
    }
}

#[cfg(test)]
mod tests;
