// SPDX-License-Identifier: Apache-2.0
//! The arguments of the commands that give orders. Every help begins with examples.

use std::time::Duration;

use clap::Args;

use super::args::{AdminArgs, duration};

/// `sluice wake`.
#[derive(Clone, Debug, Args)]
#[command(before_help = "\
Examples:
  sluice wake gemma                     give the order and return
  sluice wake gemma --wait              return when the first replica takes requests
  sluice wake gemma --wait --timeout 90s")]
pub struct WakeArgs {
    /// The model.
    #[arg(value_name = "MODEL", add = super::shell::model_names())]
    pub model: String,
    /// Waiting.
    #[command(flatten)]
    pub wait: WaitArgs,
    /// Where the running Sluice is.
    #[command(flatten)]
    pub admin: AdminArgs,
}

/// `sluice sleep`.
#[derive(Clone, Debug, Args)]
#[command(before_help = "\
Examples:
  sluice sleep gemma                    give the order and return
  sluice sleep gemma --wait             return when its last replica is gone")]
pub struct SleepArgs {
    /// The model.
    #[arg(value_name = "MODEL", add = super::shell::model_names())]
    pub model: String,
    /// Waiting.
    #[command(flatten)]
    pub wait: WaitArgs,
    /// Where the running Sluice is.
    #[command(flatten)]
    pub admin: AdminArgs,
}

/// `sluice scale`.
#[derive(Clone, Debug, Args)]
#[command(before_help = "\
Examples:
  sluice scale gemma 2                  two replicas until the model has idled
  sluice scale gemma 2 --wait           return when both take requests
  sluice scale gemma auto               demand decides again
  sluice scale gemma 3 --dry-run        only what it would change")]
pub struct ScaleArgs {
    /// The model.
    #[arg(value_name = "MODEL", add = super::shell::model_names())]
    pub model: String,
    /// Number of replicas, at most `maxReplicas`; `auto` gives the say back to demand.
    #[arg(value_name = "REPLICAS", value_parser = replicas)]
    pub replicas: Replicas,
    /// Waiting.
    #[command(flatten)]
    pub wait: WaitArgs,
    /// Where the running Sluice is.
    #[command(flatten)]
    pub admin: AdminArgs,
}

/// How many replicas to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replicas {
    /// What demand asks for.
    Auto,
    /// So many.
    Count(u32),
}

fn replicas(text: &str) -> Result<Replicas, String> {
    match text {
        "auto" => Ok(Replicas::Auto),
        _ => text.parse().map(Replicas::Count).map_err(|_| "expected a number or `auto`".to_owned()),
    }
}

/// `sluice drain`.
#[derive(Clone, Debug, Args)]
#[command(before_help = "\
Examples:
  sluice drain gemma                    all its present replicas finish and go
  sluice drain gemma --wait             return when they are gone
  sluice drain --replica r7             one replica")]
pub struct DrainArgs {
    /// The model.
    #[arg(value_name = "MODEL", required_unless_present = "replica", add = super::shell::model_names())]
    pub model: Option<String>,
    /// Only this replica.
    #[arg(long, value_name = "REPLICA", conflicts_with = "model")]
    pub replica: Option<String>,
    /// Waiting.
    #[command(flatten)]
    pub wait: WaitArgs,
    /// Where the running Sluice is.
    #[command(flatten)]
    pub admin: AdminArgs,
}

/// Seeing an order through, or only trying it.
#[derive(Clone, Debug, Args)]
pub struct WaitArgs {
    /// Only tell what the order would change at once.
    #[arg(long, conflicts_with = "wait")]
    pub dry_run: bool,
    /// Return only when it is done.
    #[arg(long)]
    pub wait: bool,
    /// Longest wait; exit code 6 after it.
    #[arg(long, default_value = "5m", value_parser = duration, value_name = "TIME", requires = "wait")]
    pub timeout: Duration,
}
