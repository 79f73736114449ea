//! The tokens of budgets: who grants them, and which go back.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use weir_core::{
    basis::{shard::IdHash, zone::Zone},
    history::decide::Scope,
    intent::class::Filter,
    limit::{
        budget::{
            BudgetSpan, WhenUnavailable,
            ledger::{BudgetTokens, LooksAtBudgets as _, TakeAnswer, TakeTurn},
        },
        share::TurnNumber,
    },
    policy::{Action, Selection},
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

pub(super) fn of_channel(name: &str) -> Selection {
    Selection { filter: Filter { channels: Some([name.to_owned()].into()), categories: None }, campaigns: None }
}

/// A budget that is never spent.
pub(super) fn budget(selection: Selection, on_unavailable: WhenUnavailable) -> Budget {
    Budget {
        name: "all".into(),
        selection,
        scope: Scope::Every,
        limit: 1_000_000,
        span: BudgetSpan::Total,
        best_effort: true,
        when_spent: Action::Suppress,
        on_unavailable,
    }
}

/// How much of a budget is used.
pub(super) fn used(budget: &Budget, mut ledger: EmbeddedLedger) -> u64 {
    let id = BudgetId { name: Arc::clone(&budget.name), campaign: None };
    let (look, mut answers) = ([budget.used_by(id, &Zone::utc(), noon())], [None]);
    let looked = ledger.look(&look, 1, &mut answers);
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(looked).unwrap();
    answers[0].unwrap().used
}

/// A world whose policy has a budget for all, and how much of that is used.
fn funded() -> (World, impl FnOnce() -> u64) {
    let (budget, ledger) = (budget(Selection::default(), WhenUnavailable::Wait), ledger());
    let world = World { budgets: vec![budget.clone()], tokens: Some(ledger.clone()), ..World::default() };
    (world, move || used(&budget, ledger))
}

/// All are bypasses that do not count: they are in no history, and take tokens again where they are decided again.
fn uncounted() -> Vec<Bypass> {
    vec![Bypass { selection: Selection::default(), counts: Counts::No }]
}

/// The first call tells the lane to stop, and is never answered.
struct Hangs<'a> {
    stop: CancellationToken,
    asked: &'a AtomicUsize,
}

impl Store for Hangs<'_> {
    async fn admit(&mut self, batch: &AdmitBatch<'_>, _: &mut [Option<Answer>]) -> Result<(), StoreError> {
        self.asked.store(batch.requests.len(), Relaxed);
        self.stop.cancel();
        std::future::pending().await
    }

    fn shards(&self) -> u16 {
        1
    }

    fn watch(&mut self, away: &BTreeSet<u16>) -> Vec<u16> {
        never_given_up(away)
    }

    async fn record(&mut self, _: &[DeferredSend], _: Time) -> Result<(), StoreError> {
        unreachable!("nothing is owed")
    }
}

#[test]
fn a_lane_that_is_told_to_stop_while_the_store_is_asked_gives_back_the_tokens_of_what_it_has_not_asked_for() {
    let (world, used) = funded();
    // It is never asked for a bypass that does not count, and may have recorded all others.
    let bypass = vec![Bypass { selection: of_channel("c2"), counts: Counts::No }];
    let asked = AtomicUsize::new(0);
    let store = Hangs { stop: world.stop.clone(), asked: &asked };
    let (end, world) = run_with(store, World { bypass, ..world });
    end.unwrap();
    assert!(world.visible.is_empty());
    let asked = asked.load(Relaxed);
    assert!(asked > 0 && asked < BATCH, "{asked} of {BATCH}");
    assert_eq!(used(), asked as u64);
}

#[test]
fn an_intent_pays_once_however_often_the_store_is_asked_until_it_answers() {
    // It fails for some calls, and records all the same or not, by a clock that moves on with each call.
    let pays_once = |with: fn() -> StoreError, records: bool| {
        let ((world, used), clock) = (funded(), Noon::default());
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
    });
}

#[test]
fn the_last_intents_of_a_budget_are_not_denied_for_want_of_tokens_that_their_batch_has_kept() {
    let (ledger, budget) = (ledger(), budget(Selection::default(), WhenUnavailable::Wait));
    let budget = Budget { limit: RECORDS.unsigned_abs(), ..budget };
    let (budgets, tokens) = (vec![budget.clone()], Some(ledger.clone()));
    // They do not expire; where they may, the sink leaves it to the test what is approved.
    let world = World { budgets, tokens, expires_at: Some("2026-11-22T12:00:00Z"), ..World::default() };
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
    assert_eq!((approved, used(&budget, ledger)), (RECORDS as usize, RECORDS.unsigned_abs()));
}

#[test]
fn what_a_shard_without_its_history_was_asked_for_pays_nothing() {
    let ((world, used), mut calls) = (funded(), 0);
    let stop = world.stop.clone();
    let lost = store(move |_, _| {
        calls += 1;
        if calls == 2 {
            stop.cancel();
        }
        Err(has_lost_its_history())
    });
    let (end, world) = run_with(lost, world);
    end.unwrap();
    assert!(world.visible.is_empty());
    assert_eq!(used(), 0);
}

#[test]
fn tokens_of_what_is_not_recorded_are_spent_once_whatever_becomes_of_commits_and_partitions() {
    let (refused, unclear) = ([Fate::Refused; 3], [Fate::Unclear; 3]);
    for (commits, revoke_every) in
        [(refused, None), (unclear, None), ([Fate::Unclear, Fate::Refused, Fate::Unclear], Some(7))]
    {
        let (world, used) = funded();
        done(run(World { bypass: uncounted(), commits: commits.into(), revoke_every, ..world }));
        assert_eq!(used(), RECORDS.unsigned_abs());
    }
}

/// The last batch is handed over when the lane ends, and may be visible.
#[test]
fn tokens_of_a_batch_whose_commit_nobody_waits_for_any_more_stay_spent() {
    let (world, used) = funded();
    let (end, world) = run(World { bypass: uncounted(), commits: [Fate::Hangs].into(), ..world });
    end.unwrap();
    assert!(world.visible.is_empty());
    assert_eq!(used(), BATCH as u64, "and those of a batch that was not handed over went back");
}
