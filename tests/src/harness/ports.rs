// SPDX-License-Identifier: Apache-2.0
//! Ports that only one test of this machine uses at a time.
//!
//! They lie below the range that the kernel gives out by itself, so that no connection and no replica takes one.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

const FIRST: u16 = 20_000;
const COUNT: u16 = 8_000;

/// A port, held until drop.
pub(super) struct Lease {
    pub port: u16,
    _lock: File,
}

/// Finds a port that nobody holds and nobody listens on.
pub(super) fn lease() -> Lease {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let dir = std::env::temp_dir().join("sluice-test-ports");
    std::fs::create_dir_all(&dir).expect("the temporary directory is writable");
    let start = (std::process::id() % u32::from(COUNT)) as u16;
    for _ in 0..COUNT {
        let port = FIRST + (start + NEXT.fetch_add(1, Relaxed) % COUNT) % COUNT;
        let lock = File::create(dir.join(port.to_string())).expect("the directory is ours");
        if lock.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Lease { port, _lock: lock };
        }
    }
    panic!("every port from {FIRST} on is taken")
}
