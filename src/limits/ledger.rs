//! The ledger, looked at over connections of its own: nothing is taken, and no lane waits.

use std::{pin::Pin, time::Duration};

use tokio::{
    sync::{Mutex, Semaphore},
    time::timeout,
};
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

impl<L: LooksAtBudgets> LedgerPool<L> {
    /// `connect` makes one more, where all are in use.
    pub fn new(connect: impl Fn() -> L + Send + 'static) -> Self {
        Self { clients: Mutex::new(Clients::new(connect)), permits: Semaphore::new(MOST_LOOKS) }
    }

    async fn ask(&self, budgets: &[BudgetUse], tokens: u64, answers: &mut [Option<TakeAnswer>]) -> Result<(), String> {
        let _permit = self.permits.acquire().await.map_err(|closed| closed.to_string())?;
        let mut ledger = self.clients.lock().await.take();
        let mut outcome = Ok(());
        for (budgets, answers) in budgets.chunks(MOST_AT_ONCE).zip(answers.chunks_mut(MOST_AT_ONCE)) {
            let looked = ledger.look(budgets, tokens, answers).await;
            outcome = outcome.and(looked.map_err(|error| error.to_string()));
        }
        self.clients.lock().await.put_back(ledger);
        outcome
    }
}

impl<L: LooksAtBudgets + 'static> LooksAtLedger for LedgerPool<L> {
    fn look<'a>(&'a self, budgets: &'a [BudgetUse], tokens: u64) -> Pin<Box<dyn Future<Output = Looked> + Send + 'a>> {
        Box::pin(async move {
            let mut answers = vec![None; budgets.len()];
            let asked = timeout(LOOK_WITHIN, self.ask(budgets, tokens, &mut answers)).await;
            let error = asked.unwrap_or_else(|_| Err(no_answer_within(LOOK_WITHIN).to_string())).err();
            Looked { answers, error }
        })
    }
}
