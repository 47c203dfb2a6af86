// SPDX-License-Identifier: Apache-2.0
//! The leak check at the end of a case: with no client connected, everything is back where it was.

use std::time::{Duration, Instant};

use super::{Gateway, config, procs};
use crate::clock::ms;

/// Gauges return to zero within this.
const GAUGES: Duration = Duration::from_secs(1);
/// Models that sleep later than this are not waited for.
const PATIENCE: Duration = Duration::from_secs(12);
/// Descriptors that may come and go.
const SLACK: usize = 2;
/// Descriptors of what the first start of a replica brings up, once.
const FIRST_START: usize = 4;
/// Descriptors that a living replica may cost: pipes, a process handle, pooled connections.
const PER_REPLICA: usize = 6;
/// On top of every limit: the case's tolerance and the scrape itself.
const TOLERANCE: Duration = Duration::from_millis(500);

impl Gateway {
    /// Fails with everything that is not as it should be.
    pub async fn leak_check(&self) {
        let mut faults = Vec::new();
        self.check_gauges(&mut faults).await;
        self.check_sleep(&mut faults).await;
        self.check_processes(&mut faults).await;
        assert!(faults.is_empty(), "leak check: {}", faults.join("; "));
    }

    async fn check_gauges(&self, faults: &mut Vec<String>) {
        let deadline = Instant::now() + GAUGES + TOLERANCE;
        loop {
            let metrics = self.metrics().await;
            let gauges = ["sluice_inflight", "sluice_queue_depth"];
            let samples: Vec<_> = gauges.iter().flat_map(|g| metrics.find(g, &[])).cloned().collect();
            faults.extend(samples.iter().filter(|s| s.value < 0.0).map(|s| format!("negative gauge {s:?}")));
            let busy: Vec<_> = samples.iter().filter(|s| s.value != 0.0).collect();
            if busy.is_empty() {
                return;
            }
            if Instant::now() > deadline {
                return faults.push(format!("gauges do not return to zero: {busy:?}"));
            }
            tokio::time::sleep(ms(20)).await;
        }
    }

    async fn check_sleep(&self, faults: &mut Vec<String>) {
        let begun = Instant::now();
        for model in config::terms(&self.expand(&self.yaml)) {
            let Some(after) = model.sleeps_after().filter(|a| *a <= PATIENCE) else { continue };
            let deadline = begun + after + Duration::from_secs(1) + TOLERANCE;
            loop {
                let seen = self.model(&model.name).await;
                if ["ready", "starting", "leaving"].iter().all(|k| seen[k] == 0) {
                    break;
                }
                if Instant::now() > deadline {
                    faults.push(format!(
                        "{} is not at zero {after:?} + 1 s after the case: {seen}",
                        model.name
                    ));
                    break;
                }
                tokio::time::sleep(ms(20)).await;
            }
        }
    }

    async fn check_processes(&self, faults: &mut Vec<String>) {
        let deadline = Instant::now() + GAUGES + TOLERANCE;
        loop {
            let children = procs::children(self.pid());
            let zombies: Vec<_> = children.iter().filter(|p| p.state == 'Z').collect();
            let allowed = self.descriptors + SLACK + FIRST_START + PER_REPLICA * children.len();
            let open = procs::descriptors(self.pid());
            if zombies.is_empty() && open <= allowed {
                return;
            }
            if Instant::now() > deadline {
                if !zombies.is_empty() {
                    faults.push(format!("zombies: {zombies:?}"));
                }
                if open > allowed {
                    let list = procs::descriptor_list(self.pid()).join(", ");
                    faults.push(format!(
                        "{open} descriptors, {} at the start and {FIRST_START} for the first replica: {list}",
                        self.descriptors
                    ));
                }
                return;
            }
            tokio::time::sleep(ms(20)).await;
        }
    }
}
