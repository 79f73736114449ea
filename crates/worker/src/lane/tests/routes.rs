//! The permits of routes on their way through a lane.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weir_core::{
    basis::document::Format,
    limit::route::{
        permits::LEASE,
        routes::{Pool, RouteKnown, RouteState},
    },
    policy::file::parse_policy,
    ports::TRANSACTION_TIMEOUT,
};

use super::*;
use crate::backoff::LONGEST_BACKOFF;

/// A world whose intents take a route with so many permits.
fn paced(permits: u64) -> (World, Arc<Routes>) {
    let text = "version = \"1\"\ndefault = { caps = \"unlimited\" }\n[[routes]]\nname = \"all\"\nrate = 1\n";
    let policy = parse_policy("p.toml", text, Format::Toml, 86_400_000).unwrap();
    let routes = Routes::new();
    routes.state("all").grant(permits, 0, Duration::MAX);
    (World { routes: policy.routes, permits: Some(Arc::clone(&routes)), ..World::default() }, routes)
}

#[test]
fn a_permit_is_spent_once_its_intent_may_be_committed_and_goes_back_where_it_is_not_handed_over() {
    let (all, granted) = (RECORDS.unsigned_abs(), 300);
    let (refused, unclear) = ([Fate::Refused; 3], [Fate::Unclear; 3]);
    // The lane does not know of those that are refused that they are not visible.
    for (commits, revoke_every, lost) in
        [(&[][..], None, 0), (&refused[..], None, 3), (&unclear[..], None, 0), (&refused[..1], Some(7), 1)]
    {
        let (world, routes) = paced(granted);
        let (end, world) = run(World { commits: commits.iter().copied().collect(), revoke_every, ..world });
        end.unwrap();
        each_once(&world);
        let (state, spent) = (routes.state("all"), all + lost * BATCH as u64);
        let left = state.left(Pool::General, Duration::ZERO);
        assert_eq!((state.spent(), left, state.held()), (spent, granted - spent, granted - spent));
    }
}

#[test]
fn permits_of_an_unclear_commit_are_not_held_for_longer_than_its_transaction_may_stay_open() {
    let (world, routes) = paced(300);
    let (state, recovers_at) = (routes.state("all"), Duration::from_secs(60));
    let spent = Arc::<RwLock<Vec<(Duration, u64)>>>::default();
    let (passes, noted, spends) = (world.clock.clone(), Arc::clone(&spent), Arc::clone(&state));
    let note = move || noted.write().unwrap().push((passes.passed(), spends.spent()));
    let clock = OnWait(world.clock.clone(), note);
    let commits = [Fate::Unclear].into();
    let (end, world) = run_by(clock, store(0), World { commits, recovers_at: Some(recovers_at), ..world });
    end.unwrap();
    each_once(&world);
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
    let (world, routes) = paced(0);
    let topic = routes.state("all").topic;
    let (end, world) = run(World { routes: Vec::new(), task: Some(Task::Waiting(topic)), ..world });
    end.unwrap();
    each_once(&world);
}

#[test]
fn a_lane_of_waiting_intents_ends_where_another_process_takes_the_turns_of_its_instance() {
    let (world, routes) = paced(0);
    let state = routes.state("all");
    state.set_taken_over(true);
    let (end, world) = run(World { task: Some(Task::Waiting(state.topic)), ..world });
    let LaneError::Fatal(message) = end.unwrap_err();
    assert!(message.contains("took over the turns of this one at the route all"), "{message}");
    assert!(world.visible.is_empty());
}

/// A store that is away twice before each answer, and grants what was withdrawn meanwhile.
struct Withdraws {
    state: Arc<RouteState>,
    withdrawn: Arc<AtomicU64>,
    is_away: Arc<AtomicBool>,
    failed: usize,
}

impl Store for Withdraws {
    async fn admit(&mut self, batch: &AdmitBatch<'_>, answers: &mut [Option<Answer>]) -> Result<(), StoreError> {
        self.failed = (self.failed + 1) % 3;
        self.is_away.store(self.failed > 0, Ordering::Relaxed);
        if self.failed > 0 {
            return Err(silent());
        }
        self.state.grant(self.withdrawn.swap(0, Ordering::Relaxed), 0, Duration::MAX);
        fill(answers, batch.now);
        Ok(())
    }

    fn shards(&self) -> u16 {
        1
    }

    fn watch(&mut self, away: &BTreeSet<u16>) -> Vec<u16> {
        away.iter().copied().collect()
    }

    async fn record(&mut self, _: &[DeferredSend], _: Time) -> Result<(), StoreError> {
        unreachable!("nothing is owed")
    }
}

#[test]
fn intents_whose_turn_has_come_keep_their_permits_while_they_wait_for_the_store() {
    let (world, routes) = paced(RECORDS.unsigned_abs());
    let state = routes.state("all");
    state.learn(RouteKnown { waiting: vec![RECORDS.unsigned_abs()], ..RouteKnown::default() });
    let (withdrawn, is_away) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
    let (keeper, takes_back, looks) = (Arc::clone(&state), Arc::clone(&withdrawn), Arc::clone(&is_away));
    // The keeper of the route withdraws meanwhile what nobody has taken.
    let withdraw = move || {
        if looks.load(Ordering::Relaxed) {
            takes_back.fetch_add(keeper.withdraw_above(0, 0), Ordering::Relaxed);
        }
    };
    let clock = OnWait(world.clock.clone(), withdraw);
    let store = Withdraws { state: Arc::clone(&state), withdrawn, is_away, failed: 0 };
    // None of them is sent to wait again: the sink looks for that.
    let (end, world) = run_by(clock, store, World { task: Some(Task::Waiting(state.topic)), ..world });
    end.unwrap();
    each_once(&world);
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
    let (world, routes) = paced(first);
    let state = routes.state("all");
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
    let spent_before: Arc<AtomicU64> = Arc::default();
    let (granted, passes) = (Arc::clone(&state), world.clock.clone());
    let (noted, is_granted, ends) = (Arc::clone(&spent_before), AtomicBool::default(), suspended + LEASE);
    // While the lane waits from then on, the keeper is granted permits, once it has the answer to a turn that is under way. Those of
    // before are others' by then.
    let grant_anew = move || {
        let passed = passes.passed();
        if turn == KeeperTurn::UnderWay && (suspended..ends).contains(&passed) {
            // It comes to no permit.
            granted.grant(0, 0, ends);
        } else if passed >= suspended && !is_granted.swap(true, Ordering::Relaxed) {
            // How many were spent by then.
            noted.store(granted.spent(), Ordering::Relaxed);
            // None of those that were granted before is kept.
            granted.end_leases(passed);
            granted.withdraw_above(0, 0);
            granted.grant(all, 0, Duration::MAX);
        }
    };
    let clock = OnWait(world.clock.clone(), grant_anew);
    let (task, suspended) = (Some(Task::Waiting(state.topic)), Some(suspended));
    let (end, world) = run_by(clock, store(0), World { task, suspended, others_wake, ..world });
    end.unwrap();
    each_once(&world);
    assert_eq!(spent_before.load(Ordering::Relaxed), 0, "spent after their lease; the keeper's turn: {turn:?}");
    assert_eq!(world.trace.iter().filter(|step| **step == "rewind").count(), 1);
    assert_eq!((state.spent(), state.held()), (all, 0));
}

#[test]
fn permits_that_were_taken_a_lease_ago_are_not_used() {
    for turn in [KeeperTurn::NotBegun, KeeperTurn::UnderWay, KeeperTurn::Answered] {
        wakes_with_permits_of_others(LEASE, turn);
    }
}

#[test]
fn permits_that_were_granted_a_lease_ago_are_not_used_though_they_were_taken_later() {
    for turn in [KeeperTurn::NotBegun, KeeperTurn::UnderWay, KeeperTurn::Answered] {
        wakes_with_permits_of_others(LEASE - Duration::from_millis(500), turn);
    }
}

/// A store that is away until [`BACK_AT`].
struct Outage {
    clock: VirtualClock,
    asked_in_vain: Arc<AtomicU64>,
}

const BACK_AT: Duration = Duration::from_secs(120);

impl Outage {
    fn is_over(&self) -> bool {
        self.clock.passed() >= BACK_AT
    }
}

impl Store for Outage {
    async fn admit(&mut self, batch: &AdmitBatch<'_>, answers: &mut [Option<Answer>]) -> Result<(), StoreError> {
        if !self.is_over() {
            self.asked_in_vain.fetch_add(1, Ordering::Relaxed);
            return Err(silent());
        }
        fill(answers, batch.now);
        Ok(())
    }

    fn shards(&self) -> u16 {
        1
    }

    fn watch(&mut self, away: &BTreeSet<u16>) -> Vec<u16> {
        if self.is_over() { away.iter().copied().collect() } else { Vec::new() }
    }

    async fn record(&mut self, _: &[DeferredSend], _: Time) -> Result<(), StoreError> {
        unreachable!("nothing is owed")
    }
}

#[test]
fn what_waits_rests_while_the_store_is_away_and_then_has_its_turn_in_its_order() {
    let (all, first) = (RECORDS.unsigned_abs(), BATCH as u64);
    let (world, routes) = paced(first);
    let state = routes.state("all");
    state.learn(RouteKnown { waiting: vec![all], drain_per_s: 1.0, ..RouteKnown::default() });
    let asked_in_vain: Arc<AtomicU64> = Arc::default();
    let store = Outage { clock: world.clock.clone(), asked_in_vain: Arc::clone(&asked_in_vain) };
    let (keeper, passes) = (Arc::clone(&state), world.clock.clone());
    // The keeper of the route grants one permit at a time meanwhile, as it does while nobody shares them.
    let grant = move || {
        let passed = passes.passed();
        keeper.withdraw_above(0, 0);
        keeper.grant(if passed >= BACK_AT { 5 } else { 1 }, 0, passed + LEASE);
    };
    let clock = OnWait(world.clock.clone(), grant);
    // Intents that have not begun to wait for their route would be deferred by then.
    let (wheel, unavailable_after) = (Some(Wheel { shares: 1 }), Some(Duration::from_secs(1)));
    let task = Some(Task::Waiting(state.topic));
    let (end, world) = run_by(clock, store, World { task, wheel, unavailable_after, ..world });
    end.unwrap();
    each_once(&world);
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
        Noon.now()
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
    let (world, routes) = paced(0);
    let (state, all) = (routes.state("all"), RECORDS.unsigned_abs());
    state.learn(RouteKnown { waiting: vec![all], ..RouteKnown::default() });
    // Their count is an estimate: none of them has waited for too long.
    state.set_overdue(all);
    let found: Arc<AtomicBool> = Arc::default();
    let clock = Late { state: Arc::clone(&state), clock: world.clock.clone(), found: Arc::clone(&found) };
    let (task, commit_interval) = (Some(Task::Waiting(state.topic)), Duration::from_secs(1));
    let (end, world) = run_by(clock, store(0), World { task, commit_interval, ..world });
    end.unwrap();
    each_once(&world);
    assert!(found.load(Ordering::Relaxed), "what waits denies intents for the time that they would wait");
    assert_eq!((state.spent(), state.held()), (all, 0));
}

#[test]
fn what_was_read_without_permits_is_read_again_where_its_route_waits_again_by_the_time_that_it_is_decided() {
    let (mut world, routes) = paced(0);
    let (state, waits_again) = (routes.state("all"), std::mem::take(&mut world.routes));
    state.learn(RouteKnown { waiting: vec![RECORDS.unsigned_abs()], ..RouteKnown::default() });
    let clock = Late { state: Arc::clone(&state), clock: world.clock.clone(), found: Arc::default() };
    let (task, edit) = (Some(Task::Waiting(state.topic)), Some((RECORDS / 2, waits_again)));
    // None of them is sent to wait again: the sink looks for that.
    let (end, world) = run_by(clock, store(0), World { task, edit, ..world });
    end.unwrap();
    each_once(&world);
    assert_eq!(world.trace.iter().filter(|step| **step == "rewind").count(), 1);
    let half = RECORDS.unsigned_abs() / 2;
    assert!(state.spent().abs_diff(half) < 2 * BATCH as u64, "{} of them had their turns", state.spent());
}
