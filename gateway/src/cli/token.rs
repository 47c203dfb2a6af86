// SPDX-License-Identifier: Apache-2.0
//! `sluice token`: tokens for the admin API.
//!
//! The token is printed once. Must not keep it anywhere; what makes it known is a line with its hash.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use super::args::{CreateToken, Token};
use super::console::Console;
use super::exit::{Exit, Failure};
use crate::admin::auth;

/// Carries out `sluice token`.
pub fn token(what: Token, console: &mut Console<'_>) -> Result<(), Failure> {
    let Token::Create(CreateToken { name, role, file }) = what;
    let failed = |error: String| Failure::new(Exit::Failed, error);
    let (token, line) = auth::create(&name, role).map_err(|error| failed(error.to_string()))?;
    let Some(file) = file else {
        return console
            .print(&format!("token (shown this once): {token}\nline for adminTokens:    {line}\n"));
    };
    let open = OpenOptions::new().create(true).append(true).mode(0o600).open(&file);
    // The last line may lack its end.
    let gap = if std::fs::read(&file).is_ok_and(|text| text.last().is_some_and(|last| *last != b'\n')) {
        "\n"
    } else {
        ""
    };
    let written = open.and_then(|mut open| open.write_all(format!("{gap}{line}\n").as_bytes()));
    written.map_err(|error| failed(format!("{}: cannot be written: {error}", file.display())))?;
    console.print(&format!("{token}\n"))
}
