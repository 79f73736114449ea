//! What budgets are to replays: they never deny one, and one that they have not counted pays.

use super::*;
use crate::history::decide::AdmitVerdict;

const BUDGET: &str = "[[budgets]]\nname = \"spring\"\nlimit = 5\ntotal = true\nbest_effort = true\n";

fn one() -> Rows {
    Rows::of([r#"{"id":"1","user_id":"u"}"#.to_owned()])
}

/// The answer to an intent that was admitted then.
fn replayed(at: Time) -> Vec<Option<Answer>> {
    vec![Some(Answer { verdict: AdmitVerdict::Replayed, at, ahead: false })]
}

/// A batch by this policy that may have been read before.
fn begun<'b>(policy: &str, records: &'b Rows, decoded: &'b [Decoded<'b>]) -> GatedBatch<'b, Rows> {
    let ground = Ground { read_before: ReadBefore::All, ..asking() };
    decider(policy).begin(DecodedBatch { records, decoded }, ground)
}

#[test]
fn a_replay_pays_once_its_batch_is_decided_if_it_was_admitted_before_the_budget_was_counted() {
    let records = one();
    let decoded = decider(BUDGET).decode(&records);
    for (admitted_ms, replays_pay, unspent) in [(-1_001, true, 0), (-1_000, true, 1), (-1, true, 1), (-1_001, false, 1)]
    {
        let judge = || {
            let patience = Patience { replays_pay, ..PATIENCE };
            let ground = Ground { budgets: Some(patience), ..asking() };
            let batch = DecodedBatch { records: &records, decoded: &decoded };
            let gated = decider(BUDGET).begin(batch, ground);
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
            let (mut asked, heard) = funded(begun(&budget, &records, &decoded), with_outcomes(vec![outcome], None));
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
fn no_budget_denies_a_replay_whether_it_is_spent_or_unavailable_and_whether_it_has_counted_it() {
    let records = one();
    let decoded = decider("").decode(&records);
    let cases = [("wait", Outcome::Denied(0)), ("suppress", Outcome::Denied(0)), ("suppress", Outcome::Unavailable(0))];
    for (on_unavailable, outcome) in cases {
        for counted_for_ms in [None, Some(0), Some(i64::MAX)] {
            let policy = format!("{BUDGET}on_unavailable = \"{on_unavailable}\"\n");
            let answers = with_outcomes(vec![outcome], counted_for_ms);
            let (mut asked, _heard) = funded(begun(&policy, &records, &decoded), answers);
            let before = now().plus(-60_000);
            asked.answer(replayed(before));
            assert!(!asked.fate(0).waits());
            let (decided, _) = asked.finish();
            let decision = decided.decision(0);
            let found = (decision.verdict, decision.decided_at);
            assert_eq!(found, (Verdict::Approved(Counts::Yes), before), "{on_unavailable} {outcome:?}");
        }
    }
}

#[test]
fn what_a_bypass_exempts_from_being_recorded_is_looked_up_and_not_waited_for() {
    let expired = r#"{"id":"1","user_id":"u","category":"receipt","expires_at":1}"#.to_owned();
    let capped = r#"{"id":"2","user_id":"u","expires_at":1}"#.to_owned();
    let records = Rows::of([expired, capped]);
    let decoded = decider("").decode(&records);
    let bypass = "[[bypass]]\ncategory = \"receipt\"\ncounts = false\n";
    let mut asked = begun(bypass, &records, &decoded).ask(None);
    let outcomes: Vec<UnavailableOutcome> = asked.lacking().map(|(_, outcome)| outcome).collect();
    assert_eq!(outcomes, [UnavailableOutcome::GivenUp, UnavailableOutcome::Wait]);
    assert!(!asked.gives_up(), "the second one has to be waited for");
    asked.answer(vec![None, replayed(now())[0]]);
    assert!(asked.gives_up());
    asked.answer(vec![replayed(now())[0]; 2]);
    assert_eq!(approved(&asked.finish().0, 2), [true, true], "an earlier policy had it recorded");
}
