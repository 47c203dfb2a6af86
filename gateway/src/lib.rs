// SPDX-License-Identifier: Apache-2.0
//! Data plane, admin API and command line of Sluice.

pub mod admin;
pub mod admission;
pub mod balance;
pub mod bench;
pub mod cli;
pub mod config;
pub mod demo_engine;
pub mod exchange;
pub mod front;
pub mod gateway;
pub mod http1;
pub mod http2;
pub mod logging;
pub mod route;
pub mod run;
mod state;
pub mod telemetry;
pub mod trace;
