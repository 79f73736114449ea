//! The ledger, looked at over connections of its own: nothing is taken, and no lane waits.
#![expect(clippy::disallowed_types, reason = "looks share the free clients; nothing waits while the lock is held")]

use std::{
    pin::Pin,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Semaphore, time::timeout};
use weir_core::limit::{
    budget::{
        lease::BudgetUse,
        ledger::{LooksAtBudgets, TakeAnswer},
    },
    share::{Clients, no_answer_within},
};

/// How long a look may take: who looks is shown what has answered by then.
const LOOK_WITHIN: Duration = Duration::from_secs(1);
/// Looks at the same time, at most; others wait.
const MOST_LOOKS: usize = 4;
/// The most budgets of one call.
const MOST_AT_ONCE: usize = 100;

/// What a look found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looked {
    /// Of each budget; `None` where the ledger did not answer in time.
    pub answers: Vec<Option<TakeAnswer>>,
    /// Why some have no answer.
    pub error: Option<String>,
}

/// Looks at budgets; takes nothing.
pub trait LooksAtLedger: Send + Sync + 'static {
    /// How these budgets stand, and when each has so many tokens left. It takes a second at most.
    fn look<'a>(&'a self, budgets: &'a [BudgetUse], tokens: u64) -> Pin<Box<dyn Future<Output = Looked> + Send + 'a>>;
}

/// Ledgers that are used one look at a time: a node that does not answer keeps no other look waiting for long.
pub struct LedgerPool<L> {
    clients: Mutex<Clients<L>>,
    permits: Semaphore,
}

/// A client on loan. It goes back when this is dropped, also half way through a look: it knows which nodes did not answer, and asks others first.
struct LedgerLoan<'p, L> {
    clients: &'p Mutex<Clients<L>>,
    client: Option<L>,
}

impl<L> Drop for LedgerLoan<'_, L> {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            lock(self.clients).put_back(client);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<L: LooksAtBudgets> LedgerPool<L> {
    /// `connect` makes one more, where all are in use.
    pub fn new(connect: impl Fn() -> L + Send + 'static) -> Self {
        Self { clients: Mutex::new(Clients::new(connect)), permits: Semaphore::new(MOST_LOOKS) }
    }

    async fn ask(&self, budgets: &[BudgetUse], tokens: u64, answers: &mut [Option<TakeAnswer>]) -> Result<(), String> {
        let looks = async {
            let _permit = self.permits.acquire().await.map_err(|closed| closed.to_string())?;
            let mut loan = LedgerLoan { clients: &self.clients, client: None };
            let ledger = loan.client.insert(lock(&self.clients).take());
            let mut outcome = Ok(());
            for (budgets, answers) in budgets.chunks(MOST_AT_ONCE).zip(answers.chunks_mut(MOST_AT_ONCE)) {
                let looked = ledger.look(budgets, tokens, answers).await;
                outcome = outcome.and(looked.map_err(|error| error.to_string()));
            }
            outcome
        };
        timeout(LOOK_WITHIN, looks).await.unwrap_or_else(|_| Err(no_answer_within(LOOK_WITHIN).to_string()))
    }
}

impl<L: LooksAtBudgets + 'static> LooksAtLedger for LedgerPool<L> {
    fn look<'a>(&'a self, budgets: &'a [BudgetUse], tokens: u64) -> Pin<Box<dyn Future<Output = Looked> + Send + 'a>> {
        Box::pin(async move {
            let mut answers = vec![None; budgets.len()];
            let error = self.ask(budgets, tokens, &mut answers).await.err();
            Looked { answers, error }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, poll_fn},
        mem,
        task::Poll,
    };

    use weir_core::{
        limit::budget::{BudgetId, SpanNow},
        ports::StoreError,
    };

    use super::*;

    /// A client whose first look has no answer: by the next one it knows whom to ask.
    struct Learns(bool);

    impl LooksAtBudgets for Learns {
        async fn look(&mut self, _: &[BudgetUse], _: u64, _: &mut [Option<TakeAnswer>]) -> Result<(), StoreError> {
            if mem::replace(&mut self.0, true) { Ok(()) } else { pending().await }
        }
    }

    fn pool_and_budgets() -> (LedgerPool<Learns>, [BudgetUse; 1]) {
        let id = BudgetId { name: "b".into(), campaign: None };
        let span = SpanNow::Total;
        let budget = BudgetUse { id, limit: 1, span, best_effort: false, unavailable_after: None };
        (LedgerPool::new(|| Learns(false)), [budget])
    }

    #[tokio::test]
    async fn a_client_without_an_answer_looks_again() {
        let (pool, budgets) = pool_and_budgets();
        assert!(pool.look(&budgets, 1).await.error.is_some());
        assert_eq!(pool.look(&budgets, 1).await.error, None);
    }

    #[tokio::test]
    async fn a_client_whose_caller_goes_away_looks_again() {
        let (pool, budgets) = pool_and_budgets();
        {
            let mut looking = pool.look(&budgets, 1);
            let waits = poll_fn(|context| Poll::Ready(looking.as_mut().poll(context).is_pending())).await;
            assert!(waits, "the first look has no answer");
        }
        assert_eq!(pool.look(&budgets, 1).await.error, None);
    }
}
