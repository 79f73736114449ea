//! What budgets are to replays: they never deny one, and one that they have not counted pays.

use super::*;
use crate::{
    decide::{AdmitVerdict, Answer},
    lease::{Claimed, Leases, Outcome, Ticket},
    ledger::{CountId, TakeAnswer},
};

const BUDGET: &str = "[[budgets]]\nname = \"spring\"\nlimit = 5\ntotal = true\nbest_effort = true\n";
/// The monotonic clock.
const PASSED: Duration = Duration::from_secs(100);
const PATIENCE: Patience = Patience { unavailable_after: None, may_defer: false };

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

fn total(unspent: &Unspent) -> u64 {
    unspent.iter().map(|(.., tokens)| tokens).sum()
}

#[test]
fn a_replay_pays_once_its_batch_is_decided_if_it_was_admitted_before_the_budget_was_counted() {
    let records = one();
    for (admitted_ms, unspent) in [(-1_001, 0), (-1_000, 1), (-1, 1)] {
        let mut leases = Leases::new(10, 1);
        let mut begun = decider(BUDGET).begin_batch(now());
        let decoded = begun.decode(&records);
        let claim = begun.claim(&records, &decoded, PASSED, PATIENCE).unwrap();
        assert_eq!(leases.claim(Ticket(0), &claim, PASSED), Claimed::Pending);
        let (call, _) = leases.due(PASSED).takes.remove(0);
        // By the ledger's own clock, whatever that shows.
        let (free_in_ms, counted_for_ms, count_id) = (Some(0), 1_000, CountId::default());
        let answer = TakeAnswer { granted: 1, used: 1, leased: 1, bucket: 0, free_in_ms, counted_for_ms, count_id };
        leases.answered(call, Ok(answer), PASSED, PASSED);
        let Claimed::Answered(answers) = leases.claim(Ticket(0), &claim, PASSED) else { panic!("it has its token") };
        begun.claimed(answers);
        let (mut gated, _) = begun.gate(&records, &decoded);
        gated.answer(replayed(now().plus(admitted_ms)));
        let decision = begun.decision(&gated, 0);
        assert_eq!(decision.verdict, Verdict::Approved(Counts::Yes));
        assert_eq!(decision.decided_at, now().plus(admitted_ms));
        assert_eq!(total(&begun.unspent(&gated)), unspent, "admitted {admitted_ms} ms from now");
        assert_eq!(total(&begun.unspent_so_far(&gated)), 1, "where it is judged again, it claims again");
    }
}

#[test]
fn a_replay_that_took_no_token_owes_it_while_its_admission_counts() {
    let records = one();
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
        let mut begun = decider(&budget).begin_batch(now());
        begun.look_up(ReadBefore::All);
        let decoded = begun.decode(&records);
        begun.claim(&records, &decoded, PASSED, PATIENCE).unwrap();
        let (spent, leases, counted_for_ms) = (vec![None], vec![None], vec![None]);
        begun.claimed(Answers { outcomes: vec![outcome], spent, leases, counted_for_ms });
        let (mut gated, _) = begun.gate(&records, &decoded);
        gated.answer(replayed(now().plus(-ago_ms)));
        let owed = begun.owed(&gated);
        assert_eq!(owed.iter().map(|owed| owed.tokens).sum::<u64>(), tokens, "{span} {outcome:?} {ago_ms} ms ago");
        assert!(owed.iter().all(|owed| (owed.admitted_ago_ms, owed.judged_at) == (ago_ms, PASSED)), "{owed:?}");
    }
}

#[test]
fn no_budget_denies_a_replay_whether_it_is_spent_or_unavailable_and_whether_it_has_counted_it() {
    let records = one();
    let cases = [("wait", Outcome::Denied(0)), ("suppress", Outcome::Denied(0)), ("suppress", Outcome::Unavailable(0))];
    for (on_unavailable, outcome) in cases {
        for counted_for_ms in [None, Some(0), Some(i64::MAX)] {
            let mut begun = decider(&format!("{BUDGET}on_unavailable = \"{on_unavailable}\"\n")).begin_batch(now());
            begun.look_up(ReadBefore::All);
            let decoded = begun.decode(&records);
            begun.claim(&records, &decoded, PASSED, PATIENCE).unwrap();
            let (outcomes, counted_for_ms) = (vec![outcome], vec![counted_for_ms]);
            begun.claimed(Answers { outcomes, spent: vec![None], leases: vec![None], counted_for_ms });
            let (mut gated, _) = begun.gate(&records, &decoded);
            let before = now().plus(-60_000);
            gated.answer(replayed(before));
            let decision = begun.decision(&gated, 0);
            let found = (decision.verdict, decision.decided_at);
            assert_eq!(found, (Verdict::Approved(Counts::Yes), before), "{on_unavailable} {outcome:?}");
            assert!(!begun.fate(&gated, 0).waits());
        }
    }
}

#[test]
fn what_a_bypass_exempts_from_being_recorded_is_looked_up_and_not_waited_for() {
    let expired = r#"{"id":"1","user_id":"u","category":"receipt","expires_at":1}"#.to_owned();
    let capped = r#"{"id":"2","user_id":"u","expires_at":1}"#.to_owned();
    let records = Campaigns(vec![expired, capped]);
    let mut begun = decider("[[bypass]]\ncategory = \"receipt\"\ncounts = false\n").begin_batch(now());
    begun.look_up(ReadBefore::All);
    let decoded = begun.decode(&records);
    let (mut gated, _) = begun.gate(&records, &decoded);
    let outcomes: Vec<UnavailableOutcome> = begun.fallback(&gated).iter().copied().collect();
    assert_eq!(outcomes, [UnavailableOutcome::GivenUp, UnavailableOutcome::Wait]);
    assert!(!begun.gives_up(&gated), "the second one has to be waited for");
    gated.answer(vec![None, replayed(now())[0]]);
    assert!(begun.gives_up(&gated));
    gated.answer(vec![replayed(now())[0]; 2]);
    let approved = [0, 1].map(|index| begun.decision(&gated, index).verdict.is_approved());
    assert_eq!(approved, [true, true], "an earlier policy had it recorded");
}
