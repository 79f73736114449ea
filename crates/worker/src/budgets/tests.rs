//! The task against a ledger that counts who asks it.

use std::{
    future::poll_fn,
    pin::pin,
    sync::atomic::{AtomicI64, AtomicUsize, Ordering},
    task::Poll,
    time::Duration,
};

use weir_core::{
    basis::time::Time,
    limit::{
        budget::{
            BudgetId, SpanNow,
            lease::{Answers, BudgetUse, Claimed, Outcome, Owed, Want},
            ledger::{BudgetTokens, EmbeddedLedger, LooksAtBudgets as _, TakeAnswer, TakeTurn},
        },
        share::TurnNumber,
    },
    ports::{Clock, Share, StoreError},
};

use super::{keeper::MOST_CALLS, *};
use crate::{clock::SystemClock, observer::tests::TestObserver};

/// A connection to a ledger at which each call takes a moment.
struct Connection(EmbeddedLedger);

impl Share<BudgetTokens> for Connection {
    async fn turn(&mut self, budget: &BudgetId, number: TurnNumber, turn: &TakeTurn) -> Result<TakeAnswer, StoreError> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.0.turn(budget, number, turn).await
    }
}

/// A batch of intents that each take from a budget of their own.
fn claim(budgets: usize) -> Arc<Claim> {
    let used = |number: usize| BudgetUse {
        id: BudgetId { name: "money".into(), campaign: Some(number.to_string().into()) },
        limit: 1_000,
        span: SpanNow::Total,
        best_effort: true,
        unavailable_after: None,
    };
    let places = 0..u32::try_from(budgets).unwrap();
    Arc::new(Claim {
        judged_at: SystemClock.passed(),
        budgets: (0..budgets).map(used).collect(),
        sets: places.clone().map(|place| vec![place]).collect(),
        wants: places.map(|set| Want { set, cost: 1 }).collect(),
    })
}

/// What becomes of a claim, whose tokens count as spent.
async fn claimed(claimant: &Claimant, claim: Arc<Claim>) -> Claimed {
    let funded = claimant.ask_for(claim).await.unwrap();
    funded.map_or(Claimed::Pending, |funded| Claimed::Answered(funded.keep()))
}

#[tokio::test]
async fn a_batch_of_thousands_of_budgets_is_answered_over_a_few_connections() {
    const BUDGETS: usize = 5_000;
    let connected = Arc::new(AtomicUsize::new(0));
    let (ledger, counter) = (EmbeddedLedger::new("only", || SystemClock.now()), Arc::clone(&connected));
    let connect = move || {
        counter.fetch_add(1, Ordering::Relaxed);
        Connection(ledger.clone())
    };
    let (keeper, budgets) = BudgetKeeper::new(connect, SystemClock, Arc::new(TestObserver::default()));
    tokio::spawn(keeper.run());
    let claimant = budgets.claimant();
    let answered = async {
        loop {
            match claimed(&claimant, claim(BUDGETS)).await {
                Claimed::Answered(Answers { outcomes, .. }) => return outcomes,
                Claimed::Pending => claimant.ready().await,
            }
            // The keeper's task, and the timeout.
            tokio::task::yield_now().await;
        }
    };
    let outcomes = tokio::time::timeout(Duration::from_secs(30), answered).await.expect("the batch is answered");
    assert_eq!(outcomes, vec![Outcome::Granted; BUDGETS]);
    let connected = connected.load(Ordering::Relaxed);
    assert!(connected <= MOST_CALLS, "{connected} connections");
    budgets.close().await;
}

/// A ledger that does not answer its first call.
#[derive(Clone)]
struct LateLedger(EmbeddedLedger, Arc<AtomicUsize>);

impl Share<BudgetTokens> for LateLedger {
    async fn turn(&mut self, budget: &BudgetId, number: TurnNumber, turn: &TakeTurn) -> Result<TakeAnswer, StoreError> {
        if self.1.fetch_add(1, Ordering::Relaxed) == 0 {
            return Err(StoreError::Temporary("by the test".to_owned()));
        }
        self.0.turn(budget, number, turn).await
    }
}

/// How many tokens count as spent of the budget that a claim for one budget uses.
async fn used(ledger: &EmbeddedLedger) -> u64 {
    let mut answers = [None];
    ledger.clone().look(&claim(1).budgets, 1, &mut answers).await.unwrap();
    answers[0].unwrap().used
}

#[tokio::test]
async fn what_replays_owe_is_taken_from_a_budget_that_was_counted_since_once_it_answers() {
    let ledger = EmbeddedLedger::new("only", || SystemClock.now());
    let late = LateLedger(ledger.clone(), Arc::default());
    let (keeper, budgets) = BudgetKeeper::new(move || late.clone(), SystemClock, Arc::new(TestObserver::default()));
    let lender = Arc::clone(&keeper.lender);
    let keeper = tokio::spawn(keeper.run());
    let judged_at = SystemClock.passed();
    let owed = |admitted_ago_ms| {
        let used = claim(1).budgets[0].clone();
        vec![Owed { used, tokens: 7, admitted_ago_ms, judged_at }]
    };
    // It is counted since its first use, a while after these were admitted.
    lender.charge(owed(60_000));
    let counted = async {
        while used(&ledger).await == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), counted).await.expect("the tokens are taken");
    // These were admitted long after that.
    lender.charge(owed(-3_600_000));
    budgets.close().await;
    keeper.await.unwrap();
    assert_eq!(used(&ledger).await, 7);
}

#[tokio::test]
async fn a_process_that_ends_gives_back_what_is_left() {
    let ledger = EmbeddedLedger::new("only", || SystemClock.now());
    let connect = ledger.clone();
    let (keeper, budgets) =
        BudgetKeeper::new(move || Connection(connect.clone()), SystemClock, Arc::new(TestObserver::default()));
    let keeper = tokio::spawn(keeper.run());
    let claimant = budgets.claimant();
    assert_eq!(claimed(&claimant, claim(1)).await, Claimed::Pending);
    tokio::time::timeout(Duration::from_secs(30), claimant.ready()).await.expect("its token has come");
    assert!(used(&ledger).await > 0);
    budgets.close().await;
    keeper.await.unwrap();
    assert_eq!(used(&ledger).await, 0);
}

/// The system's clock, so many milliseconds behind.
struct Behind(Arc<AtomicI64>);

impl Clock for Behind {
    fn now(&self) -> Time {
        SystemClock.now().plus(-self.0.load(Ordering::Relaxed))
    }

    fn passed(&self) -> Duration {
        SystemClock.passed()
    }

    fn sleep(&self, wait: Duration) -> impl Future<Output = ()> + Send {
        SystemClock.sleep(wait)
    }
}

#[tokio::test]
async fn a_process_whose_clock_was_behind_when_it_started_gives_back_what_is_left() {
    let ledger = EmbeddedLedger::new("only", || SystemClock.now());
    // One after the other, with the same name.
    for behind_ms in [0, 3_600_000] {
        let (connect, behind) = (ledger.clone(), Arc::new(AtomicI64::new(behind_ms)));
        let clock = Behind(Arc::clone(&behind));
        let (keeper, budgets) =
            BudgetKeeper::new(move || Connection(connect.clone()), clock, Arc::new(TestObserver::default()));
        let keeper = tokio::spawn(keeper.run());
        // It is corrected before anything is decided.
        behind.store(0, Ordering::Relaxed);
        let claimant = budgets.claimant();
        assert_eq!(claimed(&claimant, claim(1)).await, Claimed::Pending);
        tokio::time::timeout(Duration::from_secs(30), claimant.ready()).await.expect("its token has come");
        budgets.close().await;
        keeper.await.unwrap();
        assert_eq!(used(&ledger).await, 0, "{behind_ms} ms behind");
    }
}

/// A ledger that does what it is asked, and does not say so at first.
#[derive(Clone)]
struct Unheard(EmbeddedLedger, Arc<AtomicUsize>);

/// How many turns are not heard of.
const UNHEARD: usize = 3;

impl Share<BudgetTokens> for Unheard {
    async fn turn(&mut self, budget: &BudgetId, number: TurnNumber, turn: &TakeTurn) -> Result<TakeAnswer, StoreError> {
        let answer = self.0.turn(budget, number, turn).await?;
        match self.1.fetch_add(1, Ordering::Relaxed) {
            0..UNHEARD => Err(StoreError::Temporary("too few replicas, by the test".to_owned())),
            _ => Ok(answer),
        }
    }
}

#[tokio::test]
async fn calls_that_are_carried_out_and_not_heard_of_burn_no_tokens() {
    let ledger = EmbeddedLedger::new("only", || SystemClock.now());
    let unheard = Unheard(ledger.clone(), Arc::default());
    let connect = unheard.clone();
    let (keeper, budgets) = BudgetKeeper::new(move || connect.clone(), SystemClock, Arc::new(TestObserver::default()));
    let keeper = tokio::spawn(keeper.run());
    let claimant = budgets.claimant();
    let answered = async {
        loop {
            match claimed(&claimant, claim(1)).await {
                Claimed::Answered(Answers { outcomes, .. }) => return outcomes,
                Claimed::Pending => claimant.ready().await,
            }
            tokio::task::yield_now().await;
        }
    };
    let outcomes = tokio::time::timeout(Duration::from_secs(30), answered).await.expect("the batch is answered");
    assert_eq!(outcomes, [Outcome::Granted]);
    // What was taken ahead of need goes back, though the first turn is not heard of.
    unheard.1.store(UNHEARD - 1, Ordering::Relaxed);
    budgets.close().await;
    keeper.await.unwrap();
    assert_eq!(used(&ledger).await, 1);
}

/// A ledger that has taken a turn of the process which comes behind its first one, as of a machine that was restored from a snapshot.
#[derive(Clone)]
struct Ahead(EmbeddedLedger, Arc<AtomicUsize>);

impl Share<BudgetTokens> for Ahead {
    async fn turn(&mut self, budget: &BudgetId, number: TurnNumber, turn: &TakeTurn) -> Result<TakeAnswer, StoreError> {
        if self.1.fetch_add(1, Ordering::Relaxed) == 0 {
            let later = TurnNumber { number: number.number + 1_000, ..number };
            self.0.turn(budget, later, turn).await?;
        }
        self.0.turn(budget, number, turn).await
    }
}

#[tokio::test]
async fn a_process_that_was_restored_from_a_snapshot_gets_tokens_by_turns_of_another_run() {
    let ledger = EmbeddedLedger::new("only", || SystemClock.now());
    let ahead = Ahead(ledger.clone(), Arc::default());
    let (keeper, budgets) = BudgetKeeper::new(move || ahead.clone(), SystemClock, Arc::new(TestObserver::default()));
    let keeper = tokio::spawn(keeper.run());
    let claimant = budgets.claimant();
    let answered = async {
        loop {
            match claimed(&claimant, claim(1)).await {
                Claimed::Answered(Answers { outcomes, .. }) => return outcomes,
                Claimed::Pending => claimant.ready().await,
            }
            tokio::task::yield_now().await;
        }
    };
    let outcomes = tokio::time::timeout(Duration::from_secs(30), answered).await.expect("the batch is answered");
    assert_eq!(outcomes, [Outcome::Granted]);
    budgets.close().await;
    keeper.await.unwrap();
    assert_eq!(used(&ledger).await, 2, "and what was granted to the turn that it does not know");
}

/// A claim of one token whose answer nobody waits for any more: its claimant goes away before the answer is there, or before it has
/// looked at it.
#[tokio::test]
async fn what_is_granted_to_one_who_has_gone_comes_back() {
    for is_answered in [false, true] {
        let ledger = EmbeddedLedger::new("only", || SystemClock.now());
        let connect = ledger.clone();
        let (keeper, budgets) =
            BudgetKeeper::new(move || Connection(connect.clone()), SystemClock, Arc::new(TestObserver::default()));
        let keeper = tokio::spawn(keeper.run());
        let claimant = budgets.claimant();
        assert_eq!(claimed(&claimant, claim(1)).await, Claimed::Pending);
        tokio::time::timeout(Duration::from_secs(30), claimant.ready()).await.expect("its token has come");
        {
            let mut claiming = pin!(claimant.ask_for(claim(1)));
            let polled = poll_fn(|context| Poll::Ready(claiming.as_mut().poll(context))).await;
            assert!(polled.is_pending(), "the task has not run since");
            if is_answered {
                // Messages are taken in their order.
                assert_eq!(budgets.states().await.len(), 1);
            }
        }
        budgets.close().await;
        keeper.await.unwrap();
        assert_eq!(used(&ledger).await, 0, "answered: {is_answered}");
    }
}
