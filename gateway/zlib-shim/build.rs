// SPDX-License-Identifier: Apache-2.0
//! Nothing to build; Cargo asks for a build script because of `links`.

fn main() {}
