// SPDX-License-Identifier: Apache-2.0
//! The table of keys as documentation.
//!
//! Owns its form only. A test compares it with `docs/configuration.md`, so that neither can change alone.

use std::fmt::Write;

use super::annotations::{ANNOTATIONS, REFUSED};
use super::effect::{Effect, effect};
use super::keys::{Key, Kind, Omitted, SECTIONS, Section};
use super::report::Code;

/// Every key, annotation and code, as Markdown.
pub fn reference() -> String {
    let mut out = String::new();
    for section in SECTIONS {
        let title = if section.path.is_empty() { "The file" } else { section.path };
        let mark = if section.path.is_empty() { "" } else { "`" };
        table(&mut out, &format!("{mark}{title}{mark}"), section);
    }
    table(&mut out, "`models[].annotations`", &ANNOTATIONS);
    out.push_str("Known and refused:\n\n| annotation | instead |\n|---|---|\n");
    for (name, instead) in REFUSED {
        line(&mut out, format_args!("| `{name}` | {instead} |"));
    }
    out.push('\n');
    out.push_str("### Codes\n\n| code | meaning |\n|---|---|\n");
    for code in Code::ALL {
        line(&mut out, format_args!("| {} | {} |", code.id(), code.title()));
    }
    out
}

fn table(out: &mut String, title: &str, section: &Section) {
    line(
        out,
        format_args!("### {title}\n\n| key | allowed | default | changed | meaning |\n|---|---|---|---|---|"),
    );
    let (later, now): (Vec<&Key>, Vec<&Key>) =
        section.keys.iter().partition(|key| matches!(key.kind, Kind::Later(_)));
    for key in now {
        let default = match key.default {
            Omitted::Value(text) => format!("`{text}`"),
            Omitted::Words(text) => text.to_owned(),
            Omitted::Required => "required".to_owned(),
        };
        let about = key.about.trim();
        let changed = effect(section, key).map_or("see below", Effect::as_str);
        line(
            out,
            format_args!("| `{}` | {} | {default} | {changed} | {about} |", key.name, key.kind.range()),
        );
    }
    if !later.is_empty() {
        let names: Vec<_> = later.iter().map(|key| format!("`{}`", key.name)).collect();
        line(out, format_args!("\nKnown and not supported yet: {}.", names.join(", ")));
    }
    out.push('\n');
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a text in memory cannot fail.
    let _ = writeln!(out, "{text}");
}
