use weir_core::limit::share::{Reference as _, TurnNumber};

use super::*;

const TURN_MS: i64 = 1_000;

fn name(text: &str) -> ServiceName {
    ServiceName::new(text).unwrap()
}

fn at(millis: i64) -> Time {
    Time::from_millis(1_795_132_800_000 + millis).unwrap()
}

fn instance(capacity_per_s: u64, concurrency: u64) -> Registration {
    Registration { capacity_per_s, concurrency, timeout_ms: 10_000, network_ms: 50, interval_ms: 10_000 }
}

/// A service of one instance that has been known for long enough.
fn known(capacity_per_s: u64, concurrency: u64) -> ServiceBook {
    let mut book = ServiceBook::default();
    book.register(&name("i"), Some(&instance(capacity_per_s, concurrency)), at(-5_000));
    book
}

fn numbered(number: u64) -> TurnNumber {
    TurnNumber { run: 1, number }
}

/// A turn of a holder that wants all and holds what it got, `held` of it within the last second.
fn turn(book: &mut ServiceBook, holder: &str, number: u64, held: (u64, u64), now: i64) -> ShareReply {
    let [rate, concurrency] = [held.0, held.1].map(|held| Use { held, wanted: 10_000 });
    let turn = ShareTurn { rate, concurrency, ..ShareTurn::default() };
    book.turn(holder, numbered(number), &turn, at(now)).unwrap()
}

fn shares(reply: &ShareReply) -> (u64, u64) {
    (reply.per_s, reply.concurrency)
}

#[test]
fn a_share_that_shrinks_is_given_to_others_once_it_has_left_the_last_second() {
    let mut book = known(500, 20);
    assert_eq!(shares(&turn(&mut book, "a", 1, (0, 0), 0)), (500, 20));
    assert_eq!(shares(&turn(&mut book, "b", 1, (0, 0), 10)), (0, 0), "a holds all of it");
    assert_eq!(shares(&turn(&mut book, "a", 2, (500, 20), TURN_MS)), (250, 10));
    // a has not reported yet that it uses no more than its new share.
    assert_eq!(shares(&turn(&mut book, "b", 2, (0, 0), TURN_MS + 10)), (0, 0));
    // 15 of its admissions have not ended.
    assert_eq!(shares(&turn(&mut book, "a", 3, (250, 15), 2 * TURN_MS)), (250, 10));
    assert_eq!(shares(&turn(&mut book, "b", 3, (0, 0), 2 * TURN_MS + 10)), (250, 5));
    turn(&mut book, "a", 4, (250, 10), 3 * TURN_MS);
    let reply = turn(&mut book, "b", 4, (250, 5), 3 * TURN_MS + 10);
    assert_eq!((shares(&reply), reply.members), ((250, 10), 2));
}

#[test]
fn what_is_registered_shrinks_for_all_at_once() {
    let mut book = known(500, 20);
    book.register(&name("j"), Some(&instance(500, 20)), at(0));
    for (number, now) in [(1, 0), (2, 1_000), (3, 2_000)] {
        for holder in ["a", "b"] {
            let held = if number == 1 { (0, 0) } else { (500, 20) };
            turn(&mut book, holder, number, held, now);
        }
    }
    book.register(&name("j"), None, at(2_100));
    for holder in ["a", "b"] {
        assert_eq!(shares(&turn(&mut book, holder, 4, (500, 20), 3_000)), (250, 10), "neither falls to nothing");
    }
}

#[test]
fn a_turn_that_is_repeated_gets_the_same_shares_and_hands_nothing_on_again() {
    let mut book = known(500, 20);
    turn(&mut book, "b", 1, (0, 0), 0);
    let ends = vec![("b".into(), End { number: 7, took_ms: None })];
    let uses = (Use { held: 0, wanted: 10 }, Use { held: 0, wanted: 10 });
    let asked = ShareTurn { rate: uses.0, concurrency: uses.1, took: (2, 25), ends, ..ShareTurn::default() };
    let first = book.turn("a", numbered(1), &asked, at(0)).unwrap();
    assert_eq!((shares(&first), first.processing_us), ((0, 0), 12_500), "b holds all of it");
    turn(&mut book, "b", 2, (0, 0), TURN_MS);
    assert_eq!(book.turn("a", numbered(1), &asked, at(TURN_MS)).as_ref(), Some(&first), "though b holds less by now");
    let of_b = book.turn("b", numbered(3), &ShareTurn::default(), at(TURN_MS)).unwrap();
    assert_eq!((of_b.ends.as_str(), of_b.processing_us), ("7 ", 12_500), "once");
    let before = book.clone();
    assert_eq!(book.turn("b", numbered(2), &ShareTurn::default(), at(TURN_MS)), None, "it comes behind a later one");
    assert_eq!(book, before);
}

#[test]
fn ends_wait_for_their_holder_until_it_has_taken_them() {
    let mut book = known(500, 20);
    turn(&mut book, "a", 1, (0, 0), 0);
    let ends = [("a", 7, Some(12)), ("a", 9, None), ("nobody", 1, None)];
    let ends = ends.map(|(holder, number, took_ms)| (Holder::from(holder), End { number, took_ms })).to_vec();
    book.turn("b", numbered(1), &ShareTurn { ends, ..ShareTurn::default() }, at(10)).unwrap();
    let mut of_a = |number, taken_bytes| {
        book.turn("a", numbered(number), &ShareTurn { taken_bytes, ..ShareTurn::default() }, at(20)).unwrap().ends
    };
    assert_eq!(of_a(2, 0), "7:12 9 ");
    assert_eq!(of_a(3, 0), "7:12 9 ", "the reply was lost");
    assert_eq!(of_a(4, 3), "7:12 9 ", "no end is cut in two");
    assert_eq!(of_a(5, 5), "9 ");
    assert_eq!(of_a(6, 2), "");
    let parsed: Vec<End> = End::parse_all("7:12 x 9 1:y ").collect();
    assert_eq!(parsed, [End { number: 7, took_ms: Some(12) }, End { number: 9, took_ms: None }]);
}

#[test]
fn the_mean_of_processing_times_follows_the_last_admissions() {
    let mut book = known(500, 20);
    let mut mean = |number, took| {
        book.turn("a", numbered(number), &ShareTurn { took, ..ShareTurn::default() }, at(0)).unwrap().processing_us
    };
    assert_eq!(mean(1, (0, 0)), 0);
    assert_eq!(mean(2, (2, 25)), 12_500);
    assert_eq!(mean(3, (20, 750)), 25_000);
}
