// SPDX-License-Identifier: Apache-2.0
//! `sluice version`.

use serde::Serialize;

use super::args::VersionArgs;
use super::console::Console;
use super::exit::Failure;

#[derive(Serialize)]
struct Version {
    version: &'static str,
    os: &'static str,
    arch: &'static str,
}

/// Carries out `sluice version`.
pub fn version(args: &VersionArgs, console: &mut Console<'_>) -> Result<(), Failure> {
    let version = Version {
        version: env!("CARGO_PKG_VERSION"),
        os: std::env::consts::OS,
        arch: std::env::consts::ARCH,
    };
    if args.json {
        return console.json(&version);
    }
    console.print(&format!("sluice {} ({} {})\n", version.version, version.os, version.arch))
}
