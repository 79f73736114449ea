//! Turns that get lost on their way, or whose replies do.

use weir_core::limit::route::permits::EmbeddedPermits;

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
        Err(StoreError::Temporary("lost".to_owned()))
    }
}

/// What lanes take of a rate in a minute that take all there is behind such rounds of the keeper.
async fn taken(lost: fn(usize) -> Lost, takes: fn(usize) -> bool) -> u64 {
    let (clock, state) = (Passes::default(), Routes::new().state("email"));
    let server = clock.clone();
    let now = move || Time::default().plus(i64::try_from(server.passed().as_millis()).unwrap());
    let store = Loses { permits: EmbeddedPermits::new("weir-0", now), made: 0, lost };
    let route = route(&format!("rate = {RATE}"));
    let last_look: LastLook = Arc::new(ArcSwapOption::new(Some(look(0))));
    let links = links(store, clock.clone(), &last_look, &RouteCell::default());
    let mut keeper = RouteKeeper::new(&route, Arc::clone(&state), links, Learnt::before(&route, (0, 0), None));
    let (mut rounds, mut taken) = (0, 0);
    while clock.passed() < Duration::from_secs(SECONDS) {
        let again = keeper.round().await;
        if takes(rounds) {
            let all = Taken::general(Arc::clone(&state), u64::MAX, clock.passed());
            taken += all.permits();
            all.spend();
        }
        rounds += 1;
        if !again {
            clock.sleep(TURN_EVERY).await;
        }
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

/// A store that takes every turn and loses its first reply, and what each turn has returned.
struct LosesFirst {
    made: usize,
    returned: Arc<RwLock<Vec<u64>>>,
}

impl Share<RoutePermits> for LosesFirst {
    async fn turn(&mut self, _: &RouteKey, _: TurnNumber, turn: &PermitTurn) -> Result<PermitGrant, StoreError> {
        self.made += 1;
        self.returned.write().unwrap_or_else(PoisonError::into_inner).push(turn.unused);
        match self.made {
            1 => Err(StoreError::Temporary("lost".to_owned())),
            _ => Ok(PermitGrant { permits: 200, ..grant(None, KeptRates::default()) }),
        }
    }
}

#[tokio::test]
async fn a_turn_that_was_made_again_gives_no_more_than_the_newest_lag_leaves_and_returns_the_rest() {
    for (undelivered, more) in [(0, 170), (100_000, 0)] {
        let (clock, returned, state) = (Passes::default(), Arc::default(), Routes::new().state("email"));
        let last_look: LastLook = Arc::new(ArcSwapOption::new(Some(look(0))));
        let (route, cell) = (email("rate = 300"), RouteCell::default());
        let store = LosesFirst { made: 0, returned: Arc::clone(&returned) };
        let links = links(store, clock.clone(), &last_look, &cell);
        let mut keeper = RouteKeeper::new(&route, Arc::clone(&state), links, Learnt::before(&route, (0, 0), None));
        keeper.round().await;
        assert_eq!(cell.load_full().unwrap().permits, 30, "a second of what is tried first");
        let _taken = Taken::general(Arc::clone(&state), 30, clock.passed());
        clock.sleep(TURN_EVERY).await;
        let lag = Ok(Some(Lag { end: undelivered, committed: 0 }));
        last_look.store(Some(Arc::new(OffsetsSeen { at: clock.passed(), lag, ..OffsetsSeen::clone(&look(0)) })));
        assert!(keeper.round().await, "the next one at once");
        assert_eq!((state.held(), cell.load_full().unwrap().permits), (30 + more, more), "{undelivered} undelivered");
        keeper.round().await;
        assert_eq!(returned.read().unwrap()[2], 170 - more / 4, "lanes keep a quarter of what is left");
    }
}
