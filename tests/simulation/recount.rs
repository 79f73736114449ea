//! Budgets in `weir rebuild`: those of the shards that it restores are counted again from the visible approvals, in the steps of
//! `src/cli/rebuild/budgets.rs`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use weir_core::{
    history::decide::Scope,
    limit::budget::{
        BudgetId,
        ledger::{Account, Recount},
    },
    policy::Policy,
};
use weir_redis::rebuild::{BudgetChange, BudgetKeyState, Held, Rebuild};

use super::{
    budgets::spent,
    rebuild::{keep, patiently},
    run::World,
    sabotage::Sabotage,
    time::wall,
};

/// The lock is renewed after so many budgets.
const KEEP_LOCK_EVERY: usize = 25;

/// Counts the budgets of the run's shards, once earlier decisions are visible and before the shards are used again.
pub async fn restore(world: &World, rebuild: &mut Rebuild) -> Result<(), String> {
    let policy = world.decider.policy.get();
    if policy.budgets.is_empty() {
        return Ok(());
    }
    let now = wall(world.env.passed());
    let mut counted = Recount::new(policy.budgets.iter(), &policy.timezone, now);
    for out in world.broker.borrow_mut().stable(0).0.into_iter().filter(|out| out.is_approval()) {
        counted.add(&spent(out));
    }
    let mut restorer = rebuild.budgets();
    let campaigns = patiently(world, async || restorer.campaigns().await).await?;
    let mut ids = known(&policy, &counted, &campaigns);
    ids.retain(|id| restorer.is_restored(id));
    let ids: Vec<BudgetId> = ids.into_iter().collect();
    let states = patiently(world, async || restorer.look(&ids, now).await).await?;
    for (place, (id, found)) in ids.iter().zip(&states).enumerate() {
        if place % KEEP_LOCK_EVERY == 0 {
            keep(world, rebuild, &BTreeMap::new()).await?;
        }
        let account = counted.of(id);
        // What is not there and was not spent is as good as new.
        let is_new = *found == BudgetKeyState::Absent && account == Account::default();
        // The planted bug takes what is there for right.
        let is_trusted = world.env.sabotage() == Sabotage::SnapshotTrusted && *found != BudgetKeyState::Absent;
        let Some(budget) = policy.budgets.iter().find(|budget| budget.name == id.name) else { continue };
        if is_new || is_trusted {
            continue;
        }
        world.env.note(|| format!("{id} is counted anew: {account:?}"));
        let span = budget.span.at(&policy.timezone, now);
        let (mut found, held) = (found.clone(), Held::Replace(account));
        loop {
            let change = BudgetChange { found: &found, becomes: BudgetKeyState::Open, span, held: held.clone() };
            let was = patiently(world, async || restorer.change(id, &change, now).await).await?;
            if was == found {
                break;
            }
            // A reply was lost, or a turn that had read the epoch before the mark has begun it anew.
            found = was;
        }
    }
    Ok(())
}

/// The budgets that are known: shared ones, and those of the campaigns that were found or have a number.
fn known(policy: &Policy, counted: &Recount, campaigns: &[Arc<str>]) -> BTreeSet<BudgetId> {
    let mut ids: BTreeSet<BudgetId> = counted.found().cloned().collect();
    for budget in &policy.budgets {
        let of = |campaign| BudgetId { name: Arc::clone(&budget.name), campaign };
        match budget.scope {
            Scope::Every => _ = ids.insert(of(None)),
            Scope::SameCampaign => ids.extend(campaigns.iter().map(|campaign| of(Some(Arc::clone(campaign))))),
        }
    }
    ids
}
