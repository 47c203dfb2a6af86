// SPDX-License-Identifier: Apache-2.0
//! `${env.NAME}` and `${env.NAME:-default}` in values.
//!
//! Owns the spelling. Any other `${…}` is left alone: `${PORT}` is the backend's, `${HOME}` may be a shell's.

use super::Env;
use super::report::{Code, Fault};
use super::tree::{Place, shown};

const OPEN: &str = "${env.";

/// Why a text cannot be expanded.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The variable is not set and there is no default.
    Unset(String),
    /// No closing brace, or no proper name.
    Broken,
}

impl Why {
    pub fn fault(&self, place: Place) -> Fault {
        match self {
            Why::Unset(name) => {
                let message = format!("the environment variable `{name}` is not set");
                let help = format!("set it, or give a default: `${{env.{name}:-…}}`");
                Fault::new(Code::Unset, place, message).help(help).hidden()
            }
            Why::Broken => {
                let fault = Fault::new(Code::Expansion, place, "a `${env.…}` that cannot be read");
                fault
                    .help("write `${env.NAME}` or `${env.NAME:-default}`; `$${env.` stands for itself")
                    .hidden()
            }
        }
    }
}

/// Replaces every variable in `text`; what a variable holds is not looked at again.
pub(super) fn expand(text: &str, env: Env<'_>) -> Result<String, Why> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(OPEN) {
        let (before, after) = (&rest[..at], &rest[at + OPEN.len()..]);
        if let Some(kept) = before.strip_suffix('$') {
            out.push_str(kept);
            out.push_str(OPEN);
            rest = after;
            continue;
        }
        let (inside, next) = after.split_once('}').ok_or(Why::Broken)?;
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        if !is_name(name) {
            return Err(Why::Broken);
        }
        let value = env(name).or_else(|| default.map(str::to_owned));
        out.push_str(before);
        out.push_str(&value.ok_or_else(|| Why::Unset(shown(name)))?);
        rest = next;
    }
    out.push_str(rest);
    Ok(out)
}

fn is_name(name: &str) -> bool {
    let proper = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(proper) && name.starts_with(|c: char| !c.is_ascii_digit())
}
