// SPDX-License-Identifier: Apache-2.0
//! Replicas that somebody else runs: attached by probing, detached by no longer doing so.

use std::net::SocketAddr;
use std::sync::Arc;

use sluice_core::{Address, ReplicaEvent};
use tokio::sync::oneshot;

use crate::launch::{FixedLaunch, Origin};
use crate::probe::{Change, Remote, Target, Watcher, authority};

/// Probes address number `ordinal` until told to stop. Returns the cause to give for its end.
pub(crate) async fn attend(
    launch: &FixedLaunch,
    ordinal: u32,
    tls: Arc<rustls::ClientConfig>,
    mut stop: oneshot::Receiver<()>,
    emit: impl Fn(ReplicaEvent),
) -> String {
    let origin = usize::try_from(ordinal).ok().and_then(|at| launch.urls.get(at));
    let Some(origin) = origin else {
        return format!("there are {} fixed addresses and none has number {ordinal}", launch.urls.len());
    };
    let target = Target::Remote(Remote::new(origin.clone(), tls));
    let mut watcher = Watcher::new(target, launch.probe.clone());
    let mut told = String::new();
    loop {
        let change = tokio::select! {
            biased;
            _ = &mut stop => break,
            change = watcher.next() => change,
        };
        match change {
            Change::Ready(socket) => emit(ReplicaEvent::Ready(address(origin, socket))),
            Change::NotReady(why) => emit(ReplicaEvent::NotReady { why }),
            // One that refuses the key is not given up: its owner may correct that while we watch.
            Change::NotYet(why) | Change::Denied(why) if why != told => {
                told.clone_from(&why);
                emit(ReplicaEvent::NotReady { why });
            }
            Change::NotYet(_) | Change::Denied(_) => {}
        }
    }
    match watcher.last_failure() {
        Some(failure) => format!("{} detached: {failure}", authority(origin)),
        None => format!("{} detached", authority(origin)),
    }
}

fn address(origin: &Origin, socket: SocketAddr) -> Address {
    Address { socket, host: Some(authority(origin).into()), tls: origin.tls }
}
