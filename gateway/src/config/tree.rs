// SPDX-License-Identifier: Apache-2.0
//! YAML text as a tree in which every word knows where it stands.
//!
//! Owns syntax: one document, no duplicate keys, no tags, aliases within bounds. Must not know any key of
//! ours, nor what a scalar means: texts stay as they are written.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use granit_parser::{Event, Parser, ScalarStyle, Span};

use super::report::{Code, Fault};

/// Longest document, in bytes.
pub(super) const MAX_BYTES: usize = 8 << 20;
/// Most nodes of a document once every alias is written out.
const MAX_NODES: usize = 500_000;

/// Where something stands in the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// First byte.
    pub start: usize,
    /// Byte after the last.
    pub end: usize,
    /// Line, from 1.
    pub line: usize,
    /// Character in the line, from 1.
    pub column: usize,
}

/// A value.
#[derive(Debug)]
pub(super) struct Node {
    pub place: Place,
    pub value: Value,
    /// Nodes in all, with aliases written out.
    weight: usize,
}

/// What a value is.
#[derive(Debug)]
pub(super) enum Value {
    Scalar { text: String, plain: bool },
    List(Vec<Rc<Node>>),
    Map(Vec<(Word, Rc<Node>)>),
}

/// A key.
#[derive(Clone, Debug)]
pub(super) struct Word {
    pub text: String,
    pub place: Place,
}

impl Node {
    /// One that was not read from the text.
    pub fn made(place: Place, value: Value) -> Node {
        Node { place, value, weight: 1 }
    }

    /// Whether nothing was written, or YAML's word for nothing.
    pub fn is_null(&self) -> bool {
        match &self.value {
            Value::Scalar { text, plain: true } => {
                matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL")
            }
            _ => false,
        }
    }

    /// What it is, for a message.
    pub fn describe(&self) -> &'static str {
        match &self.value {
            _ if self.is_null() => "nothing",
            Value::Scalar { .. } => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a table of keys",
        }
    }
}

/// Reads the one document of `text`; with it come faults that do not keep the rest from being looked at.
pub(super) fn parse(text: &str) -> Result<(Rc<Node>, Vec<Fault>), Vec<Fault>> {
    if text.len() > MAX_BYTES {
        let message = format!("the file has {} bytes; at most {MAX_BYTES} are read", text.len());
        return Err(vec![Fault::new(Code::TooLarge, Place::default(), message)]);
    }
    let mut builder = Builder::default();
    for next in Parser::new_from_str_with_options(text, granit_parser::options! { emit_comments: false }) {
        let outcome = match next {
            Ok((event, span)) => builder.take(event, place(text, span)),
            Err(error) => {
                let at = span_at(text, error.marker().byte_offset().unwrap_or(0));
                Err(Fault::new(Code::Syntax, at, format!("not valid YAML: {}", error.info())).hidden())
            }
        };
        if let Err(fault) = outcome {
            builder.faults.push(fault);
            return Err(builder.faults);
        }
    }
    builder.finish()
}

/// A node that is being read.
enum Frame {
    List { items: Vec<Rc<Node>>, at: Place, anchor: usize },
    Map { entries: Vec<(Word, Rc<Node>)>, key: Option<Word>, at: Place, anchor: usize },
}

#[derive(Default)]
struct Builder {
    frames: Vec<Frame>,
    anchors: HashMap<usize, Rc<Node>>,
    documents: usize,
    root: Option<Rc<Node>>,
    faults: Vec<Fault>,
}

impl Builder {
    /// Takes one event; an error ends the reading.
    fn take(&mut self, event: Event<'_>, at: Place) -> Result<(), Fault> {
        match event {
            Event::DocumentStart(..) => self.document(at),
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_tag(tag.is_some(), at);
                let value = Value::Scalar { text: text.into_owned(), plain: style == ScalarStyle::Plain };
                self.place(Node { place: at, value, weight: 1 }, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.refuse_tag(tag.is_some(), at);
                self.frames.push(Frame::List { items: Vec::new(), at, anchor });
                Ok(())
            }
            Event::MappingStart(_, anchor, tag) => {
                self.refuse_tag(tag.is_some(), at);
                self.frames.push(Frame::Map { entries: Vec::new(), key: None, at, anchor });
                Ok(())
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(anchor) => match self.anchors.get(&anchor).cloned() {
                Some(node) => self.attach(node, at),
                None => Err(Fault::new(Code::Alias, at, "this alias is inside of what it stands for")),
            },
            _ => Ok(()),
        }
    }

    fn document(&mut self, at: Place) -> Result<(), Fault> {
        self.documents += 1;
        if self.documents > 1 {
            let fault = Fault::new(Code::Shape, at, "the file has a second document");
            return Err(fault.help("keep one document per file: remove the `---` line and what follows"));
        }
        Ok(())
    }

    fn refuse_tag(&mut self, tagged: bool, at: Place) {
        if tagged {
            let fault = Fault::new(Code::Tag, at, "YAML tags are not understood");
            self.faults.push(fault.help("remove the word with the exclamation mark").hidden());
        }
    }

    fn close(&mut self) -> Result<(), Fault> {
        let (value, at, anchor) = match self.frames.pop() {
            Some(Frame::List { items, at, anchor }) => (Value::List(items), at, anchor),
            Some(Frame::Map { entries, at, anchor, .. }) => {
                self.refuse_duplicates(&entries);
                (Value::Map(entries), at, anchor)
            }
            None => return Ok(()),
        };
        let weight = match &value {
            Value::Scalar { .. } => 1,
            Value::List(items) => items.iter().fold(1usize, |sum, item| sum.saturating_add(item.weight)),
            Value::Map(entries) => {
                entries.iter().fold(1usize, |sum, (_, item)| sum.saturating_add(item.weight))
            }
        };
        if weight > MAX_NODES {
            let message = format!("more than {MAX_NODES} values once every alias is written out");
            return Err(Fault::new(Code::TooLarge, at, message));
        }
        self.place(Node { place: at, value, weight }, anchor)
    }

    fn refuse_duplicates(&mut self, entries: &[(Word, Rc<Node>)]) {
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        for (word, _) in entries {
            match seen.get(word.text.as_str()) {
                Some(line) => {
                    let message = format!("`{}` is already set on line {line}", shown(&word.text));
                    self.faults.push(Fault::new(Code::DuplicateKey, word.place, message));
                }
                None => {
                    seen.insert(&word.text, word.place.line);
                }
            }
        }
    }

    fn place(&mut self, node: Node, anchor: usize) -> Result<(), Fault> {
        let at = node.place;
        let node = Rc::new(node);
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        self.attach(node, at)
    }

    fn attach(&mut self, node: Rc<Node>, at: Place) -> Result<(), Fault> {
        match self.frames.last_mut() {
            None => self.root = Some(node),
            Some(Frame::List { items, .. }) => items.push(node),
            Some(Frame::Map { entries, key, .. }) => match key.take() {
                Some(word) => entries.push((word, node)),
                None => match &node.value {
                    Value::Scalar { text, .. } => *key = Some(Word { text: text.clone(), place: at }),
                    _ => return Err(Fault::new(Code::Tag, at, "a key must be a single word")),
                },
            },
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(Rc<Node>, Vec<Fault>), Vec<Fault>> {
        match self.root.take() {
            Some(root) if !root.is_null() => Ok((root, self.faults)),
            _ => {
                self.faults.push(Fault::new(
                    Code::Shape,
                    Place::default(),
                    "the file holds no configuration",
                ));
                Err(self.faults)
            }
        }
    }
}

/// Text of a user's as it may stand in a message: short, and without control characters.
pub(super) fn shown(text: &str) -> String {
    const LONGEST: usize = 60;
    let escaped: String = text.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    let escaped = escaped.replace("\\\"", "\"").replace("\\'", "'");
    if text.chars().count() > LONGEST { escaped + "…" } else { escaped }
}

fn place(text: &str, span: Span) -> Place {
    let start = span.start.byte_offset().unwrap_or(0).min(text.len());
    let end = span.end.byte_offset().unwrap_or(start).clamp(start, text.len());
    Place { start, end, line: span.start.line(), column: span.start.col() + 1 }
}

/// The place of one character.
fn span_at(text: &str, offset: usize) -> Place {
    let mut start = offset.min(text.len());
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    let before = &text[..start];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
    Place { start, end: start, line, column }
}
