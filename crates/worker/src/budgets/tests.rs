//! The task against a ledger that counts who asks it.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use weir_core::{
    budget::SpanNow,
    lease::{Answers, BudgetUse, Outcome, Want},
    ledger::{EmbeddedLedger, GiveBack, TakeAnswer, TakeRequest},
    ports::{Clock as _, CommitTimes, Ledger, StoreError},
    tally::{SegmentCounts, Tally, TopicTally},
};

use super::{keeper::MOST_CALLS, *};
use crate::{
    clock::SystemClock,
    observer::{BesideTopic, Event, LedgerCall, Observer, Stage},
};

/// Nobody.
struct Unobserved;

impl Observer for Unobserved {
    fn stage(&self, _: Stage, _: Duration) {}
    fn gated(&self, _: SegmentCounts) {}
    fn committed(&self, _: &Tally, _: &CommitTimes) {}
    fn ledger_called(&self, _: LedgerCall) {}
    fn budget_left(&self, _: &BudgetId, _: u64) {}
    fn topic_committed(&self, _: BesideTopic, _: &TopicTally) {}
    fn happened(&self, _: Event) {}
    fn deferred(&self) {}
    fn deferred_recorded(&self, _: u64) {}
    fn set_lag(&self, _: i32, _: i64) {}
    fn forget_lag(&self, _: i32) {}
    fn set_topic_lag(&self, _: BesideTopic, _: i64) {}
    fn activity_synced(&self, _: u64, _: u64) {}
}

/// A connection to a ledger at which each call takes a moment.
struct Connection(EmbeddedLedger);

impl Ledger for Connection {
    async fn take(&mut self, requests: &[TakeRequest], answers: &mut [Option<TakeAnswer>]) -> Result<(), StoreError> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.0.take(requests, answers).await
    }

    async fn give_back(&mut self, tokens: &[GiveBack]) -> Result<(), StoreError> {
        self.0.give_back(tokens).await
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

#[tokio::test]
async fn a_batch_of_thousands_of_budgets_is_answered_over_a_few_connections() {
    const BUDGETS: usize = 5_000;
    let connected = Arc::new(AtomicUsize::new(0));
    let (ledger, counter) = (EmbeddedLedger::new("only", || SystemClock.now()), Arc::clone(&connected));
    let connect = move || {
        counter.fetch_add(1, Ordering::Relaxed);
        Connection(ledger.clone())
    };
    let (keeper, budgets) = BudgetKeeper::new(connect, SystemClock, Arc::new(Unobserved));
    tokio::spawn(keeper.run());
    let claimant = budgets.claimant();
    let answered = async {
        loop {
            match claimant.claim(claim(BUDGETS)).await.unwrap() {
                Claimed::Answered(Answers { outcomes, .. }) => return outcomes,
                Claimed::Pending => claimant.ready().await,
            }
        }
    };
    let outcomes = tokio::time::timeout(Duration::from_secs(30), answered).await.expect("the batch is answered");
    assert_eq!(outcomes, vec![Outcome::Granted; BUDGETS]);
    let connected = connected.load(Ordering::Relaxed);
    assert!(connected <= MOST_CALLS, "{connected} connections");
    budgets.close().await;
}
