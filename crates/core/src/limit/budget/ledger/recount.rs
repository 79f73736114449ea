//! Counts approved records again: what a rebuild writes into the ledger of a budget that was lost.
//!
//! Each approval counts where the ledger would have counted a token that was granted at its `decided_at` with a lease that ends at
//! once: so no window of approvals exceeds the limit. A record counts in the budgets that its header names; where each campaign has a
//! budget of its own, in that of its campaign.

use std::{collections::BTreeMap, sync::Arc};

use super::{Account, account::is_kept};
use crate::{
    basis::{time::Time, zone::Zone},
    history::decide::Scope,
    limit::budget::{Budget, BudgetId, RecordSpend, SpanNow},
};

/// The approvals of some budgets.
#[derive(Debug, Clone)]
pub struct Recount {
    zone: Zone,
    now: Time,
    budgets: BTreeMap<Arc<str>, CountedBudget>,
    accounts: BTreeMap<BudgetId, Account>,
}

#[derive(Debug, Clone)]
struct CountedBudget {
    budget: Budget,
    /// Its window when counting began.
    window: SpanNow,
}

impl Recount {
    /// Nothing counted yet, of these budgets of a policy in this zone. Approvals that no longer count at `now` are left out.
    #[must_use]
    pub fn new<'b>(budgets: impl IntoIterator<Item = &'b Budget>, zone: &Zone, now: Time) -> Self {
        let counted = |budget: &Budget| {
            let window = budget.span.at(zone, now);
            (Arc::clone(&budget.name), CountedBudget { budget: budget.clone(), window })
        };
        let budgets = budgets.into_iter().map(counted).collect();
        Self { zone: zone.clone(), now, budgets, accounts: BTreeMap::new() }
    }

    /// The time from which on approvals count in any of them; `None` where none is counted.
    #[must_use]
    pub fn starts_at(&self) -> Option<Time> {
        self.budgets.values().map(|counted| counted.window.start(self.now)).min()
    }

    pub fn add(&mut self, spent: &RecordSpend) {
        let names = spent.budgets.iter().filter_map(|name| self.budgets.get_key_value(name.as_str()));
        for (name, counted) in names {
            let campaign = match (counted.budget.scope, &spent.campaign) {
                (Scope::Every, _) => None,
                (Scope::SameCampaign, Some(campaign)) => Some(campaign.as_str().into()),
                // It was approved when all shared one budget.
                (Scope::SameCampaign, None) => continue,
            };
            if let Some(place) = self.place(counted, spent.at) {
                let id = BudgetId { name: Arc::clone(name), campaign };
                self.accounts.entry(id).or_default().add(place, u64::from(spent.cost));
            }
        }
    }

    /// The place of an approval; `None` where it no longer counts.
    fn place(&self, counted: &CountedBudget, at: Time) -> Option<i64> {
        let span = match counted.window {
            SpanNow::Period { start, .. } if at < start => return None,
            // The next one has begun meanwhile.
            SpanNow::Period { end, .. } if at >= end => counted.budget.span.at(&self.zone, at),
            window @ (SpanNow::Rolling { .. } | SpanNow::Period { .. } | SpanNow::Total) => window,
        };
        Some(span.bucket(at.millis())).filter(|place| is_kept(span, *place, self.now.millis()))
    }

    /// Adds what another has counted of the same budgets.
    pub fn merge(&mut self, other: Self) {
        for (id, account) in other.accounts {
            self.accounts.entry(id).or_default().merge(account);
        }
    }

    /// The budgets that approvals were found of.
    pub fn found(&self) -> impl Iterator<Item = &BudgetId> {
        self.accounts.keys()
    }

    #[must_use]
    pub fn of(&self, id: &BudgetId) -> Account {
        self.accounts.get(id).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        basis::window::Period,
        limit::budget::{BudgetSpan, tests::budget},
    };

    fn rolling(length_ms: i64) -> BudgetSpan {
        BudgetSpan::Rolling { length_ms, text: "x".into() }
    }

    fn at(text: &str) -> Time {
        Time::from_rfc3339(text).unwrap()
    }

    fn spent(at: Time, cost: u8, campaign: Option<&str>, budgets: &[&str]) -> RecordSpend {
        let budgets = budgets.iter().map(|name| (*name).to_owned()).collect();
        RecordSpend { at, cost, campaign: campaign.map(str::to_owned), budgets }
    }

    fn id(name: &str, campaign: Option<&str>) -> BudgetId {
        BudgetId { name: name.into(), campaign: campaign.map(Into::into) }
    }

    fn charges(recount: &Recount, id: &BudgetId) -> Vec<(i64, u64)> {
        recount.of(id).charges().collect()
    }

    #[test]
    fn an_approval_counts_in_the_budgets_that_its_header_names_and_each_campaign_in_its_own() {
        let budgets = [("all", Scope::Every), ("each", Scope::SameCampaign)];
        let budgets = budgets.map(|(name, scope)| budget(name, scope, BudgetSpan::Total));
        let now = at("2026-11-20T12:00:00Z");
        let mut recount = Recount::new(&budgets, &Zone::utc(), now);
        let long_ago = at("2020-01-01T00:00:00Z");
        recount.add(&spent(long_ago, 3, Some("spring"), &["all", "each"]));
        recount.add(&spent(now, 4, Some("summer"), &["each"]));
        recount.add(&spent(now, 5, None, &["all", "each", "gone"]));
        recount.add(&spent(now, 6, Some("spring"), &[]));
        let mut other = Recount::new(&budgets, &Zone::utc(), now);
        other.add(&spent(now, 7, Some("spring"), &["each"]));
        recount.merge(other);

        let found: Vec<BudgetId> = recount.found().cloned().collect();
        assert_eq!(found, [id("all", None), id("each", Some("spring")), id("each", Some("summer"))]);
        let tokens = |id: &BudgetId| charges(&recount, id);
        assert_eq!(found.iter().map(tokens).collect::<Vec<_>>(), [[(0, 8)], [(0, 10)], [(0, 4)]]);
        assert_eq!(recount.starts_at(), Some(Time::MIN), "in total, all counts");
    }

    #[test]
    fn a_rolling_window_counts_what_has_not_left_it_in_the_bucket_that_the_time_is_rounded_up_to() {
        // Buckets of a second.
        let rolling = budget("rolling", Scope::Every, rolling(60_000));
        let now = at("2026-11-20T12:00:00Z");
        let mut recount = Recount::new([&rolling], &Zone::utc(), now);
        assert_eq!(recount.starts_at(), Some(now.plus(-60_000)));
        for (before_ms, cost) in [(61_000, 1), (60_001, 2), (60_000, 4), (59_999, 8), (59_000, 16), (1, 32), (0, 64)] {
            recount.add(&spent(now.plus(-before_ms), cost, None, &["rolling"]));
        }
        let bucket = |before_ms: i64| now.millis() - before_ms;
        assert_eq!(charges(&recount, &id("rolling", None)), [(bucket(59_000), 24), (bucket(0), 96)]);
    }

    #[test]
    fn a_period_counts_its_own_approvals_in_the_zone_of_the_policy_and_those_of_one_that_begins_meanwhile() {
        let daily = budget("daily", Scope::Every, BudgetSpan::Per(Period::Day));
        for (zone, start, end) in [
            ("Asia/Singapore", "2026-11-19T16:00:00Z", "2026-11-20T16:00:00Z"),
            // The days on which summer time begins and ends have 23 and 25 hours.
            ("Europe/Berlin", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"),
            ("Europe/Berlin", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"),
        ] {
            let (zone, start, end) = (Zone::named(zone).unwrap(), at(start), at(end));
            for now in [start, end.plus(-1)] {
                assert_eq!(daily.span.at(&zone, now), SpanNow::Period { start, end });
                let mut recount = Recount::new([&daily], &zone, now);
                assert_eq!(recount.starts_at(), Some(start));
                for (time, cost) in [(start.plus(-1), 1), (start, 2), (end.plus(-1), 4), (end, 8)] {
                    recount.add(&spent(time, cost, None, &["daily"]));
                }
                assert_eq!(charges(&recount, &id("daily", None)), [(start.millis(), 6), (end.millis(), 8)]);
                let used = |at| recount.of(&id("daily", None)).used(daily.span.at(&zone, at), at.millis());
                assert_eq!([now, end].map(used), [6, 8]);
            }
        }
    }
}
