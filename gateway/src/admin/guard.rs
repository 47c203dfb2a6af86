// SPDX-License-Identifier: Apache-2.0
//! Keeps web pages away from an API that has no passwords.
//!
//! A browser on this machine can reach the loopback listener for any page it shows. An order from a foreign page
//! carries that page's `Origin`; a page that points its own host name at 127.0.0.1 carries that name in `Host`. Both
//! are refused. Tools that are not browsers send neither.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, Method, header};

use super::problem::{Kind, Problem};

/// Where the listener is reachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// This machine only: `Host` must be an address or `localhost`.
    Loopback,
    /// Other machines, under names we do not know.
    Network,
}

/// Refuses what a foreign web page sent.
pub(super) async fn guard(State(reach): State<Reach>, request: Request, next: Next) -> Response {
    match foreign(reach, request.method(), request.headers()) {
        Some(why) => Problem::new(Kind::ForeignOrigin, why).into_response(),
        None => next.run(request).await,
    }
}

fn foreign(reach: Reach, method: &Method, headers: &HeaderMap) -> Option<&'static str> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    if reach == Reach::Loopback && host.is_some_and(|host| !is_local(host)) {
        return Some("the listener is on loopback: address it as 127.0.0.1, [::1] or localhost");
    }
    let origin = headers.get(header::ORIGIN)?;
    let page = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
    (!method.is_safe() && (page.is_none() || page != host))
        .then_some("orders from other web pages are refused")
}

fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn check(reach: Reach, method: Method, host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        foreign(reach, &method, &headers).is_none()
    }

    #[test]
    fn names_that_resolve_to_loopback_are_refused() {
        for host in ["127.0.0.1:8081", "127.0.0.1", "[::1]:8081", "[::1]", "localhost:1", "LOCALHOST"] {
            assert!(check(Reach::Loopback, Method::GET, host, None), "{host}");
        }
        assert!(!check(Reach::Loopback, Method::GET, "rebound.example:8081", None));
        assert!(check(Reach::Network, Method::GET, "sluice-admin.ns.svc:8081", None));
    }

    #[test]
    fn orders_from_foreign_pages_are_refused() {
        let host = "127.0.0.1:8081";
        assert!(!check(Reach::Loopback, Method::POST, host, Some("https://evil.example")));
        assert!(!check(Reach::Loopback, Method::POST, host, Some("null")));
        assert!(!check(Reach::Loopback, Method::POST, host, Some("http://127.0.0.1:3000")));
        assert!(check(Reach::Loopback, Method::POST, host, Some("http://127.0.0.1:8081")));
        assert!(check(Reach::Loopback, Method::GET, host, Some("https://evil.example")));
    }
}
