//! A run's way to budgets, which waits for a Redis that is unavailable.

use std::{sync::Arc, time::Duration};

use backon::BackoffBuilder as _;
use weir_core::{budget::BudgetId, ports::StoreError, time::Time};
use weir_redis::rebuild::{BudgetChange, BudgetRestorer, BudgetState, Rebuild};

use super::read::patience;

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

    /// What these budgets are, in their order.
    pub(super) async fn look(&mut self, ids: &[BudgetId]) -> Result<Vec<BudgetState>, StoreError> {
        let mut pauses = patience().build();
        loop {
            match self.0.look(ids).await {
                Err(StoreError::Temporary(why)) if wait(&mut pauses, &why).await => {}
                answer => return answer,
            }
        }
    }

    /// The names of all campaigns that have a number.
    pub(super) async fn campaigns(&mut self) -> Result<Vec<Arc<str>>, StoreError> {
        let mut pauses = patience().build();
        loop {
            match self.0.campaigns().await {
                Err(StoreError::Temporary(why)) if wait(&mut pauses, &why).await => {}
                answer => return answer,
            }
        }
    }

    /// Changes a budget, where it is what was found; gives what it was.
    pub(super) async fn try_change(
        &mut self,
        id: &BudgetId,
        change: &BudgetChange<'_>,
        now: Time,
    ) -> Result<BudgetState, StoreError> {
        let mut pauses = patience().build();
        loop {
            match self.0.change(id, change, now).await {
                Err(StoreError::Temporary(why)) if wait(&mut pauses, &why).await => {}
                answer => return answer,
            }
        }
    }

    /// Changes a budget that has to be what was found; its key may have ended meanwhile.
    pub(super) async fn change(&mut self, id: &BudgetId, change: BudgetChange<'_>, now: Time) -> anyhow::Result<()> {
        let absent = BudgetState::Absent;
        let (mut found, mut was) = (change.found, self.try_change(id, &change, now).await?);
        if was == absent && *found != absent {
            found = &absent;
            was = self.try_change(id, &BudgetChange { found, ..change.clone() }, now).await?;
        }
        // A reply that was lost: it is changed already.
        anyhow::ensure!(
            was == *found || was == change.becomes,
            "budget {id} was changed meanwhile: another weir rebuild has taken over, and this one changes nothing of it"
        );
        Ok(())
    }
}

/// Waits before the next try; `false` after the last.
async fn wait(pauses: &mut impl Iterator<Item = Duration>, why: &str) -> bool {
    let Some(pause) = pauses.next() else { return false };
    tracing::warn!("budgets cannot be read or written: {why}; trying again");
    tokio::time::sleep(pause).await;
    true
}
