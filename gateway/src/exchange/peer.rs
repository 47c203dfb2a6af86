// SPDX-License-Identifier: Apache-2.0
//! Who is at the other end of a client connection, as an address and, written once, as text.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// A client's address; cheap to clone.
#[derive(Clone, Debug)]
pub struct Peer {
    ip: IpAddr,
    /// `address:port`, then the address alone.
    text: Arc<str>,
    socket_len: usize,
}

impl Peer {
    /// The client at this address.
    pub fn new(socket: SocketAddr) -> Peer {
        let shown = socket.to_string();
        let socket_len = shown.len();
        Peer { ip: socket.ip(), text: format!("{shown}{}", socket.ip()).into(), socket_len }
    }

    /// Its address.
    pub fn ip(&self) -> IpAddr {
        self.ip
    }

    /// Its address as text, for `X-Forwarded-For`.
    pub fn ip_text(&self) -> &str {
        self.text.get(self.socket_len..).unwrap_or_default()
    }

    /// Address and port as text, for the log.
    pub fn socket_text(&self) -> &str {
        self.text.get(..self.socket_len).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn both_texts_are_those_of_the_addresses() {
        for (socket, ip) in [("127.0.0.1:80", "127.0.0.1"), ("[::1]:8080", "::1"), ("[fe80::2]:1", "fe80::2")]
        {
            let peer = Peer::new(socket.parse().unwrap());
            assert_eq!((peer.socket_text(), peer.ip_text()), (socket, ip));
        }
    }
}
