//! Turns that get lost on their way, or whose replies do.

use weir_core::{basis::time::Time, limit::route::permits::EmbeddedPermits};

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
        let again = round(&mut keeper).await;
        if takes(rounds) {
            let all = scene.take(u64::MAX);
            taken += all.permits();
            all.spend();
        }
        rounds += 1;
        if !again {
            scene.clock.advance(TURN_EVERY);
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
