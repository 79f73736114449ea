//! The permits of routes on their way through a lane.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weir_core::{
    limit::route::{
        permits::LEASE,
        routes::{Pool, RouteKnown, RouteState},
    },
    ports::TRANSACTION_TIMEOUT,
};

use super::*;
use crate::backoff::LONGEST_BACKOFF;

/// A world whose intents take a route with so many permits.
fn paced(permits: u64) -> (World, Arc<RouteState>) {
    let (rules, routes) = ("[[routes]]\nname = \"all\"\nrate = 1\n".to_owned(), Routes::new());
    let state = routes.state("all");
    state.grant(permits, 0, Duration::MAX);
    (World { rules, permits: Some(routes), ..World::default() }, state)
}

#[test]
fn a_permit_is_spent_once_its_intent_may_be_committed_and_goes_back_where_it_is_not_handed_over() {
    let (all, granted) = (RECORDS.unsigned_abs(), 300);
    let (refused, unclear) = ([Fate::Refused; 3], [Fate::Unclear; 3]);
    // The lane does not know of those that are refused that they are not visible.
    for (commits, revoke_every, lost) in
        [(&[][..], None, 0), (&refused[..], None, 3), (&unclear[..], None, 0), (&refused[..1], Some(7), 1)]
    {
        let (world, state) = paced(granted);
        let _world = done(run(World { commits: commits.iter().copied().collect(), revoke_every, ..world }));
        let spent = all + lost * BATCH as u64;
        let left = state.left(Pool::General, Duration::ZERO);
        assert_eq!((state.spent(), left, state.held()), (spent, granted - spent, granted - spent));
    }
}

#[test]
fn permits_of_an_unclear_commit_are_not_held_for_longer_than_its_transaction_may_stay_open() {
    let (world, state) = paced(300);
    let recovers_at = Duration::from_secs(60);
    // How many permits are spent whenever something has been waited for.
    let (passes, spent) = (world.clock.clone(), RwLock::<Vec<(Duration, u64)>>::default());
    let clock = AfterWait(passes.clone(), || spent.write().unwrap().push((passes.passed(), state.spent())));
    let commits = [Fate::Unclear].into();
    done(run_by(clock, answers(), World { commits, recovers_at: Some(recovers_at), ..world }));
    let noted = spent.read().unwrap();
    let (open, ended) = noted.split_at(noted.partition_point(|(passed, _)| *passed < TRANSACTION_TIMEOUT));
    assert!(!open.is_empty() && open.iter().all(|(_, spent)| *spent == 0), "it may become visible: {open:?}");
    // The lane does not look during a pause, which is up to twice as long by chance.
    let looks = TRANSACTION_TIMEOUT + 2 * LONGEST_BACKOFF..recovers_at;
    let looked: Vec<&(Duration, u64)> = ended.iter().filter(|(passed, _)| looks.contains(passed)).collect();
    assert!(!looked.is_empty() && looked.iter().all(|(_, spent)| *spent == BATCH as u64), "{ended:?}");
    assert_eq!(state.spent(), RECORDS.unsigned_abs(), "it was visible");
}

#[test]
fn what_waits_for_a_route_that_was_removed_is_read_without_permits() {
    let (world, state) = paced(0);
    done(run(World { rules: String::new(), task: Some(Task::Waiting(state.topic)), ..world }));
}

#[test]
fn a_lane_of_waiting_intents_ends_where_another_process_takes_the_turns_of_its_instance() {
    let (world, state) = paced(0);
    state.set_taken_over(true);
    let (end, world) = run(World { task: Some(Task::Waiting(state.topic)), ..world });
    let LaneError::Fatal(message) = end.unwrap_err();
    assert!(message.contains("took over the turns of this one at the route all"), "{message}");
    assert!(world.visible.is_empty());
}

#[test]
fn intents_whose_turn_has_come_keep_their_permits_while_they_wait_for_the_store() {
    let (world, state) = paced(RECORDS.unsigned_abs());
    state.learn(RouteKnown { waiting: vec![RECORDS.unsigned_abs()], ..RouteKnown::default() });
    // The store is away twice before each answer. The keeper of the route withdraws meanwhile what nobody has taken.
    let (withdrawn, is_away, mut failed) = (AtomicU64::new(0), AtomicBool::new(false), 0);
    let store = watched(
        1,
        |batch, answers| {
            failed = (failed + 1) % 3;
            is_away.store(failed > 0, Ordering::Relaxed);
            if failed > 0 {
                return Err(is_silent());
            }
            state.grant(withdrawn.swap(0, Ordering::Relaxed), 0, Duration::MAX);
            fill(answers, batch.now);
            Ok(())
        },
        |away| away.iter().copied().collect(),
    );
    let clock = AfterWait(world.clock.clone(), || {
        if is_away.load(Ordering::Relaxed) {
            withdrawn.fetch_add(state.withdraw_above(0, 0), Ordering::Relaxed);
        }
    });
    // None of them is sent to wait again: the sink looks for that.
    done(run_by(clock, store, World { task: Some(Task::Waiting(state.topic)), ..world }));
    assert_eq!((state.spent(), state.held()), (RECORDS.unsigned_abs(), 0));
}

/// How far the keeper of the route is with its turn when it wakes before a lane that was suspended with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeeperTurn {
    NotBegun,
    UnderWay,
    Answered,
}

/// A lane takes permits whose lease is over when it wakes.
fn wakes_with_permits_of_others(suspended: Duration, turn: KeeperTurn) {
    let (all, first) = (RECORDS.unsigned_abs(), BATCH as u64);
    let (world, state) = paced(first);
    state.learn(RouteKnown { waiting: vec![all], ..RouteKnown::default() });
    state.grant(0, 0, suspended);
    let (keeper, passes) = (Arc::clone(&state), world.clock.clone());
    let wakes = move || {
        if turn != KeeperTurn::NotBegun {
            keeper.end_leases(passes.passed());
            keeper.withdraw_above(0, 0);
        }
        if turn == KeeperTurn::Answered {
            keeper.grant(0, 0, passes.passed() + LEASE);
        }
    };
    let others_wake: Option<Box<dyn FnOnce()>> = Some(Box::new(wakes));
    // While the lane waits, the keeper is granted permits once it has the answer to a turn that is under way. Those of before are others'
    // by then.
    let (passes, is_granted, spent_before) = (world.clock.clone(), AtomicBool::default(), AtomicU64::new(0));
    let clock = AfterWait(passes.clone(), || {
        let (passed, ends) = (passes.passed(), suspended + LEASE);
        if turn == KeeperTurn::UnderWay && (suspended..ends).contains(&passed) {
            // It comes to no permit.
            state.grant(0, 0, ends);
        } else if passed >= suspended && !is_granted.swap(true, Ordering::Relaxed) {
            spent_before.store(state.spent(), Ordering::Relaxed);
            // None of those that were granted before is kept.
            state.end_leases(passed);
            state.withdraw_above(0, 0);
            state.grant(all, 0, Duration::MAX);
        }
    });
    let (task, suspended) = (Some(Task::Waiting(state.topic)), Some(suspended));
    let world = done(run_by(clock, answers(), World { task, suspended, others_wake, ..world }));
    assert_eq!(spent_before.load(Ordering::Relaxed), 0, "spent after their lease; the keeper's turn: {turn:?}");
    assert_eq!(world.trace.iter().filter(|step| **step == "rewind").count(), 1);
    assert_eq!((state.spent(), state.held()), (all, 0));
}

#[test]
fn permits_that_were_granted_a_lease_ago_are_not_used_though_they_were_taken_later() {
    for turn in [KeeperTurn::NotBegun, KeeperTurn::UnderWay, KeeperTurn::Answered] {
        // Taken a lease ago, too, and later.
        wakes_with_permits_of_others(LEASE, turn);
        wakes_with_permits_of_others(LEASE - Duration::from_millis(500), turn);
    }
}

#[test]
fn what_waits_rests_while_the_store_is_away_and_then_has_its_turn_in_its_order() {
    let (all, first) = (RECORDS.unsigned_abs(), BATCH as u64);
    let (world, state) = paced(first);
    state.learn(RouteKnown { waiting: vec![all], drain_per_s: 1.0, ..RouteKnown::default() });
    // The store is away for two minutes. The keeper of the route grants one permit at a time meanwhile, as it does while nobody shares them.
    let (passes, asked_in_vain) = (world.clock.clone(), AtomicU64::new(0));
    let is_over = || passes.passed() >= Duration::from_secs(120);
    let store = watched(
        1,
        |batch, answers| {
            if !is_over() {
                asked_in_vain.fetch_add(1, Ordering::Relaxed);
                return Err(is_silent());
            }
            fill(answers, batch.now);
            Ok(())
        },
        |away| away.iter().copied().filter(|_| is_over()).collect(),
    );
    let clock = AfterWait(passes.clone(), || {
        state.withdraw_above(0, 0);
        state.grant(if is_over() { 5 } else { 1 }, 0, passes.passed() + LEASE);
    });
    // Intents that have not begun to wait for their route would be deferred by then.
    let (wheel, unavailable_after) = (Some(Wheel { shares: 1 }), Some(Duration::from_secs(1)));
    let task = Some(Task::Waiting(state.topic));
    let world = done(run_by(clock, store, World { task, wheel, unavailable_after, ..world }));
    let others: Vec<(i64, (Destination, bool))> = {
        let ledger = world.ledger.write().unwrap();
        let others = ledger.outputs.iter().filter(|(_, (to, _))| *to != Destination::APPROVED);
        others.map(|(offset, output)| (*offset, *output)).collect()
    };
    assert_eq!(others, [], "none is deferred or waits again");
    assert_eq!(asked_in_vain.load(Ordering::Relaxed), 1, "the lane rests");
    assert_eq!(world.trace.iter().filter(|step| **step == "rewind").count(), 1);
    assert_eq!(state.spent(), all);
}

/// A clock by which the keeper of the route grants no permit until [`GRANTED_AT`], and then enough.
struct Late {
    state: Arc<RouteState>,
    clock: VirtualClock,
    /// Whether the lane had found intents by then.
    found: Arc<AtomicBool>,
}

/// Longer than a partition without permits is not read.
const GRANTED_AT: Duration = Duration::from_secs(25);

impl Clock for Late {
    fn now(&self) -> Time {
        noon()
    }

    fn passed(&self) -> Duration {
        let passed = self.clock.passed();
        if passed >= GRANTED_AT && self.state.spent() + self.state.held() == 0 {
            self.found.store(self.state.finds_since().is_some(), Ordering::Relaxed);
            self.state.grant(RECORDS.unsigned_abs(), 0, Duration::MAX);
        }
        passed
    }

    async fn sleep(&self, wait: Duration) {
        self.clock.sleep(wait).await;
    }
}

#[test]
fn what_is_read_and_put_back_for_want_of_permits_is_found_all_the_same() {
    let (world, state) = paced(0);
    let all = RECORDS.unsigned_abs();
    state.learn(RouteKnown { waiting: vec![all], ..RouteKnown::default() });
    // Their count is an estimate: none of them has waited for too long.
    state.set_overdue(all);
    let found: Arc<AtomicBool> = Arc::default();
    let clock = Late { state: Arc::clone(&state), clock: world.clock.clone(), found: Arc::clone(&found) };
    let (task, commit_interval) = (Some(Task::Waiting(state.topic)), Duration::from_secs(1));
    done(run_by(clock, answers(), World { task, commit_interval, ..world }));
    assert!(found.load(Ordering::Relaxed), "what waits denies intents for the time that they would wait");
    assert_eq!((state.spent(), state.held()), (all, 0));
}

#[test]
fn what_was_read_without_permits_is_read_again_where_its_route_waits_again_by_the_time_that_it_is_decided() {
    let (mut world, state) = paced(0);
    let waits_again = std::mem::take(&mut world.rules);
    state.learn(RouteKnown { waiting: vec![RECORDS.unsigned_abs()], ..RouteKnown::default() });
    let clock = Late { state: Arc::clone(&state), clock: world.clock.clone(), found: Arc::default() };
    let (task, edit) = (Some(Task::Waiting(state.topic)), Some((RECORDS / 2, waits_again)));
    // None of them is sent to wait again: the sink looks for that.
    let world = done(run_by(clock, answers(), World { task, edit, ..world }));
    assert_eq!(world.trace.iter().filter(|step| **step == "rewind").count(), 1);
    let half = RECORDS.unsigned_abs() / 2;
    assert!(state.spent().abs_diff(half) < 2 * BATCH as u64, "{} of them had their turns", state.spent());
}
