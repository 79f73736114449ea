use std::ops::Range;

use super::*;
use crate::{
    basis::time::Time,
    limit::share::{Reference, TurnNumber},
};

/// An instance of a test: what it knows of the room, and whether it uses what it gets.
struct Instance {
    name: &'static str,
    room: u64,
    uses: bool,
    held: u64,
}

/// A turn for one permit of a route of which nothing is known.
fn one() -> PermitTurn {
    let (lease, rates, took) = (LEASE, KeptRates::default(), (0, 0));
    PermitTurn { lease, room: None, want: 1, unused: 0, recent: 0, rate: None, slow: 1_000, took, delivery: 0, rates }
}

/// What each instance was granted over so many rounds of turns, as a keeper takes them.
fn rounds(instances: &mut [Instance], rounds: i64) -> Vec<u64> {
    let mut book = RouteBook::default();
    let mut granted = vec![0; instances.len()];
    for round in 0..rounds {
        for (place, Instance { name, room, uses, held }) in instances.iter_mut().enumerate() {
            let unused = if *uses { 0 } else { *held };
            let want = if *uses && *held > 0 { MOST } else { 6 };
            let number = TurnNumber { run: 1, number: round.unsigned_abs() };
            let turn = PermitTurn { room: Some(*room), want, unused, ..one() };
            *held = book.turn(name, number, &turn, Time::default().plus(550 * round)).unwrap().permits;
            granted[place] += *held;
        }
    }
    granted
}

fn instance(name: &'static str, room: u64, uses: bool) -> Instance {
    Instance { name, room, uses, held: 0 }
}

#[test]
fn idle_instances_leave_permits_to_one_that_knows_of_less_room() {
    let granted = rounds(&mut [instance("idle", 1_500, false), instance("busy", 3, true)], 40);
    assert!(granted[1] >= 10, "it takes part, every fourth turn at the least: {granted:?}");
}

#[test]
fn the_only_permit_comes_round_to_the_instance_that_uses_it() {
    for order in [[0, 1, 2], [0, 2, 1], [2, 0, 1]] {
        let mut instances = order.map(|place| instance(["a", "b", "c"][place], 1, place == 2));
        let granted = rounds(&mut instances, 40);
        let busy = order.iter().position(|place| *place == 2).unwrap();
        assert!(granted[busy] >= 10, "{order:?}: {granted:?}");
    }
}

/// A route of a service of which that is registered; `None`: it has none.
fn of_service(registry: Option<Registry>) -> RouteBook {
    let mut book = RouteBook::new(&RouteKey { route: "email".into(), service: None });
    book.service = registry;
    book
}

#[test]
fn reported_times_are_in_the_mean_of_a_service_that_is_known() {
    let mut number = TurnNumber::default();
    let mut turn = |book: &mut RouteBook, took| {
        number.number += 1;
        book.turn("a", number, &PermitTurn { took, ..one() }, Time::default()).unwrap().processing_ms
    };
    let mut book = of_service(Some(Registry { since: Some(Time::default()), ..Registry::default() }));
    assert_eq!(turn(&mut book, (0, 0)), None);
    assert_eq!(turn(&mut book, (2, 300)), Some(150));
    assert_eq!(turn(&mut book, (0, 0)), Some(150), "they are counted once");
    assert_eq!(turn(&mut book, (20, 1_000)), Some(100), "as if 20 had been before");
    assert_eq!(turn(&mut of_service(None), (20, 1_000)), None, "the route has no service");
    assert_eq!(turn(&mut of_service(Some(Registry::default())), (2, 300)), None, "nobody has registered");
}

#[test]
fn a_turn_that_is_repeated_gets_the_same_permits_and_one_that_comes_behind_a_later_one_has_no_effect() {
    let mut book = of_service(None);
    let asked = PermitTurn { room: Some(10), want: 6, rate: Some(1_000), ..one() };
    let turn = |book: &mut RouteBook, run, number, millis| {
        let grant = book.turn("a", TurnNumber { run, number }, &asked, Time::default().plus(millis));
        grant.map(|grant| grant.permits)
    };
    let turns = [(1, 1, 0), (1, 2, 1_000), (1, 2, 1_001)];
    let granted = turns.map(|(run, number, millis)| turn(&mut book, run, number, millis));
    assert_eq!(granted, [Some(0), Some(6), Some(6)], "it was no member before the first");
    let before = book.clone();
    for (run, number) in [(1, 1), (0, 9)] {
        assert_eq!(turn(&mut book, run, number, 1_002), None, "{number} of run {run}");
    }
    assert_eq!(book, before);
}

#[test]
fn what_is_not_used_is_returned_once_and_not_once_its_lease_has_ended() {
    let mut book = of_service(None);
    let mut turn = |number, millis, (want, unused)| {
        let turn = PermitTurn { lease: Duration::from_millis(5), want, unused, rate: Some(1_000), ..one() };
        book.turn("a", TurnNumber { run: 1, number }, &turn, Time::default().plus(millis)).unwrap().permits
    };
    assert_eq!([turn(1, 0, (0, 0)), turn(2, 4, (MOST, 0))], [0, 4]);
    assert_eq!([turn(3, 4, (0, 4)), turn(3, 4, (0, 4)), turn(4, 4, (MOST, 0))], [0, 0, 4], "a turn is repeated");
    assert_eq!([turn(5, 9, (0, 4)), turn(6, 9, (MOST, 0))], [0, 5], "what has come in meanwhile, and no more");
}

/// A member at a rate, which takes a turn in each round that it lives in.
#[derive(Clone)]
struct Taker {
    /// When its turn is, in milliseconds from when the round begins.
    at: i64,
    /// The most that it uses from one turn to the next.
    uses: u64,
    lives: Range<i64>,
}

const ROUNDS: i64 = 600;
const ROUND_MS: i64 = 550;
/// How long all rounds take.
const SECONDS: u64 = 330;

/// One that uses all that it gets.
fn takes_all(at: i64) -> Taker {
    Taker { at, uses: u64::MAX, lives: 0..ROUNDS }
}

/// What each has used of a rate, with turns as keepers make them.
fn used_of(rate: u64, takers: &[Taker]) -> Vec<u64> {
    let mut book = of_service(None);
    let (mut last, mut used) = (vec![PermitGrant::default(); takers.len()], vec![0; takers.len()]);
    for round in 0..ROUNDS {
        for (place, taker) in takers.iter().enumerate().filter(|(_, taker)| taker.lives.contains(&round)) {
            let PermitGrant { permits: held, members, .. } = last[place];
            let uses = held.min(taker.uses);
            let is_all = uses > 0 && uses == held;
            let want = if is_all { MOST } else { (2 * uses).max(rate / (4 * members.max(1))).max(1) };
            let turn = PermitTurn { want, unused: held - uses, rate: Some(rate), ..one() };
            let number = TurnNumber { run: 1, number: round.unsigned_abs() };
            let now = Time::default().plus(ROUND_MS * round + taker.at);
            last[place] = book.turn(&format!("m{place}"), number, &turn, now).unwrap();
            used[place] += uses;
        }
    }
    used
}

/// All of the rate is used and no more, and of what others leave each of these has used its part, in permille, but for a fifth.
fn have_their_parts(rate: u64, used: &[u64], permille: &[(usize, u64)], others: u64) {
    let (sum, all): (u64, u64) = (used.iter().sum(), rate * SECONDS);
    assert!((all * 98 / 100..=all + rate).contains(&sum), "{sum} of {all}: {used:?}");
    for (place, part) in permille {
        assert!(used[*place] * 1_000 >= (all - others) * part * 8 / 10, "{place} at {rate} per second: {used:?}");
    }
}

#[test]
fn who_wants_all_of_a_rate_has_an_equal_part_whoever_is_first_and_all_of_it_is_used() {
    let apart = |ms: i64, count: i64| (0..count).map(|place| takes_all(place * ms)).collect::<Vec<_>>();
    for rate in [1, 3, 50, 500, 100_000] {
        for takers in [apart(10, 2), apart(540, 2), apart(10, 10), apart(55, 10)] {
            let parts: Vec<_> = (0..takers.len()).map(|place| (place, 1_000 / takers.len() as u64)).collect();
            have_their_parts(rate, &used_of(rate, &takers), &parts, 0);
        }
    }
}

#[test]
fn what_others_leave_of_a_rate_is_for_those_that_want_all_in_equal_parts() {
    for rate in [50, 500, 100_000] {
        let uses = rate / 50;
        let little = Taker { uses, ..takes_all(1) };
        let idle = |at: i64| Taker { uses: 0, ..takes_all(at) };
        let takers: Vec<_> =
            [takes_all(0), little].into_iter().chain((2..9).map(idle)).chain([takes_all(20)]).collect();
        let used = used_of(rate, &takers);
        assert!(used[1] * 100 >= uses * ROUNDS.unsigned_abs() * 95, "it gets what it wants: {used:?}");
        have_their_parts(rate, &used, &[(0, 500), (9, 500)], used[1]);
    }
}

#[test]
fn one_that_begins_has_its_part_of_a_rate_and_that_of_one_that_ends_is_for_the_others() {
    let half = ROUNDS / 2;
    let [first, second] = [0..half, half..ROUNDS].map(|lives| Taker { lives, ..takes_all(5) });
    for rate in [3, 50, 500, 100_000] {
        let takers = [takes_all(0), first.clone(), second.clone(), takes_all(10)];
        have_their_parts(rate, &used_of(rate, &takers), &[(0, 333), (1, 166), (2, 166), (3, 333)], 0);
        let takers = [takes_all(0), first.clone(), takes_all(10)];
        have_their_parts(rate, &used_of(rate, &takers), &[(0, 416), (1, 166), (2, 416)], 0);
    }
}

#[test]
fn one_that_was_idle_is_not_starved_of_a_low_rate_by_one_whose_turn_comes_just_before() {
    for rate in [1, 2, 3] {
        let (mut book, mut held, mut used) = (of_service(None), [1, 1], [0; 2]);
        for round in 0..400_i64 {
            for (place, name) in ["first", "idle"].into_iter().enumerate() {
                let unused = if place == 1 && round < 10 { held[place] } else { 0 };
                let uses = held[place] - unused;
                let turn = PermitTurn { want: if uses > 0 { MOST } else { 1 }, unused, rate: Some(rate), ..one() };
                let number = TurnNumber { run: 1, number: round.unsigned_abs() };
                let now = Time::default().plus(ROUND_MS * round + 10 * place as i64);
                held[place] = book.turn(name, number, &turn, now).unwrap().permits;
                used[place] += uses;
            }
        }
        assert!(used[1] * 3 > used[0], "{used:?} at {rate}");
    }
}

#[test]
fn a_turn_that_is_repeated_costs_its_member_nothing_of_its_part_of_a_rate() {
    let mut book = of_service(None);
    let mut turn = |name, number, millis| {
        let turn = PermitTurn { want: MOST, rate: Some(1_000), ..one() };
        book.turn(name, TurnNumber { run: 1, number }, &turn, Time::default().plus(millis)).unwrap().permits
    };
    assert_eq!([turn("a", 1, 0), turn("b", 1, 0)], [0, 0]);
    assert_eq!([turn("a", 2, 500), turn("b", 2, 500)], [250, 250]);
    assert_eq!([turn("a", 2, 1_000), turn("a", 3, 1_000), turn("b", 3, 1_000)], [250, 250, 250]);
}
