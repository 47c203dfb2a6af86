// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, VecDeque};

use sluice_core::{ReplicaId, ReplicaRoute};

use super::*;
use crate::admission::ask::Class;
use crate::admission::testkit::{draining, failing, limits, ms, ready, replica, starting};

/// A line in virtual time whose waiting requests are answered by number.
struct World {
    line: Line<u32>,
    now: Micros,
    next: u32,
    waiting: BTreeMap<u32, Place>,
    running: VecDeque<(u32, Grant)>,
    refused: Vec<(u32, Refusal)>,
    drained: Vec<u64>,
    pokes: usize,
}

const HOLD: Ask = Ask { body_bytes: 1, class: Class::Standard, deadline: None, hold: true };

impl World {
    fn new(limits: Limits) -> World {
        World {
            line: Line::new("m".into(), limits),
            now: Micros::from_secs(1),
            next: 0,
            waiting: BTreeMap::new(),
            running: VecDeque::new(),
            refused: Vec::new(),
            drained: Vec::new(),
            pokes: 0,
        }
    }

    fn ready(limits: Limits, replicas: &[ReplicaRoute]) -> World {
        let mut world = World::new(limits);
        world.publish(&ready(replicas));
        world
    }

    fn after(&mut self, time: Micros) {
        self.now = self.now.after(time);
        self.line.sweep(self.now);
        self.settle();
    }

    fn publish(&mut self, route: &ModelRoute) {
        self.line.publish(self.now, Some(route));
        self.settle();
    }

    fn ask(&mut self, ask: &Ask) -> u32 {
        self.next += 1;
        let step = self.line.admit(self.now, ask);
        self.take(self.next, step);
        self.next
    }

    fn ask_times(&mut self, times: usize) -> Vec<u32> {
        (0..times).map(|_| self.ask(&HOLD)).collect()
    }

    fn retry(&mut self, id: u32) {
        let at = self.running.iter().position(|(running, _)| *running == id).unwrap();
        let (_, grant) = self.running.remove(at).unwrap();
        let step = self.line.readmit(self.now, &grant.endpoint, grant.ticket, &HOLD);
        self.take(id, step);
    }

    fn finish(&mut self, id: u32) {
        let at = self.running.iter().position(|(running, _)| *running == id).unwrap();
        let (_, grant) = self.running.remove(at).unwrap();
        self.line.release(self.now, &grant.endpoint, grant.since);
        self.settle();
    }

    fn leave(&mut self, id: u32) {
        let place = self.waiting.remove(&id).unwrap();
        assert_eq!(self.line.leave(self.now, place), Some(id));
        self.settle();
    }

    fn take(&mut self, id: u32, step: Result<Step, Refusal>) {
        match step {
            Ok(Step::Go(grant)) => {
                self.settle();
                self.running.push_back((id, grant));
                return;
            }
            Ok(Step::Wait(ticket)) => {
                self.waiting.insert(id, ticket.place);
                self.line.wait(self.now, ticket, id);
            }
            Err(refusal) => self.refused.push((id, refusal)),
        }
        self.settle();
    }

    fn settle(&mut self) {
        for effect in self.line.take_effects() {
            match effect {
                Effect::Granted(id, grant) => {
                    assert!(self.waiting.remove(&id).is_some());
                    self.running.push_back((id, grant));
                }
                Effect::Refused(id, refusal) => {
                    assert!(self.waiting.remove(&id).is_some());
                    self.refused.push((id, refusal));
                }
                Effect::Drained(told) => self.drained.push(told.replica.0),
                Effect::Poke => self.pokes += 1,
            }
        }
    }

    fn running(&self) -> Vec<u32> {
        self.running.iter().map(|(id, _)| *id).collect()
    }

    fn waiting(&self) -> Vec<u32> {
        self.waiting.keys().copied().collect()
    }

    fn at(&self, id: u32) -> u64 {
        self.running.iter().find(|(running, _)| *running == id).map(|(_, grant)| grant.endpoint.id.0).unwrap()
    }

    fn statuses(&self) -> Vec<(u32, u16)> {
        self.refused.iter().map(|(id, refusal)| (*id, refusal.status())).collect()
    }

    fn demand(&mut self) -> Demand {
        self.line.demand(self.now)
    }
}

#[test]
fn fc_18_the_bound_holds_warm_and_cold_and_while_draining() {
    let warm = (World::ready(limits(1, 1), &[replica(1, 1)]), 1);
    let at_zero = (World::new(limits(1, 1)), 1);
    let while_draining = (World::ready(limits(1, 1), &[draining(1, 1)]), 2);
    for (mut world, next) in [warm, at_zero, while_draining] {
        world.ask_times(6);
        assert_eq!(world.statuses(), [(3, 429), (4, 429), (5, 429), (6, 429)]);
        assert!(world.refused.iter().all(|(_, refusal)| refusal.retry_after().is_some()));
        world.publish(&ready(&[replica(next, 1)]));
        assert_eq!(world.running(), [1]);
        world.finish(1);
        assert_eq!(world.running(), [2]);
        world.finish(2);
        assert_eq!(world.line.counts(), (0, 0));
    }
}

#[test]
fn a_model_whose_line_has_no_length_can_still_be_started() {
    let mut world = World::new(limits(0, 1));
    world.ask_times(2);
    assert_eq!((world.waiting(), world.statuses()), (vec![1], vec![(2, 429)]));
}

#[test]
fn what_can_run_at_once_never_counts_against_the_bound() {
    let mut world = World::ready(limits(0, 1), &[replica(1, 5)]);
    world.ask_times(5);
    assert_eq!(world.running(), [1, 2, 3, 4, 5]);
    world.ask(&HOLD);
    assert_eq!(world.statuses(), [(6, 429)]);
}

#[test]
fn bodies_of_waiting_requests_are_bounded_together_but_one_always_fits() {
    let mut world = World::new(Limits { queue_bytes: 100, ..limits(10, 1) });
    let body = |body_bytes| Ask { body_bytes, ..HOLD };
    world.ask(&body(500));
    world.ask(&body(1));
    assert_eq!((world.waiting(), world.statuses()), (vec![1], vec![(2, 429)]));
    world.leave(1);
    world.ask(&body(60));
    world.ask(&body(41));
    world.ask(&body(40));
    assert_eq!(world.waiting(), [3, 5]);
}

#[test]
fn fc_19_waiting_requests_go_in_order_to_the_replica_that_is_current_then() {
    let mut world = World::new(limits(20, 1));
    world.ask_times(5);
    world.after(ms(3_000));
    world.publish(&ready(&[replica(7, 5)]));
    assert_eq!(world.running(), [1, 2, 3, 4, 5]);
    let more = world.ask_times(5);
    world.publish(&starting());
    for id in 1..=5 {
        world.finish(id);
    }
    assert_eq!(world.running(), [0; 0], "the replica is gone");
    world.publish(&ready(&[replica(8, 5)]));
    assert_eq!(world.running(), more);
    assert!(more.iter().all(|&id| world.at(id) == 8));
}

#[test]
fn fc_20_each_replica_is_given_no_more_than_it_takes() {
    let mut world = World::new(limits(1_000, 4));
    world.ask_times(300);
    world.publish(&ready(&[replica(1, 4)]));
    assert_eq!(world.running(), [1, 2, 3, 4]);
    world.publish(&ready(&[replica(1, 4), replica(2, 4)]));
    assert_eq!(world.running(), (1..=8).collect::<Vec<_>>(), "the second takes work as soon as it is ready");
    let mut served = 0;
    while let Some((id, _)) = world.running.front() {
        world.finish(*id);
        served += 1;
        assert!(world.running.iter().filter(|(_, grant)| grant.endpoint.id.0 == 1).count() <= 4);
    }
    assert_eq!((served, world.refused.len()), (300, 0));
}

#[test]
fn fc_22_the_budget_of_a_wait_ends_it_neither_earlier_nor_after_dispatch() {
    let budgets = Budgets { cold: ms(6_000), warm: ms(1_000) };
    let mut world = World::new(Limits { budgets, ..limits(10, 1) });
    world.ask_times(2);
    world.after(ms(4_500));
    world.publish(&ready(&[replica(1, 1)]));
    assert_eq!((world.running(), world.waiting()), (vec![1], vec![2]));
    world.after(ms(999));
    assert_eq!(world.waiting(), [2], "waiting for a busy replica has a budget of its own");
    world.publish(&starting());
    world.after(ms(1_499));
    assert_eq!(world.waiting(), [2]);
    world.after(ms(1));
    assert_eq!(world.statuses(), [(2, 504)]);
    world.after(ms(100_000));
    assert_eq!(world.running(), [1], "what was dispatched has no wait to end");
    assert_eq!(world.line.counts(), (1, 0));
}

#[test]
fn a_request_may_wait_long_cold_and_then_its_whole_warm_budget() {
    let budgets = Budgets { cold: ms(6_000), warm: ms(1_000) };
    let mut world = World::new(Limits { budgets, ..limits(10, 1) });
    world.ask_times(2);
    world.after(ms(5_999));
    world.publish(&ready(&[replica(1, 1)]));
    world.after(ms(999));
    assert_eq!(world.waiting(), [2]);
    world.after(ms(1));
    assert_eq!(world.statuses(), [(2, 504)]);
}

#[test]
fn a_shorter_budget_holds_for_those_already_waiting() {
    let mut world = World::new(limits(10, 1));
    world.ask(&HOLD);
    world.after(ms(5_000));
    let budgets = Budgets { cold: ms(2_000), warm: ms(2_000) };
    world.line.configure(Limits { budgets, ..limits(10, 1) });
    world.after(ms(0));
    assert_eq!(world.statuses(), [(1, 504)]);
}

#[test]
fn a_clients_own_deadline_is_kept_and_a_retry_is_not_suggested() {
    let mut world = World::new(limits(10, 1));
    let deadline = Some(world.now.after(ms(500)));
    world.ask(&HOLD);
    world.ask(&Ask { deadline, ..HOLD });
    world.after(ms(499));
    assert_eq!(world.waiting(), [1, 2]);
    world.after(ms(1));
    assert_eq!(world.statuses(), [(2, 504)]);
    assert!(world.refused[0].1.is_final() && world.refused[0].1.retry_after().is_none());
    world.ask(&Ask { deadline, ..HOLD });
    assert_eq!(world.statuses(), [(2, 504), (3, 504)], "it has passed already");
}

#[test]
fn an_expired_request_is_not_granted_even_before_a_sweep() {
    let mut world = World::ready(limits(10, 1), &[replica(1, 1)]);
    let deadline = Some(world.now.after(ms(500)));
    world.ask(&HOLD);
    world.ask(&Ask { deadline, ..HOLD });
    world.ask(&HOLD);
    world.now = world.now.after(ms(600));
    world.finish(1);
    assert_eq!((world.running(), world.statuses()), (vec![3], vec![(2, 504)]));
}

#[test]
fn higher_classes_go_first_and_arrival_decides_inside_one() {
    let mut world = World::ready(limits(10, 1), &[replica(1, 1)]);
    world.ask(&HOLD);
    world.ask(&Ask { class: Class::Batch, ..HOLD });
    world.ask_times(2);
    world.ask(&Ask { class: Class::Batch, ..HOLD });
    for id in [1, 3, 4, 2, 5] {
        assert_eq!(world.running(), [id]);
        world.finish(id);
    }
}

#[test]
fn one_slot_wakes_one_request() {
    let mut world = World::ready(limits(100, 2), &[replica(1, 2)]);
    world.ask_times(50);
    world.finish(1);
    assert_eq!((world.running(), world.waiting.len()), (vec![2, 3], 47));
    world.publish(&ready(&[replica(1, 3)]));
    assert_eq!(world.running(), [2, 3, 4]);
}

#[test]
fn a_retry_takes_the_old_place_in_the_line_and_avoids_where_it_failed() {
    let mut world = World::ready(limits(10, 1), &[replica(1, 1), replica(2, 1)]);
    world.ask_times(4);
    let (first, second) = (world.at(1), world.at(2));
    world.retry(1);
    assert_eq!(world.running(), [2, 3], "its slot goes to the next who may use it");
    assert_eq!(world.at(3), first);
    world.finish(2);
    assert_eq!((world.running(), world.at(1)), (vec![3, 1], second), "before younger requests");
    assert_eq!(world.demand().arrivals, 4, "a retry is no arrival");
}

#[test]
fn a_retry_does_not_go_before_a_higher_class() {
    let mut world = World::ready(limits(10, 1), &[replica(1, 1)]);
    world.ask(&Ask { class: Class::Batch, ..HOLD });
    world.ask(&HOLD);
    world.retry(1);
    assert_eq!((world.running(), world.waiting()), (vec![2], vec![1]));
}

#[test]
fn a_retry_goes_at_once_to_a_free_replica() {
    let mut world = World::ready(limits(0, 1), &[replica(1, 1), replica(2, 1)]);
    world.ask(&HOLD);
    let first = world.at(1);
    world.retry(1);
    assert_eq!(world.at(1), 3 - first);
    assert_eq!(world.line.counts(), (1, 0));
}

#[test]
fn a_retry_waits_even_if_the_line_is_full() {
    let mut world = World::ready(limits(1, 1), &[replica(1, 1), replica(2, 1)]);
    world.ask_times(2);
    world.ask(&HOLD);
    world.retry(1);
    assert_eq!((world.running(), world.waiting(), world.refused.len()), (vec![2, 3], vec![1], 0));
}

#[test]
fn the_only_replica_is_tried_again_after_its_pause_by_one_request_first() {
    let mut world = World::ready(limits(10, 4), &[replica(1, 4)]);
    world.ask(&HOLD);
    let endpoint = Arc::clone(&world.running[0].1.endpoint);
    endpoint.connect_failed(world.now);
    world.retry(1);
    world.ask(&HOLD);
    assert_eq!(world.waiting(), [1, 2]);
    world.after(ms(249));
    assert_eq!(world.waiting(), [1, 2]);
    world.after(ms(1));
    assert_eq!((world.running(), world.waiting()), (vec![1], vec![2]));
    endpoint.answered();
    world.after(ms(20));
    assert_eq!(world.running(), [1, 2]);
}

#[test]
fn waits_before_and_after_a_retry_count_together() {
    let budgets = Budgets { cold: ms(1_000), warm: ms(9_000) };
    let mut world = World::new(Limits { budgets, ..limits(10, 1) });
    world.ask(&HOLD);
    world.after(ms(700));
    world.publish(&ready(&[replica(1, 1)]));
    assert_eq!(world.running(), [1]);
    world.publish(&starting());
    world.retry(1);
    world.after(ms(299));
    assert_eq!(world.waiting(), [1]);
    world.after(ms(1));
    assert_eq!(world.statuses(), [(1, 504)]);
    let demand = world.demand();
    assert_eq!((demand.completions, demand.abandons), (1, 0), "it had a replica once");
}

#[test]
fn a_request_that_does_not_want_to_wait_is_refused_at_once_and_starts_nothing() {
    let mut world = World::new(limits(10, 1));
    let ask = Ask { hold: false, ..HOLD };
    world.ask(&ask);
    assert_eq!(world.statuses(), [(1, 503)]);
    assert_eq!(world.refused[0].1.code(), "model_loading");
    assert_eq!((world.pokes, world.demand().arrivals), (0, 0));
    world.publish(&ready(&[replica(1, 1)]));
    world.ask(&ask);
    world.ask(&ask);
    assert_eq!((world.running(), world.statuses()), (vec![2], vec![(1, 503), (3, 429)]));
}

#[test]
fn a_start_that_will_come_too_late_is_refused_at_once_but_the_first_request_waits() {
    let budgets = Budgets { cold: ms(10_000), warm: ms(1_000) };
    let mut world = World::new(Limits { budgets, ..limits(10, 1) });
    world.ask(&HOLD);
    world.publish(&ModelRoute { ready_at: Some(world.now.after(ms(12_000))), ..starting() });
    world.ask(&HOLD);
    assert_eq!((world.waiting(), world.statuses()), (vec![1], vec![(2, 503)]));
    let refusal = &world.refused[0].1;
    assert_eq!((refusal.code(), refusal.model_state()), ("model_loading", ModelState::Starting));
    assert_eq!(refusal.retry_after(), Some(std::time::Duration::from_secs(12)));
    world.after(ms(3_000));
    world.ask(&HOLD);
    assert_eq!(world.waiting(), [1, 3], "now it can be ready in time");
    let deadline = Some(world.now.after(ms(8_000)));
    world.ask(&Ask { deadline, ..HOLD });
    assert_eq!(world.statuses().last(), Some(&(4, 503)), "not within its own deadline");
}

#[test]
fn those_who_wait_when_a_start_fails_are_told_why_once() {
    let mut world = World::new(limits(10, 1));
    world.ask_times(2);
    let mut quiet = failing(1, ms(2_000));
    quiet.fault.as_mut().unwrap().answer_waiters = false;
    world.publish(&quiet);
    assert_eq!(world.waiting(), [1, 2], "the next attempt is allowed");
    world.publish(&failing(2, world.now.after(ms(5_000))));
    assert_eq!(world.statuses(), [(1, 503), (2, 503)]);
    let refusal = &world.refused[0].1;
    assert_eq!(refusal.code(), "start_failed");
    assert!(refusal.to_string().contains("exit status 3"));
    world.ask(&HOLD);
    world.publish(&ModelRoute { desired: 1, ..failing(2, world.now.after(ms(5_000))) });
    assert_eq!(world.waiting(), [3], "who came later waits for the next attempt");
    world.publish(&failing(3, world.now.after(ms(5_000))));
    assert_eq!(world.refused.len(), 3);
}

#[test]
fn a_pause_longer_than_the_budget_refuses_newcomers_at_once() {
    let budgets = Budgets { cold: ms(3_000), warm: ms(1_000) };
    let mut world = World::new(Limits { budgets, ..limits(10, 1) });
    world.publish(&failing(1, world.now.after(ms(4_000))));
    world.ask(&HOLD);
    assert_eq!(world.statuses(), [(1, 503)]);
    assert_eq!(world.refused[0].1.reason, Reason::NotInTime);
    world.after(ms(2_000));
    world.ask(&HOLD);
    assert_eq!(world.waiting(), [2]);
}

#[test]
fn a_failed_start_of_a_further_replica_refuses_nobody() {
    let mut world = World::ready(limits(10, 1), &[replica(1, 1)]);
    world.ask_times(2);
    world.publish(&ModelRoute { fault: failing(1, ms(2_000)).fault, ..ready(&[replica(1, 1)]) });
    assert_eq!((world.waiting(), world.refused.len()), (vec![2], 0));
}

#[test]
fn fc_33_leaving_at_any_point_gives_everything_back() {
    let mut world = World::ready(limits(200, 2), &[replica(1, 2)]);
    for _ in 0..100 {
        let ids = world.ask_times(4);
        world.leave(ids[3]);
        world.finish(ids[0]);
        world.finish(ids[1]);
        world.finish(ids[2]);
        assert_eq!(world.line.counts(), (0, 0));
    }
    let demand = world.demand();
    assert_eq!((demand.arrivals, demand.completions, demand.abandons), (400, 300, 100));
    assert_eq!(demand.by_replica, BTreeMap::from([(ReplicaId(1), 0)]));
    world.ask_times(2);
    assert_eq!(world.running.len(), 2, "both slots are free");
}

#[test]
fn fc_36_an_arrival_during_the_unload_waits_for_the_next_start() {
    let mut world = World::ready(limits(10, 1), &[replica(1, 1)]);
    world.publish(&ready(&[draining(1, 1)]));
    assert_eq!(world.drained, [1]);
    world.ask(&HOLD);
    assert_eq!((world.waiting(), world.pokes), (vec![1], 1), "the scaler is told that somebody waits");
    world.demand();
    world.publish(&unrouted());
    world.ask(&HOLD);
    assert_eq!(world.pokes, 2);
    world.publish(&ready(&[replica(2, 1)]));
    assert_eq!((world.running(), world.at(1)), (vec![1], 2));
    assert_eq!(world.drained, [1], "told once");
}

#[test]
fn a_drain_called_off_gives_the_slots_to_those_who_wait() {
    let mut world = World::ready(limits(10, 1), &[draining(1, 2)]);
    world.ask_times(2);
    world.publish(&ready(&[replica(1, 2)]));
    assert_eq!(world.running(), [1, 2]);
}

#[test]
fn the_last_request_of_a_draining_replica_reports_it_drained_and_its_slot_goes_nowhere() {
    let mut world = World::ready(limits(10, 1), &[replica(1, 1)]);
    world.ask_times(2);
    world.publish(&ready(&[draining(1, 1)]));
    assert!(world.drained.is_empty());
    world.finish(1);
    assert_eq!((world.drained.clone(), world.waiting()), (vec![1], vec![2]));
}

#[test]
fn waiting_requests_poke_once_per_report() {
    let mut world = World::new(limits(10, 10));
    world.ask_times(5);
    assert_eq!(world.pokes, 1);
    assert_eq!(world.demand().queued, 5);
    world.ask_times(2);
    assert_eq!(world.pokes, 2);
    world.publish(&ready(&[replica(1, 20)]));
    world.demand();
    world.ask_times(3);
    assert_eq!(world.pokes, 2, "what runs at once tells nothing");
}

#[test]
fn a_contended_model_that_falls_idle_tells_the_scaler() {
    let contended = |capacity| ModelRoute { contended: true, ..ready(&[replica(1, capacity)]) };
    let mut world = World::ready(limits(10, 1), &[replica(1, 2)]);
    world.ask_times(2);
    world.publish(&contended(2));
    world.finish(1);
    assert_eq!(world.pokes, 0);
    world.finish(2);
    assert_eq!(world.pokes, 1);
    world.demand();
    world.after(ms(50));
    assert_eq!(world.pokes, 1, "once");
    world.publish(&ready(&[replica(1, 2)]));
    world.publish(&contended(2));
    assert_eq!(world.pokes, 2, "it was idle when another model began to wait");
}

#[test]
fn a_removed_model_refuses_and_lets_what_runs_finish() {
    let mut world = World::ready(limits(10, 1), &[replica(1, 1)]);
    world.ask_times(2);
    world.line.remove(world.now);
    world.settle();
    world.ask(&HOLD);
    assert_eq!(world.statuses(), [(2, 404), (3, 404)]);
    assert_eq!(world.running(), [1]);
    world.publish(&ready(&[replica(1, 1)]));
    world.ask(&HOLD);
    assert_eq!(world.refused.len(), 3, "older routes do not bring it back");
    world.line.publish(world.now, None);
    world.finish(1);
    assert_eq!((world.drained.clone(), world.line.counts()), (vec![1], (0, 0)));
}

#[test]
fn a_model_that_is_configured_again_serves_again() {
    let mut world = World::ready(limits(10, 1), &[replica(1, 2)]);
    world.ask(&HOLD);
    world.line.remove(world.now);
    world.line.configure(limits(10, 1));
    world.publish(&ready(&[replica(1, 2)]));
    world.ask(&HOLD);
    assert_eq!(world.running(), [1, 2]);
    assert_eq!(world.demand().arrivals, 2, "counts go on");
}

#[test]
fn a_model_the_scaler_does_not_know_yet_holds_its_requests() {
    let mut world = World::new(limits(10, 1));
    world.line.publish(world.now, None);
    world.ask(&HOLD);
    assert_eq!(world.waiting(), [1]);
    world.publish(&ready(&[replica(1, 1)]));
    assert_eq!(world.running(), [1]);
    world.ask(&HOLD);
    world.line.publish(world.now, None);
    world.settle();
    assert_eq!(world.statuses(), [(2, 404)], "it was known and is not any more");
}

#[test]
fn a_stop_refuses_the_waiting_and_the_new_and_lets_a_retry_use_a_free_slot() {
    let mut world = World::ready(limits(10, 1), &[replica(1, 1), replica(2, 1)]);
    world.ask_times(3);
    world.line.stop(world.now);
    world.settle();
    world.ask(&HOLD);
    assert_eq!(world.statuses(), [(3, 503), (4, 503)]);
    assert!(world.refused.iter().all(|(_, refusal)| refusal.code() == "draining"));
    world.finish(2);
    world.retry(1);
    assert_eq!(world.running(), [1]);
    world.ask(&HOLD);
    assert_eq!(world.line.counts(), (1, 0));
}

#[test]
fn a_full_line_promises_what_its_pace_gives() {
    let mut world = World::ready(limits(3, 1), &[replica(1, 1)]);
    world.ask(&HOLD);
    world.after(ms(4_000));
    world.finish(1);
    world.ask_times(5);
    let refusal = &world.refused[0].1;
    assert_eq!(refusal.reason, Reason::QueueFull { waiting: 3 });
    assert_eq!(refusal.retry_after(), Some(std::time::Duration::from_secs(16)), "four at four seconds each");
}

#[test]
fn integrals_and_peak_of_a_burst_between_two_reports() {
    let mut world = World::ready(limits(10, 1), &[replica(1, 1)]);
    world.ask_times(3);
    world.after(ms(10));
    world.finish(1);
    world.after(ms(10));
    world.finish(2);
    world.after(ms(10));
    world.finish(3);
    let idle_since = world.now;
    world.after(ms(500));
    let demand = world.demand();
    assert_eq!((demand.in_flight_micros, demand.queued_micros), (30_000, 30_000));
    assert_eq!((demand.peak, demand.in_flight, demand.queued), (3, 0, 0));
    assert_eq!(demand.idle_since, Some(idle_since));
}
