//! What budgets are to replays: they never deny one, and one that they have not counted pays.

use super::*;
use crate::{
    decide::AdmitVerdict,
    lease::{Claimed, Leases, Outcome, Ticket},
    ledger::{CountId, TakeAnswer},
};

const BUDGET: &str = "[[budgets]]\nname = \"spring\"\nlimit = 5\ntotal = true\nbest_effort = true\n";
/// The monotonic clock.
const PASSED: Duration = Duration::from_secs(100);

fn now() -> Time {
    Time::from_rfc3339("2026-11-20T09:00:00Z").unwrap()
}

fn one() -> Campaigns {
    Campaigns(vec![r#"{"id":"1","user_id":"u"}"#.to_owned()])
}

/// The answer to an intent that was admitted then.
fn replayed(at: Time) -> Vec<Option<Answer>> {
    vec![Some(Answer { verdict: AdmitVerdict::Replayed, at, ahead: false })]
}

fn total(settlement: &Settlement) -> u64 {
    settlement.unspent.iter().map(|(.., tokens)| tokens).sum()
}

/// A batch by this policy that may have been read before.
fn begun<'b>(policy: &str, records: &'b Campaigns, decoded: &'b [Decoded<'b>]) -> GatedBatch<'b, Campaigns> {
    let ground = Ground { passed: PASSED, budgets: Some(PATIENCE), read_before: ReadBefore::All, ..ground(now()) };
    decider(policy).begin(DecodedBatch { records, decoded }, ground)
}

/// The only answer, of one budget.
fn answers(outcome: Outcome, counted_for_ms: Option<i64>) -> Option<Answers> {
    let (outcomes, counted_for_ms) = (vec![outcome], vec![counted_for_ms]);
    Some(Answers { outcomes, spent: vec![None], leases: vec![None], counted_for_ms })
}

#[test]
fn a_replay_pays_once_its_batch_is_decided_if_it_was_admitted_before_the_budget_was_counted() {
    let records = one();
    let decoded = decider(BUDGET).decode(&records);
    for (admitted_ms, replays_pay, unspent) in [(-1_001, true, 0), (-1_000, true, 1), (-1, true, 1), (-1_001, false, 1)]
    {
        let judge = || {
            let mut leases = Leases::new(10, 1);
            let patience = Patience { replays_pay, ..PATIENCE };
            let ground = Ground { passed: PASSED, budgets: Some(patience), ..ground(now()) };
            let batch = DecodedBatch { records: &records, decoded: &decoded };
            let gated = decider(BUDGET).begin(batch, ground);
            let claim = gated.claim().unwrap();
            assert_eq!(leases.claim(Ticket(0), claim, PASSED), Claimed::Pending);
            let (call, _) = leases.due(PASSED).takes.remove(0);
            // By the ledger's own clock, whatever that shows.
            let (free_in_ms, counted_for_ms, count_id) = (Some(0), 1_000, CountId::default());
            let answer = TakeAnswer { granted: 1, used: 1, leased: 1, bucket: 0, free_in_ms, counted_for_ms, count_id };
            leases.answered(call, Ok(answer), PASSED, PASSED);
            let Claimed::Answered(answers) = leases.claim(Ticket(0), claim, PASSED) else { panic!("it has its token") };
            let mut asked = gated.ask(Some(answers));
            asked.answer(replayed(now().plus(admitted_ms)));
            asked
        };
        let (decided, settlement) = judge().finish();
        let decision = decided.decision(0);
        assert_eq!(decision.verdict, Verdict::Approved(Counts::Yes));
        assert_eq!(decision.decided_at, now().plus(admitted_ms));
        assert_eq!(total(&settlement), unspent, "admitted {admitted_ms} ms from now");
        assert_eq!(total(&judge().give_up()), 1, "where it is judged again, it claims again");
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
        let mut asked = begun(&budget, &records, &decoded).ask(answers(outcome, None));
        asked.answer(replayed(now().plus(-ago_ms)));
        let (_, Settlement { owed, .. }) = asked.finish();
        assert_eq!(owed.iter().map(|owed| owed.tokens).sum::<u64>(), tokens, "{span} {outcome:?} {ago_ms} ms ago");
        assert!(owed.iter().all(|owed| (owed.admitted_ago_ms, owed.judged_at) == (ago_ms, PASSED)), "{owed:?}");
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
            let mut asked = begun(&policy, &records, &decoded).ask(answers(outcome, counted_for_ms));
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
    let records = Campaigns(vec![expired, capped]);
    let decoded = decider("").decode(&records);
    let bypass = "[[bypass]]\ncategory = \"receipt\"\ncounts = false\n";
    let mut asked = begun(bypass, &records, &decoded).ask(None);
    let outcomes: Vec<UnavailableOutcome> = asked.lacking().map(|(_, outcome)| outcome).collect();
    assert_eq!(outcomes, [UnavailableOutcome::GivenUp, UnavailableOutcome::Wait]);
    assert!(!asked.gives_up(), "the second one has to be waited for");
    asked.answer(vec![None, replayed(now())[0]]);
    assert!(asked.gives_up());
    asked.answer(vec![replayed(now())[0]; 2]);
    let (decided, _) = asked.finish();
    let approved = [0, 1].map(|index| decided.decision(index).verdict.is_approved());
    assert_eq!(approved, [true, true], "an earlier policy had it recorded");
}
