//! An intent that was asked for without an answer, and is judged again: it has one set of tokens, until the store says what it was for.

use super::*;
use crate::{
    history::decide::AdmitVerdict,
    limit::{
        budget::{
            lease::DueTurn,
            ledger::{Account, TakeTurn, TokenBook},
        },
        share::Reference as _,
    },
};

const POLICY: &str = "[[on_unavailable]]\nchannel = \"push\"\naction = \"approve\"\n\
                      [[budgets]]\nname = \"all\"\nlimit = 100\ntotal = true\nbest_effort = true\n";
const REQUEST: RequestIndex = RequestIndex::next(&[]);
const DENIED: AdmitVerdict = AdmitVerdict::Denied { cap: 0, used: 1, blocking: None };
/// The clock of the first round, in milliseconds from that of the last one.
const FIRST_MS: i64 = -10;

/// Approved where its history is unavailable.
fn one() -> Rows {
    Rows::of([r#"{"id":"1","user_id":"u","channel":"push"}"#.to_owned()])
}

/// The batch, judged so many milliseconds from the clock of the last round.
fn judged<'b>(ms: i64, records: &'b Rows, decoded: &'b [Decoded<'b>], kept: KeptTokens) -> GatedBatch<'b, Rows> {
    let ground = Ground { times: Times::One(now().plus(ms)), read_before: ReadBefore::All, ..asking() };
    decider(POLICY).begin(DecodedBatch { records, decoded }, ground).keeping(kept)
}

/// The same with its tokens.
fn with_tokens(gated: GatedBatch<'_, Rows>) -> (AskedBatch<'_, Rows>, Heard) {
    let answers = granted(gated.claim().unwrap(), 1);
    funded(gated, answers)
}

/// The same where the budget is spent.
fn without_tokens(gated: GatedBatch<'_, Rows>) -> (AskedBatch<'_, Rows>, Heard) {
    funded(gated, with_outcomes(vec![Outcome::Denied(0)], None))
}

fn ask_in_vain(asked: &mut AskedBatch<'_, Rows>) {
    asked.to_ask();
    asked.asked(&[REQUEST]);
}

/// The intent is asked for in vain, judged again, and then this is done. How many tokens come back of the first round, and of the second one.
fn back(
    funds: impl for<'b> FnOnce(GatedBatch<'b, Rows>) -> (AskedBatch<'b, Rows>, Heard),
    then: impl for<'b> FnOnce(AskedBatch<'b, Rows>),
) -> [u64; 2] {
    let records = one();
    let decoded = decider(POLICY).decode(&records);
    let (mut asked, first) = with_tokens(judged(FIRST_MS, &records, &decoded, KeptTokens::default()));
    ask_in_vain(&mut asked);
    let kept = asked.give_up().tokens;
    assert_eq!(first.back(), 0, "it may be recorded");
    let (asked, second) = funds(judged(0, &records, &decoded, kept));
    then(asked);
    [first.back(), second.back()]
}

/// The store answers this, at a time so many milliseconds from the batch's clock, and the batch is committed.
fn answered(verdict: AdmitVerdict, ms: i64) -> impl for<'b> FnOnce(AskedBatch<'b, Rows>) {
    move |mut asked: AskedBatch<'_, Rows>| {
        asked.answer(vec![Some(Answer { verdict, at: now().plus(ms), ahead: false })]);
        asked.finish().1.committed();
    }
}

#[test]
fn once_the_store_answers_an_intent_has_paid_once_if_it_is_approved_and_nothing_if_it_is_not() {
    for (verdict, ms, expected, why) in [
        (AdmitVerdict::Allowed, 0, [1, 0], "it is recorded now"),
        (AdmitVerdict::Replayed, 0, [1, 0], "the same"),
        (AdmitVerdict::Replayed, -1, [0, 1], "it was recorded when it was asked for before"),
        (AdmitVerdict::Replayed, FIRST_MS, [0, 1], "the same"),
        (AdmitVerdict::Replayed, FIRST_MS - 1, [1, 1], "an earlier reader has recorded it, and has paid"),
        (DENIED, 0, [1, 1], "it is not approved, and was not recorded"),
        (AdmitVerdict::Duplicate, 0, [1, 1], "the same"),
    ] {
        assert_eq!(back(with_tokens, answered(verdict, ms)), expected, "{why}");
    }
    for (verdict, ms, expected, why) in [
        (AdmitVerdict::Replayed, -1, [0, 0], "whatever is left of the budget by now"),
        (AdmitVerdict::Replayed, FIRST_MS - 1, [1, 0], "an earlier reader has paid"),
        (DENIED, 0, [1, 0], "it was not recorded, and is suppressed"),
    ] {
        assert_eq!(back(without_tokens, answered(verdict, ms)), expected, "{why}");
    }
}

#[test]
fn without_an_answer_an_intent_keeps_one_set_of_tokens() {
    let asks_again = |mut asked: AskedBatch<'_, Rows>| {
        ask_in_vain(&mut asked);
        drop(asked.give_up());
    };
    assert_eq!(back(with_tokens, asks_again), [1, 0], "the one of the last time");
    assert_eq!(back(without_tokens, asks_again), [0, 0], "it has no other");
    let is_not_asked = |asked: AskedBatch<'_, Rows>| drop(asked.give_up());
    assert_eq!(back(with_tokens, is_not_asked), [1, 0], "it may be recorded all the same");
    let is_interrupted = |_: AskedBatch<'_, Rows>| {};
    assert_eq!(back(with_tokens, is_interrupted), [1, 0], "the same");
    assert_eq!(back(without_tokens, is_interrupted), [0, 0], "the same");
    assert_eq!(back(without_tokens, |asked: AskedBatch<'_, Rows>| asked.finish().1.committed()), [0, 0], "the same");
    let is_not_committed = |asked: AskedBatch<'_, Rows>| {
        let (decided, settlement) = asked.finish();
        assert!(decided.fate(0).is_approved(), "by the policy");
        drop(settlement);
    };
    assert_eq!(back(with_tokens, is_not_committed), [1, 0], "the same");
}

/// The store answers this, and the batch is given up; whether an intent lacked what the batch gives back.
fn lacks(expected: bool, verdict: AdmitVerdict, ms: i64) -> impl for<'b> FnOnce(AskedBatch<'b, Rows>) {
    move |mut asked: AskedBatch<'_, Rows>| {
        asked.answer(vec![Some(Answer { verdict, at: now().plus(ms), ahead: false })]);
        assert_eq!(asked.lacks_kept_tokens(), expected, "{verdict:?}");
        drop(asked.give_up());
    }
}

#[test]
fn a_batch_is_judged_again_where_an_intent_is_denied_tokens_that_the_batch_gives_back() {
    assert_eq!(back(without_tokens, lacks(true, DENIED, 0)), [1, 0], "what it lacks has come back");
    assert_eq!(back(without_tokens, lacks(false, AdmitVerdict::Duplicate, 0)), [1, 0], "it is known by another record");
    assert_eq!(back(without_tokens, lacks(false, AdmitVerdict::Replayed, -1)), [0, 0], "it is approved");
    assert_eq!(back(with_tokens, lacks(false, AdmitVerdict::Allowed, 0)), [1, 0], "the same");
    assert_eq!(back(with_tokens, lacks(false, DENIED, 0)), [1, 1], "a cap denies it");
    let is_silent = |mut asked: AskedBatch<'_, Rows>| {
        ask_in_vain(&mut asked);
        assert!(!asked.lacks_kept_tokens(), "it may be recorded");
    };
    assert_eq!(back(without_tokens, is_silent), [0, 0]);
}

#[test]
fn tokens_are_kept_while_a_budget_is_waited_for() {
    let records = one();
    let decoded = decider(POLICY).decode(&records);
    let (mut asked, first) = with_tokens(judged(FIRST_MS, &records, &decoded, KeptTokens::default()));
    ask_in_vain(&mut asked);
    let waits = judged(0, &records, &decoded, asked.give_up().tokens);
    let (asked, second) = with_tokens(judged(0, &records, &decoded, waits.give_up().tokens));
    answered(AdmitVerdict::Allowed, 0)(asked);
    assert_eq!([first.back(), second.back()], [1, 0]);
}

#[test]
fn an_intent_whose_tokens_are_kept_owes_others_only_if_its_budget_is_counted_again_after_it_was_admitted() {
    let records = one();
    let decoded = decider(POLICY).decode(&records);
    for (is_counted_again, why) in [(false, "its own are counted"), (true, "its own are counted no more")] {
        let first = judged(FIRST_MS, &records, &decoded, KeptTokens::default());
        let budget = first.claim().unwrap().budgets[0].clone();
        let (mut book, number) = (TokenBook::default(), TurnNumber { run: 1, number: 1 });
        let takes = TakeTurn { need: 1, want: 1, ..TakeTurn::look(&budget, 1) };
        assert_eq!(book.turn("weir-0", number, &takes, now().plus(-100)).unwrap().granted, 1);
        let (mut asked, _first) = with_tokens(first);
        ask_in_vain(&mut asked);
        let (asked, heard) = without_tokens(judged(0, &records, &decoded, asked.give_up().tokens));
        answered(AdmitVerdict::Replayed, -1)(asked);
        if is_counted_again {
            book.recount(now(), budget.span, &Account::default());
        }
        let mut leases = Leases::new(10);
        leases.owe(heard.owed.try_iter().flatten().collect());
        let DueTurn { number, turn, .. } = leases.due(PASSED, first_run).turns.remove(0);
        book.turn("weir-1", number, &turn, now()).unwrap();
        assert_eq!(book.look(&turn, now()).used, 1, "{why}");
    }
}
