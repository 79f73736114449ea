//! The budgets of campaigns that a rebuild restores: of those that something names, and of the others.
//!
//! The policy, the approved topic and Redis's table name campaigns. If that table was lost, or its node may have returned with an old
//! snapshot, nothing may name a campaign whose records are gone. So a budget that the topic does not reach back for is closed for all
//! campaigns that have no key, until a person says what they have used.

use std::{cmp::Reverse, collections::BTreeSet, sync::Arc};

use weir_core::{
    basis::time::Time,
    intent::class::table_name,
    limit::budget::{Budget, BudgetId, ledger::Recount},
};
use weir_redis::rebuild::{BudgetKeyState, Rebuild, UnknownCampaigns};

use super::{CLOCKS_DIFFER_MS, KEEP_LOCK_EVERY, RebuildBudgets};
use crate::cli::rebuild::{
    fill::keep_lock,
    named_budgets::for_unknown,
    patient::patiently,
    summary::{BudgetLine, BudgetOutcome},
};

impl RebuildBudgets {
    /// The names of all campaigns that have a number, or are in the policy: where all is lost, those of old records have none.
    pub(super) async fn campaigns(&mut self) -> anyhow::Result<BTreeSet<Arc<str>>> {
        let known = patiently(async || self.restorer.campaigns().await).await?;
        let mut names: BTreeSet<Arc<str>> = known.into_iter().collect();
        names.extend(self.policy.campaigns().map(|name| Arc::<str>::from(table_name(name))));
        Ok(names)
    }

    /// Adds the budgets of campaigns of the shards that are restored: those that were found, and of all campaigns that are known those
    /// that are there, and those to which the topic does not reach back.
    pub(super) async fn add_campaigns(&mut self, counted: &Recount, now: Time) -> anyhow::Result<()> {
        let found: BTreeSet<&BudgetId> = counted.found().filter(|id| id.campaign.is_some()).collect();
        let mut ids: BTreeSet<BudgetId> = found.iter().map(|id| (*id).clone()).collect();
        if self.policy.budgets.iter().any(Budget::is_of_each_campaign) {
            let known = self.campaigns().await?;
            let budgets = self.policy.budgets.iter().filter(|budget| budget.is_of_each_campaign());
            ids.extend(budgets.flat_map(|budget| of_campaigns(budget, &known)));
        }
        ids.retain(|id| self.restorer.is_restored(id) && !self.open.contains_key(id) && !self.lines.contains_key(id));
        let ids: Vec<BudgetId> = ids.into_iter().collect();
        let states = patiently(async || self.restorer.look(&ids, now).await).await?;
        for (id, state) in ids.into_iter().zip(states) {
            // What is not there and was not spent is as good as new.
            let is_new = state == BudgetKeyState::Absent && !self.too_short.contains(&id.name) && !found.contains(&id);
            if !is_new {
                self.open.insert(id, state);
            }
        }
        Ok(())
    }

    /// Leaves out totals of campaigns that are new to their shards and that these have no room for, and marks them as gone: they count as
    /// spent. Spent ones go first, then the ones with the least counted use: invented names have little. One that an argument names stays.
    pub(super) async fn make_room(
        &mut self,
        rebuild: &mut Rebuild,
        counted: &Recount,
        now: Time,
    ) -> anyhow::Result<()> {
        let mut totals = Vec::new();
        for (id, found) in &self.open {
            let Some(budget) = self.budget(id) else { continue };
            let span = budget.span.at(&self.policy.timezone, now);
            let used = counted.of(id).used(span, now.millis());
            let has_key = matches!(found, BudgetKeyState::Open | BudgetKeyState::Closed(_));
            let is_new = *found == BudgetKeyState::Absent && used == 0 && !self.too_short.contains(&id.name);
            let is_named = self.named.is_named(id) || self.named.used(id).is_some();
            if id.is_total_of_campaign(span) && !has_key && !is_new && !is_named {
                totals.push((used >= budget.limit, Reverse(used), id.clone()));
            }
        }
        totals.sort_unstable();
        let totals: Vec<BudgetId> = totals.into_iter().map(|(.., id)| id).collect();
        let gone = patiently(async || self.restorer.without_room(&totals).await).await?;
        for some in gone.chunks(KEEP_LOCK_EVERY) {
            keep_lock(rebuild).await?;
            patiently(async || self.restorer.mark_gone(some).await).await?;
        }
        gone.iter().for_each(|id| drop(self.open.remove(id)));
        self.gone = gone.len();
        Ok(())
    }

    /// Closes budgets of campaigns that nothing names, in the shards that are restored. `complete_since`: from when on all approvals were
    /// there to be counted.
    pub(super) async fn close_unknown(&mut self, complete_since: Time, now: Time) -> anyhow::Result<()> {
        let lost_at = patiently(async || self.restorer.names_lost_at().await).await?;
        let Some(lost_at) = lost_at else { return Ok(()) };
        let why = format!(
            "Redis may have lost names of campaigns, and approvals before {complete_since} are no longer on the approved topic"
        );
        let mut closed = Vec::new();
        // One that lists its campaigns has no others.
        let is_open_ended = |budget: &&Budget| budget.is_of_each_campaign() && budget.selection.campaigns.is_none();
        for budget in self.policy.budgets.iter().filter(is_open_ended) {
            let span = budget.span.at(&self.policy.timezone, now);
            // All names that were given since the loss are there.
            let are_named = span.start(now).plus(-CLOCKS_DIFFER_MS) > lost_at;
            let are_new = self.named.new_campaigns.contains(&budget.name);
            if are_named || are_new || !self.too_short.contains(&budget.name) {
                continue;
            }
            let id = BudgetId { name: Arc::clone(&budget.name), campaign: None };
            let line = BudgetLine::closed(&id, why.clone(), for_unknown(&id.name)).of_unknown();
            self.lines.insert(id, line);
            let (budget, until) = (Arc::clone(&budget.name), span.over_at(now));
            closed.push(UnknownCampaigns { budget, until, why: why.clone() });
        }
        Ok(patiently(async || self.restorer.close_unknown(&closed).await).await?)
    }

    /// Opens the budgets whose campaigns that nothing names are new.
    pub(super) async fn open_unknown(&mut self) -> anyhow::Result<()> {
        for name in &self.named.new_campaigns {
            patiently(async || self.restorer.open_unknown(name).await).await?;
            let id = BudgetId { name: Arc::clone(name), campaign: None };
            let line = BudgetLine::done(&id, BudgetOutcome::Opened, 0).of_unknown();
            self.lines.insert(id, line);
        }
        Ok(())
    }
}

/// The budgets of the campaigns that one selects, of those that are known.
fn of_campaigns(budget: &Budget, known: &BTreeSet<Arc<str>>) -> Vec<BudgetId> {
    let selected = budget.selection.campaigns.as_ref();
    let selected: Option<BTreeSet<_>> = selected.map(|names| names.iter().map(|name| table_name(name)).collect());
    let selects = |campaign: &&Arc<str>| selected.as_ref().is_none_or(|names| names.contains(&***campaign));
    let of = |campaign: &Arc<str>| BudgetId { name: Arc::clone(&budget.name), campaign: Some(Arc::clone(campaign)) };
    known.iter().filter(selects).map(of).collect()
}
