//! What replays pay: a budget that has not counted one is paid with its batch, or is owed. And when a budget frees.

use super::*;
use crate::{history::decide::AdmitVerdict, limit::budget::lease::Spent};

const BUDGET: &str = "[[budgets]]\nname = \"spring\"\nlimit = 5\ntotal = true\nbest_effort = true\n";

fn one() -> Rows {
    Rows::of([r#"{"id":"1","user_id":"u"}"#.to_owned()])
}

/// The answer to an intent that was admitted then.
fn replayed(at: Time) -> Vec<Option<Answer>> {
    vec![Some(Answer { verdict: AdmitVerdict::Replayed, at, ahead: false })]
}

#[test]
fn a_replay_pays_once_its_batch_is_decided_if_it_was_admitted_before_the_budget_was_counted() {
    let records = one();
    let decoded = decider(BUDGET).decode(&records);
    for (admitted_ms, replays_pay, unspent) in [(-1_001, true, 0), (-1_000, true, 1), (-1, true, 1), (-1_001, false, 1)]
    {
        let judge = || {
            let ground = Ground { budgets: Some(Patience { replays_pay, ..PATIENCE }), ..asking() };
            let gated = decider(BUDGET).begin(DecodedBatch { records: &records, decoded: &decoded }, ground);
            // It has counted for a second by its own clock, whatever that shows.
            let answers = granted(gated.claim().unwrap(), 1);
            let (mut asked, heard) = funded(gated, answers);
            asked.answer(replayed(now().plus(admitted_ms)));
            (asked, heard)
        };
        let (asked, heard) = judge();
        let (decided, settlement) = asked.finish();
        let decision = decided.decision(0);
        assert_eq!(decision.verdict, Verdict::Approved(Counts::Yes));
        assert_eq!(decision.decided_at, now().plus(admitted_ms));
        assert_eq!(heard.back(), unspent, "admitted {admitted_ms} ms from now");
        settlement.committed();
        assert_eq!(heard.back(), 0);
        let (asked, heard) = judge();
        drop(asked.give_up());
        assert_eq!(heard.back(), 1, "where it is judged again, it claims again");
        let (asked, heard) = judge();
        drop(asked.finish());
        assert_eq!(heard.back(), 1, "the same where it is not committed");
    }
}

#[test]
fn a_replay_that_took_no_token_owes_it_while_its_admission_counts() {
    let records = one();
    let decoded = decider("").decode(&records);
    let (in_total, denied) = ("total = true", Outcome::Denied(0));
    for (span, outcome, ago_ms, tokens) in [
        (in_total, denied, 60_000, 1),
        (in_total, Outcome::Granted, 60_000, 0),
        (in_total, denied, 0, 0),
        ("window = \"2m\"", denied, 60_000, 1),
        ("window = \"2m\"", denied, 120_001, 0),
        ("per = \"day\"", denied, 60_000, 1),
        ("per = \"day\"", denied, 24 * 3_600_000, 0),
    ] {
        let budget = format!("[[budgets]]\nname = \"spring\"\nlimit = 5\n{span}\nbest_effort = true\n");
        let judge = || {
            let ground = Ground { read_before: ReadBefore::All, ..asking() };
            let gated = decider(&budget).begin(DecodedBatch { records: &records, decoded: &decoded }, ground);
            let (mut asked, heard) = funded(gated, with_outcomes(vec![outcome], None));
            asked.answer(replayed(now().plus(-ago_ms)));
            (asked.finish().1, heard)
        };
        let (settlement, heard) = judge();
        drop(settlement);
        assert_eq!(heard.owed(), 0, "it owes nothing where it is not committed, and is decided again");
        let (settlement, heard) = judge();
        settlement.committed();
        let owed: Vec<Owed> = heard.owed.try_iter().flatten().collect();
        assert_eq!(owed.iter().map(|owed| owed.tokens).sum::<u64>(), tokens, "{span} {outcome:?} {ago_ms} ms ago");
        let admitted_at_ms = i64::try_from(PASSED.as_millis()).unwrap() - ago_ms;
        assert!(owed.iter().all(|owed| owed.admitted_at_ms == admitted_at_ms), "{owed:?}");
    }
}

#[test]
fn a_budget_that_is_spent_never_frees_for_what_costs_more_than_its_limit() {
    let records = Rows::of([5, 6].map(|cost| format!(r#"{{"id":"{cost}","user_id":"u","cost":{cost}}}"#)));
    let decider = decider(BUDGET);
    let decoded = decider.decode(&records);
    let gated = decider.begin(DecodedBatch { records: &records, decoded: &decoded }, asking());
    let spent = vec![Some(Spent { used: 5, free_at: Some(PASSED) })];
    let (asked, _) = funded(gated, Answers { spent, ..with_outcomes(vec![Outcome::Denied(0); 2], None) });
    let (decided, _settlement) = asked.finish();
    for (record, eligible_at) in [Some(now()), None].into_iter().enumerate() {
        let cause = Cause::Budget(DenyingBudget { name: "spring", limit: 5, used: 5 });
        assert_eq!(decided.decision(record).verdict, Verdict::Suppressed(Suppressed { cause, eligible_at }));
    }
}
