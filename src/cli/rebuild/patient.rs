//! A run's way to budgets, which waits for a Redis that is unavailable.

use std::sync::Arc;

use backon::BackoffBuilder as _;
use weir_core::{basis::time::Time, limit::budget::BudgetId, ports::StoreError};
use weir_redis::rebuild::{BudgetChange, BudgetKeyState, BudgetRestorer, Rebuild, UnknownCampaigns};

use super::read::patience;

/// How often a budget is changed at most, each time from what it was found to be.
pub(super) const MOST_TRIES: usize = 10;

/// Asks again while Redis is unavailable, for as long as the readers do.
pub(super) struct PatientRestorer(BudgetRestorer);

impl PatientRestorer {
    pub(super) fn of(rebuild: &Rebuild) -> Self {
        Self(rebuild.budgets())
    }

    /// Whether a budget is in a shard that the run restores.
    pub(super) fn is_restored(&self, id: &BudgetId) -> bool {
        self.0.is_restored(id)
    }

    /// What these budgets are at `now`, in their order.
    pub(super) async fn look(&mut self, ids: &[BudgetId], now: Time) -> Result<Vec<BudgetKeyState>, StoreError> {
        patiently(async || self.0.look(ids, now).await).await
    }

    /// The names of all campaigns that have a number.
    pub(super) async fn campaigns(&mut self) -> Result<Vec<Arc<str>>, StoreError> {
        patiently(async || self.0.campaigns().await).await
    }

    /// When the names of campaigns were lost last, of which some may be missing since.
    pub(super) async fn names_lost_at(&mut self) -> Result<Option<Time>, StoreError> {
        patiently(async || self.0.names_lost_at().await).await
    }

    /// Closes budgets for unknown campaigns in the shards that the run restores.
    pub(super) async fn close_unknown(&mut self, budgets: &[UnknownCampaigns]) -> Result<(), StoreError> {
        patiently(async || self.0.close_unknown(budgets).await).await
    }

    /// Opens a budget for unknown campaigns in the other shards.
    pub(super) async fn open_unknown(&mut self, budget: &str) -> Result<(), StoreError> {
        patiently(async || self.0.open_unknown(budget).await).await
    }

    /// Changes a budget, where it is what was found; gives what it was.
    pub(super) async fn try_change(
        &mut self,
        id: &BudgetId,
        change: &BudgetChange<'_>,
        now: Time,
    ) -> Result<BudgetKeyState, StoreError> {
        patiently(async || self.0.change(id, change, now).await).await
    }

    /// Changes a budget that has to be what was found; its key may have ended meanwhile. `false`: it is not changed, because it is open
    /// although this run has not opened it: Redis lost that it was closed, and a worker may have taken from it since.
    pub(super) async fn change(&mut self, id: &BudgetId, change: &BudgetChange<'_>, now: Time) -> anyhow::Result<bool> {
        let mut found = change.found.clone();
        for _ in 0..MOST_TRIES {
            let was = self.try_change(id, &BudgetChange { found: &found, ..change.clone() }, now).await?;
            if was == found {
                return Ok(true);
            }
            match was {
                // Its shard's epoch is the run's mark: so it became by this run, whose reply was lost, or by a turn that had read the epoch
                // before. All that it was spent for is counted.
                BudgetKeyState::Open | BudgetKeyState::Closed(_) if self.is_restored(id) => {}
                BudgetKeyState::Absent | BudgetKeyState::Unknown(_) => {}
                BudgetKeyState::Open => return Ok(false),
                BudgetKeyState::Closed(_) => break,
            }
            found = was;
        }
        anyhow::bail!(
            "budget {id} was changed meanwhile: another weir rebuild has taken over, and this one changes nothing of it"
        )
    }
}

async fn patiently<T>(mut ask: impl AsyncFnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    let mut pauses = patience().build();
    loop {
        match ask().await {
            Err(StoreError::Temporary(why)) if let Some(pause) = pauses.next() => {
                tracing::warn!("budgets cannot be read or written: {why}; trying again");
                tokio::time::sleep(pause).await;
            }
            answer => return answer,
        }
    }
}
