//! The tokens of budgets: who grants them, and which go back.

use std::sync::atomic::Ordering::Relaxed;

use weir_core::{
    basis::shard::IdHash,
    limit::{
        budget::{
            SpanNow,
            lease::BudgetUse,
            ledger::{BudgetTokens, LooksAtBudgets as _, TakeAnswer, TakeTurn},
        },
        share::TurnNumber,
    },
    ports::{Share, embedded::EmbeddedStore},
};

use super::*;

/// The ledger of budgets, which may be away.
#[derive(Clone)]
pub(super) struct Tokens {
    pub(super) ledger: EmbeddedLedger,
    pub(super) are_away: Arc<AtomicBool>,
}

impl Share<BudgetTokens> for Tokens {
    async fn turn(&mut self, budget: &BudgetId, number: TurnNumber, turn: &TakeTurn) -> Result<TakeAnswer, StoreError> {
        if self.are_away.load(Relaxed) {
            return Err(is_silent());
        }
        self.ledger.turn(budget, number, turn).await
    }
}

/// A ledger whose clock is a minute ahead of the system's.
pub(super) fn ledger() -> EmbeddedLedger {
    EmbeddedLedger::new("only", || SystemClock.now().plus(60_000))
}

/// More than there are intents.
const ENOUGH: u64 = 1_000_000;
/// Bypasses that do not count are in no history, and take tokens again where they are decided again: some of the intents, and all of them.
pub(super) const BYPASS: &str = "[[bypass]]\nchannel = \"c2\"\ncounts = false\n";
pub(super) const BYPASS_ALL: &str = "[[bypass]]\nchannel = [\"c0\", \"c1\", \"c2\"]\ncounts = false\n";

/// A budget that is enough for all, and what else it has.
pub(super) fn budget(more: &str) -> String {
    format!("[[budgets]]\nname = \"all\"\nlimit = {ENOUGH}\ntotal = true\nbest_effort = true\n{more}")
}

/// How much of the budget is used.
pub(super) fn used(mut ledger: EmbeddedLedger) -> u64 {
    let (id, span) = (BudgetId { name: "all".into(), campaign: None }, SpanNow::Total);
    let look = [BudgetUse { id, limit: ENOUGH, span, best_effort: true, unavailable_after: None }];
    let mut answers = [None];
    let looked = ledger.look(&look, 1, &mut answers);
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(looked).unwrap();
    answers[0].unwrap().used
}

/// A world whose policy has a budget for all and this bypass, and how much of the budget is used.
fn funded(bypass: &str) -> (World, impl FnOnce() -> u64) {
    let ledger = ledger();
    let (rules, tokens) = (budget(bypass), Some(ledger.clone()));
    (World { rules, tokens, ..World::default() }, move || used(ledger))
}

#[test]
fn an_intent_pays_once_however_often_the_store_is_asked_until_it_answers() {
    // It fails for some calls, and records all the same or not, by a clock that moves on with each call.
    let pays_once = |with: fn() -> StoreError, records: bool| {
        let ((world, used), clock) = (funded(""), Noon::default());
        let (mut calls, mut recorded) = (0, BTreeMap::new());
        let fails = store(|batch, answers| {
            calls += 1;
            clock.0.fetch_add(1, Relaxed);
            let fails = calls <= 5;
            for (request, answer) in batch.requests.iter().zip(answers).filter(|_| !fails || records) {
                let found = record(&mut recorded, request.id.0, batch.now);
                *answer = (!fails).then_some(found);
            }
            if fails { Err(with()) } else { Ok(()) }
        });
        done(run_by(clock.clone(), fails, world));
        assert_eq!(used(), RECORDS.unsigned_abs(), "recorded: {records}");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| pays_once(is_silent, false));
        scope.spawn(|| pays_once(is_silent, true));
        scope.spawn(|| pays_once(has_lost_its_history, false));
        scope.spawn(|| pays_once(refuses, false));
    });
}

#[test]
fn the_last_intents_of_a_budget_are_not_denied_for_want_of_tokens_that_their_batch_has_kept() {
    let ledger = ledger();
    let enough_for_all = budget("").replace(&ENOUGH.to_string(), &RECORDS.to_string());
    // They do not expire; where they may, the sink leaves it to the test what is approved.
    let expires_at = Some("2026-11-22T12:00:00Z");
    let world = World { rules: enough_for_all, tokens: Some(ledger.clone()), expires_at, ..World::default() };
    // The store does not answer when it is asked for the last intent for the first time.
    let (mut was_silent, recorded) = (false, EmbeddedStore::new(86_400_000_i64));
    let last = IdHash::of(&format!("i-{}", RECORDS - 1));
    let silent_at_the_end = store(|batch, answers| {
        let is_last = batch.requests.iter().any(|request| request.id == last);
        if is_last && !std::mem::replace(&mut was_silent, true) {
            return Err(is_silent());
        }
        recorded.admit_each(batch, &vec![batch.now; batch.requests.len()], answers);
        Ok(())
    });
    let world = done(run_with(silent_at_the_end, world));
    let committed = world.ledger.read().unwrap();
    let approved = committed.outputs.values().filter(|(to, _)| *to == Destination::APPROVED).count();
    assert_eq!((approved, used(ledger)), (RECORDS as usize, RECORDS.unsigned_abs()));
}

#[test]
fn what_a_shard_without_its_history_or_one_that_refuses_was_asked_for_pays_nothing() {
    for with in [has_lost_its_history, refuses] {
        let ((world, used), mut calls) = (funded(""), 0);
        let stop = world.stop.clone();
        let records_nothing = store(move |_, _| {
            calls += 1;
            if calls == 2 {
                stop.cancel();
            }
            Err(with())
        });
        let (end, world) = run_with(records_nothing, world);
        end.unwrap();
        assert!(world.visible.is_empty());
        assert_eq!(used(), 0, "{}", with());
    }
}

#[test]
fn tokens_of_what_is_not_recorded_are_spent_once_whatever_becomes_of_commits_and_partitions() {
    let (refused, unclear) = ([Fate::Refused; 3], [Fate::Unclear; 3]);
    for (commits, revoke_every) in
        [(refused, None), (unclear, None), ([Fate::Unclear, Fate::Refused, Fate::Unclear], Some(7))]
    {
        let (world, used) = funded(BYPASS_ALL);
        done(run(World { commits: commits.into(), revoke_every, ..world }));
        assert_eq!(used(), RECORDS.unsigned_abs());
    }
}

/// The last batch is handed over when the lane ends, and may be visible.
#[test]
fn tokens_of_a_batch_whose_commit_nobody_waits_for_any_more_stay_spent() {
    let (world, used) = funded(BYPASS_ALL);
    let (end, world) = run(World { commits: [Fate::Hangs].into(), ..world });
    end.unwrap();
    assert!(world.visible.is_empty());
    assert_eq!(used(), BATCH as u64, "and those of a batch that was not handed over went back");
}
