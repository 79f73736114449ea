//! Single promises, worked out by hand.

use super::super::*;
use crate::limit::budget::{
    SpanNow,
    ledger::{CountId, TakeAnswer, TakeTurn},
};

/// Its leases last 5 s.
const WINDOW_MS: i64 = 500_000;
/// A refill asks for a thousandth of it, 10 tokens, at first.
pub(super) const LIMIT: u64 = 10_000;

pub(super) fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// What the first turn follows.
pub(super) fn first_run() -> TurnNumber {
    TurnNumber { run: 1, number: 0 }
}

pub(super) fn used(name: &str) -> BudgetUse {
    let (id, span) = (BudgetId { name: name.into(), campaign: None }, SpanNow::Rolling { window_ms: WINDOW_MS });
    BudgetUse { id, limit: LIMIT, span, best_effort: true, unavailable_after: None }
}

/// Intents of cost 1 that take from all of these budgets.
pub(super) fn claim(budgets: Vec<BudgetUse>, intents: usize, judged_at: Duration) -> Claim {
    let all = (0..u32::try_from(budgets.len()).unwrap()).collect();
    Claim { judged_at, budgets, sets: vec![all], wants: vec![Want { set: 0, cost: 1 }; intents] }
}

/// A claim of intents of cost 1 that take from `a`.
pub(super) fn asks(leases: &mut Leases, ticket: u64, intents: usize, now: Duration) -> Claimed {
    leases.claim(Ticket(ticket), &claim(vec![used("a")], intents, now), now)
}

#[track_caller]
pub(super) fn answers(claimed: Claimed) -> Answers {
    let Claimed::Answered(answers) = claimed else { panic!("it is pending") };
    answers
}

#[track_caller]
pub(super) fn outcomes(claimed: Claimed) -> Vec<Outcome> {
    answers(claimed).outcomes
}

/// The only call that is due has this answer then.
fn reply(leases: &mut Leases, answer: Result<TakeAnswer, Refused>, sent_at: Duration, now: Duration) -> TakeTurn {
    let DueTurn { call, turn, .. } = due_turn(leases, sent_at);
    leases.answered(call, answer, sent_at, now);
    turn
}

pub(super) fn due_turn(leases: &mut Leases, now: Duration) -> DueTurn {
    let mut due = leases.due(now, first_run);
    assert_eq!(due.turns.len(), 1, "{due:?}");
    due.turns.remove(0)
}

/// What goes back in the turns that are due, which are answered.
fn returned(leases: &mut Leases, now: Duration) -> Vec<u64> {
    let mut tokens = Vec::new();
    for DueTurn { call, turn, .. } in leases.due(now, first_run).turns {
        tokens.extend(turn.back.iter().map(|back| back.tokens));
        leases.answered(call, granted(turn.want), now, now);
    }
    tokens
}

/// An answer without tokens.
pub(super) fn answer(used: u64, leased: u64, bucket: i64, free_in_ms: Option<i64>) -> TakeAnswer {
    TakeAnswer { granted: 0, used, leased, bucket, free_in_ms, counted_for_ms: 0, count_id: CountId(1) }
}

pub(super) fn granted(tokens: u64) -> Result<TakeAnswer, Refused> {
    Ok(TakeAnswer { granted: tokens, ..answer(tokens, tokens, 7, Some(0)) })
}

/// Leases at which this claim waits for the ledger.
fn waiting(claim: &Claim) -> Leases {
    let mut leases = Leases::new(10);
    assert_eq!(leases.claim(Ticket(1), claim, claim.judged_at), Claimed::Pending);
    leases
}

/// Leases that hold as many tokens of `name` as the ledger granted at `now`, for 5 s.
pub(super) fn holding(name: &str, tokens: u64, now: Duration) -> Leases {
    let mut leases = waiting(&claim(vec![used(name)], usize::try_from(tokens).unwrap(), now));
    let request = reply(&mut leases, granted(tokens), now, now);
    assert_eq!((request.need, request.lease_ms), (tokens, 5_000));
    leases.cancel(Ticket(1));
    leases
}

#[test]
fn tokens_reserved_for_a_ticket_are_not_taken_by_a_later_one() {
    let mut leases = waiting(&claim(vec![used("a")], 10, at(0)));
    assert_eq!(reply(&mut leases, granted(10), at(0), at(5)).need, 10);
    // As many as the first has reserved are held: the second may not have one of them.
    assert_eq!(asks(&mut leases, 2, 5, at(6)), Claimed::Pending);
    assert_eq!(leases.ready(at(6)), [Ticket(1)]);
    assert_eq!(outcomes(asks(&mut leases, 1, 10, at(7))), [Outcome::Granted; 10]);
    assert_eq!(reply(&mut leases, granted(5), at(7), at(8)).need, 5);
    assert_eq!(leases.ready(at(8)), [Ticket(2)]);
}

#[test]
fn for_how_long_a_budget_is_counted_goes_by_the_clock_of_its_claims() {
    let mut leases = Leases::new(10);
    let counted_for = |claimed: Claimed| answers(claimed).counted_for_ms;
    let unasked = claim(vec![BudgetUse { limit: 0, ..used("a") }], 1, at(0));
    assert_eq!(counted_for(leases.claim(Ticket(1), &unasked, at(0))), [None]);
    let sent_at = Duration::from_micros(400);
    assert_eq!(leases.claim(Ticket(2), &claim(vec![used("b")], 10, sent_at), sent_at), Claimed::Pending);
    reply(&mut leases, granted(10).map(|answer| TakeAnswer { counted_for_ms: 60_000, ..answer }), sent_at, at(5));
    let judged_at = at(10) + Duration::from_micros(200);
    let claimed = leases.claim(Ticket(2), &claim(vec![used("b")], 10, judged_at), judged_at);
    assert_eq!(counted_for(claimed), [Some(60_011)], "never too short");
}

#[test]
fn a_spent_budget_grants_what_it_had_and_denies_at_once_until_it_frees() {
    let mut leases = waiting(&claim(vec![used("a")], 3, at(0)));
    reply(&mut leases, Ok(TakeAnswer { granted: 2, ..answer(LIMIT, 2, 7, Some(4_000)) }), at(0), at(5));
    let Answers { outcomes: all, spent, .. } = answers(asks(&mut leases, 1, 3, at(6)));
    assert_eq!(all, [Outcome::Granted, Outcome::Granted, Outcome::Denied(0)]);
    assert_eq!(spent, [Some(Spent { used: LIMIT, free_at: Some(at(4_005)) })]);

    assert_eq!(outcomes(asks(&mut leases, 2, 1, at(100))), [Outcome::Denied(0)]);
    assert!(leases.due(at(4_004), first_run).turns.is_empty(), "the ledger is not asked before");
    assert_eq!(asks(&mut leases, 3, 1, at(4_005)), Claimed::Pending);
    due_turn(&mut leases, at(4_005));
}

#[test]
fn a_budget_that_never_frees_is_asked_for_again_every_minute_since_a_rebuild_may_have_counted_it_again() {
    let total = || BudgetUse { span: SpanNow::Total, ..used("a") };
    let one = |now| claim(vec![total()], 1, now);
    let mut leases = waiting(&one(at(0)));
    reply(&mut leases, Ok(answer(LIMIT, 0, 0, None)), at(0), at(0));
    // Claimed all the while, so that it is not forgotten.
    for second in 0..60 {
        let now = at(second * 1_000);
        let Answers { outcomes, spent, .. } = answers(leases.claim(Ticket(1), &one(now), now));
        assert_eq!(outcomes, [Outcome::Denied(0)]);
        assert_eq!(spent, [Some(Spent { used: LIMIT, free_at: None })]);
        assert!(leases.due(now, first_run).turns.is_empty());
    }
    assert_eq!(leases.claim(Ticket(2), &one(at(60_000)), at(60_000)), Claimed::Pending);
    assert_eq!(reply(&mut leases, granted(1), at(60_000), at(60_001)).need, 1);
    assert_eq!(outcomes(leases.claim(Ticket(2), &one(at(60_002)), at(60_002))), [Outcome::Granted]);
}

#[test]
fn an_intent_that_costs_more_than_the_limit_is_denied_for_ever() {
    let small = BudgetUse { limit: 4, ..used("a") };
    let claim = Claim { wants: vec![Want { set: 0, cost: 5 }], ..claim(vec![small], 0, at(0)) };
    let answers = answers(Leases::new(10).claim(Ticket(1), &claim, at(0)));
    assert_eq!(answers.outcomes, [Outcome::Denied(0)]);
    assert_eq!(answers.spent, [Some(Spent { used: 0, free_at: None })]);
}

/// A claim of `a` by a limit of all time.
fn of(limit: u64, intents: usize, now: Duration) -> Claim {
    claim(vec![BudgetUse { limit, span: SpanNow::Total, ..used("a") }], intents, now)
}

#[test]
fn tokens_of_a_limit_that_a_lower_one_follows_go_back_though_their_lease_lasts_also_once_it_was_used_once_more() {
    let mut leases = waiting(&of(LIMIT, 10, at(0)));
    assert_eq!(reply(&mut leases, granted(10), at(0), at(0)).lease_ms, 60_000);
    leases.cancel(Ticket(1));
    assert_eq!(leases.claim(Ticket(2), &of(5, 5, at(1_000)), at(1_000)), Claimed::Pending);
    reply(&mut leases, Ok(answer(10, 10, 0, None)), at(1_000), at(1_000));
    assert_eq!(outcomes(leases.claim(Ticket(2), &of(5, 5, at(1_000)), at(1_000))), [Outcome::Denied(0); 5]);
    // By a lane that has the policy of before yet.
    assert_eq!(outcomes(leases.claim(Ticket(3), &of(LIMIT, 1, at(2_000)), at(2_000))), [Outcome::Granted]);
    assert_eq!(outcomes(leases.claim(Ticket(4), &of(5, 1, at(3_000)), at(3_000))), [Outcome::Denied(0)]);
    assert!(leases.due(at(6_999), first_run).turns.is_empty());
    assert_eq!(returned(&mut leases, at(7_000)), [9]);
}

#[test]
fn a_call_without_an_answer_is_repeated_as_it_is_before_another_and_its_lease_ends_by_when_it_was_sent_first() {
    let mut leases = waiting(&claim(vec![used("a")], 10, at(0)));
    let first = due_turn(&mut leases, at(0));
    leases.answered(first.call, Err(Refused), at(0), at(1_000));
    // Others need more meanwhile.
    assert_eq!(asks(&mut leases, 2, 500, at(1_000)), Claimed::Pending);
    assert!(leases.due(at(1_050), first_run).turns.is_empty(), "there is a pause");
    let repeated = due_turn(&mut leases, at(1_100));
    assert_eq!((repeated.number, &repeated.turn), (first.number, &first.turn));
    leases.answered(repeated.call, granted(10), at(1_100), at(1_200));
    assert_eq!(outcomes(asks(&mut leases, 1, 10, at(1_200))), [Outcome::Granted; 10]);
    let next = due_turn(&mut leases, at(1_200));
    assert!(next.number > first.number && next.turn.need == 500, "{next:?}");
    leases.answered(next.call, granted(500), at(1_200), at(1_300));
    assert_eq!(outcomes(asks(&mut leases, 2, 500, at(1_300))), [Outcome::Granted; 500]);
}

#[test]
fn what_replays_owe_goes_with_the_next_turn_for_tokens_of_the_same_limit() {
    let mut leases = waiting(&claim(vec![used("a")], 10, at(0)));
    let owed = |limit, tokens| Owed::of(BudgetUse { limit, ..used("a") }, tokens, at(0), 1_000);
    leases.owe(vec![owed(LIMIT, 3), owed(5, 4)]);
    let owes = |due: &DueTurn| due.turn.owed.iter().map(|owed| owed.tokens).collect::<Vec<_>>();
    let first = due_turn(&mut leases, at(0));
    assert_eq!((first.turn.need, owes(&first)), (10, vec![3]));
    leases.answered(first.call, Err(Refused), at(0), at(0));
    leases.cancel(Ticket(1));
    let repeated = due_turn(&mut leases, at(100));
    assert_eq!((repeated.number, owes(&repeated)), (first.number, vec![3]));
    leases.answered(repeated.call, granted(10), at(100), at(100));
    let other = due_turn(&mut leases, at(100));
    assert_eq!((other.turn.want, other.turn.limit, owes(&other)), (0, 5, vec![4]));
}

#[test]
fn behind_a_turn_that_nobody_here_knows_of_a_turn_comes_to_nothing_and_another_one_is_of_a_later_run() {
    let mut leases = holding("a", 10, at(0));
    leases.owe(vec![Owed::of(used("a"), 3, at(0), 1_000)]);
    assert_eq!(asks(&mut leases, 2, 10, at(5_000)), Claimed::Pending);
    let behind = due_turn(&mut leases, at(5_000));
    assert_eq!((behind.number.run, behind.turn.need, behind.turn.back.len(), behind.turn.owed.len()), (1, 10, 1, 1));
    leases.overtaken(behind.call, 7);
    let again = due_turn(&mut leases, at(5_000));
    assert_eq!((again.number.run, again.turn.need, again.turn.back.len(), again.turn.owed.len()), (7, 10, 0, 1));
    // The clock was set back.
    leases.overtaken(again.call, 3);
    let last = due_turn(&mut leases, at(5_000));
    assert!(last.number.run == 8 && last.number > again.number && again.number > behind.number, "{last:?}");
    leases.answered(last.call, granted(10), at(5_000), at(5_001));
    assert_eq!(outcomes(asks(&mut leases, 2, 10, at(5_001))), [Outcome::Granted; 10]);
}

#[test]
fn a_turn_that_is_repeated_after_half_an_hour_gives_nothing_back() {
    let mut leases = holding("a", 10, at(0));
    let first = due_turn(&mut leases, at(5_000));
    assert_eq!(first.turn.back.len(), 1);
    leases.answered(first.call, Err(Refused), at(5_000), at(5_000));
    let late = due_turn(&mut leases, at(5_000 + 30 * 60_000));
    assert_eq!((late.number, late.turn.back.len()), (first.number, 0), "the ledger may know it no more");
}

/// A budget of the shortest window: its lease is 100 ms at first.
fn short(name: &str) -> BudgetUse {
    BudgetUse { span: SpanNow::Rolling { window_ms: 10_000 }, ..used(name) }
}

#[test]
fn a_lease_that_ends_before_the_ledger_answers_is_longer_the_next_time_and_shorter_again_once_spent() {
    let one = |now| claim(vec![short("a")], 10, now);
    let (mut now, mut lengths) = (0, Vec::new());
    let mut leases = waiting(&one(at(now)));
    while leases.ready(at(now)).is_empty() {
        let DueTurn { call, turn, .. } = due_turn(&mut leases, at(now));
        lengths.push(turn.lease_ms);
        leases.answered(call, granted(10), at(now), at(now + 700));
        now += 700;
        assert!(lengths.len() < 10, "it is never granted: {lengths:?}");
    }
    assert_eq!(lengths, [100, 200, 400, 800]);
    // Of a lease that has just enough, the next one is as long; and half as long where it was spent early, or in part.
    for (answered_after, length) in [(700, 800), (20, 800), (20, 400)] {
        assert_eq!(outcomes(leases.claim(Ticket(1), &one(at(now)), at(now))), [Outcome::Granted; 10]);
        assert_eq!(leases.claim(Ticket(1), &one(at(now)), at(now)), Claimed::Pending);
        assert_eq!(reply(&mut leases, granted(10), at(now), at(now + answered_after)).lease_ms, length);
        now += answered_after;
    }
    assert_eq!(outcomes(leases.claim(Ticket(1), &claim(vec![short("a")], 1, at(now)), at(now))), [Outcome::Granted]);
    now += 10_000;
    assert_eq!(returned(&mut leases, at(now)), [9]);
    assert_eq!(leases.claim(Ticket(1), &one(at(now)), at(now)), Claimed::Pending);
    assert_eq!(due_turn(&mut leases, at(now)).turn.lease_ms, 200);
}

#[test]
fn tokens_are_renewed_once_after_the_last_claim_and_what_is_left_of_leases_goes_back_with_the_next_turn() {
    let mut leases = holding("a", 10, at(0));
    assert_eq!(outcomes(asks(&mut leases, 2, 1, at(1_000))), [Outcome::Granted]);
    let renewal = reply(&mut leases, granted(10), at(4_500), at(4_500));
    assert_eq!((renewal.want, renewal.back.len()), (10, 0));
    assert_eq!(outcomes(asks(&mut leases, 3, 1, at(4_900))), [Outcome::Granted]);
    assert!(leases.due(at(5_000), first_run).turns.is_empty(), "the first lease has ended: there is a turn soon");
    let renewal = reply(&mut leases, granted(5), at(9_000), at(9_000));
    assert_eq!((renewal.want, renewal.back[0].tokens), (5, 8), "half as many: most of them were not spent");
    for now in [9_500, 9_899] {
        assert!(leases.due(at(now), first_run).turns.is_empty(), "the second has ended: there may be a turn soon");
    }
    assert_eq!(returned(&mut leases, at(9_900)), [10], "nobody has claimed for as long as a lease lasts");
    assert!(leases.due(at(13_500), first_run).turns.is_empty());
    assert_eq!(returned(&mut leases, at(14_000)), [5]);
}

#[test]
fn what_is_left_of_a_large_lease_goes_back_when_intents_no_longer_come_and_not_only_with_the_next_turn() {
    let mut leases = holding("a", 100, at(0));
    assert_eq!(outcomes(asks(&mut leases, 2, 1, at(4_000))), [Outcome::Granted]);
    assert_eq!(reply(&mut leases, granted(10), at(4_500), at(4_500)).want, 10);
    for now in [5_000, 8_999] {
        assert!(leases.due(at(now), first_run).turns.is_empty(), "there is a turn soon, while intents come");
    }
    assert_eq!(returned(&mut leases, at(9_000)), [99]);
    assert_eq!(leases.states()[0].held, 10, "a first refill stays");
}

#[test]
fn a_batch_of_budgets_whose_answers_are_further_apart_than_their_leases_gets_them_all_in_the_end() {
    let both = |now| claim(vec![short("a"), short("b")], 1, now);
    let mut leases = waiting(&both(at(0)));
    // The ledger answers one call at a time, and takes 90 ms for each.
    let mut tokens_ended = 0;
    for now in (0..).step_by(90).map(at) {
        if leases.ready(now) == [Ticket(1)] {
            assert_eq!(outcomes(leases.claim(Ticket(1), &both(now), now)), [Outcome::Granted]);
            break;
        }
        let mut sent_at = now;
        for DueTurn { call, turn, .. } in leases.due(now, first_run).turns {
            tokens_ended += turn.back.len();
            let answered_at = sent_at + at(90);
            leases.answered(call, granted(turn.want), now, answered_at);
            sent_at = answered_at;
        }
        assert!(now < at(10_000), "it is never granted");
    }
    assert!(tokens_ended > 0, "the first leases were too short");
}

#[test]
fn a_refill_is_larger_when_the_last_one_was_used_up_and_smaller_when_it_was_not() {
    let mut leases = holding("a", 10, at(0));
    assert_eq!(outcomes(asks(&mut leases, 2, 10, at(1))), [Outcome::Granted; 10]);
    let request = reply(&mut leases, granted(15), at(1), at(2));
    assert_eq!((request.need, request.want), (0, 15), "ahead of need, and half as much again");
    // Nobody claims it; when the lease has ended, half of it is asked for.
    assert_eq!(returned(&mut leases, at(5_001)), [15]);
    assert_eq!(asks(&mut leases, 3, 1, at(5_100)), Claimed::Pending);
    let request = due_turn(&mut leases, at(5_100)).turn;
    assert_eq!((request.need, request.want), (1, 7));
}

/// What an instance holds of a small limit when no more of a campaign comes to it is denied to all others.
#[test]
fn a_first_batch_asks_for_what_it_needs_alone_and_later_ones_for_a_fiftieth_of_the_limit_more_at_most() {
    let mut leases = Leases::new(10);
    for (batch, ahead) in [(1, None), (2, Some(LIMIT / 50))] {
        assert_eq!(asks(&mut leases, batch, 600, at(batch)), Claimed::Pending);
        let needed = reply(&mut leases, granted(600), at(batch), at(batch));
        assert_eq!((needed.need, needed.want), (600, 600));
        assert_eq!(outcomes(asks(&mut leases, batch, 600, at(batch))), [Outcome::Granted; 600]);
        assert_eq!(leases.due(at(batch), first_run).turns.first().map(|due| due.turn.want), ahead);
    }
}

/// An instance that is killed loses what it holds.
#[test]
fn no_more_is_held_than_a_second_spends_and_a_small_refill_and_calls_are_rare() {
    const BATCH: usize = 500;
    const PER_S: u64 = 50_000;
    let mut leases = Leases::new(10);
    let large = || BudgetUse { limit: 1_000_000_000, span: SpanNow::Total, ..used("a") };
    let (mut calls, mut most_held) = (0, 0);
    let mut answer_all = |leases: &mut Leases, now| {
        for DueTurn { call, turn, .. } in leases.due(now, first_run).turns {
            calls += 1;
            leases.answered(call, Ok(TakeAnswer { granted: turn.want, ..answer(turn.want, 0, 0, Some(0)) }), now, now);
        }
    };
    let batches = 0..5 * PER_S / BATCH as u64;
    for batch in batches.clone() {
        let now = at(batch * 1_000 * BATCH as u64 / PER_S);
        while leases.claim(Ticket(batch), &claim(vec![large()], BATCH, now), now) == Claimed::Pending {
            answer_all(&mut leases, now);
        }
        answer_all(&mut leases, now);
        most_held = leases.states()[0].held.max(most_held);
    }
    assert!((PER_S / 2..PER_S + 3_000).contains(&most_held), "{most_held} are held");
    assert!(calls * 1_000 <= batches.end * BATCH as u64, "{calls} calls for {} decisions", batches.end * BATCH as u64);
}

#[test]
fn a_refill_ahead_of_need_shrinks_below_a_thousandth_of_the_limit_and_what_is_needed_comes_in_whole_units() {
    let large = || BudgetUse { limit: 1_000_000, best_effort: false, ..used("a") };
    let mut leases = waiting(&claim(vec![large()], 1, at(0)));
    let request = reply(&mut leases, granted(1_000), at(0), at(0));
    assert_eq!((request.need, request.want, request.unit, request.least), (1_000, 1_000, 1_000, 1_000));
    // One a second is spent, so that each lease ends nearly whole.
    let mut want = 1_000;
    for second in 0..60 {
        let now = second * 1_000;
        let found = outcomes(leases.claim(Ticket(1), &claim(vec![large()], 1, at(now)), at(now)));
        assert_eq!(found, [Outcome::Granted], "nobody waits");
        let mut next = at(now);
        while next < at(now + 1_000) {
            let due = leases.due(next, first_run);
            for DueTurn { call, turn, .. } in due.turns {
                assert_eq!((turn.need, turn.unit, turn.least), (0, 1, 1));
                want = if turn.want > 0 { turn.want } else { want };
                leases.answered(call, granted(turn.want), next, next);
            }
            next = due.next_at.unwrap_or(at(now + 1_000));
        }
    }
    assert!(want < 20, "{want} for about 5 that are spent in a lease");
}

#[test]
fn tokens_are_refilled_before_their_lease_ends_so_that_a_batch_does_not_wait_for_that() {
    let mut leases = holding("a", 10, at(0));
    assert_eq!(outcomes(asks(&mut leases, 2, 1, at(3_000))).len(), 1);
    let due = leases.due(at(3_000), first_run);
    assert_eq!((due.turns.len(), due.next_at), (0, Some(at(4_500))));
    assert!(leases.due(at(4_499), first_run).turns.is_empty());
    let request = reply(&mut leases, granted(10), at(4_500), at(4_510));
    assert_eq!((request.need, request.want, request.held), (0, 10, 9));
    assert_eq!(outcomes(asks(&mut leases, 3, 10, at(5_000))), [Outcome::Granted; 10]);
}

#[test]
fn an_unavailable_budget_is_told_to_those_who_do_not_wait_for_it() {
    let patient = claim(vec![used("a")], 1, at(0));
    let mut leases = waiting(&patient);
    let hasty = |now| claim(vec![BudgetUse { unavailable_after: Some(at(1_000)), ..used("a") }], 1, now);
    assert_eq!(leases.claim(Ticket(2), &hasty(at(0)), at(0)), Claimed::Pending);
    reply(&mut leases, Err(Refused), at(0), at(10));
    assert!(leases.ready(at(1_009)).is_empty());
    assert!(leases.due(at(20), first_run).next_at <= Some(at(1_010)), "it is looked at again in time");
    assert_eq!(leases.ready(at(1_010)), [Ticket(2)]);
    assert_eq!(outcomes(leases.claim(Ticket(2), &hasty(at(1_010)), at(1_010))), [Outcome::Unavailable(0)]);
    assert_eq!(leases.claim(Ticket(1), &patient, at(1_010)), Claimed::Pending);
}

#[test]
fn beyond_the_most_budgets_the_least_recently_claimed_lease_is_given_back() {
    let mut leases = holding("a", 10, at(0));
    for n in 0..10 {
        assert_eq!(outcomes(leases.claim(Ticket(2 + n), &claim(vec![used(&format!("b{n}"))], 0, at(1)), at(1))), []);
    }
    let turns = leases.due(at(1), first_run).turns;
    let back = turns.iter().flat_map(|due| due.turn.back.iter().map(|back| (&*due.budget.name, back.tokens)));
    assert_eq!(back.collect::<Vec<_>>(), [("a", 10)]);
    assert_eq!(leases.states().len(), 10);
}

#[test]
fn a_process_that_stops_gives_everything_back_and_grants_nothing_more() {
    let mut leases = holding("a", 10, at(0));
    let taken = answers(asks(&mut leases, 2, 4, at(1))).leases;
    leases.close(at(1));
    assert_eq!(returned(&mut leases, at(1)), [6]);
    assert!(leases.is_settled());
    assert_eq!(asks(&mut leases, 3, 1, at(2)), Claimed::Pending);
    leases.put_back(&[(used("a").id, taken[0].unwrap(), 4)], at(3));
    assert_eq!(returned(&mut leases, at(3)), [4]);
}

#[test]
fn a_live_budget_takes_half_a_kilobyte_of_memory() {
    use std::mem::size_of;
    // Two grants, a hash table that is half full, a place in a tree that is two thirds full, and the counts of a shared id.
    let grants = 2 * size_of::<held::Grant>();
    let found = 2 * (size_of::<std::sync::Arc<BudgetId>>() + size_of::<u32>() + 1) + 16 * 3 / 2;
    let id = size_of::<BudgetId>() + 16;
    let bytes = size_of::<Option<holding::Holding>>() + size_of::<stock::Stock>() + id + grants + found;
    assert!(bytes <= 512, "{bytes} bytes");
}
