//! No window of approvals holds more than the limit, whoever takes, spends and gives back when; and what is left is granted.

use proptest::prelude::*;

use super::{Account, GiveBack, OwedTokens, TakeAnswer, TakeTurn, TokenBook};
use crate::{
    basis::time::Time,
    limit::{
        budget::SpanNow,
        share::{Reference as _, TurnNumber},
    },
};

const WINDOW_MS: i64 = 6_000;
const LIMIT: u64 = 1_000;
const HOLDERS: [&str; 3] = ["weir-0", "weir-1", "weir-2"];

fn at(millis: i64) -> Time {
    Time::default().plus(1_795_132_800_000 + millis)
}

fn turn(span: SpanNow) -> TakeTurn {
    TakeTurn { want: LIMIT, lease_ms: 50, ..TakeTurn::nothing(span, LIMIT) }
}

fn rolling() -> TakeTurn {
    turn(SpanNow::Rolling { window_ms: WINDOW_MS })
}

/// A window of each kind.
fn spans() -> [SpanNow; 3] {
    [rolling().span, SpanNow::Period { start: at(0), end: at(1_000) }, SpanNow::Total]
}

fn nothing(span: SpanNow) -> TakeTurn {
    TakeTurn { want: 0, ..turn(span) }
}

/// All of the tokens of a grant.
fn all_of(turn: &TakeTurn, answer: &TakeAnswer) -> GiveBack {
    let TakeAnswer { granted: tokens, bucket, count_id, .. } = *answer;
    GiveBack { span: turn.span, bucket, count_id, tokens }
}

fn number(run: i64, number: u64) -> TurnNumber {
    TurnNumber { run, number }
}

/// A budget whose turns are all new.
#[derive(Clone, Default)]
struct Book {
    book: TokenBook,
    last: u64,
}

impl Book {
    fn take(&mut self, now: Time, holder: &str, turn: &TakeTurn) -> TakeAnswer {
        self.last += 1;
        self.book.turn(holder, number(1, self.last), turn, now).expect("it is a later one")
    }

    fn look(&self, now: Time, span: SpanNow) -> TakeAnswer {
        self.book.look(&nothing(span), now)
    }

    /// Gives back; how many of them counted.
    fn give_back(&mut self, now: Time, holder: &str, given: &GiveBack) -> u64 {
        let before = self.look(now, given.span).used;
        before - self.take(now, holder, &TakeTurn { back: vec![*given], ..nothing(given.span) }).used
    }
}

proptest! {
    /// So many of a thousand tokens of a grant are given back at once; the others are spent when the lease ends.
    #[test]
    fn no_window_of_approvals_holds_more_than_the_limit(
        grants in prop::collection::vec((0..400_i64, 0..3_usize, (0..LIMIT, 0..LIMIT), 1..200_i64, 0..=1_000_u64), 1..150),
    ) {
        let (mut book, mut now) = (Book::default(), 0);
        // When, and how much: as late as a lease allows.
        let mut spent: Vec<(i64, u64)> = Vec::new();
        for (passed_ms, holder, (need, more), lease_ms, given_back) in grants {
            now += passed_ms;
            let request = TakeTurn { need, want: need + more, lease_ms, ..rolling() };
            let answer = book.take(at(now), HOLDERS[holder], &request);
            prop_assert!(answer.used <= LIMIT && answer.leased <= answer.used);
            let unspent = answer.granted * given_back / 1_000;
            let given = GiveBack { tokens: unspent, ..all_of(&request, &answer) };
            prop_assert_eq!(book.give_back(at(now), HOLDERS[holder], &given), unspent);
            spent.push((now + lease_ms - 1, answer.granted - unspent));
            if let Some(wait @ 1..) = answer.free_in_ms {
                let used = |now| book.look(at(now), request.span).used;
                prop_assert!(unspent > 0 || used(now + wait - 1) >= LIMIT, "too late");
                prop_assert!(used(now + wait) < LIMIT, "too early");
            }
        }
        for (end, _) in &spent {
            let in_window = spent.iter().filter(|(when, _)| (end - WINDOW_MS + 1..=*end).contains(when));
            let sum: u64 = in_window.map(|(_, tokens)| tokens).sum();
            prop_assert!(sum <= LIMIT, "{sum} in the window that ends at {end}");
        }
    }
}

#[test]
fn a_count_takes_back_only_what_was_granted_in_it_also_one_that_began_in_the_same_millisecond() {
    for span in spans() {
        let (mut book, request) = (Book::default(), TakeTurn { want: 10, need: 10, ..turn(span) });
        let before = book.take(at(5), "a", &request);
        let mut account = Account::default();
        account.add(before.bucket, 10);
        for now in [5, 5, 9] {
            book.book.recount(at(now), span, &account);
            assert_eq!(book.give_back(at(now), "a", &all_of(&request, &before)), 0, "{span:?}");
        }
        let after = book.take(at(9), "a", &request);
        assert_eq!((after.used, book.give_back(at(9), "a", &all_of(&request, &after))), (20, 10), "{span:?}");
    }
}

#[test]
fn a_grant_is_a_share_of_what_is_left_and_need_takes_more() {
    let mut book = Book::default();
    let mut take = |holder, need, want| book.take(at(0), holder, &TakeTurn { need, want, ..rolling() }).granted;
    assert_eq!(take("a", 0, 1_000), 500, "half of all");
    assert_eq!(take("b", 0, 1_000), 125, "a fourth of the rest: there are two");
    assert_eq!(take("b", 300, 1_000), 300, "what is needed");
    assert_eq!(take("a", 300, 1_000), 75, "all that is left");
    assert_eq!(take("a", 1, 1), 0);
}

#[test]
fn grants_are_whole_units_and_never_below_the_least() {
    let mut book = Book::default();
    let mut take =
        |need, unit, least| book.take(at(0), "a", &TakeTurn { need, want: need, unit, least, ..rolling() }).granted;
    assert_eq!(take(950, 100, 1), 900);
    assert_eq!(take(90, 100, 1), 0, "no whole unit is left that it asks for");
    assert_eq!(take(99, 1, 100), 0, "less than is of use");
    assert_eq!(take(100, 1, 100), 100);
}

#[test]
fn when_tokens_are_left_again() {
    let mut book = Book::default();
    let mut free_in = |now, span, least, want| {
        book.take(at(now), "a", &TakeTurn { need: want, want, least, ..turn(span) }).free_in_ms
    };
    let rolling = SpanNow::Rolling { window_ms: WINDOW_MS };
    let period = SpanNow::Period { start: at(0), end: at(5_000) };
    // Leases end 50 ms later, and buckets are 100 ms.
    assert_eq!(free_in(0, rolling, 1, 600), Some(0));
    assert_eq!(free_in(1_000, rolling, 1, 400), Some(100 + WINDOW_MS - 1_000), "the first leave");
    assert_eq!(free_in(1_000, rolling, 601, 0), Some(1_100 + WINDOW_MS - 1_000), "both have to leave");
    assert_eq!(free_in(1_000, rolling, LIMIT + 1, 0), None, "there are never so many");
    assert_eq!(free_in(1_000, period, 1, LIMIT), Some(4_000));
    assert_eq!(free_in(9_000, period, 1, 1), Some(1), "a clock that is behind asks again");
    assert_eq!(free_in(1_000, SpanNow::Total, 1, LIMIT), None);
    assert_eq!(free_in(1_000, SpanNow::Total, LIMIT + 1, 0), None);
}

#[test]
fn what_holders_have_is_told_until_their_leases_end() {
    let mut book = Book::default();
    let thirty = TakeTurn { need: 30, want: 30, lease_ms: 40, ..rolling() };
    let first = book.take(at(0), "a", &thirty);
    let second = book.take(at(25), "a", &TakeTurn { held: 20, ..thirty.clone() });
    let other = book.take(at(25), "b", &thirty);
    assert_eq!([first.leased, second.leased, other.leased], [30, 50, 80]);
    let back = vec![GiveBack { tokens: 10, ..all_of(&thirty, &second) }];
    let given = book.take(at(30), "a", &TakeTurn { held: 40, back, ..nothing(thirty.span) });
    assert_eq!((given.used, given.leased), (80, 70));
    let look = |now| book.look(at(now), thirty.span);
    assert_eq!((look(64).leased, look(65).leased, look(65).used), (70, 0, 80));
    assert_eq!(look(WINDOW_MS + 200).used, 0);
}

#[test]
fn one_who_gave_all_back_is_no_holder_and_one_who_got_nothing_is() {
    let mut book = Book::default();
    let mut request = TakeTurn { need: 10, want: 10, ..rolling() };
    let answer = book.take(at(0), "gone", &request);
    assert_eq!(book.give_back(at(0), "gone", &all_of(&request, &answer)), 10);
    (request.need, request.want) = (0, LIMIT);
    assert_eq!(book.clone().take(at(0), "a", &request).granted, 500);
    assert_eq!(book.take(at(0), "waits", &TakeTurn { least: LIMIT + 1, ..request.clone() }).granted, 0);
    assert_eq!(book.take(at(0), "a", &request).granted, 250);
}

#[test]
fn a_budget_is_counted_since_it_was_first_asked_for_tokens_whatever_it_looks_back_over() {
    for span in spans() {
        let mut book = Book::default();
        for millis in [5, 9] {
            assert_eq!(book.take(at(millis), "a", &turn(span)).counted_for_ms, millis - 5, "{span:?}");
        }
    }
}

#[test]
fn a_turn_that_is_repeated_gets_the_same_grant_and_gives_no_more_back() {
    for span in spans() {
        let mut book = TokenBook::default();
        let hundred = TakeTurn { need: 100, want: 100, ..turn(span) };
        let mut take = |holder, (run, of), turn: &TakeTurn, now, used, why: &str| {
            let answer = book.turn(holder, number(run, of), turn, at(now)).unwrap();
            assert_eq!((answer.granted, answer.used), (100, used), "{span:?}: {why}");
            answer
        };
        let first = take("a", (7, 1), &hundred, 0, 100, "the first turn");
        take("b", (7, 1), &hundred, 20, 200, "another holder has turns of its own");
        assert_eq!(take("a", (7, 1), &hundred, 70, 200, "it is repeated").bucket, first.bucket, "{span:?}");
        let later_run = take("a", (8, 1), &hundred, 80, 300, "another run of the process");
        let back = vec![GiveBack { tokens: 40, ..all_of(&hundred, &later_run) }];
        let owed = vec![OwedTokens { tokens: 5, ago_ms: i64::MAX }];
        let both = TakeTurn { back, owed, ..hundred };
        for _ in 0..3 {
            take("a", (8, 2), &both, 90, 365, "however often it is repeated");
        }
        take("a", (7, 3), &both, 90, 470, "of a process that has ended nothing comes back");
        take("a", (8, 2), &both, 95, 470, "the last turn is known behind a late one, too");
    }
}

#[test]
fn what_a_turn_gives_back_is_granted_by_it_and_by_its_repetition_where_nothing_else_is_left() {
    for span in spans() {
        let mut book = TokenBook::default();
        let all = TakeTurn { need: LIMIT, ..turn(span) };
        let first = book.turn("a", number(7, 1), &all, at(0)).unwrap();
        let back = vec![GiveBack { tokens: 10, ..all_of(&all, &first) }];
        let again = TakeTurn { need: 30, want: 30, back, ..turn(span) };
        for now in [60, 70] {
            let answer = book.turn("a", number(7, 2), &again, at(now)).unwrap();
            assert_eq!((first.granted, answer.granted, answer.used), (LIMIT, 10, LIMIT), "{span:?}");
        }
    }
}

#[test]
fn what_is_owed_is_taken_where_the_count_began_later_and_only_what_is_left_of_it() {
    for span in spans() {
        let mut book = Book::default();
        let owing = |tokens, ago_ms| TakeTurn { owed: vec![OwedTokens { tokens, ago_ms }], ..nothing(span) };
        assert_eq!(book.take(at(0), "a", &owing(7, 1)).used, 7, "{span:?}");
        for (ago_ms, used) in [(-1, 7), (20, 7), (21, 14), (i64::MAX, 21)] {
            let answer = book.take(at(20), "a", &owing(7, ago_ms));
            assert_eq!((answer.used, answer.leased, answer.granted), (used, 0, 0), "{span:?}");
        }
        assert_eq!(book.take(at(20), "a", &owing(u64::MAX, 21)).used, LIMIT, "{span:?}");
    }
}
