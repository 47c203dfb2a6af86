// SPDX-License-Identifier: Apache-2.0
//! Socket options of client connections that Pingora's listeners do not offer.
#![allow(unsafe_code)]

use std::os::fd::{BorrowedFd, RawFd};

use socket2::SockRef;

/// Bytes that the kernel takes beyond what the client's window lets it send. A slow client then shows its progress in
/// small steps, instead of one step in seconds that looks like none, and costs little memory.
const UNSENT_MAX: u32 = 128 << 10;

/// Sets what a client's socket needs; failures cost only what the options would give.
pub(super) fn tune(socket: RawFd) {
    // SAFETY: the connection that owns the descriptor lives in the caller's frame, so it is open during this call.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    let socket = SockRef::from(&socket);
    if let Err(error) = socket.set_tcp_notsent_lowat(UNSENT_MAX).and_then(|()| socket.set_tcp_nodelay(true)) {
        tracing::debug!(%error, "client_socket_options");
    }
}
