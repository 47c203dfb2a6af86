// SPDX-License-Identifier: Apache-2.0
//! The command line as types. Every help begins with examples.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use super::args_orders::{DrainArgs, Replicas, ScaleArgs, SleepArgs, WaitArgs, WakeArgs};
use crate::admin::auth::Role;

/// Default address of the admin listener.
pub const ADMIN: &str = "127.0.0.1:8081";

/// Inference autoscaling gateway: one address for all models, replicas only while they are needed.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "sluice",
    version,
    before_help = "\
Examples:
  sluice check sluice.yaml              find every mistake in a configuration
  sluice run --config sluice.yaml       serve its models
  sluice get models                     what is running, what waits, and why
  sluice wake gemma --wait              start a model and wait until it is ready"
)]
pub struct Cli {
    /// Colour tables: always, never, or auto (on a terminal unless NO_COLOR is set; elsewhere if CLICOLOR_FORCE is).
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN", hide_possible_values = true)]
    pub color: Color,
    /// What to do; without it the help is printed.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// When to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set; also elsewhere if CLICOLOR_FORCE is.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The subcommands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Serve the models of a configuration.
    Run(RunArgs),
    /// Check a configuration without running it.
    Check(super::check::CheckArgs),
    /// List models or replicas.
    Get(GetArgs),
    /// Start a model's first replica now.
    Wake(WakeArgs),
    /// Stop all replicas of a model now.
    Sleep(SleepArgs),
    /// Have so many replicas of a model.
    Scale(ScaleArgs),
    /// Let the present replicas of a model, or one replica, finish and go.
    Drain(DrainArgs),
    /// Show one model or replica whole.
    Describe(DescribeArgs),
    /// Show what has changed lately.
    Events(EventsArgs),
    /// Say why a model has the replicas that it has.
    Explain(super::explain::ExplainArgs),
    /// Decide again what is in a journal, and see what other settings would have decided.
    Replay(super::replay::ReplayArgs),
    /// Show what a model's replicas print.
    Logs(LogsArgs),
    /// Show models, replicas and events on a screen that follows them.
    #[command(before_help = "\
Examples:
  sluice top                            q leaves, ? shows the keys
  sluice top --admin gpu-box:8081")]
    Top(AdminArgs),
    /// Serve made-up answers on a port, to try things without a model.
    #[command(before_help = "\
Examples:
  sluice demo-engine --port 9000        an engine with the model `demo`, ready after 2 s
  sluice demo-engine --port 9000 --load-time 20s --token-rate 5")]
    DemoEngine(crate::demo_engine::DemoEngineArgs),
    /// Send load to a server and measure its answers and streams.
    Bench(crate::bench::BenchArgs),
    /// Make tokens for the admin API.
    Token(TokenArgs),
    /// Print the admin API's contract, an OpenAPI 3.1 document.
    #[command(before_help = "\
Examples:
  sluice openapi                        to generate a client from")]
    Openapi,
    /// Print the script that completes commands and names of models.
    Completion(CompletionArgs),
    /// Print the manual page, or write one per command.
    Man(ManArgs),
    /// Print the version.
    Version(VersionArgs),
}

/// `sluice run`.
#[derive(Clone, Debug, Args)]
#[command(before_help = "\
Examples:
  sluice run                            serve ./sluice.yaml
  sluice run /etc/sluice/sluice.yaml    serve another file
  SLUICE_LOG=debug sluice run           with more to read on stderr
  kill -HUP <pid>                       read the file again")]
pub struct RunArgs {
    /// Configuration file, in place of --config.
    #[arg(value_name = "FILE", overrides_with = "config")]
    pub file: Option<PathBuf>,
    /// Configuration file.
    #[arg(
        short,
        long,
        env = "SLUICE_CONFIG",
        hide_env_values = true,
        default_value = "sluice.yaml",
        value_name = "FILE"
    )]
    pub config: PathBuf,
}

impl RunArgs {
    /// The file that counts.
    pub fn config(&self) -> &Path {
        self.file.as_ref().unwrap_or(&self.config)
    }
}

/// Where the running Sluice is.
#[derive(Clone, Debug, Args)]
pub struct AdminArgs {
    /// Address of the admin listener.
    #[arg(long, env = "SLUICE_ADMIN", hide_env_values = true, default_value = ADMIN, value_name = "HOST:PORT")]
    pub admin: String,
    /// File with the token to send. Without it SLUICE_TOKEN is sent, if it is set.
    #[arg(long, env = "SLUICE_TOKEN_FILE", hide_env_values = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

/// `sluice token`.
#[derive(Clone, Debug, Args)]
#[command(before_help = "\
Examples:
  sluice token create ci --role operator                   print a token and the line that makes it known
  sluice token create me --role admin --file tokens        add the line to a file, print the token alone")]
pub struct TokenArgs {
    /// What to do.
    #[command(subcommand)]
    pub what: Token,
}

/// The subcommands of `sluice token`.
#[derive(Clone, Debug, Subcommand)]
pub enum Token {
    /// Make a token. It is shown once and kept nowhere: a token file holds its hash.
    #[command(before_help = "\
Examples:
  sluice token create prometheus --role viewer
  sluice token create me --role admin --file /etc/sluice/tokens")]
    Create(CreateToken),
}

/// `sluice token create`.
#[derive(Clone, Debug, Args)]
pub struct CreateToken {
    /// Who it is for; shown with what it does.
    #[arg(value_name = "NAME", value_parser = token_name)]
    pub name: String,
    /// What it may do: viewer sees, operator gives orders, admin changes everything.
    #[arg(long, value_enum, value_name = "ROLE")]
    pub role: Role,
    /// Add the line to this file of `adminTokens`; a new one is readable to you alone.
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

fn token_name(name: &str) -> Result<String, String> {
    let proper = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    match (1..=64).contains(&name.len()) && name.chars().all(proper) {
        true => Ok(name.to_owned()),
        false => Err("a name has 1 to 64 letters, digits and -_.@".to_owned()),
    }
}

/// Form of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A table for people.
    Table,
    /// A table with more columns.
    Wide,
    /// The API's JSON.
    Json,
    /// The same as YAML.
    Yaml,
    /// Names only, one a line.
    Name,
}

/// `sluice get`.
#[derive(Clone, Debug, Args)]
#[command(before_help = "\
Examples:
  sluice get models                     all models
  sluice get models gemma -o json       one model, for a script
  sluice get replicas --model gemma     where its replicas are in their lives")]
pub struct GetArgs {
    /// What to list.
    #[command(subcommand)]
    pub what: Get,
}

/// What `sluice get` lists.
#[derive(Clone, Debug, Subcommand)]
pub enum Get {
    /// Models: state, replicas, load and the reason of the last decision.
    #[command(
        visible_alias = "model",
        before_help = "\
Examples:
  sluice get models                     all models
  sluice get models -w                  and every change from now on
  sluice get models gemma -o json       one model, for a script
  sluice get models -o name             names only"
    )]
    Models(GetModels),
    /// Replicas: phase, age, address and load.
    #[command(
        visible_alias = "replica",
        before_help = "\
Examples:
  sluice get replicas                   all replicas
  sluice get replicas --model gemma     those of one model
  sluice get replicas r3 -o yaml        one replica, whole"
    )]
    Replicas(GetReplicas),
}

/// `sluice get models`.
#[derive(Clone, Debug, Args)]
pub struct GetModels {
    /// Only this model.
    #[arg(value_name = "MODEL", add = super::shell::model_names())]
    pub name: Option<String>,
    /// How to print.
    #[command(flatten)]
    pub list: ListArgs,
}

/// `sluice get replicas`.
#[derive(Clone, Debug, Args)]
pub struct GetReplicas {
    /// Only this replica.
    #[arg(value_name = "REPLICA")]
    pub name: Option<String>,
    /// Only replicas of this model.
    #[arg(long, value_name = "MODEL", conflicts_with = "name")]
    pub model: Option<String>,
    /// How to print.
    #[command(flatten)]
    pub list: ListArgs,
}

/// What all lists have.
#[derive(Clone, Debug, Args)]
pub struct ListArgs {
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// Stay and print what changes.
    #[arg(short, long)]
    pub watch: bool,
    /// Where the running Sluice is.
    #[command(flatten)]
    pub admin: AdminArgs,
}

/// `sluice describe`.
#[derive(Clone, Debug, Args)]
#[command(before_help = "\
Examples:
  sluice describe model gemma           state, what comes next, last decision, settings, events
  sluice describe replica r7            one replica and its events
  sluice describe model gemma -o json   the same for a script")]
pub struct DescribeArgs {
    /// What to show.
    #[command(subcommand)]
    pub what: Describe,
}

/// What `sluice describe` shows.
#[derive(Clone, Debug, Subcommand)]
pub enum Describe {
    /// A model: state, load, measured starts, fault, replicas, last decision, settings and latest events.
    #[command(before_help = "\
Examples:
  sluice describe model gemma")]
    Model(DescribeOne),
    /// A replica: phase, address, load and latest events.
    #[command(before_help = "\
Examples:
  sluice describe replica r7")]
    Replica(DescribeOne),
}

/// Which one to show.
#[derive(Clone, Debug, Args)]
pub struct DescribeOne {
    /// Its name or id.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = Whole::Text)]
    pub output: Whole,
    /// Where the running Sluice is.
    #[command(flatten)]
    pub admin: AdminArgs,
}

/// Form of all about one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Whole {
    /// For people.
    Text,
    /// The API's documents in one JSON object.
    Json,
    /// The same as YAML.
    Yaml,
}

/// `sluice events`.
#[derive(Clone, Debug, Args)]
#[command(before_help = "\
Examples:
  sluice events                         the last 50
  sluice events -w                      and every one from now on
  sluice events --model gemma --tail 10
  sluice events -w --tail 0 -o json     for a script, one a line")]
pub struct EventsArgs {
    /// Only this model's, and those that are nobody's alone.
    #[arg(long, value_name = "MODEL", add = super::shell::model_names())]
    pub model: Option<String>,
    /// Events of the past, at most 4000.
    #[arg(long, default_value_t = 50, value_name = "EVENTS", value_parser = clap::value_parser!(u32).range(0..=4_000))]
    pub tail: u32,
    /// Stay and print what comes; resumes by itself when the connection breaks.
    #[arg(short, long)]
    pub watch: bool,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = EventOutput::Table)]
    pub output: EventOutput,
    /// Where the running Sluice is.
    #[command(flatten)]
    pub admin: AdminArgs,
}

/// Form of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EventOutput {
    /// Time and text.
    Table,
    /// The API's JSON, one event a line.
    Json,
}

/// `sluice completion`.
#[derive(Clone, Debug, Args)]
#[command(before_help = "\
Examples:
  sluice completion bash > /etc/bash_completion.d/sluice
  sluice completion zsh > ~/.zfunc/_sluice
  sluice completion fish > ~/.config/fish/completions/sluice.fish")]
pub struct CompletionArgs {
    /// The shell.
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

/// Shells with completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// GNU Bash.
    Bash,
    /// Z shell.
    Zsh,
    /// Fish.
    Fish,
    /// PowerShell.
    Powershell,
}

/// `sluice man`.
#[derive(Clone, Debug, Args)]
#[command(before_help = "\
Examples:
  sluice man                            print sluice(1)
  sluice man ~/.local/share/man/man1    write sluice.1, sluice-run.1 and so on")]
pub struct ManArgs {
    /// Directory for a page per command; it is created.
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// `sluice logs`.
#[derive(Clone, Debug, Args)]
#[command(before_help = "\
Examples:
  sluice logs gemma                     the last 100 lines
  sluice logs gemma -f                  and every line from now on
  sluice logs gemma --tail 0 -f         only what comes")]
pub struct LogsArgs {
    /// The model.
    #[arg(value_name = "MODEL", add = super::shell::model_names())]
    pub model: String,
    /// Stay and print what comes.
    #[arg(short, long)]
    pub follow: bool,
    /// Lines of the past, at most 10000.
    #[arg(long, default_value_t = 100, value_name = "LINES", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub tail: u32,
    /// Write the time before each line.
    #[arg(long)]
    pub timestamps: bool,
    /// Where the running Sluice is.
    #[command(flatten)]
    pub admin: AdminArgs,
}

/// `sluice version`.
#[derive(Clone, Debug, Args)]
#[command(before_help = "\
Examples:
  sluice version
  sluice version --json                 for a script")]
pub struct VersionArgs {
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// `90s`, `5m`, `250ms`, `1h30m`; a bare number is seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    const MISTAKE: &str = "expected a time such as 90s, 5m or 1h30m";
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let number: u64 = number.parse().map_err(|_| MISTAKE)?;
        let letters = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let millis = match unit {
            "ms" => 1,
            "" | "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(MISTAKE.to_owned()),
        };
        let part = number.checked_mul(millis).ok_or(MISTAKE)?;
        total = total.checked_add(Duration::from_millis(part)).ok_or(MISTAKE)?;
        rest = tail;
    }
    if text.is_empty() { Err(MISTAKE.to_owned()) } else { Ok(total) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_file_to_serve_is_named_with_or_without_a_flag() {
        #[derive(clap::Parser)]
        struct Run {
            #[command(flatten)]
            args: RunArgs,
        }
        let file = |words: &[&str]| {
            let run = <Run as clap::Parser>::try_parse_from([&["run"], words].concat()).unwrap();
            run.args.config().display().to_string()
        };
        assert_eq!(file(&["a.yaml"]), "a.yaml");
        assert_eq!(file(&["--config", "b.yaml"]), "b.yaml");
        assert_eq!(file(&["-c", "b.yaml", "a.yaml"]), "a.yaml");
    }

    #[test]
    fn times_have_units() {
        assert_eq!(duration("90s").unwrap(), Duration::from_secs(90));
        assert_eq!(duration("1h30m").unwrap(), Duration::from_secs(5400));
        assert_eq!(duration("250ms").unwrap(), Duration::from_millis(250));
        assert_eq!(duration("7").unwrap(), Duration::from_secs(7));
        for wrong in ["", "s", "5x", "-1s", "99999999999999999999h", "18446744073709551615h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
