// SPDX-License-Identifier: Apache-2.0
//! Whether the programs of commands exist on this machine.
//!
//! Owns a look at the file system that only warns: the program may be installed before the first start.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sluice_scaler::launch::{Launch, ProcessLaunch};

use super::file::Read;
use super::reader::Reader;
use super::report::{Code, Fault};
use super::tree::shown;

/// Notes every model whose program is not found.
pub(super) fn note_absent(reader: &Reader<'_>, read: &Read) {
    for (model, place) in &read.programs {
        let launch = read.settings.plan.launches.get(model).map(|launch| &**launch);
        let Some(Launch::Process(process)) = launch else { continue };
        let Some(program) = process.command.first().filter(|program| !is_found(program, process, reader))
        else {
            continue;
        };
        let message = format!("the program `{}` is not found or cannot be run", shown(program));
        let help = "a name is looked up on PATH, a path with `/` starts at `workingDirectory`";
        reader.note(Fault::new(Code::Program, *place, message).help(help));
    }
}

fn is_found(program: &str, process: &ProcessLaunch, reader: &Reader<'_>) -> bool {
    let directory = process.working_directory.clone().unwrap_or_default();
    if program.contains('/') {
        return is_executable(&directory.join(program));
    }
    let own = process.env.get("PATH").map(|path| path.0.clone());
    let path = own.or_else(|| (reader.env)("PATH")).unwrap_or_default();
    std::env::split_paths(&path).any(|part: PathBuf| is_executable(&part.join(program)))
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
