// SPDX-License-Identifier: Apache-2.0
//! Pingora's `ProxyHttp` with nothing in it, on one worker: bare-pingora LISTEN UPSTREAM.

use std::net::SocketAddr;

use async_trait::async_trait;
use pingora_core::apps::HttpServerOptions;
use pingora_core::server::Server;
use pingora_core::server::configuration::ServerConf;
use pingora_core::services::listening::Service;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_proxy::{ProxyHttp, Session, http_proxy};

/// The same allocator as Sluice's, so that it makes no difference.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Bare(SocketAddr);

#[async_trait]
impl ProxyHttp for Bare {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _: &mut Session, _: &mut ()) -> pingora_core::Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.0, false, String::new())))
    }
}

fn main() {
    let addresses: Vec<SocketAddr> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let [listen, upstream] = addresses[..] else {
        eprintln!("usage: bare-pingora LISTEN UPSTREAM, both as IP:PORT");
        std::process::exit(2);
    };
    let conf = ServerConf { threads: 1, upstream_keepalive_pool_size: 1024, ..ServerConf::default() };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let mut proxy = http_proxy(&server.configuration, Bare(upstream));
    let mut options = HttpServerOptions::default();
    options.h2c = true;
    proxy.server_options = Some(options);
    let mut service = Service::new("bare".to_owned(), proxy);
    service.add_tcp(&listen.to_string());
    server.add_service(service);
    server.run_forever();
}
