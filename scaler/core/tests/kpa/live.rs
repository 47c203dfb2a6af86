// SPDX-License-Identifier: Apache-2.0
//! A fleet of one model under `compat: kpa`.

use sluice_core::kpa::Settings;
use sluice_core::{Bytes, FleetSpec, LifeSpec, Micros, ModelSpec, Profile, ScaleSpec, Source};

/// Its name.
pub const MODEL: &str = "m";

/// The fleet.
pub fn fleet(settings: Settings, source: Source) -> FleetSpec {
    let scale = ScaleSpec {
        min_replicas: settings.min_scale,
        max_replicas: if settings.max_scale == 0 { u32::MAX } else { settings.max_scale },
        target_milli: 1_000,
        container_concurrency: settings.container_concurrency,
        idle_after: Micros::from_secs(60),
        window: settings.window,
        preload: false,
        profile: Profile::Kpa(Box::new(settings)),
    };
    let life = LifeSpec {
        start_deadline: Micros::from_secs(3_600),
        drain_deadline: Micros::from_secs(600),
        stop_deadline: Micros::from_secs(10),
        start_attempts: 3,
        backoff_first: Micros::from_millis(500),
        backoff_max: Micros::from_secs(30),
    };
    let spec = ModelSpec { generation: 1, source, scale, life, memory: Bytes(0), groups: Vec::new() };
    FleetSpec { models: [(MODEL.into(), spec)].into(), memory: None }
}
