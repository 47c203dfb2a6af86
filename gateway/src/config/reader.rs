// SPDX-License-Identifier: Apache-2.0
//! Reading a tree by the table of keys: typed values, ranges and defaults, and every fault at once.
//!
//! Owns what holds for each key alone. A fault is noted and reading goes on with the key's default, so that
//! the next one is found too. Must not know how keys depend on each other.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use super::Env;
use super::expand;
use super::keys::{self, Key, Kind, Omitted, Section};
use super::report::{Code, Fault, MAX_PROBLEMS};
use super::tree::{Node, Place, Value, Word, shown};
use super::units;

/// What reading needs and collects.
pub(super) struct Reader<'a> {
    /// Environment variables by name.
    pub env: Env<'a>,
    /// Relative paths of the file start here.
    pub base: &'a Path,
    faults: RefCell<Vec<Fault>>,
    notes: RefCell<Vec<Fault>>,
    shown: RefCell<Vec<(usize, usize)>>,
}

/// A value and where it came from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Set<T> {
    pub value: T,
    /// The value in the file, or of the table that lacks it.
    pub place: Place,
    /// It stands in the file; otherwise it is the default.
    pub given: bool,
}

/// The value, or what stands for none where a fault has been noted.
pub(super) fn plain<T: Default>(set: Option<Set<T>>) -> T {
    set.map(|set| set.value).unwrap_or_default()
}

/// What a reader has collected: errors, notes, and the bytes that may be shown.
pub(super) type Findings = (Vec<Fault>, Vec<Fault>, Vec<(usize, usize)>);

impl<'a> Reader<'a> {
    pub fn new(env: Env<'a>, base: &'a Path) -> Self {
        let (faults, notes, shown) = <_>::default();
        Reader { env, base, faults, notes, shown }
    }

    pub fn fault(&self, fault: Fault) {
        let mut faults = self.faults.borrow_mut();
        if faults.len() < MAX_PROBLEMS {
            faults.push(fault);
        }
    }

    pub fn note(&self, fault: Fault) {
        let mut notes = self.notes.borrow_mut();
        if notes.len() < MAX_PROBLEMS {
            notes.push(fault);
        }
    }

    /// The word at `place` is no secret.
    pub fn show(&self, place: Place) {
        self.shown.borrow_mut().push((place.start, place.end));
    }

    pub fn finish(self) -> Findings {
        (self.faults.into_inner(), self.notes.into_inner(), self.shown.into_inner())
    }

    /// The text of a single value after expansion.
    pub fn text(&self, name: &str, node: &Node, secret: bool) -> Option<String> {
        let Value::Scalar { text, .. } = &node.value else {
            self.wrong_type(name, node, "a single value");
            return None;
        };
        if node.is_null() {
            let fault = Fault::new(Code::WrongType, node.place, format!("`{name}` has no value"));
            self.fault(fault.help("give it one or remove it; `\"\"` is an empty text"));
            return None;
        }
        if !secret {
            self.show(node.place);
        }
        match expand::expand(text, self.env) {
            Ok(text) => Some(text),
            Err(why) => {
                self.fault(why.fault(node.place));
                None
            }
        }
    }

    pub fn wrong_type(&self, name: &str, node: &Node, wanted: &str) {
        let message = format!("`{name}` must be {wanted}, and is {}", node.describe());
        let place = Place { end: node.place.end.min(node.place.start + 1), ..node.place };
        self.fault(Fault::new(Code::WrongType, place, message).hidden());
    }

    /// The items of a list, each with its text.
    pub fn texts(&self, name: &str, node: &Node, secret: bool) -> Option<Vec<(String, Place)>> {
        let Value::List(items) = &node.value else {
            self.wrong_type(name, node, "a list");
            return None;
        };
        let read = |item: &Rc<Node>| self.text(name, item, secret).map(|text| (text, item.place));
        let texts: Vec<_> = items.iter().filter_map(read).collect();
        (texts.len() == items.len()).then_some(texts)
    }
}

/// A table of the file, or the absence of one.
pub(super) struct Table<'a> {
    pub reader: &'a Reader<'a>,
    pub place: Place,
    section: &'static Section,
    entries: &'a [(Word, Rc<Node>)],
    asked: RefCell<Vec<&'static str>>,
}

impl<'a> Table<'a> {
    /// Opens `node` as a table and refuses keys that it does not have.
    pub fn open(reader: &'a Reader<'a>, node: &'a Node, section: &'static Section) -> Self {
        let entries: &[_] = match &node.value {
            Value::Map(entries) => entries,
            _ => {
                let name = if section.path.is_empty() { "the file" } else { section.path };
                reader.wrong_type(name, node, "a table of keys");
                &[]
            }
        };
        let table = Table { entries, ..Table::absent(reader, node.place, section) };
        for (word, _) in entries {
            reader.show(word.place);
            table.refuse_unknown(word);
        }
        table
    }

    /// A table that is not in the file: every key has its default.
    pub fn absent(reader: &'a Reader<'a>, place: Place, section: &'static Section) -> Self {
        Table { reader, place, section, entries: &[], asked: RefCell::default() }
    }

    fn refuse_unknown(&self, word: &Word) {
        let name = shown(&word.text);
        let fault = match self.section.find(&word.text) {
            Some(Key { kind: Kind::Later(why), .. }) => {
                Fault::new(Code::NotYet, word.place, format!("`{name}` is not supported yet")).help(*why)
            }
            Some(_) => return,
            None => self.unknown(word, &name),
        };
        self.reader.fault(fault);
    }

    fn unknown(&self, word: &Word, name: &str) -> Fault {
        let fault = Fault::new(Code::UnknownKey, word.place, format!("unknown key `{name}`"));
        if word.text == "<<" {
            return fault.help("YAML's merge keys are not understood; write the keys out");
        }
        if let Some(near) = keys::nearest(&word.text, self.section.keys.iter().map(|key| key.name)) {
            return fault.help(format!("did you mean `{near}`?"));
        }
        match keys::SECTIONS.iter().find(|section| section.find(&word.text).is_some()) {
            Some(section) if section.path.is_empty() => fault.help("this key belongs at the top of the file"),
            Some(section) => fault.help(format!("this key belongs into `{}`", section.path)),
            None => fault,
        }
    }

    /// The key's description and its value, if it is given.
    fn entry(&self, name: &'static str) -> (&'static Key, Option<&'a Node>) {
        let key = self.section.find(name).unwrap_or(&self.section.keys[0]);
        debug_assert_eq!(key.name, name, "a key that the table of keys lacks");
        self.asked.borrow_mut().push(name);
        let node = self.entries.iter().find(|(word, _)| word.text == name).map(|(_, node)| &**node);
        if node.is_none() && matches!(key.default, Omitted::Required) && !self.is_misspelt(name) {
            let fault = Fault::new(Code::Missing, self.place, format!("`{name}` is missing"));
            self.reader.fault(fault.help(key.about.trim()));
        }
        (key, node)
    }

    /// Whether some unknown key was probably meant to be this one.
    pub fn is_misspelt(&self, name: &str) -> bool {
        let names = || self.section.keys.iter().map(|key| key.name);
        let unknown = self.entries.iter().filter(|(word, _)| self.section.find(&word.text).is_none());
        unknown.take(MAX_PROBLEMS).any(|(word, _)| keys::nearest(&word.text, names()) == Some(name))
    }

    /// Where the key's name stands, if it is given.
    pub fn place_of(&self, name: &str) -> Option<Place> {
        self.entries.iter().find(|(word, _)| word.text == name).map(|(word, _)| word.place)
    }

    /// The value of a key that is read in a way of its own.
    pub fn node(&self, name: &'static str) -> Option<&'a Node> {
        self.entry(name).1
    }

    /// Opens the table under `name`, or its absence.
    pub fn table(&self, name: &'static str) -> Table<'a> {
        let (key, node) = self.entry(name);
        let section = match key.kind {
            Kind::Table(section) | Kind::Tables(section) => section,
            _ => unreachable!("`{name}` is not a table of keys"),
        };
        match node {
            Some(node) => Table::open(self.reader, node, section),
            None => Table::absent(self.reader, self.place, section),
        }
    }

    /// Opens every table of the list under `name`.
    pub fn tables(&self, name: &'static str) -> Vec<Table<'a>> {
        let (key, node) = self.entry(name);
        match (key.kind, node.map(|node| &node.value)) {
            (Kind::Tables(section), Some(Value::List(items))) => {
                items.iter().map(|item| Table::open(self.reader, item, section)).collect()
            }
            _ => {
                node.into_iter().for_each(|node| self.reader.wrong_type(name, node, "a list"));
                Vec::new()
            }
        }
    }

    /// A table over entries that the caller has looked at already.
    pub fn over(&self, section: &'static Section, entries: &'a [(Word, Rc<Node>)]) -> Table<'a> {
        Table { entries, ..Table::absent(self.reader, self.place, section) }
    }

    /// A value that `parse` understands, or the default. The fault that `parse` gives needs no place.
    pub fn read<T>(
        &self,
        name: &'static str,
        parse: impl Fn(&Key, &str) -> Result<T, Fault>,
    ) -> Option<Set<T>> {
        let (key, node) = self.entry(name);
        let given = node.and_then(|node| self.item(key, node, &parse));
        if given.is_some() {
            return given;
        }
        let Omitted::Value(text) = key.default else { return None };
        let value = parse(key, text);
        debug_assert!(value.is_ok(), "the default of `{name}` is not in its range");
        value.ok().map(|value| Set { value, place: self.place, given: false })
    }

    /// Values that `parse` understands: of a list, or the single one, or the default.
    pub fn read_all<T>(
        &self,
        name: &'static str,
        parse: impl Fn(&Key, &str) -> Result<T, Fault>,
    ) -> Vec<Set<T>> {
        let node = self.entries.iter().find(|(word, _)| word.text == name).map(|(_, node)| &node.value);
        let Some(Value::List(items)) = node else { return self.read(name, parse).into_iter().collect() };
        let (key, _) = self.entry(name);
        items.iter().filter_map(|item| self.item(key, item, &parse)).collect()
    }

    fn item<T>(
        &self,
        key: &Key,
        node: &Node,
        parse: impl Fn(&Key, &str) -> Result<T, Fault>,
    ) -> Option<Set<T>> {
        let secret = matches!(key.kind, Kind::Secret | Kind::Path);
        let text = self.reader.text(key.name, node, secret)?;
        match parse(key, &text) {
            Ok(value) => Some(Set { value, place: node.place, given: true }),
            Err(fault) => {
                self.reader.fault(placed(key, node, fault));
                None
            }
        }
    }

    /// A whole number.
    pub fn integer(&self, name: &'static str) -> Option<Set<u64>> {
        self.read(name, |key, text| {
            let Kind::Integer(min, max) = key.kind else { unreachable!("`{name}` is not a number") };
            let help = format!("write a whole number from {min} to {max}");
            let value = text.parse::<u64>().map_err(|_| malformed(name, text, &help))?;
            within(key, value, min, max)
        })
    }

    /// A decimal, in thousandths.
    pub fn milli(&self, name: &'static str) -> Option<Set<u64>> {
        self.read(name, |key, text| {
            let Kind::Decimal(min, max) = key.kind else { unreachable!("`{name}` is not a decimal") };
            let help = "write a number with at most three decimals";
            let value = units::milli(text).ok_or_else(|| malformed(name, text, help))?;
            within(key, value, units::milli(min).unwrap_or(0), units::milli(max).unwrap_or(u64::MAX))
        })
    }

    /// A finite number.
    pub fn float(&self, name: &'static str) -> Option<Set<f64>> {
        self.read(name, |key, text| {
            let Kind::Float(min, max) = key.kind else { unreachable!("`{name}` is not a number") };
            let number = |text: &str| text.parse::<f64>().ok().filter(|value| value.is_finite());
            let value = number(text).ok_or_else(|| malformed(name, text, "write a number, such as `0.7`"))?;
            within(key, value, number(min).unwrap_or(0.0), number(max).unwrap_or(f64::MAX))
        })
    }

    /// A span of time in whole seconds.
    pub fn whole_seconds(&self, name: &'static str) -> Option<Set<Duration>> {
        let set = self.duration(name);
        if let Some(set) = set.filter(|set| set.value.subsec_nanos() != 0) {
            let fault = malformed(name, "a fraction of a second", "write whole seconds");
            self.reader.fault(Fault { place: set.place, ..fault });
        }
        set
    }

    /// A span of time.
    pub fn duration(&self, name: &'static str) -> Option<Set<Duration>> {
        self.read(name, |key, text| {
            let Kind::Duration(min, max) = key.kind else { unreachable!("`{name}` is not a duration") };
            span_of_time(key, text, min, max)
        })
    }

    /// A span of time or `none`.
    pub fn limit(&self, name: &'static str) -> Option<Set<Option<Duration>>> {
        self.read(name, |key, text| match key.kind {
            _ if text == "none" => Ok(None),
            Kind::Seconds(min, max) if text.bytes().all(|b| b.is_ascii_digit()) => {
                span_of_time(key, &format!("{text}s"), min, max).map(Some)
            }
            Kind::Limit(min, max) | Kind::Seconds(min, max) => span_of_time(key, text, min, max).map(Some),
            _ => unreachable!("`{name}` is not a limit"),
        })
    }

    /// An amount of bytes.
    pub fn size(&self, name: &'static str) -> Option<Set<u64>> {
        self.read(name, |key, text| {
            let Kind::Size(min, max) = key.kind else { unreachable!("`{name}` is not a size") };
            let value = units::size(text).ok_or_else(|| match units::nearest_size(text) {
                Some(near) => malformed(name, text, &format!("did you mean `{near}`?")),
                None => malformed(name, text, "write bytes, or a number and a unit: `512k`, `32Mi`, `2Gi`"),
            })?;
            within(key, value, units::size(min).unwrap_or(0), units::size(max).unwrap_or(u64::MAX))
        })
    }

    /// `true` or `false`.
    pub fn switch(&self, name: &'static str) -> Option<Set<bool>> {
        self.read(name, |_, text| match text {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(malformed(name, text, "write `true` or `false`")),
        })
    }

    /// One of a few words.
    pub fn choice(&self, name: &'static str) -> Option<Set<String>> {
        self.read(name, |key, text| {
            let Kind::Choice(words, later) = key.kind else { unreachable!("`{name}` is not a choice") };
            if words.contains(&text) {
                return Ok(text.to_owned());
            }
            if later.contains(&text) {
                let message = format!("`{name}` cannot be `{text}` yet");
                let help = format!("this version knows {}", key.kind.range());
                return Err(Fault::new(Code::NotYet, Place::default(), message).help(help));
            }
            let help = match keys::nearest(text, words.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("write {}", key.kind.range()),
            };
            Err(malformed(name, text, &help))
        })
    }

    /// Any text; of a key that is a secret, nothing is shown.
    pub fn string(&self, name: &'static str) -> Option<Set<String>> {
        self.read(name, |_, text| Ok(text.to_owned()))
    }

    /// A path; a relative one starts at the file's directory.
    pub fn path(&self, name: &'static str) -> Option<Set<PathBuf>> {
        self.read(name, |_, text| match text.contains(char::is_control) || text.is_empty() {
            true => {
                Err(Fault::new(Code::Malformed, Place::default(), format!("`{name}` is not a path")).hidden())
            }
            false => Ok(self.reader.base.join(text)),
        })
    }

    /// Asserts that every key of the table was asked for.
    pub fn done(&self) {
        let asked = self.asked.borrow();
        let read = |key: &Key| matches!(key.kind, Kind::Later(_)) || asked.contains(&key.name);
        debug_assert!(
            self.section.keys.iter().all(read),
            "a key of `{}` that nobody reads",
            self.section.path
        );
    }
}

/// Gives the fault its place, and takes a value that came from the environment out of it.
fn placed(key: &Key, node: &Node, fault: Fault) -> Fault {
    match &node.value {
        Value::Scalar { text, .. } if text.contains("${env.") => {
            let message = format!("`{}` cannot be what `{}` stands for", key.name, shown(text));
            Fault::new(fault.code, node.place, message).help(format!("allowed is {}", key.kind.range()))
        }
        _ => Fault { place: node.place, ..fault },
    }
}

/// A fault without a place; the caller knows it.
pub(super) fn malformed(name: &str, text: &str, help: &str) -> Fault {
    let message = format!("`{name}` cannot be `{}`", shown(text));
    Fault::new(Code::Malformed, Place::default(), message).help(help)
}

fn within<T: PartialOrd>(key: &Key, value: T, min: T, max: T) -> Result<T, Fault> {
    if value >= min && value <= max {
        return Ok(value);
    }
    let message = format!("`{}` is out of range: allowed is {}", key.name, key.kind.range());
    Err(Fault::new(Code::OutOfRange, Place::default(), message).help(key.about.trim()))
}

fn span_of_time(key: &Key, text: &str, min: &str, max: &str) -> Result<Duration, Fault> {
    let help = "write a number and a unit: `250ms`, `30s`, `5m`, `1h`";
    let value = units::duration(text).ok_or_else(|| malformed(key.name, text, help))?;
    let bound = |text| units::duration(text).unwrap_or_default();
    within(key, value, bound(min), bound(max))
}
