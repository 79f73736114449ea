//! A run's way to budgets, which waits for a Redis that is unavailable.

use backon::BackoffBuilder as _;
use weir_core::{
    basis::time::Time,
    limit::budget::{BudgetId, SpanNow},
    ports::StoreError,
};
use weir_redis::rebuild::{BudgetChange, BudgetKeyState, BudgetRestorer, Held};

use super::read::patience;

/// How often a budget is changed at most, each time from what it was found to be.
pub(super) const MOST_TRIES: usize = 10;

/// Changes a budget that has to be what was found; its key may have ended meanwhile. `false`: it is not changed, because it is open
/// although this run has not opened it (Redis lost that it was closed, and a worker may have taken from it since), or because it had to make
/// room for others, and nothing is left to add to.
pub(super) async fn change(
    restorer: &mut BudgetRestorer,
    id: &BudgetId,
    change: &BudgetChange<'_>,
    now: Time,
) -> anyhow::Result<bool> {
    let mut found = change.found.clone();
    for _ in 0..MOST_TRIES {
        let change = BudgetChange { found: &found, ..change.clone() };
        let was = patiently(async || restorer.change(id, &change, now).await).await?;
        if was == found {
            return Ok(true);
        }
        match was {
            // Its shard's epoch is the run's mark: so it became by this run, whose reply was lost, or by a turn that had read the epoch
            // before. All that it was spent for is counted.
            BudgetKeyState::Open | BudgetKeyState::Closed(_) if restorer.is_restored(id) => {}
            // It had to make room for others: nothing is left to add to.
            BudgetKeyState::Absent if change.span == SpanNow::Total && matches!(change.held, Held::Add(_)) => {
                return Ok(false);
            }
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

/// Asks again while Redis is unavailable, for as long as the readers do.
pub(super) async fn patiently<T>(mut ask: impl AsyncFnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
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
