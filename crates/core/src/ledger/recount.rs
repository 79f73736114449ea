//! Counts approved records again: what a rebuild writes into the ledger of a budget that was lost.
//!
//! Each approval counts where the ledger would have counted a token that was granted at its `decided_at` with a lease that ends at
//! once: so no window of approvals exceeds the limit. A record counts in the budgets that its header names; where each campaign has a
//! budget of its own, in that of its campaign.

use std::{collections::BTreeMap, sync::Arc};

use super::{BUCKETS, book::rounded_up};
use crate::{
    approved::Spent,
    budget::{Budget, BudgetId, SpanNow},
    decide::Scope,
    time::Time,
    zone::Zone,
};

/// Tokens by bucket: of a rolling window the time rounded up, of a calendar period its start, both in milliseconds since 1970; 0 in
/// total.
pub type Buckets = BTreeMap<i64, u64>;

/// The approvals of some budgets.
#[derive(Debug, Clone)]
pub struct Recount {
    zone: Zone,
    now: Time,
    budgets: BTreeMap<Arc<str>, Counted>,
    tokens: BTreeMap<BudgetId, Buckets>,
}

/// A budget that is counted.
#[derive(Debug, Clone)]
struct Counted {
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
            (Arc::clone(&budget.name), Counted { budget: budget.clone(), window })
        };
        let budgets = budgets.into_iter().map(counted).collect();
        Self { zone: zone.clone(), now, budgets, tokens: BTreeMap::new() }
    }

    /// Whether there is nothing to count.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.budgets.is_empty()
    }

    /// The time from which on approvals count in any of them; `None` where none is counted.
    #[must_use]
    pub fn starts_at(&self) -> Option<Time> {
        self.budgets.values().map(|counted| start(&counted.budget, &self.zone, self.now)).min()
    }

    /// Counts an approved record.
    pub fn add(&mut self, spent: &Spent) {
        let names = spent.budgets.iter().filter_map(|name| self.budgets.get_key_value(name.as_str()));
        for (name, counted) in names {
            let campaign = match (counted.budget.scope, &spent.campaign) {
                (Scope::Every, _) => None,
                (Scope::SameCampaign, Some(campaign)) => Some(campaign.as_str().into()),
                // It was approved when all shared one budget.
                (Scope::SameCampaign, None) => continue,
            };
            if let Some(bucket) = self.bucket(counted, spent.at) {
                let id = BudgetId { name: Arc::clone(name), campaign };
                *self.tokens.entry(id).or_default().entry(bucket).or_default() += u64::from(spent.cost);
            }
        }
    }

    /// The bucket of an approval; `None` where it no longer counts.
    fn bucket(&self, counted: &Counted, at: Time) -> Option<i64> {
        match counted.window {
            SpanNow::Total => Some(0),
            SpanNow::Rolling { window_ms } => {
                let bucket = bucket(window_ms, at);
                (bucket + window_ms > self.now.millis()).then_some(bucket)
            }
            SpanNow::Period { start, .. } if at < start => None,
            SpanNow::Period { start, end } if at < end => Some(start.millis()),
            // The next one has begun meanwhile.
            SpanNow::Period { .. } => match counted.budget.span.at(&self.zone, at) {
                SpanNow::Period { start, .. } => Some(start.millis()),
                SpanNow::Rolling { .. } | SpanNow::Total => None,
            },
        }
    }

    /// Adds what another has counted of the same budgets.
    pub fn merge(&mut self, other: Self) {
        for (id, buckets) in other.tokens {
            let own = self.tokens.entry(id).or_default();
            for (bucket, tokens) in buckets {
                *own.entry(bucket).or_default() += tokens;
            }
        }
    }

    /// The budgets that approvals were found of.
    pub fn found(&self) -> impl Iterator<Item = &BudgetId> {
        self.tokens.keys()
    }

    /// The tokens of a budget.
    #[must_use]
    pub fn of(&self, id: &BudgetId) -> Buckets {
        self.tokens.get(id).cloned().unwrap_or_default()
    }
}

/// The time from which on approvals count at `now`: all of them in total.
#[must_use]
pub fn start(budget: &Budget, zone: &Zone, now: Time) -> Time {
    budget.span.at(zone, now).start(now)
}

/// The bucket that tokens spent at `at` count in.
#[must_use]
pub fn bucket_at(span: SpanNow, at: Time) -> i64 {
    match span {
        SpanNow::Rolling { window_ms } => bucket(window_ms, at),
        SpanNow::Period { start, .. } => start.millis(),
        SpanNow::Total => 0,
    }
}

/// How many of these tokens count at `now`.
#[must_use]
pub fn used(buckets: &Buckets, span: SpanNow, now: Time) -> u64 {
    let counts = |bucket: i64| match span {
        SpanNow::Rolling { window_ms } => bucket + window_ms > now.millis(),
        SpanNow::Period { start, .. } => bucket == start.millis(),
        SpanNow::Total => true,
    };
    buckets.iter().filter(|(bucket, _)| counts(**bucket)).map(|(_, tokens)| tokens).sum()
}

fn bucket(window_ms: i64, at: Time) -> i64 {
    rounded_up(at.millis(), window_ms / BUCKETS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        budget::{BudgetSpan, WhenUnavailable},
        policy::{Action, Period, Selection},
    };

    fn budget(name: &str, scope: Scope, span: BudgetSpan) -> Budget {
        Budget {
            name: name.into(),
            selection: Selection::default(),
            scope,
            limit: 10,
            span,
            best_effort: false,
            when_spent: Action::Suppress,
            on_unavailable: WhenUnavailable::Wait,
        }
    }

    fn rolling(length_ms: i64) -> BudgetSpan {
        BudgetSpan::Rolling { length_ms, text: "x".into() }
    }

    fn at(text: &str) -> Time {
        Time::from_rfc3339(text).unwrap()
    }

    fn spent(at: Time, cost: u8, campaign: Option<&str>, budgets: &[&str]) -> Spent {
        let budgets = budgets.iter().map(|name| (*name).to_owned()).collect();
        Spent { at, cost, campaign: campaign.map(str::to_owned), budgets }
    }

    fn id(name: &str, campaign: Option<&str>) -> BudgetId {
        BudgetId { name: name.into(), campaign: campaign.map(Into::into) }
    }

    #[test]
    fn an_approval_counts_in_the_budgets_that_its_header_names_and_each_campaign_in_its_own() {
        let budgets =
            [budget("all", Scope::Every, BudgetSpan::Total), budget("each", Scope::SameCampaign, BudgetSpan::Total)];
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
        let tokens = |id: &BudgetId| recount.of(id).into_iter().collect::<Vec<_>>();
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
        let buckets = recount.of(&id("rolling", None));
        assert_eq!(buckets.clone().into_iter().collect::<Vec<_>>(), [(bucket(59_000), 24), (bucket(0), 96)]);
        let window = SpanNow::Rolling { window_ms: 60_000 };
        assert_eq!(used(&buckets, window, now), 120);
        assert_eq!(used(&buckets, window, now.plus(1_000)), 96);
        assert_eq!(bucket_at(window, now.plus(1)), bucket(-1_000), "it leaves no earlier than a window later");
    }

    #[test]
    fn a_period_counts_its_own_approvals_in_the_zone_of_the_policy_and_those_of_one_that_begins_meanwhile() {
        let zone = Zone::named("Asia/Singapore").unwrap();
        let daily = budget("daily", Scope::Every, BudgetSpan::Per(Period::Day));
        let now = at("2026-11-20T15:59:00Z");
        let mut recount = Recount::new([&daily], &zone, now);
        let (today, tomorrow) = (at("2026-11-19T16:00:00Z"), at("2026-11-20T16:00:00Z"));
        assert_eq!(recount.starts_at(), Some(today));
        for (time, cost) in [(today.plus(-1), 1), (today, 2), (tomorrow.plus(-1), 4), (tomorrow, 8)] {
            recount.add(&spent(time, cost, None, &["daily"]));
        }
        let buckets = recount.of(&id("daily", None));
        assert_eq!(buckets.clone().into_iter().collect::<Vec<_>>(), [(today.millis(), 6), (tomorrow.millis(), 8)]);
        assert_eq!(used(&buckets, daily.span.at(&zone, now), now), 6);
        assert_eq!(used(&buckets, daily.span.at(&zone, tomorrow), tomorrow), 8);
    }

    #[test]
    fn the_days_on_which_summer_time_begins_and_ends_have_23_and_25_hours() {
        let zone = Zone::named("Europe/Berlin").unwrap();
        let daily = budget("daily", Scope::Every, BudgetSpan::Per(Period::Day));
        let days = [("2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"), ("2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z")];
        for (start, end) in days.map(|(start, end)| (at(start), at(end))) {
            for now in [start, end.plus(-1)] {
                assert_eq!(daily.span.at(&zone, now), SpanNow::Period { start, end });
                let mut recount = Recount::new([&daily], &zone, now);
                assert_eq!(recount.starts_at(), Some(start));
                for (time, cost) in [(start.plus(-1), 1), (start, 2), (end.plus(-1), 4), (end, 8)] {
                    recount.add(&spent(time, cost, None, &["daily"]));
                }
                let buckets = recount.of(&id("daily", None)).into_iter().collect::<Vec<_>>();
                assert_eq!(buckets, [(start.millis(), 6), (end.millis(), 8)]);
            }
        }
    }
}
