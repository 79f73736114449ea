use std::collections::BTreeSet;

use super::*;
use crate::limit::route::permits::{self, PermitGrant};

const NOW: Duration = Duration::from_secs(10);
const LEASE: Duration = Duration::from_secs(13);

fn granted(general: u64, reserved: u64) -> Arc<RouteState> {
    let state = Routes::new().state("email");
    state.grant(general, reserved, LEASE);
    state
}

#[test]
fn a_route_keeps_its_state_and_its_topic_over_policies() {
    let routes = Routes::new();
    let (email, push) = (routes.state("email"), routes.state("push"));
    assert!(Arc::ptr_eq(&email, &routes.state("email")));
    assert_eq!([email.topic, push.topic], [WaitingTopic(0), WaitingTopic(1)]);
    assert!(Arc::ptr_eq(&push, &routes.waiting_on(push.topic).unwrap()));
    assert!(routes.waiting_on(WaitingTopic(2)).is_none());
}

#[test]
fn a_permit_is_held_until_its_intent_is_committed_or_it_is_withdrawn() {
    let state = granted(5, 3);
    let mut batch = Taken::general(Arc::clone(&state), 4, NOW);
    assert_eq!((batch.units(), batch.take(Pool::Reserved, 9, NOW)), (4, 3));
    assert_eq!((state.withdraw_above(0, 0), state.held(), state.spent()), (1, 7, 0), "one was left");
    batch.keep(2, 0);
    assert_eq!((state.held(), state.left(Pool::General, NOW), state.left(Pool::Reserved, NOW)), (7, 4, 1));
    batch.spend();
    assert_eq!((state.held(), state.spent()), (5, 2));
    drop(Taken::general(Arc::clone(&state), 4, NOW));
    let given_up = (state.withdraw_above(0, 0), state.held(), state.spent());
    assert_eq!(given_up, (5, 0, 2), "a batch that is given up puts all back");
}

#[test]
fn permits_that_are_put_back_after_a_turn_that_began_when_others_may_have_had_them_lapse() {
    for (begins_after, back) in [(permits::LEASE - Duration::from_millis(1), 4), (permits::LEASE, 0)] {
        let state = granted(3, 1);
        let mut batch = Taken::general(Arc::clone(&state), 3, NOW);
        assert_eq!((batch.take(Pool::Reserved, 1, NOW), batch.until()), (1, LEASE));
        state.end_leases(NOW + begins_after);
        // Leases that are over since another process has overtaken this one do not begin anew with the next turn.
        state.end_leases(NOW);
        drop(batch);
        let left = state.left(Pool::General, NOW) + state.left(Pool::Reserved, NOW);
        assert_eq!((left, state.held(), state.spent()), (back, back, 0), "a turn {begins_after:?} after theirs");
    }
}

#[test]
fn a_batch_keeps_permits_of_the_reserved_share_for_its_intents_and_the_others_go_back() {
    for (reserved, others, left) in [
        // So many of either pool are left, of 5 and 3, once the batch has put back what it does not need.
        (0, 0, (5, 3)),
        (0, 2, (3, 3)),
        (2, 2, (3, 1)),
        (3, 5, (0, 0)),
        (4, 2, (2, 0)),
        (0, 6, (0, 2)),
    ] {
        let state = granted(5, 3);
        let mut batch = Taken::general(Arc::clone(&state), 5, NOW);
        assert_eq!(batch.take(Pool::Reserved, 3, NOW), 3);
        batch.keep(reserved, others);
        assert_eq!((state.left(Pool::General, NOW), state.left(Pool::Reserved, NOW)), left, "{reserved} {others}");
        batch.spend();
        assert_eq!((state.spent(), state.held()), (reserved + others, 8 - reserved - others));
    }
}

#[test]
fn intents_queue_behind_those_that_wait_and_behind_those_that_were_sent_to_wait_since_they_were_counted() {
    let state = granted(1, 0);
    state.learn(RouteKnown::default());
    assert!(!state.is_queueing());
    state.queue(1);
    assert!(state.is_queueing(), "nobody has counted since");
    state.learn(RouteKnown { queued_before: state.queued(), ..RouteKnown::default() });
    assert!(!state.is_queueing(), "it was counted, and is decided");
    state.learn(RouteKnown { waiting: vec![0, 1], queued_before: state.queued(), ..RouteKnown::default() });
    assert!(state.is_queueing());
}

#[test]
fn a_lane_finds_intents_since_it_found_none() {
    let state = Routes::new().state("email");
    assert_eq!(state.finds_since(), None, "nobody has looked");
    for (found, at, since) in
        [(true, 5, Some(5)), (true, 9, Some(5)), (false, 10, None), (false, 11, None), (true, 12, Some(12))]
    {
        state.looked(found, Duration::from_secs(at));
        assert_eq!(state.finds_since(), since.map(Duration::from_secs), "at {at}");
    }
}

#[test]
fn an_intent_waits_where_fewer_wait_of_two_partitions_that_its_hash_names() {
    assert_eq!((place(&[], 7), place(&[9], 7)), (None, Some(0)));
    let mut pairs = BTreeSet::new();
    for campaign in 0..10_000_u64 {
        let hash = xxhash_rust::xxh3::xxh3_64(&campaign.to_be_bytes());
        let free = place(&[0; 32], hash).unwrap();
        let mut waiting = [0; 32];
        waiting[free] = 1;
        let other = place(&waiting, hash).unwrap();
        assert_ne!(free, other, "a blast in the one leaves the other");
        waiting[other] = 1;
        assert_eq!(place(&waiting, hash), Some(free));
        pairs.insert([free.min(other), free.max(other)]);
    }
    assert_eq!(pairs.len(), 32 * 31 / 2, "all pairs are used");
}

#[test]
fn an_intent_waits_for_what_is_before_it() {
    let known = RouteKnown { drain_per_s: 200.0, waiting: vec![300, 100], ..RouteKnown::default() };
    assert_eq!(known.expected_wait_ms(), 2_000);
    assert_eq!((known.least_wait_ms(7), known.measured_wait_ms(7)), (None, None), "no rate is known");
    let waits = |waiting: &[u64]| {
        let (best_per_s, measured_per_s) = (Some(100.0), Some(50.0));
        let known = RouteKnown { best_per_s, measured_per_s, waiting: waiting.to_vec(), ..known.clone() };
        assert_eq!(known.measured_wait_ms(7), known.least_wait_ms(7).map(|ms| 2 * ms), "half of the rate");
        known.least_wait_ms(7)
    };
    // The hash names the places 1 and 2 of 3, and takes the less loaded one.
    assert_eq!(place(&[0, 1, 2], 7), Some(1));
    assert_eq!(place(&[0, 2, 1], 7), Some(2));
    assert_eq!(waits(&[90_000, 0, 90_000]), Some(0), "its turn is the next one, whatever waits elsewhere");
    assert_eq!(waits(&[90_000, 500, 300]), Some(9_000), "300 before it, and as many of each other partition");
    assert_eq!(waits(&[100, 500, 300]), Some(7_000), "an emptied partition has no turn");
    assert_eq!(waits(&[]), Some(0));
    let waits = |waiting: &[u64]| {
        let grant = PermitGrant { members: 2, ..PermitGrant::default() };
        let known = RouteKnown { best_per_s: Some(100.0), waiting: waiting.to_vec(), grant, ..known.clone() };
        known.least_wait_ms(7)
    };
    assert_eq!(waits(&[90_000, 500, 300]), Some(6_000), "another instance may read both of the others");
    assert_eq!(waits(&[0, 500, 300]), Some(6_000), "300 of 500 before it");
    assert_eq!(waits(&[100, 300, 301]), Some(6_000), "300 of both others");
    assert_eq!(known.answers_within_ms(50), None);
    let grant = PermitGrant { timeout_ms: Some(10_000), processing_ms: Some(400), ..PermitGrant::default() };
    assert_eq!(RouteKnown { grant, ..known }.answers_within_ms(50), Some(9_500));
}
