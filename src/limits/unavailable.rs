//! The budgets whose ledger does not answer, for `/v1/status`.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;
use weir_core::limit::budget::{
    BudgetId,
    lease::{BudgetState, BudgetUse},
};
use weir_worker::budgets::Budgets;

use super::{LooksAtLedger, MOST_ROWS};

/// How often it is looked which budgets are unavailable here.
const STATES_EVERY: Duration = Duration::from_secs(1);

/// The budgets whose ledger does not answer this process, and since when; written by who looks, read by `/v1/status`.
#[derive(Debug, Clone, Default)]
pub struct UnavailableBudgets(Arc<ArcSwap<Vec<(BudgetId, Duration)>>>);

impl UnavailableBudgets {
    /// Each with the time on the monotonic clock since when the ledger has not answered.
    #[must_use]
    pub fn current(&self) -> Arc<Vec<(BudgetId, Duration)>> {
        self.0.load_full()
    }

    /// Looks again and again, from now on until `stop`.
    pub fn keep_looking(&self, budgets: Budgets, ledger: Arc<dyn LooksAtLedger>, stop: CancellationToken) {
        let found = self.clone();
        tokio::spawn(stop.run_until_cancelled_owned(async move {
            loop {
                found.0.store(Arc::new(unavailable(&budgets, &*ledger).await));
                tokio::time::sleep(STATES_EVERY).await;
            }
        }));
    }
}

/// The budgets that a lease could not be taken of, and that do not answer a look either: the lease of one that nobody needs any
/// more is not asked for again. Nothing is asked while all leases are answered.
async fn unavailable(budgets: &Budgets, ledger: &dyn LooksAtLedger) -> Vec<(BudgetId, Duration)> {
    let states = budgets.states().await.into_iter();
    let unanswered = states.filter_map(|BudgetState { id, span, limit, unavailable_since, .. }| {
        Some((BudgetUse { id, limit, span, best_effort: true, unavailable_after: None }, unavailable_since?))
    });
    let (uses, since): (Vec<BudgetUse>, Vec<Duration>) = unanswered.take(MOST_ROWS).unzip();
    if uses.is_empty() {
        return Vec::new();
    }
    let looked = ledger.look(&uses, 1).await;
    let still = uses.into_iter().zip(since).zip(looked.answers).filter(|(_, answer)| answer.is_none());
    still.map(|((used, since), _)| (used.id, since)).collect()
}
