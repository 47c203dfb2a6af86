// SPDX-License-Identifier: Apache-2.0
//! Where the programs under test are, and that the gateway is built from the sources beside it.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// Overrides the gateway's binary.
const VARIABLE: &str = "SLUICE_BIN";

/// The directory that cargo puts programs into: tests run from `<it>/deps`.
fn bin_dir() -> PathBuf {
    let exe = std::env::current_exe().expect("a test knows its own path");
    let deps = exe.parent().expect("a program lies in a directory");
    if deps.ends_with("deps") {
        deps.parent().expect("deps lies in the profile's directory").to_owned()
    } else {
        deps.to_owned()
    }
}

/// The gateway's binary, built if it is missing or older than its sources.
pub(super) fn gateway() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        if let Some(given) = std::env::var_os(VARIABLE) {
            return given.into();
        }
        let path = bin_dir().join("sluice");
        let lock = File::create(bin_dir().join(".sluice-build.lock")).expect("cargo's directory is writable");
        lock.lock().expect("a lock on a file of our own");
        if is_stale(&path) {
            build();
        }
        path
    })
}

/// The fake engine; cargo builds it with the tests.
pub(super) fn engine() -> PathBuf {
    bin_dir().join("fake-engine")
}

/// The search path with the fake engine in front.
pub(super) fn path_with_engine() -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(bin_dir()).chain(std::env::split_paths(&path));
    std::env::join_paths(all).expect("the directories come from such a list")
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace")
}

fn is_stale(binary: &Path) -> bool {
    let Ok(built) = binary.metadata().and_then(|m| m.modified()) else { return true };
    let sources = ["gateway", "scaler", "Cargo.toml", "Cargo.lock"];
    sources.iter().any(|s| newest(&root().join(s)).is_some_and(|t| t > built))
}

/// When the newest source under `path` was written.
fn newest(path: &Path) -> Option<SystemTime> {
    let meta = path.metadata().ok()?;
    if meta.is_file() {
        let source = path.extension().is_some_and(|e| e == "rs" || e == "toml" || e == "lock");
        return if source { meta.modified().ok() } else { None };
    }
    if path.file_name().is_some_and(|n| n == "tests" || n == "benches" || n == "fuzz" || n == "target") {
        return None;
    }
    let entries = std::fs::read_dir(path).ok()?;
    entries.flatten().filter_map(|e| newest(&e.path())).max()
}

fn build() {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(["build", "-p", "sluice-gateway", "--bin", "sluice"]).current_dir(root());
    if bin_dir().ends_with("release") {
        cargo.arg("--release");
    }
    let target = bin_dir().parent().expect("the profile's directory lies in the target directory").to_owned();
    cargo.env("CARGO_TARGET_DIR", target);
    let status = cargo.status().expect("cargo runs the tests");
    assert!(status.success(), "the gateway does not build: {status}");
}
