// SPDX-License-Identifier: Apache-2.0
//! Ports for replicas on loopback: free when given out, and never given to two replicas at a time.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};

use tokio::net::TcpSocket;

/// Ports of living replicas of this process, whichever backend started them.
static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// How often another port is asked for when the system names one that a replica has, but does not listen on yet.
const TRIES: usize = 64;

/// A port that nobody else is given until this is dropped.
#[derive(Debug)]
pub(super) struct Port(u16);

impl Port {
    /// Chooses one. Bound without address reuse, so that a server that does not ask for reuse can have it too.
    pub(super) fn choose() -> io::Result<Port> {
        for _ in 0..TRIES {
            let socket = TcpSocket::new_v4()?;
            socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
            let number = socket.local_addr()?.port();
            if TAKEN.lock().unwrap_or_else(PoisonError::into_inner).insert(number) {
                return Ok(Port(number));
            }
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, "no free port on 127.0.0.1"))
    }

    pub(super) fn number(&self) -> u16 {
        self.0
    }

    /// Whether nobody listens on it.
    pub(super) fn is_free(&self) -> bool {
        TcpListener::bind((Ipv4Addr::LOCALHOST, self.0)).is_ok()
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        TAKEN.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn no_port_is_given_out_twice_while_it_is_held() {
        let held: Vec<Port> = (0..200).map(|_| Port::choose().unwrap()).collect();
        let numbers: BTreeSet<u16> = held.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), held.len());
    }

    #[test]
    fn a_listener_makes_a_port_not_free() {
        let port = Port::choose().unwrap();
        assert!(port.is_free());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).unwrap();
        assert!(!port.is_free());
        drop(listener);
        assert!(port.is_free());
    }
}
