// SPDX-License-Identifier: Apache-2.0
//! From a YAML file to validated [`Settings`], with every error at once.

pub mod settings;

pub use settings::{Limits, ModelSettings, Protocol, Settings, Shutdown, Timeouts, Tls};
