mod lost;

use std::{
    collections::VecDeque,
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use arc_swap::ArcSwapOption;
use tokio_util::sync::CancellationToken;
use weir_core::{
    basis::{document::Format, time::Time},
    limit::{
        route::{
            pace::{Behind, KeptRates, Lag},
            routes::{RouteKnown, Routes, Taken},
        },
        share::{TurnNumber, overtaken},
    },
    policy::file::parse_policy,
};

use super::*;

/// A clock that stands.
#[derive(Clone)]
struct Stands;

impl Clock for Stands {
    fn now(&self) -> Time {
        Time::default()
    }

    fn passed(&self) -> Duration {
        Duration::from_secs(11)
    }

    async fn sleep(&self, _: Duration) {
        std::future::pending().await
    }
}

/// A store that answers so, turn by turn, and how many permits each turn wanted.
struct Answers {
    grants: VecDeque<PermitGrant>,
    wanted: Arc<RwLock<Vec<u64>>>,
}

impl Share<RoutePermits> for Answers {
    async fn turn(&mut self, _: &RouteKey, _: TurnNumber, turn: &PermitTurn) -> Result<PermitGrant, StoreError> {
        self.wanted.write().unwrap_or_else(PoisonError::into_inner).push(turn.want);
        Ok(self.grants.pop_front().unwrap())
    }
}

fn look(seconds: u64) -> Arc<OffsetsSeen> {
    let (lag, behind, waiting) = (Ok(Some(Lag { end: 0, committed: 0 })), Vec::new(), Ok(Vec::new()));
    let at = Duration::from_secs(seconds);
    Arc::new(OffsetsSeen { at, spent: 0, queued: 0, lag, behind, waiting, oldest_ms: None })
}

const fn grant(registered_per_s: Option<u64>, rates: KeptRates) -> PermitGrant {
    PermitGrant {
        permits: 0,
        held_by_others: 0,
        members: 1,
        registered_per_s,
        timeout_ms: None,
        processing_ms: None,
        slow: 1.0,
        rates,
    }
}

/// A route with further lines.
fn email(more: &str) -> Route {
    route(&format!("consumer_group = \"hedwig\"\n{more}"))
}

fn route(more: &str) -> Route {
    let route = format!("name = \"email\"\nwhen_full = \"suppress\"\n{more}");
    let policy = format!("version = \"1\"\ndefault = {{ caps = \"unlimited\" }}\n[[routes]]\n{route}\n");
    parse_policy("p.toml", &policy, Format::Toml, 86_400_000).unwrap().routes.remove(0)
}

fn links<P, C>(permits: P, clock: C, look: &LastLook, cell: &RouteCell) -> RouteLinks<P, C> {
    let (look, cell) = (Arc::clone(look), Arc::clone(cell));
    RouteLinks { permits, clock, look, cell, last_learnt: LastLearnt::default() }
}

/// What is known after each turn of a route with further lines, the last one of which has another look, and what each turn wanted. Its
/// lane finds intents since so many seconds.
async fn known_of(more: &str, finds_since: Option<u64>, grants: &[PermitGrant]) -> (Vec<RouteKnown>, Vec<u64>) {
    let route = email(more);
    let last_look: LastLook = Arc::new(ArcSwapOption::new(Some(look(10))));
    let cell = RouteCell::default();
    let (state, wanted) = (Routes::new().state("email"), Arc::default());
    if let Some(since) = finds_since {
        state.looked(true, Duration::from_secs(since));
    }
    let store = Answers { grants: grants.iter().copied().collect(), wanted: Arc::clone(&wanted) };
    let learnt = Learnt::before(&route, (0, 0), None);
    let links = links(store, Stands, &last_look, &cell);
    let mut keeper = RouteKeeper::new(&route, state, links, learnt);
    let mut known = Vec::new();
    for turn in 1..=grants.len() {
        if turn == grants.len() {
            last_look.store(Some(look(11)));
        }
        keeper.round().await;
        known.push(cell.load_full().unwrap().known.clone());
    }
    let wanted = wanted.read().unwrap().clone();
    (known, wanted)
}

fn best(known: &[RouteKnown]) -> Vec<Option<f64>> {
    known.iter().map(|known| known.best_per_s).collect()
}

#[tokio::test]
async fn what_a_service_takes_is_known_before_its_route_begins_and_before_it_denies_an_intent() {
    let registered = |per_s: [u64; 3]| per_s.map(|per_s| grant(Some(per_s), KeptRates::default()));
    let (known, _) = known_of("service = \"mail\"", Some(1), &registered([1_000, 1_000, 1_000])).await;
    assert_eq!(best(&known), [None, Some(1_000.0), Some(1_000.0)]);
    assert_eq!(known[1].drain_per_s, 100.0, "a tenth of what the service takes");
    // Its first instance registers between a sample and the answer.
    let (known, _) = known_of("service = \"mail\"", Some(1), &registered([0, 500, 500])).await;
    assert_eq!(best(&known), [None, None, Some(500.0)]);
}

#[tokio::test]
async fn a_process_that_starts_goes_by_what_was_kept_and_wants_no_more_than_a_second_of_it() {
    let kept = KeptRates { drain_per_s: Some(400.0), best_per_s: Some(500.0) };
    let (known, wanted) = known_of("", Some(1), &[grant(None, kept); 3]).await;
    assert_eq!(best(&known), [None, Some(500.0), Some(500.0)]);
    assert_eq!(known.iter().map(|known| known.drain_per_s).collect::<Vec<_>>(), [1.0, 400.0, 400.0]);
    assert!(known.iter().all(|known| known.measured_per_s.is_none()), "it has measured nothing itself");
    assert_eq!(wanted, [1, 400, 400], "there is room for 30 s");
}

#[tokio::test]
async fn until_a_lane_has_found_intents_for_a_while_what_waits_denies_no_intent() {
    let answers = [grant(None, KeptRates::default()); 3];
    for (finds_since, expected) in [
        (None, [None, None, None]),
        (Some(7), [None, None, None]),
        (Some(6), [None, None, Some(300.0)]),
        (Some(5), [None, Some(300.0), Some(300.0)]),
    ] {
        let (known, _) = known_of("rate = 300", finds_since, &answers).await;
        assert_eq!(best(&known), expected, "{finds_since:?}: what waits may be offsets without a record");
    }
}

/// A clock that passes while somebody sleeps, in milliseconds.
#[derive(Clone, Default)]
struct Passes(Arc<AtomicU64>);

impl Clock for Passes {
    fn now(&self) -> Time {
        Time::default()
    }

    fn passed(&self) -> Duration {
        Duration::from_millis(self.0.load(Relaxed))
    }

    async fn sleep(&self, wait: Duration) {
        self.0.fetch_add(u64::try_from(wait.as_millis()).unwrap(), Relaxed);
    }
}

/// A store that answers after so many milliseconds, and counts its turns for a minute.
struct Counts {
    clock: Passes,
    answers_in_ms: u64,
    turns: Arc<AtomicU64>,
    stop: CancellationToken,
}

impl Share<RoutePermits> for Counts {
    async fn turn(&mut self, _: &RouteKey, _: TurnNumber, _: &PermitTurn) -> Result<PermitGrant, StoreError> {
        self.turns.fetch_add(1, Relaxed);
        self.clock.0.fetch_add(self.answers_in_ms, Relaxed);
        if self.clock.passed() >= Duration::from_secs(60) {
            self.stop.cancel();
        }
        Ok(grant(None, KeptRates::default()))
    }
}

#[tokio::test]
async fn a_route_takes_at_most_two_turns_a_second_however_fast_the_store_answers() {
    for answers_in_ms in [0, 1, 300, 900] {
        let (clock, turns, stop) = (Passes::default(), Arc::<AtomicU64>::default(), CancellationToken::new());
        let store = Counts { clock: clock.clone(), answers_in_ms, turns: Arc::clone(&turns), stop: stop.clone() };
        let last_look: LastLook = Arc::new(ArcSwapOption::new(Some(look(0))));
        let links = links(store, clock, &last_look, &RouteCell::default());
        let route = email("");
        let learnt = Learnt::before(&route, (0, 0), None);
        RouteKeeper::new(&route, Routes::new().state("email"), links, learnt).run(stop).await;
        let turns = turns.load(Relaxed);
        assert!((60..=120).contains(&turns), "{turns} in a minute, {answers_in_ms} ms each");
    }
}

#[tokio::test]
async fn of_permits_that_others_may_have_by_now_none_is_kept() {
    for (stood_still, left) in [(LEASE - Duration::from_millis(1), 25), (LEASE, 0)] {
        let (clock, state) = (Passes::default(), Routes::new().state("email"));
        state.grant(100, 0, LEASE);
        clock.sleep(stood_still).await;
        let store = Answers { grants: [grant(None, KeptRates::default())].into(), wanted: Arc::default() };
        let last_look: LastLook = Arc::new(ArcSwapOption::new(Some(look(0))));
        let links = links(store, clock.clone(), &last_look, &RouteCell::default());
        let route = email("");
        let learnt = Learnt::before(&route, (0, 0), None);
        RouteKeeper::new(&route, Arc::clone(&state), links, learnt).round().await;
        let found = (state.left(Pool::General, clock.passed()), state.held());
        assert_eq!(found, (left, left), "after {stood_still:?}");
    }
}

/// A store that answers or not, and a lane that gives up meanwhile what it has taken.
struct GivenUp {
    taken: Option<Taken>,
    answers: bool,
}

impl Share<RoutePermits> for GivenUp {
    async fn turn(&mut self, _: &RouteKey, _: TurnNumber, _: &PermitTurn) -> Result<PermitGrant, StoreError> {
        self.taken = None;
        if self.answers { Ok(grant(None, KeptRates::default())) } else { Err(StoreError::Temporary("no".to_owned())) }
    }
}

#[tokio::test]
async fn permits_that_come_back_while_a_turn_is_under_way_lapse_where_others_may_have_had_them_before_it() {
    let in_time = LEASE - Duration::from_millis(1);
    for (stood_still, answers, back) in [(in_time, true, 3), (in_time, false, 3), (LEASE, true, 0), (LEASE, false, 0)] {
        let (clock, state) = (Passes::default(), Routes::new().state("email"));
        state.grant(3, 0, LEASE);
        let taken = Some(Taken::general(Arc::clone(&state), 3, clock.passed()));
        clock.sleep(stood_still).await;
        let last_look: LastLook = Arc::new(ArcSwapOption::new(Some(look(0))));
        let (route, cell) = (email(""), RouteCell::default());
        let links = links(GivenUp { taken, answers }, clock.clone(), &last_look, &cell);
        RouteKeeper::new(&route, Arc::clone(&state), links, Learnt::before(&route, (0, 0), None)).round().await;
        let expected = back + cell.load_full().unwrap().permits;
        let found = (state.left(Pool::General, clock.passed()), state.held());
        assert_eq!(found, (expected, expected), "after {stood_still:?}, answers: {answers}");
    }
}

/// A store that answers nothing, and the numbers of the turns that it was asked for.
struct Silent(Arc<RwLock<Vec<u64>>>);

impl Share<RoutePermits> for Silent {
    async fn turn(&mut self, _: &RouteKey, number: TurnNumber, _: &PermitTurn) -> Result<PermitGrant, StoreError> {
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(number.number);
        Err(StoreError::Temporary("no".to_owned()))
    }
}

/// A store that answers nothing first, and then to each turn with 200 permits.
struct Second(Silent);

impl Share<RoutePermits> for Second {
    async fn turn(&mut self, key: &RouteKey, number: TurnNumber, turn: &PermitTurn) -> Result<PermitGrant, StoreError> {
        let first = self.0.turn(key, number, turn).await;
        let asked = self.0.0.read().unwrap_or_else(PoisonError::into_inner).len();
        if asked > 1 { Ok(PermitGrant { permits: 200, ..grant(None, KeptRates::default()) }) } else { first }
    }
}

#[tokio::test]
async fn a_turn_without_an_answer_is_made_again_until_its_lease_ends_and_lanes_have_this_instance_s_part_meanwhile() {
    let (clock, numbers, state) = (Passes::default(), Arc::default(), Routes::new().state("email"));
    let last_look: LastLook = Arc::new(ArcSwapOption::new(Some(look(0))));
    let (route, cell) = (email("rate = 300"), RouteCell::default());
    let links = links(Silent(Arc::clone(&numbers)), clock.clone(), &last_look, &cell);
    let mut keeper = RouteKeeper::new(&route, Arc::clone(&state), links, Learnt::before(&route, (0, 0), None));
    for wait in [Duration::ZERO, TURN_EVERY, LEASE - TURN_EVERY, TURN_EVERY] {
        clock.sleep(wait).await;
        assert!(!keeper.round().await, "the next one in its time");
        assert!(state.left(Pool::General, clock.passed()) > 0);
        let seen = cell.load_full().unwrap();
        assert!(seen.permits > 0, "as it is shown");
        assert_eq!(seen.trouble.as_deref(), Some("the permits are not shared: no"));
        assert_eq!(seen.silent_since, Some(Duration::ZERO), "since the first turn");
    }
    assert_eq!(*numbers.read().unwrap(), [1, 1, 2, 2]);
    let stop = CancellationToken::new();
    stop.cancel();
    keeper.run(stop).await;
    assert_eq!((state.left(Pool::General, clock.passed()), state.held()), (0, 0), "it has ended");
}

#[tokio::test]
async fn permits_of_a_turn_that_was_made_again_are_for_what_lanes_had_meanwhile_and_the_next_turn_follows_at_once() {
    let (clock, numbers, state) = (Passes::default(), Arc::default(), Routes::new().state("email"));
    let last_look: LastLook = Arc::new(ArcSwapOption::new(Some(look(0))));
    let (route, cell) = (route("rate = 300"), RouteCell::default());
    let links = links(Second(Silent(Arc::clone(&numbers))), clock.clone(), &last_look, &cell);
    let mut keeper = RouteKeeper::new(&route, Arc::clone(&state), links, Learnt::before(&route, (0, 0), None));
    keeper.round().await;
    let alone = cell.load_full().unwrap().permits;
    assert!((1..200).contains(&alone), "{alone}");
    let _taken = Taken::general(Arc::clone(&state), alone, clock.passed());
    clock.sleep(TURN_EVERY).await;
    assert!(keeper.round().await, "the next one at once");
    assert_eq!((state.held(), cell.load_full().unwrap().permits), (200, 200 - alone), "it was granted 200");
    assert!(!keeper.round().await, "and not again");
    assert_eq!(*numbers.read().unwrap(), [1, 1, 2]);
}

#[tokio::test]
async fn what_lanes_leave_while_the_store_does_not_answer_does_not_gather() {
    let (clock, state) = (Passes::default(), Routes::new().state("email"));
    let last_look: LastLook = Arc::new(ArcSwapOption::new(Some(look(0))));
    let (route, cell) = (route("rate = 300"), RouteCell::default());
    let links = links(Silent(Arc::default()), clock.clone(), &last_look, &cell);
    let mut keeper = RouteKeeper::new(&route, Arc::clone(&state), links, Learnt::before(&route, (0, 0), None));
    for _ in 0..20 {
        keeper.round().await;
        assert!((1..=300).contains(&state.held()), "{} permits are held of 300 a second", state.held());
        clock.sleep(TURN_EVERY).await;
    }
}

/// A store that has taken a later turn under this name, and answers from then on by this clock.
struct IsAhead(Passes, Duration);

impl Share<RoutePermits> for IsAhead {
    async fn turn(&mut self, _: &RouteKey, _: TurnNumber, _: &PermitTurn) -> Result<PermitGrant, StoreError> {
        if self.0.passed() < self.1 { Err(overtaken()) } else { Ok(PermitGrant::default()) }
    }
}

#[tokio::test]
async fn lanes_have_no_permit_of_an_instance_that_is_overtaken() {
    let (clock, state) = (Passes::default(), Routes::new().state("email"));
    state.grant(100, 0, LEASE);
    let taken = Taken::general(Arc::clone(&state), 3, clock.passed());
    let last_look: LastLook = Arc::new(ArcSwapOption::new(Some(look(0))));
    let (route, cell) = (email("rate = 300"), RouteCell::default());
    let links = links(IsAhead(clock.clone(), Duration::MAX), clock.clone(), &last_look, &cell);
    RouteKeeper::new(&route, Arc::clone(&state), links, Learnt::before(&route, (0, 0), None)).round().await;
    assert_eq!((state.left(Pool::General, clock.passed()), state.held()), (0, 3), "a lane has taken three");
    drop(taken);
    assert_eq!((state.left(Pool::General, clock.passed()), state.held()), (0, 0), "they do not come back");
    let seen = cell.load_full().unwrap();
    assert!(
        seen.permits == 0 && seen.trouble.as_ref().is_some_and(|trouble| trouble.contains("under the name")),
        "{seen:?}"
    );
}

#[tokio::test]
async fn a_name_is_taken_over_by_a_process_that_takes_turns_for_longer_than_one_that_has_ended_is_a_member() {
    let (clock, state) = (Passes::default(), Routes::new().state("email"));
    let last_look: LastLook = Arc::new(ArcSwapOption::new(Some(look(0))));
    let (route, cell) = (email("rate = 300"), RouteCell::default());
    let links = links(IsAhead(clock.clone(), TAKEN_OVER_AFTER * 2), clock.clone(), &last_look, &cell);
    let learnt = Learnt::before(&route, (0, 0), None);
    let mut keeper = RouteKeeper::new(&route, Arc::clone(&state), links, learnt);
    let step = Duration::from_millis(1);
    let waits = [Duration::ZERO, LEASE, TAKEN_OVER_AFTER - LEASE - step, step, TAKEN_OVER_AFTER];
    for (wait, is_so) in waits.into_iter().zip([false, false, false, true, false]) {
        clock.sleep(wait).await;
        keeper.round().await;
        assert_eq!(state.is_taken_over(), is_so, "at {:?}", clock.passed());
    }
}

#[test]
fn partitions_that_are_behind_are_named_and_shown_with_all_that_stands_in_them() {
    let mut seen = OffsetsSeen::clone(&look(1));
    assert_eq!((seen.undelivered(), seen.behind_in_words()), (Some(0), None));
    seen.lag = Ok(Some(Lag { end: 100, committed: 40 }));
    let behind = |number: u64| {
        let partition = format!("partition {number} of approved");
        Behind { partition, undelivered: 50, counted: 5 }
    };
    seen.behind = (0..7).map(behind).collect();
    assert_eq!(seen.undelivered(), Some(60 + 7 * 45));
    let words = seen.behind_in_words().unwrap();
    assert!(words.contains("partition 0 of approved, partition 1 of approved, "), "{words}");
    assert!(words.contains("partition 4 of approved and 2 more, "), "{words}");
}
