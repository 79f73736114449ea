//! The permits of routes on their way through a lane.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weir_core::{
    document::Format,
    permits::LEASE,
    policy_file::parse_policy,
    routes::{Pool, RouteKnown, RouteState},
};

use super::*;

/// A world whose intents take a route with so many permits.
fn paced(permits: u64) -> (World, Arc<Routes>) {
    let text = "version = \"1\"\ndefault = { caps = \"unlimited\" }\n[[routes]]\nname = \"all\"\nrate = 1\n";
    let policy = parse_policy("p.toml", text, Format::Toml, 86_400_000).unwrap();
    let routes = Routes::new();
    routes.state("all").grant(permits, 0, Duration::MAX);
    (World { routes: policy.routes, permits: Some(Arc::clone(&routes)), ..World::default() }, routes)
}

#[test]
fn a_permit_is_spent_once_its_intent_is_committed_and_goes_back_where_it_is_not() {
    let (all, granted) = (RECORDS.unsigned_abs(), 300);
    let refused = [Fate::Refused, Fate::Refused, Fate::Refused];
    for (commits, revoke_every) in [(&[][..], None), (&refused[..], None), (&refused[..1], Some(7))] {
        let (world, routes) = paced(granted);
        let (end, world) = run(World { commits: commits.iter().copied().collect(), revoke_every, ..world });
        end.unwrap();
        each_once(&world);
        let state = routes.state("all");
        let left = state.left(Pool::General, Duration::ZERO);
        assert_eq!((state.spent(), left, state.held()), (all, granted - all, granted - all));
    }
}

/// A store that is away twice before each answer, and a clock by which the keeper of the route withdraws meanwhile what nobody has taken.
#[derive(Clone)]
struct Withdraws {
    state: Arc<RouteState>,
    withdrawn: Arc<AtomicU64>,
    is_away: Arc<AtomicBool>,
    failed: usize,
    /// How long each wait for the store takes, at the least.
    waits: Duration,
    clock: VirtualClock,
}

impl Withdraws {
    fn new(world: &World, state: &Arc<RouteState>, waits: Duration) -> Self {
        let (withdrawn, is_away, clock) = (Arc::default(), Arc::default(), world.clock.clone());
        Self { state: Arc::clone(state), withdrawn, is_away, failed: 0, waits, clock }
    }
}

impl Store for Withdraws {
    async fn admit(&mut self, batch: &AdmitBatch<'_>, answers: &mut [Option<Answer>]) -> Result<(), StoreError> {
        self.failed = (self.failed + 1) % 3;
        self.is_away.store(self.failed > 0, Ordering::Relaxed);
        if self.failed > 0 {
            return Err(StoreError::Temporary("by the test".to_owned()));
        }
        self.state.grant(self.withdrawn.swap(0, Ordering::Relaxed), 0, Duration::MAX);
        fill(answers, batch.now);
        Ok(())
    }

    never_given_up!();
}

impl Clock for Withdraws {
    fn now(&self) -> Time {
        Noon.now()
    }

    fn passed(&self) -> Duration {
        self.clock.passed()
    }

    async fn sleep(&self, wait: Duration) {
        let is_away = self.is_away.load(Ordering::Relaxed);
        if is_away {
            self.withdrawn.fetch_add(self.state.withdraw_above(0, 0), Ordering::Relaxed);
        }
        self.clock.sleep(if is_away { wait.max(self.waits) } else { wait }).await;
    }
}

#[test]
fn intents_whose_turn_has_come_keep_their_permits_while_they_wait_for_the_store() {
    let (world, routes) = paced(RECORDS.unsigned_abs());
    let state = routes.state("all");
    state.learn(RouteKnown { waiting: vec![RECORDS.unsigned_abs()], ..RouteKnown::default() });
    let store = Withdraws::new(&world, &state, Duration::ZERO);
    // None of them is sent to wait again: the sink looks for that.
    let (end, world) = run_by(store.clone(), store, World { task: Some(Task::Waiting(state.topic)), ..world });
    end.unwrap();
    each_once(&world);
    assert_eq!((state.spent(), state.held()), (RECORDS.unsigned_abs(), 0));
}

#[test]
fn permits_that_are_kept_for_as_long_as_a_lease_go_back() {
    let (all, first) = (RECORDS.unsigned_abs(), BATCH as u64);
    let (world, routes) = paced(all);
    let state = routes.state("all");
    // The keeper's turns get no answer until the store is back: others may be granted these permits by then.
    state.grant(0, 0, LEASE);
    state.learn(RouteKnown { waiting: vec![all], drain_per_s: 1.0, ..RouteKnown::default() });
    let store = Withdraws::new(&world, &state, LEASE);
    let (task, expires_at) = (Some(Task::Waiting(state.topic)), Some("2026-12-31T00:00:00Z"));
    let (end, world) = run_by(store.clone(), store, World { task, expires_at, ..world });
    end.unwrap();
    each_once(&world);
    let ledger = world.ledger.write().unwrap();
    let waits = ledger.outputs.iter().filter(|(_, (to, _))| *to != Destination::APPROVED);
    let waits: Vec<i64> = waits.map(|(offset, _)| *offset).collect();
    assert_eq!(waits, (0..BATCH as i64).collect::<Vec<_>>(), "the first batch waits again");
    assert_eq!((state.spent(), state.held()), (all - first, first));
}
