// SPDX-License-Identifier: Apache-2.0
//! Things break while clients send: replicas, Sluice itself, its configuration. Each request's fate, as its client saw
//! it, is held against what the engines wrote down.

mod crowd;
mod fate;
mod gateway;
mod parked;
mod replicas;
