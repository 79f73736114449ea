mod lost;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio_util::sync::CancellationToken;
use weir_core::{
    basis::time::Time,
    limit::{
        route::{
            pace::{Behind, KeptRates, Lag},
            permits::{EmbeddedPermits, PermitGrant, RouteKey},
            routes::{RouteKnown, Routes, Taken},
        },
        share::{TurnNumber, overtaken},
    },
    ports::Share,
};

use super::*;
use crate::{
    clock::tests::VirtualClock,
    share::{AskedTurns, PoolKeeper},
};

type RouteKeeper<P, C> = PoolKeeper<HeldPermits, P, C>;

/// A store that answers turns so.
struct Store<F>(F);

impl<F> Share<RoutePermits> for Store<F>
where
    F: FnMut(TurnNumber, &PermitTurn) -> Result<PermitGrant, StoreError> + Send,
{
    async fn turn(&mut self, _: &RouteKey, number: TurnNumber, turn: &PermitTurn) -> Result<PermitGrant, StoreError> {
        (self.0)(number, turn)
    }
}

fn look(seconds: u64) -> Arc<OffsetsSeen> {
    let (lag, behind, waiting) = (Ok(Some(Lag::new(0, 0))), Vec::new(), Ok(Vec::new()));
    let at = Duration::from_secs(seconds);
    Arc::new(OffsetsSeen { at, spent: 0, queued: 0, lag, behind, waiting, oldest_ms: None })
}

const NOTHING: PermitGrant = PermitGrant {
    permits: 0,
    held_by_others: 0,
    members: 1,
    registered_per_s: None,
    timeout_ms: None,
    processing_ms: None,
    slow: 1_000,
    rates: KeptRates { drain_per_s: None, best_per_s: None },
};

fn is_silent() -> StoreError {
    StoreError::Temporary("no".to_owned())
}

/// A route with further lines.
fn email(more: &str) -> Route {
    route(&format!("consumer_group = \"hedwig\"\n{more}"))
}

fn route(more: &str) -> Route {
    let route = format!("[[routes]]\nname = \"email\"\nwhen_full = \"suppress\"\n{more}\n");
    crate::tests::policy(&route).routes.remove(0)
}

/// What the keeper of a route goes by.
struct Scene {
    route: Route,
    clock: VirtualClock,
    state: Arc<RouteState>,
    look: LastLook,
}

impl Scene {
    /// Kafka has been looked at when the clock began.
    fn new(route: Route) -> Self {
        let look: LastLook = Arc::new(ArcSwapOption::new(Some(look(0))));
        let (clock, state) = (VirtualClock::default(), Routes::new().state("email"));
        Self { route, clock, state, look }
    }

    fn keeper<P: Share<RoutePermits>>(&self, permits: P) -> RouteKeeper<P, VirtualClock> {
        self.keeper_after(None, permits)
    }

    /// The keeper of a route that had another rule before, and what was learnt by that.
    fn keeper_after<P>(&self, before: Option<(&Route, &Learnt)>, permits: P) -> RouteKeeper<P, VirtualClock>
    where
        P: Share<RoutePermits>,
    {
        let last_learnt = Arc::new(ArcSwap::from_pointee(Learnt::before(&self.route, &self.state, before)));
        let part = HeldPermits::new(&self.route, Arc::clone(&self.state), (Arc::clone(&self.look), last_learnt));
        RouteKeeper::of(part, (RouteKey::of(&self.route), permits), self.clock.clone(), AskedTurns::default())
    }

    /// The keeper of a route whose store answers so.
    fn by<F>(&self, store: F) -> RouteKeeper<Store<F>, VirtualClock>
    where
        F: FnMut(TurnNumber, &PermitTurn) -> Result<PermitGrant, StoreError> + Send,
    {
        self.keeper(Store(store))
    }

    /// How many permits lanes may take, and how many are held.
    fn permits(&self) -> (u64, u64) {
        (self.state.left(Pool::General, self.clock.passed()), self.state.held())
    }

    fn known(&self) -> Arc<RouteKnown> {
        self.state.known().unwrap()
    }

    /// A lane takes permits.
    fn take(&self, permits: u64) -> Taken {
        Taken::general(Arc::clone(&self.state), permits, self.clock.passed())
    }

    /// Lanes spend all that they may take; gives how many permits that are.
    fn spend_all(&self) -> u64 {
        let all = self.take(u64::MAX);
        let units = all.units();
        all.spend();
        units
    }
}

/// What is known after each turn of a route with further lines, the last one of which has another look, and what each turn wanted. Its
/// lane finds intents since so many seconds.
async fn known_of(more: &str, finds_since: Option<u64>, grants: &[PermitGrant]) -> (Vec<RouteKnown>, Vec<u64>) {
    let scene = Scene::new(email(more));
    scene.clock.advance(Duration::from_secs(11));
    if let Some(since) = finds_since {
        scene.state.looked(true, Duration::from_secs(since));
    }
    let (mut known, mut wanted, mut left) = (Vec::new(), Vec::new(), grants.iter());
    let mut keeper = scene.by(|_, turn| {
        wanted.push(turn.want);
        Ok(*left.next().unwrap())
    });
    for turn in 1..=grants.len() {
        scene.look.store(Some(look(if turn == grants.len() { 11 } else { 10 })));
        keeper.round().await;
        known.push(RouteKnown::clone(&scene.known()));
    }
    drop(keeper);
    (known, wanted)
}

fn best(known: &[RouteKnown]) -> Vec<Option<f64>> {
    known.iter().map(|known| known.best_per_s).collect()
}

#[tokio::test]
async fn what_a_service_takes_is_known_before_its_route_begins_and_before_it_denies_an_intent() {
    let registered = |per_s: [u64; 3]| per_s.map(|per_s| PermitGrant { registered_per_s: Some(per_s), ..NOTHING });
    let (known, _) = known_of("service = \"mail\"", Some(1), &registered([1_000, 1_000, 1_000])).await;
    assert_eq!(best(&known), [None, Some(1_000.0), Some(1_000.0)]);
    assert_eq!(known[1].drain_per_s, 100.0, "a tenth of what the service takes");
    // Its first instance registers between a sample and the answer.
    let (known, _) = known_of("service = \"mail\"", Some(1), &registered([0, 500, 500])).await;
    assert_eq!(best(&known), [None, None, Some(500.0)]);
}

#[tokio::test]
async fn a_process_that_starts_goes_by_what_was_kept_and_wants_no_more_than_a_second_of_it() {
    let rates = KeptRates { drain_per_s: Some(400.0), best_per_s: Some(500.0) };
    let (known, wanted) = known_of("", Some(1), &[PermitGrant { rates, ..NOTHING }; 3]).await;
    assert_eq!(best(&known), [None, Some(500.0), Some(500.0)]);
    assert_eq!(known.iter().map(|known| known.drain_per_s).collect::<Vec<_>>(), [2.0, 400.0, 400.0]);
    assert!(known.iter().all(|known| known.measured_per_s.is_none()), "it has measured nothing itself");
    assert_eq!(wanted, [2, 400, 400], "there is room for 30 s");
}

#[tokio::test]
async fn until_a_lane_has_found_intents_for_a_while_what_waits_denies_no_intent() {
    for (finds_since, expected) in [
        (None, [None, None, None]),
        (Some(7), [None, None, None]),
        (Some(6), [None, None, Some(300.0)]),
        (Some(5), [None, Some(300.0), Some(300.0)]),
    ] {
        let (known, _) = known_of("rate = 300", finds_since, &[NOTHING; 3]).await;
        assert_eq!(best(&known), expected, "{finds_since:?}: what waits may be offsets without a record");
    }
}

#[tokio::test]
async fn what_a_keeper_knew_denies_no_intent_once_it_has_ended() {
    let (scene, stop) = (Scene::new(email("rate = 300")), CancellationToken::new());
    scene.clock.advance(Duration::from_secs(11));
    scene.state.looked(true, Duration::from_secs(1));
    let mut keeper = scene.by(|_, _| Ok(NOTHING));
    for seconds in [10, 11] {
        scene.look.store(Some(look(seconds)));
        keeper.round().await;
    }
    assert_eq!(scene.known().best_per_s, Some(300.0));
    stop.cancel();
    keeper.run(stop).await;
    assert_eq!((scene.known().best_per_s, scene.state.finds_since()), (None, None));
}

#[tokio::test]
async fn a_route_takes_at_most_two_turns_a_second_however_fast_the_store_answers() {
    for answers_in_ms in [0, 1, 300, 900] {
        let (scene, stop, mut turns) = (Scene::new(email("")), CancellationToken::new(), 0);
        let (clock, stops) = (scene.clock.clone(), stop.clone());
        let keeper = scene.by(|_, _| {
            turns += 1;
            clock.advance(Duration::from_millis(answers_in_ms));
            if clock.passed() >= Duration::from_secs(60) {
                stops.cancel();
            }
            Ok(NOTHING)
        });
        keeper.run(stop).await;
        assert!((60..=120).contains(&turns), "{turns} in a minute, {answers_in_ms} ms each");
    }
}

#[tokio::test]
async fn of_permits_that_others_may_have_by_now_none_is_kept() {
    for (stood_still, left) in [(LEASE - Duration::from_millis(1), 25), (LEASE, 0)] {
        let scene = Scene::new(email(""));
        scene.state.grant(100, 0, LEASE);
        scene.clock.advance(stood_still);
        scene.by(|_, _| Ok(NOTHING)).round().await;
        assert_eq!(scene.permits(), (left, left), "after {stood_still:?}");
    }
}

#[tokio::test]
async fn permits_that_come_back_while_a_turn_is_under_way_lapse_where_others_may_have_had_them_before_it() {
    let in_time = LEASE - Duration::from_millis(1);
    for (stood_still, answers, back) in [(in_time, true, 3), (in_time, false, 3), (LEASE, true, 0), (LEASE, false, 0)] {
        let scene = Scene::new(email(""));
        scene.state.grant(3, 0, LEASE);
        let mut taken = Some(scene.take(3));
        scene.clock.advance(stood_still);
        // A lane gives up meanwhile what it has taken.
        let store = |_: TurnNumber, _: &PermitTurn| {
            drop(taken.take());
            if answers { Ok(NOTHING) } else { Err(is_silent()) }
        };
        scene.by(store).round().await;
        let expected = back + scene.known().grant.permits;
        assert_eq!(scene.permits(), (expected, expected), "after {stood_still:?}, answers: {answers}");
    }
}

#[tokio::test]
async fn a_turn_without_an_answer_is_made_again_until_its_lease_ends_and_lanes_have_this_instance_s_part_meanwhile() {
    let (scene, mut numbers) = (Scene::new(email("rate = 300")), Vec::new());
    let mut keeper = scene.by(|number, _| {
        numbers.push(number.number);
        Err(is_silent())
    });
    for wait in [Duration::ZERO, TURN_EVERY, LEASE - TURN_EVERY, TURN_EVERY] {
        scene.clock.advance(wait);
        assert!(!keeper.round().await, "the next one in its time");
        assert!(scene.permits().0 > 0);
        let known = scene.known();
        assert!(known.grant.permits > 0, "as it is shown");
        assert_eq!(known.why.as_deref(), Some("the permits are not shared: no"));
        assert_eq!((known.available, known.silent_since), (false, Some(Duration::ZERO)), "since the first turn");
    }
    let stop = CancellationToken::new();
    stop.cancel();
    keeper.run(stop).await;
    assert_eq!(numbers, [0, 0, 1, 1].map(|later| numbers[0] + later));
    assert_eq!(scene.permits(), (0, 0), "it has ended");
}

#[tokio::test]
async fn permits_of_a_turn_that_was_made_again_are_for_what_lanes_had_meanwhile_and_the_next_turn_follows_at_once() {
    let (scene, mut numbers) = (Scene::new(route("rate = 300")), Vec::new());
    let mut keeper = scene.by(|number, _| {
        numbers.push(number.number);
        if numbers.len() > 1 { Ok(PermitGrant { permits: 200, ..NOTHING }) } else { Err(is_silent()) }
    });
    keeper.round().await;
    let alone = scene.known().grant.permits;
    assert!((1..200).contains(&alone), "{alone}");
    let _taken = scene.take(alone);
    scene.clock.advance(TURN_EVERY);
    assert!(keeper.round().await, "the next one at once");
    assert_eq!((scene.state.held(), scene.known().grant.permits), (200, 200 - alone), "it was granted 200");
    assert!(!keeper.round().await, "and not again");
    drop(keeper);
    assert_eq!(numbers, [0, 0, 1].map(|later| numbers[0] + later));
}

#[tokio::test]
async fn what_lanes_leave_while_the_store_does_not_answer_does_not_gather() {
    let scene = Scene::new(route("rate = 300"));
    let mut keeper = scene.by(|_, _| Err(is_silent()));
    for _ in 0..20 {
        keeper.round().await;
        assert!((1..=300).contains(&scene.state.held()), "{} permits are held of 300 a second", scene.state.held());
        scene.clock.advance(TURN_EVERY);
    }
}

#[tokio::test]
async fn lanes_have_no_permit_of_an_instance_that_is_overtaken() {
    let scene = Scene::new(email("rate = 300"));
    scene.state.grant(100, 0, LEASE);
    let taken = scene.take(3);
    scene.by(|_, _| Err(overtaken())).round().await;
    assert_eq!(scene.permits(), (0, 3), "a lane has taken three");
    drop(taken);
    assert_eq!(scene.permits(), (0, 0), "they do not come back");
    let known = scene.known();
    let is_told = known.why.as_ref().is_some_and(|why| why.contains("under the name"));
    assert!(known.grant.permits == 0 && is_told, "{known:?}");
}

#[tokio::test]
async fn of_two_processes_with_one_name_that_begin_alike_one_is_overtaken() {
    let permits = EmbeddedPermits::new("weir-0", Time::default);
    let scenes = [(); 2].map(|()| Scene::new(email("rate = 300")));
    let mut keepers = scenes.each_ref().map(|scene| scene.keeper(permits.clone()));
    for _ in 0..2 {
        for keeper in &mut keepers {
            keeper.round().await;
        }
    }
    let why = scenes.each_ref().map(|scene| scene.known().why.clone().unwrap_or_default());
    let overtaken = why.iter().filter(|why| why.contains("under the name"));
    assert_eq!(overtaken.count(), 1, "{why:?}");
}

#[tokio::test]
async fn a_name_is_taken_over_by_a_process_that_takes_turns_for_longer_than_one_that_has_ended_is_a_member() {
    let scene = Scene::new(email("rate = 300"));
    let clock = scene.clock.clone();
    let is_ahead = |_: TurnNumber, _: &PermitTurn| {
        if clock.passed() < TAKEN_OVER_AFTER * 2 { Err(overtaken()) } else { Ok(PermitGrant::default()) }
    };
    let mut keeper = scene.by(is_ahead);
    let step = Duration::from_millis(1);
    let waits = [Duration::ZERO, LEASE, TAKEN_OVER_AFTER - LEASE - step, step, TAKEN_OVER_AFTER];
    for (wait, is_so) in waits.into_iter().zip([false, false, false, true, false]) {
        scene.clock.advance(wait);
        keeper.round().await;
        assert_eq!(scene.state.is_taken_over(), is_so, "at {:?}", scene.clock.passed());
    }
}

#[test]
fn partitions_that_are_behind_are_named_and_shown_with_all_that_stands_in_them() {
    let mut seen = OffsetsSeen::clone(&look(1));
    assert_eq!((seen.undelivered(), seen.behind_in_words()), (Some(0), None));
    seen.lag = Ok(Some(Lag::new(100, 40)));
    let behind = |number| Behind { partition: ("approved".into(), number), undelivered: 50, counted: 5 };
    seen.behind = (0..7).map(behind).collect();
    assert_eq!(seen.undelivered(), Some(60 + 7 * 45));
    let words = seen.behind_in_words().unwrap();
    assert!(words.contains("partition 0 of approved, partition 1 of approved, "), "{words}");
    assert!(words.contains("partition 4 of approved and 2 more, "), "{words}");
}
