//! No window of approvals holds more than the limit, whoever takes, spends and gives back when; and what is left is granted.

use proptest::prelude::*;

use super::{Account, Book, CountId, EmbeddedLedger, GiveBack, Grain, TakeAnswer, TakeRequest};
use crate::{
    budget::{BudgetId, SpanNow},
    limit::share::TurnNumber,
    ports::Ledger,
    time::Time,
};

const WINDOW_MS: i64 = 6_000;
const LIMIT: u64 = 1_000;
const HOLDERS: [&str; 3] = ["weir-0", "weir-1", "weir-2"];

fn at(millis: i64) -> Time {
    Time::default().plus(1_795_132_800_000 + millis)
}

fn request(span: SpanNow) -> TakeRequest {
    let budget = BudgetId { name: "b".into(), campaign: None };
    TakeRequest { budget, span, limit: LIMIT, need: 0, want: LIMIT, unit: 1, least: 1, lease_ms: 50, turn: None }
}

fn rolling() -> TakeRequest {
    request(SpanNow::Rolling { window_ms: WINDOW_MS })
}

fn all_of(request: &TakeRequest, answer: &TakeAnswer) -> GiveBack {
    let TakeAnswer { granted: tokens, bucket, count_id, .. } = *answer;
    GiveBack { budget: request.budget.clone(), span: request.span, bucket, count_id, tokens, turn: None }
}

/// One grant: when it was made and what becomes of it.
#[derive(Debug, Clone)]
struct Step {
    passed_ms: i64,
    holder: usize,
    need: u64,
    want: u64,
    lease_ms: i64,
    /// How many of a thousand tokens are given back at once; the others are spent when the lease ends.
    given_back: u64,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..400_i64, 0..3_usize, 0..LIMIT, 0..LIMIT, 1..200_i64, 0..=1_000_u64);
    let step = step.prop_map(|(passed_ms, holder, need, more, lease_ms, given_back)| Step {
        passed_ms,
        holder,
        need,
        want: need + more,
        lease_ms,
        given_back,
    });
    prop::collection::vec(step, 1..150)
}

proptest! {
    #[test]
    fn no_window_of_approvals_holds_more_than_the_limit(steps in steps()) {
        let (mut book, mut now) = (Book::default(), 0);
        // When, and how much: as late as a lease allows.
        let mut spent: Vec<(i64, u64)> = Vec::new();
        for Step { passed_ms, holder, need, want, lease_ms, given_back } in steps {
            now += passed_ms;
            let request = TakeRequest { need, want, lease_ms, ..rolling() };
            let answer = book.take(at(now), HOLDERS[holder], &request);
            prop_assert!(answer.used <= LIMIT && answer.leased <= answer.used);
            let unspent = answer.granted * given_back / 1_000;
            let given = GiveBack { tokens: unspent, ..all_of(&request, &answer) };
            prop_assert_eq!(book.give_back(at(now), HOLDERS[holder], &given), unspent);
            spent.push((now + lease_ms - 1, answer.granted - unspent));
            if let Some(wait @ 1..) = answer.free_in_ms {
                let look = TakeRequest { want: 0, need: 0, ..request };
                let mut later = book.clone();
                prop_assert!(unspent > 0 || later.take(at(now + wait - 1), "", &look).used >= LIMIT, "too late");
                prop_assert!(later.take(at(now + wait), "", &look).used < LIMIT, "too early");
            }
        }
        for (end, _) in &spent {
            let in_window = spent.iter().filter(|(when, _)| (end - WINDOW_MS + 1..=*end).contains(when));
            let sum: u64 = in_window.map(|(_, tokens)| tokens).sum();
            prop_assert!(sum <= LIMIT, "{sum} in the window that ends at {end}");
        }
    }
}

proptest! {
    /// A rebuild counts what was approved, once leases have ended; what they had left comes back before or after it.
    #[test]
    fn no_window_holds_more_than_the_limit_though_it_is_counted_anew_and_tokens_come_back_late(
        steps in steps(), anew in prop::collection::vec(any::<bool>(), 150),
    ) {
        const LONGEST_LEASE_MS: i64 = 200;
        let (mut book, mut now) = (Book::default(), 0);
        let mut spent: Vec<(i64, u64)> = Vec::new();
        let mut late: Vec<(usize, GiveBack)> = Vec::new();
        for (Step { passed_ms, holder, need, want, lease_ms, given_back }, is_anew) in steps.into_iter().zip(anew) {
            now += passed_ms;
            let request = TakeRequest { need, want, lease_ms, ..rolling() };
            if is_anew {
                now += LONGEST_LEASE_MS;
                let mut account = Account::default();
                for (when, some) in &spent {
                    account.add(Grain::Bucket.place(request.span, at(*when).millis()), *some);
                }
                book.recount(at(now), &request.budget, request.span, &account);
            }
            for (holder, given) in late.drain(..) {
                let back = book.give_back(at(now), HOLDERS[holder], &given);
                prop_assert!(back == 0 || !is_anew, "{back} of another count came back");
            }
            let answer = book.take(at(now), HOLDERS[holder], &request);
            let tokens = answer.granted * given_back / 1_000;
            late.push((holder, GiveBack { tokens, ..all_of(&request, &answer) }));
            spent.push((now + lease_ms - 1, answer.granted - tokens));
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
    let period = SpanNow::Period { start: at(0), end: at(1_000) };
    for span in [rolling().span, period, SpanNow::Total] {
        let (mut book, request) = (Book::default(), TakeRequest { want: 10, need: 10, ..request(span) });
        let before = book.take(at(5), "a", &request);
        let mut account = Account::default();
        account.add(before.bucket, 10);
        for now in [5, 5, 9] {
            book.recount(at(now), &request.budget, span, &account);
            assert_eq!(book.give_back(at(now), "a", &all_of(&request, &before)), 0, "{span:?}");
        }
        let after = book.take(at(9), "a", &request);
        assert_eq!((after.used, book.give_back(at(9), "a", &all_of(&request, &after))), (20, 10), "{span:?}");
    }
}

#[test]
fn a_grant_is_a_share_of_what_is_left_and_need_takes_more() {
    let mut book = Book::default();
    let mut take = |holder, need, want| book.take(at(0), holder, &TakeRequest { need, want, ..rolling() }).granted;
    assert_eq!(take("a", 0, 1_000), 500, "half of all");
    assert_eq!(take("b", 0, 1_000), 125, "a fourth of the rest: there are two");
    assert_eq!(take("b", 300, 1_000), 300, "what is needed");
    assert_eq!(take("a", 300, 1_000), 75, "all that is left");
    assert_eq!(take("a", 1, 1), 0);
}

#[test]
fn grants_are_whole_units_and_never_below_the_least() {
    let mut book = Book::default();
    let mut take = |need, unit, least| {
        let request = TakeRequest { need, want: need, unit, least, ..rolling() };
        book.take(at(0), "a", &request).granted
    };
    assert_eq!(take(950, 100, 1), 900);
    assert_eq!(take(90, 100, 1), 0, "no whole unit is left that it asks for");
    assert_eq!(take(99, 1, 100), 0, "less than is of use");
    assert_eq!(take(100, 1, 100), 100);
}

#[test]
fn when_tokens_are_left_again() {
    let mut book = Book::default();
    let mut free_in = |now, span, least, want| {
        let request = TakeRequest { span, need: want, want, least, ..request(span) };
        book.take(at(now), "a", &request).free_in_ms
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
fn tokens_in_leases_are_told_until_these_end() {
    let mut book = Book::default();
    let thirty = TakeRequest { need: 30, want: 30, lease_ms: 40, ..rolling() };
    let first = book.take(at(0), "a", &thirty);
    let second = book.take(at(25), "a", &thirty);
    let other = book.take(at(25), "b", &thirty);
    assert_eq!([first.leased, second.leased, other.leased], [30, 60, 90]);
    let look = |book: &mut Book, now| book.take(at(now), "c", &TakeRequest { need: 0, want: 0, ..thirty.clone() });
    assert_eq!(book.give_back(at(30), "a", &GiveBack { tokens: 10, ..all_of(&thirty, &second) }), 10);
    let found = look(&mut book, 30);
    assert_eq!((found.used, found.leased, found.granted), (80, 80, 0));
    assert_eq!(look(&mut book, 45).leased, 60, "the first lease has ended");
    let found = look(&mut book, 80);
    assert_eq!((found.used, found.leased), (80, 0));
    assert_eq!(look(&mut book, WINDOW_MS + 200).used, 0);
}

#[test]
fn one_who_gave_all_back_is_no_holder_and_one_who_got_nothing_is() {
    let mut book = Book::default();
    let mut request = TakeRequest { need: 10, want: 10, ..rolling() };
    let answer = book.take(at(0), "gone", &request);
    assert_eq!(book.give_back(at(0), "gone", &all_of(&request, &answer)), 10);
    (request.need, request.want) = (0, LIMIT);
    assert_eq!(book.clone().take(at(0), "a", &request).granted, 500);
    let nothing = TakeRequest { least: LIMIT + 1, ..request.clone() };
    assert_eq!(book.take(at(0), "waits", &nothing).granted, 0);
    assert_eq!(book.take(at(0), "a", &request).granted, 250);
}

#[test]
fn a_budget_is_counted_since_it_was_first_asked_for_tokens_whatever_it_looks_back_over() {
    let period = SpanNow::Period { start: at(0), end: at(1_000) };
    for span in [rolling().span, period, SpanNow::Total] {
        let (mut book, request) = (Book::default(), TakeRequest { span, ..rolling() });
        for millis in [5, 9] {
            assert_eq!(book.take(at(millis), "a", &request).counted_for_ms, millis - 5, "{span:?}");
        }
    }
}

#[test]
fn a_turn_that_is_repeated_gets_the_same_grant_and_gives_no_more_back() {
    let turn = |run, number| Some(TurnNumber { run, number });
    let period = SpanNow::Period { start: at(0), end: at(1_000) };
    for span in [rolling().span, period, SpanNow::Total] {
        let mut book = Book::default();
        let hundred = |turn| TakeRequest { need: 100, want: 100, turn, ..request(span) };
        let first = book.take(at(0), "a", &hundred(turn(7, 1)));
        assert_eq!((first.granted, first.used), (100, 100), "{span:?}");
        let other = book.take(at(20), "b", &hundred(turn(7, 1)));
        assert_eq!((other.granted, other.used), (100, 200), "{span:?}: another holder has turns of its own");
        let again = book.take(at(70), "a", &hundred(turn(7, 1)));
        assert_eq!((again.granted, again.used, again.bucket), (100, 200, first.bucket), "{span:?}");
        let later_run = book.take(at(80), "a", &hundred(turn(8, 1)));
        assert_eq!((later_run.granted, later_run.used), (100, 300), "{span:?}");

        let given = |turn| GiveBack { tokens: 40, turn, ..all_of(&hundred(None), &later_run) };
        assert_eq!([(); 3].map(|()| book.give_back(at(90), "a", &given(turn(8, 2)))), [40; 3], "{span:?}");
        assert_eq!(book.give_back(at(90), "a", &given(turn(7, 3))), 0, "{span:?}: that process has ended");
        let look = TakeRequest { need: 0, want: 0, ..request(span) };
        assert_eq!(book.take(at(90), "a", &look).used, 260, "{span:?}");
        assert_eq!(book.take(at(95), "a", &hundred(turn(8, 1))).granted, 100, "{span:?}: giving back is another kind");
    }
}

#[test]
fn a_turn_that_another_came_after_comes_to_nothing() {
    let turn = |number| Some(TurnNumber { run: 7, number });
    let ten = |turn| TakeRequest { need: 10, want: 10, turn, ..request(SpanNow::Total) };
    let mut book = Book::default();
    for (number, granted, used) in [(1, 10, 10), (3, 10, 20), (1, 0, 20), (2, 0, 20), (3, 10, 20), (4, 10, 30)] {
        let answer = book.take(at(0), "a", &ten(turn(number)));
        assert_eq!((answer.granted, answer.used), (granted, used), "turn {number}");
    }
    let all = all_of(&ten(None), &book.clone().take(at(0), "a", &ten(turn(4))));
    for (number, back) in [(5, 10), (9, 10), (6, 0), (5, 0), (9, 10)] {
        assert_eq!(book.give_back(at(0), "a", &GiveBack { turn: turn(number), ..all.clone() }), back, "turn {number}");
    }
    assert_eq!(book.take(at(0), "a", &TakeRequest { want: 0, need: 0, ..ten(None) }).used, 10);
}

#[test]
fn a_turn_is_known_for_an_hour_after_it_was_made_last() {
    const HOUR_MS: i64 = 3_600_000;
    let turn = |number| Some(TurnNumber { run: 7, number });
    let ten = |turn| TakeRequest { need: 10, want: 10, turn, ..request(SpanNow::Total) };
    let mut book = Book::default();
    let answer = book.take(at(0), "a", &ten(turn(1)));
    let given = GiveBack { turn: turn(2), tokens: 4, ..all_of(&ten(None), &answer) };
    for hours in 0..5 {
        let almost = hours * (HOUR_MS - 1);
        assert_eq!(book.take(at(almost), "a", &ten(turn(1))).granted, 10, "{hours}");
        assert_eq!(book.give_back(at(almost), "a", &given), 4, "{hours}");
        let used = book.take(at(almost), "b", &ten(None)).used;
        assert_eq!(used, 16 + 10 * u64::try_from(hours).unwrap(), "nothing but what the other one takes");
    }
    let last = 4 * (HOUR_MS - 1);
    assert_eq!(book.take(at(last + HOUR_MS), "a", &ten(turn(1))).used, 66, "nobody repeats it after so long");
    assert_eq!(book.give_back(at(last + HOUR_MS), "a", &given), 4);
    assert_eq!(book.take(at(last + HOUR_MS), "a", &TakeRequest { want: 0, need: 0, ..ten(None) }).used, 62);
}

#[test]
fn holders_of_an_embedded_ledger_share_it() {
    let mut first = EmbeddedLedger::new("weir-0", || at(0));
    let mut second = first.for_holder("weir-1");
    let take = |ledger: &mut EmbeddedLedger| {
        let (free_in_ms, counted_for_ms, count_id) = (None, 0, CountId::default());
        let other = TakeAnswer { granted: 7, used: 7, leased: 7, bucket: 0, free_in_ms, counted_for_ms, count_id };
        let mut answers = [None, Some(other)];
        let kept = answers[1];
        ready(ledger.take(&[rolling(), rolling()], &mut answers)).unwrap();
        assert_eq!(answers[1], kept, "it has an answer");
        answers[0].unwrap()
    };
    let half = take(&mut first);
    assert_eq!(half.granted, LIMIT / 2);
    assert_eq!(take(&mut second).granted, LIMIT / 8);
    ready(first.give_back(&[all_of(&rolling(), &half)], &mut [None])).unwrap();
    assert_eq!(take(&mut first).used, LIMIT / 8 + (LIMIT - LIMIT / 8) / 4);
}

/// What a future gives that never waits.
fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("it waits"),
    }
}
