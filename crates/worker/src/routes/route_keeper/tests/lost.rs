//! Turns that get lost on their way, or whose replies do.

use super::*;

const RATE: u64 = 1_000;
const SECONDS: u64 = 60;

#[derive(Debug, Clone, Copy)]
enum Lost {
    Nothing,
    /// It is not taken.
    Request,
    /// It is taken, and nobody knows.
    Reply,
}

/// Permits at which turns get lost, by how many were made before.
struct Loses {
    permits: EmbeddedPermits,
    made: usize,
    lost: fn(usize) -> Lost,
}

impl Share<RoutePermits> for Loses {
    async fn turn(&mut self, key: &RouteKey, number: TurnNumber, turn: &PermitTurn) -> Result<PermitGrant, StoreError> {
        let lost = (self.lost)(self.made);
        self.made += 1;
        if !matches!(lost, Lost::Request) {
            let grant = self.permits.turn(key, number, turn).await?;
            if matches!(lost, Lost::Nothing) {
                return Ok(grant);
            }
        }
        Err(is_silent())
    }
}

/// What lanes take of a rate in a minute that take all there is behind such rounds of the keeper.
async fn taken(lost: fn(usize) -> Lost, takes: fn(usize) -> bool) -> u64 {
    let scene = Scene::new(route(&format!("rate = {RATE}")));
    let server = scene.clock.clone();
    let now = move || Time::default().plus(i64::try_from(server.passed().as_millis()).unwrap());
    let mut keeper = scene.keeper(Loses { permits: EmbeddedPermits::new("weir-0", now), made: 0, lost });
    let (mut rounds, mut taken) = (0, 0);
    while scene.clock.passed() < Duration::from_secs(SECONDS) {
        let again = keeper.round().await;
        if takes(rounds) {
            taken += scene.spend_all();
        }
        rounds += 1;
        if !again {
            scene.clock.advance(TURN_EVERY);
        }
    }
    taken
}

/// What lanes take that take all there is behind each of so many turns.
async fn taken_by<P>(scene: &Scene, keeper: &mut RouteKeeper<P, VirtualClock>, turns: usize) -> u64
where
    P: Share<RoutePermits>,
{
    let mut taken = 0;
    for _ in 0..turns {
        keeper.round().await;
        taken += scene.spend_all();
        scene.clock.advance(TURN_EVERY);
    }
    taken
}

fn every_third(turn: usize, lost: Lost) -> Lost {
    if turn % 3 == 1 { lost } else { Lost::Nothing }
}

const LOSSES: [fn(usize) -> Lost; 5] = [
    |_| Lost::Nothing,
    |turn| every_third(turn, Lost::Request),
    |turn| every_third(turn, Lost::Reply),
    |turn| every_third(turn, if turn % 2 == 0 { Lost::Request } else { Lost::Reply }),
    // The repeated one gets lost, too.
    |turn| if turn % 5 == 1 || turn % 5 == 2 { Lost::Reply } else { Lost::Nothing },
];

/// Behind which rounds lanes take what there is.
const TAKES: [fn(usize) -> bool; 3] = [|round| round % 2 == 0, |round| round % 3 == 0, |round| round % 4 < 2];

#[tokio::test]
async fn whatever_is_lost_lanes_take_the_rate_and_no_more() {
    for (place, lost) in LOSSES.into_iter().enumerate() {
        let taken = taken(lost, |_| true).await;
        // The bucket holds a second's permits: what comes in meanwhile beyond that nobody has.
        let expected = RATE * SECONDS * 85 / 100..=RATE * (SECONDS + 1);
        assert!(expected.contains(&taken), "{taken} of {expected:?}, losses {place}");
    }
}

#[tokio::test]
async fn whatever_is_lost_permits_that_lanes_leave_are_not_doubled() {
    for (place, lost) in LOSSES.into_iter().enumerate() {
        for takes in TAKES {
            let (taken, most) = (taken(lost, takes).await, RATE * (SECONDS + 1));
            assert!(taken <= most, "{taken} of {most}, losses {place}");
        }
    }
}

#[tokio::test]
async fn a_turn_that_was_made_again_gives_no_more_than_the_newest_lag_leaves_and_returns_the_rest() {
    for (undelivered, more) in [(0, 170), (100_000, 0)] {
        let (scene, mut returned) = (Scene::new(email("rate = 300")), Vec::new());
        // It takes every turn and loses its first reply.
        let mut keeper = scene.by(|_, turn| {
            returned.push(turn.unused);
            if returned.len() > 1 { Ok(PermitGrant { permits: 200, ..NOTHING }) } else { Err(is_silent()) }
        });
        keeper.round().await;
        assert_eq!(scene.known().grant.permits, 30, "a second of what is tried first");
        let _taken = scene.take(30);
        scene.clock.advance(TURN_EVERY);
        let lag = Ok(Some(Lag::new(undelivered, 0)));
        scene.look.store(Some(Arc::new(OffsetsSeen { at: scene.clock.passed(), lag, ..OffsetsSeen::clone(&look(0)) })));
        assert!(keeper.round().await, "the next one at once");
        assert_eq!((scene.state.held(), scene.known().grant.permits), (30 + more, more), "{undelivered} undelivered");
        keeper.round().await;
        drop(keeper);
        assert_eq!(returned[2], 170 - more / 4, "lanes keep a quarter of what is left");
    }
}

#[tokio::test]
async fn however_often_a_turn_is_made_an_instance_takes_no_more_than_its_part_of_the_room() {
    let (scene, mut rooms) = (Scene::new(email("rate = 300\nahead = \"5s\"")), Vec::new());
    let mut keeper = scene.by(|_, turn| {
        rooms.push(turn.room);
        if rooms.len() == 1 { Ok(PermitGrant { members: 2, ..NOTHING }) } else { Err(is_silent()) }
    });
    let taken = taken_by(&scene, &mut keeper, 6).await;
    drop(keeper);
    assert_eq!((rooms[1], taken), (Some(150), 75), "of two instances it has one half");
}

#[tokio::test]
async fn what_others_had_by_the_last_answer_is_no_room_for_one_alone_as_long_as_they_may_use_it() {
    let (scene, mut made, mut taken) = (Scene::new(email("rate = 300\nahead = \"5s\"")), 0, [0_u64; 2]);
    let mut keeper = scene.by(|_, _| {
        made += 1;
        if made == 1 { Ok(PermitGrant { members: 2, held_by_others: 75, ..NOTHING }) } else { Err(is_silent()) }
    });
    for taken in &mut taken {
        *taken = taken_by(&scene, &mut keeper, 6).await;
        // All that it has approved stands.
        let (at, spent) = (scene.clock.passed(), scene.state.spent());
        let lag = Ok(Some(Lag::new(spent, 0)));
        scene.look.store(Some(Arc::new(OffsetsSeen { at, spent, lag, ..OffsetsSeen::clone(&look(0)) })));
    }
    assert_eq!(taken, [37, 56], "one half of what 75 leave of 150, and then of what 37 leave");
}

#[tokio::test]
async fn a_change_of_the_policy_while_the_store_is_silent_gives_an_instance_no_larger_part_and_halvings_go_on() {
    let rule = |max_attempts: u64| email(&format!("rate = 300\nahead = \"5s\"\nmax_attempts = {max_attempts}"));
    let mut scene = Scene::new(rule(5));
    let mut keeper = scene.by(|_, _| Ok(PermitGrant { members: 2, ..NOTHING }));
    keeper.round().await;
    let mut learnt = keeper.part.last_learnt.load_full();
    // It is silent from the first change on.
    for (seconds, halvings) in [(1, 0), (12, 1), (32, 3)] {
        let before = std::mem::replace(&mut scene.route, rule(seconds));
        scene.clock.advance(Duration::from_secs(seconds) - scene.clock.passed());
        // All that was approved is delivered.
        let spent = scene.state.spent();
        scene.look.store(Some(Arc::new(OffsetsSeen { spent, ..OffsetsSeen::clone(&look(seconds)) })));
        let mut room = None;
        let silent = Store(|_: TurnNumber, turn: &PermitTurn| -> Result<PermitGrant, StoreError> {
            room = turn.room;
            Err(is_silent())
        });
        let mut keeper = scene.keeper_after(Some((&before, &*learnt)), silent);
        let taken = taken_by(&scene, &mut keeper, 5).await;
        learnt = keeper.part.last_learnt.load_full();
        drop(keeper);
        assert_eq!(scene.known().silent_since, Some(Duration::from_secs(1)), "after {seconds} s");
        let room = room.unwrap();
        assert!(room >= 150, "{room}");
        assert_eq!(taken, (room / 2) >> halvings, "one half of {room}, halved by {seconds} s");
    }
}

#[tokio::test]
async fn what_an_instance_took_alone_before_a_turn_counts_by_the_lag_and_not_once_more() {
    let scene = Scene::new(email("rate = 300"));
    let mut keeper = scene.by(|_, _| Err(is_silent()));
    keeper.round().await;
    scene.take(u64::MAX).spend();
    scene.clock.advance(LEASE);
    // It takes 30 per second, and 880 stand of what it takes in 30 s.
    let (at, spent, lag) = (scene.clock.passed(), scene.state.spent(), Ok(Some(Lag::new(880, 0))));
    scene.look.store(Some(Arc::new(OffsetsSeen { at, spent, lag, ..OffsetsSeen::clone(&look(0)) })));
    keeper.round().await;
    assert_eq!((spent, scene.permits()), (30, (20, 20)));
}

#[tokio::test]
async fn a_rate_that_was_measured_while_a_turn_had_no_answer_is_told_by_the_next_one() {
    const LOST: u64 = 60;
    let (scene, mut told) = (Scene::new(email("")), Vec::new());
    let mut keeper = scene.by(|_, turn| {
        told.push(turn.rates.best_per_s);
        if told.len() as u64 == LOST { Err(is_silent()) } else { Ok(NOTHING) }
    });
    // A consumer that takes more each second.
    for second in 0..=LOST {
        let committed = 10 * second * second;
        let lag = Ok(Some(Lag::new(100_000 + committed, committed)));
        scene.look.store(Some(Arc::new(OffsetsSeen { at: scene.clock.passed(), lag, ..OffsetsSeen::clone(&look(0)) })));
        keeper.round().await;
        scene.clock.advance(Duration::from_secs(1));
    }
    keeper.round().await;
    drop(keeper);
    let [.., lost, again, next] = told[..] else { panic!("{told:?}") };
    assert!(lost.is_some() && lost == again && next > lost, "{told:?}");
}

#[tokio::test]
async fn times_of_deliveries_are_told_until_a_turn_has_an_answer_and_counted_once_here() {
    let took = (20, 2_000);
    for error in [is_silent, overtaken] {
        let (scene, mut told) = (Scene::new(email("")), Vec::new());
        let mut keeper = scene.by(|_, turn| {
            told.push(turn.took);
            if told.len() == 1 { Err(error()) } else { Ok(NOTHING) }
        });
        scene.state.note_times(took);
        for _ in 0..3 {
            keeper.round().await;
            // Where it has no answer, another turn takes its place.
            scene.clock.advance(LEASE);
        }
        drop(keeper);
        assert_eq!(told, [took, took, (0, 0)], "{}", error());
        assert_eq!(scene.known().grant.processing_ms, Some(100), "{}", error());
    }
}
