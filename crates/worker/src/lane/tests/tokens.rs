//! The tokens of budgets: who grants them, and which go back.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use weir_core::{
    basis::shard::IdHash,
    limit::{
        budget::{
            BudgetSpan, WhenUnavailable,
            ledger::{BudgetTokens, LooksAtBudgets as _, TakeAnswer, TakeTurn},
        },
        share::TurnNumber,
    },
    policy::Selection,
    ports::{Share, embedded::EmbeddedStore},
};

use super::{again::Moving, *};

/// The ledger of budgets, which may be away.
#[derive(Clone)]
pub(super) struct Tokens {
    pub(super) ledger: EmbeddedLedger,
    pub(super) are_away: Arc<AtomicBool>,
}

impl Share<BudgetTokens> for Tokens {
    async fn turn(&mut self, budget: &BudgetId, number: TurnNumber, turn: &TakeTurn) -> Result<TakeAnswer, StoreError> {
        if self.are_away.load(Relaxed) {
            return Err(silent());
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

/// A world with a budget of all intents that is never spent, and its ledger.
fn funded() -> (World, Budget, EmbeddedLedger) {
    let (budget, ledger) = (budget(Selection::default(), WhenUnavailable::Wait), ledger());
    let world = World { budgets: vec![budget.clone()], tokens: Some(ledger.clone()), ..World::default() };
    (world, budget, ledger)
}

pub(super) fn used(budget: &Budget, mut ledger: EmbeddedLedger) -> u64 {
    let id = BudgetId { name: Arc::clone(&budget.name), campaign: None };
    let (look, mut answers) = ([budget.used_by(id, &Zone::utc(), Noon.now())], [None]);
    let looked = ledger.look(&look, 1, &mut answers);
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(looked).unwrap();
    answers[0].unwrap().used
}

/// The first call tells the lane to stop, and is never answered.
struct Hangs {
    stop: CancellationToken,
    asked: Arc<AtomicUsize>,
}

impl Store for Hangs {
    async fn admit(&mut self, batch: &AdmitBatch<'_>, _: &mut [Option<Answer>]) -> Result<(), StoreError> {
        self.asked.store(batch.requests.len(), Relaxed);
        self.stop.cancel();
        std::future::pending().await
    }

    never_given_up!();
}

#[test]
fn a_lane_that_is_told_to_stop_while_the_store_is_asked_gives_back_the_tokens_of_what_it_has_not_asked_for() {
    let (world, budget, ledger) = funded();
    // It is never asked for a bypass that does not count, and may have recorded all others.
    let world = World { bypass: vec![Bypass { selection: of_channel("c2"), counts: Counts::No }], ..world };
    let asked: Arc<AtomicUsize> = Arc::default();
    let store = Hangs { stop: world.stop.clone(), asked: Arc::clone(&asked) };
    let (end, world) = run_with(store, world);
    end.unwrap();
    assert!(world.visible.is_empty());
    let asked = asked.load(Relaxed);
    assert!(asked > 0 && asked < BATCH, "{asked} of {BATCH}");
    assert_eq!(used(&budget, ledger), asked as u64);
}

fn has_lost_its_history() -> StoreError {
    StoreError::LostHistory { shards: vec![0], message: "by the test".to_owned() }
}

#[test]
fn an_intent_pays_once_however_often_the_store_is_asked_until_it_answers() {
    let pays_once = |with: fn() -> StoreError, records: bool| {
        let (world, budget, ledger) = funded();
        // It moves on with each call.
        let clock = Moving::default();
        let (moved, mut calls, mut recorded) = (clock.clone(), 5, BTreeMap::new());
        let store = by(move |batch, answers| {
            let fails = calls > 0;
            calls -= usize::from(fails);
            moved.0.fetch_add(1, Relaxed);
            if fails && !records {
                return Err(with());
            }
            for (request, answer) in batch.requests.iter().zip(answers) {
                let found = record(&mut recorded, request.id.0, batch.now);
                if !fails {
                    *answer = Some(found);
                }
            }
            if fails { Err(with()) } else { Ok(()) }
        });
        let (end, world) = run_by(clock, store, world);
        end.unwrap();
        each_once(&world);
        assert_eq!(used(&budget, ledger), RECORDS.unsigned_abs(), "recorded: {records}");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| pays_once(silent, false));
        scope.spawn(|| pays_once(silent, true));
        scope.spawn(|| pays_once(has_lost_its_history, false));
    });
}

/// Does not answer when it is asked for the last intent for the first time.
struct SilentAtTheEnd {
    store: EmbeddedStore,
    was_silent: bool,
}

impl Store for SilentAtTheEnd {
    async fn admit(&mut self, batch: &AdmitBatch<'_>, answers: &mut [Option<Answer>]) -> Result<(), StoreError> {
        let last = IdHash::of(&format!("i-{}", RECORDS - 1));
        let is_last = batch.requests.iter().any(|request| request.id == last);
        if is_last && !std::mem::replace(&mut self.was_silent, true) {
            return Err(silent());
        }
        self.store.admit(batch, answers).await
    }

    never_given_up!();
}

#[test]
fn the_last_intents_of_a_budget_are_not_denied_for_want_of_tokens_that_their_batch_has_kept() {
    let of_all = Budget { limit: RECORDS.unsigned_abs(), ..budget(Selection::default(), WhenUnavailable::Wait) };
    let ledger = ledger();
    let (budgets, tokens) = (vec![of_all.clone()], Some(ledger.clone()));
    // They do not expire; where they may, the sink leaves it to the test what is approved.
    let world = World { budgets, tokens, expires_at: Some("2026-11-22T12:00:00Z"), ..World::default() };
    let store = SilentAtTheEnd { store: EmbeddedStore::new(86_400_000_i64), was_silent: false };
    let (end, world) = run_with(store, world);
    end.unwrap();
    each_once(&world);
    let committed = world.ledger.read().unwrap();
    let approved = committed.outputs.values().filter(|(to, _)| *to == Destination::APPROVED).count();
    assert_eq!((approved, used(&of_all, ledger)), (RECORDS as usize, RECORDS.unsigned_abs()));
}

#[test]
fn what_a_shard_without_its_history_was_asked_for_pays_nothing() {
    let (world, budget, ledger) = funded();
    let (stop, mut calls) = (world.stop.clone(), 0);
    let lost = by(move |_, _| {
        calls += 1;
        if calls == 2 {
            stop.cancel();
        }
        Err(has_lost_its_history())
    });
    let (end, world) = run_with(lost, world);
    end.unwrap();
    assert!(world.visible.is_empty());
    assert_eq!(used(&budget, ledger), 0);
}

/// A bypass that does not count is in no history: decided again, it takes tokens again.
#[test]
fn tokens_of_what_is_not_recorded_are_spent_once_whatever_becomes_of_commits_and_partitions() {
    let (refused, unclear) = ([Fate::Refused; 3], [Fate::Unclear; 3]);
    for (commits, revoke_every) in
        [(refused, None), (unclear, None), ([Fate::Unclear, Fate::Refused, Fate::Unclear], Some(7))]
    {
        let (world, budget, ledger) = funded();
        let bypass = vec![Bypass { selection: Selection::default(), counts: Counts::No }];
        let world = World { bypass, commits: commits.into(), revoke_every, ..world };
        let (end, world) = run(world);
        end.unwrap();
        each_once(&world);
        assert_eq!(used(&budget, ledger), RECORDS.unsigned_abs());
    }
}

/// The last batch is handed over when the lane ends, and may be visible.
#[test]
fn tokens_of_a_batch_whose_commit_nobody_waits_for_any_more_stay_spent() {
    let (world, budget, ledger) = funded();
    let bypass = vec![Bypass { selection: Selection::default(), counts: Counts::No }];
    let (end, world) = run(World { bypass, commits: [Fate::Hangs].into(), ..world });
    end.unwrap();
    assert!(world.visible.is_empty());
    assert_eq!(used(&budget, ledger), BATCH as u64, "and those of a batch that was not handed over went back");
}
