// SPDX-License-Identifier: Apache-2.0
//! The fake engine as a program, to be launched by a gateway as a model's replica.

use std::process::ExitCode;

use sluice_tests::engine::life::{Args, run};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match Args::parse(std::env::args().skip(1)) {
        Ok(args) => run(args).await,
        Err(e) => {
            eprintln!("fake-engine: {e}");
            ExitCode::from(64)
        }
    }
}
