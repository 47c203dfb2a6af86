// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used, clippy::expect_used)]

use sluice_core::Address;

use super::*;

const LONG_AGO: Micros = Micros::ZERO;
const NOW: Micros = Micros::from_secs(1_000);

fn replica(id: u64, capacity: u32) -> ReplicaRoute {
    ReplicaRoute {
        id: ReplicaId(id),
        address: Address { socket: ([127, 0, 0, 1], 1_000 + id as u16).into(), host: None, tls: false },
        capacity,
        draining: false,
        drains: 0,
        ready_since: LONG_AGO,
    }
}

fn draining(id: u64) -> ReplicaRoute {
    ReplicaRoute { draining: true, drains: 1, ..replica(id, 4) }
}

fn drained(id: u64, drain: u32) -> Drained {
    Drained { replica: ReplicaId(id), drain }
}

fn pool(replicas: &[ReplicaRoute]) -> Pool {
    let mut pool = Pool::default();
    assert_eq!(apply(&mut pool, replicas), []);
    pool
}

fn apply(pool: &mut Pool, replicas: &[ReplicaRoute]) -> Vec<Drained> {
    let mut drained = Vec::new();
    pool.apply(replicas, false, &mut drained);
    drained
}

fn take(pool: &mut Pool) -> Option<u64> {
    pool.reserve(NOW, None).map(|e| e.id.0)
}

#[test]
fn the_lowest_share_of_capacity_is_chosen() {
    let mut pool = pool(&[replica(1, 2), replica(2, 6)]);
    let mut taken = BTreeMap::<u64, u32>::new();
    for _ in 0..4 {
        *taken.entry(take(&mut pool).unwrap()).or_default() += 1;
    }
    assert_eq!(taken, BTreeMap::from([(1, 1), (2, 3)]));
    for _ in 0..4 {
        take(&mut pool).unwrap();
    }
    assert_eq!(take(&mut pool), None, "every slot is taken");
    assert_eq!(pool.by_replica(), BTreeMap::from([(ReplicaId(1), 2), (ReplicaId(2), 6)]));
}

#[test]
fn ties_go_round() {
    let mut pool = pool(&[replica(1, 4), replica(2, 4), replica(3, 4)]);
    let mut firsts = Vec::new();
    for _ in 0..3 {
        let endpoint = pool.reserve(NOW, None).unwrap();
        firsts.push(endpoint.id.0);
        pool.release(&endpoint);
    }
    firsts.sort_unstable();
    assert_eq!(firsts, [1, 2, 3]);
}

#[test]
fn unlimited_replicas_are_loaded_evenly() {
    let mut pool = pool(&[replica(1, u32::MAX), replica(2, u32::MAX)]);
    for _ in 0..10 {
        take(&mut pool).unwrap();
    }
    assert_eq!(pool.by_replica(), BTreeMap::from([(ReplicaId(1), 5), (ReplicaId(2), 5)]));
}

#[test]
fn a_fresh_replica_is_loaded_slowly_beside_a_seasoned_one() {
    let fresh = ReplicaRoute { ready_since: NOW, ..replica(2, 8) };
    let mut pool = pool(&[replica(1, 8), fresh]);
    for _ in 0..8 {
        take(&mut pool).unwrap();
    }
    assert_eq!(pool.by_replica().get(&ReplicaId(2)), Some(&1));
}

#[test]
fn a_lone_fresh_replica_gets_everything_at_once() {
    let mut pool = pool(&[ReplicaRoute { ready_since: NOW, ..replica(1, 8) }]);
    assert_eq!((0..8).filter_map(|_| take(&mut pool)).count(), 8);
}

#[test]
fn a_fresh_replica_takes_what_others_have_no_room_for() {
    let mut pool = pool(&[replica(1, 1), ReplicaRoute { ready_since: NOW, ..replica(2, 4) }]);
    assert_eq!((0..5).filter_map(|_| take(&mut pool)).count(), 5);
}

#[test]
fn fc_53_a_dead_endpoint_is_left_after_one_request_and_tried_sparingly() {
    let mut pool = pool(&[replica(1, 4), replica(2, 4)]);
    let mut attempts = 0;
    for tick in 0..120 {
        let now = NOW.after(Micros::from_millis(tick * 100));
        let endpoint = pool.reserve(now, None).unwrap();
        if endpoint.id == ReplicaId(1) {
            attempts += 1;
            endpoint.connect_failed(now);
        }
        pool.release(&endpoint);
    }
    assert!((2..=7).contains(&attempts), "{attempts} attempts of 120 at the dead address");
    let later = NOW.after(Micros::from_secs(60));
    let trial = (0..2).filter_map(|_| pool.reserve(later, None)).find(|e| e.id == ReplicaId(1)).unwrap();
    assert!((0..3).all(|_| pool.reserve(later, None).unwrap().id == ReplicaId(2)), "one trial at a time");
    trial.answered();
    assert_eq!(pool.reserve(later, None).unwrap().id, ReplicaId(1));
}

#[test]
fn a_lone_endpoint_that_was_set_aside_is_tried_at_the_end_of_its_pause() {
    let mut pool = pool(&[replica(1, 4)]);
    let endpoint = pool.reserve(NOW, None).unwrap();
    endpoint.connect_failed(NOW);
    pool.release(&endpoint);
    assert!(pool.reserve(NOW, Some(ReplicaId(1))).is_none());
    let later = NOW.after(Micros::from_millis(250));
    assert!(pool.reserve(later, Some(ReplicaId(1))).is_some(), "there is no other");
}

#[test]
fn an_endpoint_to_avoid_is_used_only_if_there_is_no_other() {
    let mut pool = pool(&[replica(1, 4), replica(2, 1)]);
    let avoid = Some(ReplicaId(1));
    assert_eq!(pool.reserve(NOW, avoid).unwrap().id, ReplicaId(2));
    assert!(pool.reserve(NOW, avoid).is_none(), "the other is busy, not gone");
    apply(&mut pool, &[replica(1, 4), draining(2)]);
    assert_eq!(pool.reserve(NOW, avoid).unwrap().id, ReplicaId(1));
}

#[test]
fn an_idle_endpoint_is_drained_at_once_and_told_once() {
    let mut pool = pool(&[replica(1, 4), replica(2, 4)]);
    assert_eq!(apply(&mut pool, &[draining(1), replica(2, 4)]), [drained(1, 1)]);
    assert_eq!(apply(&mut pool, &[draining(1), replica(2, 4)]), []);
    assert_eq!(apply(&mut pool, &[replica(2, 4)]), [], "its going was announced by the drain");
    assert!((0..4).all(|_| take(&mut pool) == Some(2)));
}

#[test]
fn a_busy_endpoint_is_drained_when_its_last_slot_comes_back() {
    let mut pool = pool(&[replica(1, 4)]);
    let (first, second) = (pool.reserve(NOW, None).unwrap(), pool.reserve(NOW, None).unwrap());
    assert_eq!(apply(&mut pool, &[draining(1)]), []);
    assert_eq!(take(&mut pool), None);
    assert_eq!(pool.release(&first), None);
    assert_eq!(pool.release(&second), Some(drained(1, 1)));
    assert_eq!(apply(&mut pool, &[draining(1)]), []);
}

#[test]
fn a_resumed_drain_gets_its_capacity_back_and_a_second_drain_is_told_again() {
    let mut pool = pool(&[replica(1, 1)]);
    assert_eq!(apply(&mut pool, &[draining(1)]), [drained(1, 1)]);
    assert_eq!(apply(&mut pool, &[replica(1, 1)]), []);
    assert_eq!(take(&mut pool), Some(1));
    assert_eq!(apply(&mut pool, &[draining(1)]), []);
    let endpoint = Arc::clone(&pool.routed[0].endpoint);
    assert_eq!(pool.release(&endpoint), Some(drained(1, 1)));
}

#[test]
fn each_drain_is_told_by_its_number() {
    let mut pool = pool(&[replica(1, 1)]);
    let again = ReplicaRoute { drains: 2, ..draining(1) };
    assert_eq!(apply(&mut pool, &[draining(1)]), [drained(1, 1)]);
    assert_eq!(
        apply(&mut pool, std::slice::from_ref(&again)),
        [drained(1, 2)],
        "the first one was called off unseen"
    );
    assert_eq!(apply(&mut pool, &[again]), []);
}

#[test]
fn an_endpoint_that_vanished_from_the_routes_is_counted_until_it_is_empty() {
    let mut pool = pool(&[replica(1, 4)]);
    let endpoint = pool.reserve(NOW, None).unwrap();
    assert_eq!(apply(&mut pool, &[]), []);
    assert!(!pool.is_ready());
    assert_eq!(pool.by_replica(), BTreeMap::from([(ReplicaId(1), 1)]));
    assert_eq!(pool.release(&endpoint), Some(drained(1, 0)));
    assert_eq!(pool.by_replica(), BTreeMap::new());
}

#[test]
fn an_endpoint_that_comes_back_while_it_is_busy_keeps_its_slots() {
    let mut pool = pool(&[replica(1, 1)]);
    let endpoint = pool.reserve(NOW, None).unwrap();
    apply(&mut pool, &[]);
    apply(&mut pool, &[replica(1, 1)]);
    assert_eq!(take(&mut pool), None, "its one slot is still taken");
    assert_eq!(pool.release(&endpoint), None);
    assert_eq!(take(&mut pool), Some(1));
}

#[test]
fn closing_tells_nothing_until_the_scaler_drains() {
    let mut pool = pool(&[replica(1, 4)]);
    let endpoint = pool.reserve(NOW, None).unwrap();
    pool.close();
    assert_eq!(take(&mut pool), None);
    assert_eq!(pool.release(&endpoint), None);
    let mut told = Vec::new();
    pool.apply(&[replica(1, 4)], true, &mut told);
    assert_eq!((told.len(), take(&mut pool)), (0, None), "older routes do not open it again");
    pool.apply(&[draining(1)], true, &mut told);
    assert_eq!(told, [drained(1, 1)]);
}

#[test]
fn a_capacity_change_applies_to_the_live_endpoint() {
    let mut pool = pool(&[replica(1, 1)]);
    let before = pool.reserve(NOW, None).unwrap();
    assert_eq!(take(&mut pool), None);
    apply(&mut pool, &[replica(1, 2)]);
    let after = pool.reserve(NOW, None).unwrap();
    assert!(Arc::ptr_eq(&before, &after));
    assert_eq!(pool.slots(), 2);
}

#[test]
fn a_replica_at_a_new_address_is_a_new_endpoint_and_no_drain() {
    let mut pool = pool(&[replica(1, 4)]);
    let old = pool.reserve(NOW, None).unwrap();
    let mut moved = replica(1, 4);
    moved.address.socket = ([127, 0, 0, 1], 9).into();
    assert_eq!(apply(&mut pool, &[moved]), []);
    let new = pool.reserve(NOW, None).unwrap();
    assert_eq!(new.address.socket.port(), 9);
    assert_eq!(pool.by_replica(), BTreeMap::from([(ReplicaId(1), 2)]));
    assert_eq!(pool.release(&old), None);
}
