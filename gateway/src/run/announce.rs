// SPDX-License-Identifier: Apache-2.0
//! What the terminal says once Sluice serves.

use std::fmt::Write;
use std::net::SocketAddr;

use crate::config::Loaded;
use crate::front::Front;

/// Says where Sluice listens, which models there are, and what to try.
pub(super) fn started(loaded: &Loaded, front: &Front, admin: SocketAddr) {
    for address in &front.plain {
        tracing::info!(%address, "listening on {address}");
    }
    for address in &front.tls {
        tracing::info!(%address, tls = true, "listening on {address} (tls)");
    }
    tracing::info!(address = %admin, "admin listening on {admin}");
    eprint!("{}", text(loaded, front, admin));
}

fn text(loaded: &Loaded, front: &Front, admin: SocketAddr) -> String {
    let mut out = String::new();
    let base = front.plain.first().map(|a| format!("http://{a}"));
    let base = base.or_else(|| front.tls.first().map(|a| format!("https://{a}"))).unwrap_or_default();
    let names: Vec<&str> = loaded.settings.models.keys().map(|n| n.as_str()).collect();
    // Writing to a string cannot fail.
    let _ = writeln!(out, "\n  Sluice {} serves {base}, admin http://{admin}", env!("CARGO_PKG_VERSION"));
    let _ = writeln!(out, "  models: {}\n", names.join(", "));
    if let Some(model) = names.first() {
        let _ = writeln!(out, "  Try it; the first request starts the model:\n");
        let _ = writeln!(out, "    curl {base}/v1/models");
        let _ = writeln!(
            out,
            "    curl {base}/v1/chat/completions -H 'content-type: application/json' \\\n      \
             -d '{{\"model\": \"{model}\", \"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}]}}'"
        );
        let _ = writeln!(out, "    {} get models --admin http://{admin}\n", own_name());
    }
    out
}

/// How this program was called, so that the command shown can be pasted.
fn own_name() -> String {
    std::env::args().next().filter(|name| !name.is_empty()).unwrap_or_else(|| "sluice".to_owned())
}
