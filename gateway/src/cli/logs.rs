// SPDX-License-Identifier: Apache-2.0
//! `sluice logs`: what a model's replicas print.

use http_body_util::BodyExt;

use super::args::LogsArgs;
use super::client::Client;
use super::console::Console;
use super::exit::Failure;
use crate::admin::api::Line;
use crate::admin::path;

/// Carries out `sluice logs`. With `--follow` it ends when Sluice does.
pub async fn logs(args: LogsArgs, console: &mut Console<'_>) -> Result<(), Failure> {
    let client = Client::new(&args.admin)?;
    let name = path::encode(&args.model);
    let path = format!("/api/v1/models/{name}/logs?tail={}&follow={}", args.tail, args.follow);
    let mut body = client.stream(&path).await?;
    let mut pending = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| client.broken(error))?;
        pending.extend_from_slice(frame.data_ref().map(|data| &**data).unwrap_or_default());
        let Some(end) = pending.iter().rposition(|byte| *byte == b'\n') else { continue };
        let text: String = pending
            .drain(..=end)
            .collect::<Vec<u8>>()
            .split(|byte| *byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<Line>(line).ok())
            .map(|line| format(&line, args.timestamps))
            .collect();
        console.print(&text)?;
    }
    Ok(())
}

fn format(line: &Line, timestamps: bool) -> String {
    let time = if timestamps { format!("{} ", line.at) } else { String::new() };
    let origin = if line.replica.is_empty() { "sluice" } else { &line.replica };
    format!("{time}{origin} {}\n", line.text)
}
