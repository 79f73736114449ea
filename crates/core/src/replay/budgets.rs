//! The budgets of a replay: an exact count of what was approved, without leases and buckets.
//!
//! A worker approves up to some hundredths less in a rolling window, because it counts leases and whole buckets.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use crate::{
    budget::{Budget, BudgetId, SpanNow},
    class::ClassNames,
    ledger::{Account, Grain},
    policy::Policy,
    time::Time,
    verdict::{Cause, DenyingBudget, Suppressed},
};

/// What was approved, by the budgets of a policy.
#[derive(Debug, Clone)]
pub struct ReplayBudgets {
    policy: Arc<Policy>,
    accounts: HashMap<BudgetId, Account>,
    /// When each budget first denied an intent, by its place in the policy.
    first_spent: BTreeMap<usize, Time>,
}

/// The budget that denies an intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpentBudget {
    /// Its place in the policy.
    place: usize,
    used: u64,
    /// When it has room for the intent again; `None`: never.
    eligible_at: Option<Time>,
}

impl ReplayBudgets {
    /// Nothing was approved yet under this policy.
    #[must_use]
    pub fn new(policy: Arc<Policy>) -> Self {
        Self { policy, accounts: HashMap::new(), first_spent: BTreeMap::new() }
    }

    /// Whether the policy has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.policy.budgets.is_empty()
    }

    /// Counts an approval of before the replay, whatever the order.
    pub fn remember(&mut self, class: &ClassNames<'_>, cost: u8, at: Time) {
        for (_, id, span) in self.budgets_of(class, at) {
            self.accounts.entry(id).or_default().add(Grain::Exact.place(span, at.millis()), u64::from(cost));
        }
    }

    /// Takes what an intent costs from all of its budgets, or from none. Calls are in the order of time.
    ///
    /// # Errors
    /// The budget that denies; of several, the one that frees last.
    pub fn take(&mut self, class: &ClassNames<'_>, cost: u8, now: Time) -> Result<(), SpentBudget> {
        let mut denying: Option<SpentBudget> = None;
        let budgets = self.budgets_of(class, now);
        let (cost, now_ms) = (u64::from(cost), now.millis());
        for (place, id, span) in &budgets {
            let account = self.accounts.entry(id.clone()).or_default();
            account.drop_ended(*span, now_ms);
            let free_in_ms = account.free_in_ms(*span, now_ms, self.policy.budgets[*place].limit, cost);
            if free_in_ms == Some(0) {
                continue;
            }
            self.first_spent.entry(*place).or_insert(now);
            let eligible_at = free_in_ms.map(|wait| now.plus(wait));
            let spent = SpentBudget { place: *place, used: account.used(*span, now_ms), eligible_at };
            let frees = |spent: &SpentBudget| spent.eligible_at.map_or(i64::MAX, Time::millis);
            if denying.as_ref().is_none_or(|before| frees(before) < frees(&spent)) {
                denying = Some(spent);
            }
        }
        match denying {
            Some(spent) => Err(spent),
            None => {
                for (_, id, span) in budgets {
                    self.accounts.entry(id).or_default().add(Grain::Exact.place(span, now_ms), cost);
                }
                Ok(())
            }
        }
    }

    /// Gives back what an intent has taken at this time, because it is not approved after all.
    pub fn give_back(&mut self, class: &ClassNames<'_>, cost: u8, taken_at: Time) {
        for (_, id, span) in self.budgets_of(class, taken_at) {
            let place = Grain::Exact.place(span, taken_at.millis());
            self.accounts.entry(id).or_default().take_back(place, u64::from(cost));
        }
    }

    /// When each budget of the policy first denied an intent; by its name, those that did.
    pub fn first_spent(&self) -> impl Iterator<Item = (&str, Time)> {
        self.first_spent.iter().map(|(place, at)| (&*self.policy.budgets[*place].name, *at))
    }

    /// The budgets that an intent of this class takes from: the place in the policy, which one, and its window.
    fn budgets_of(&self, class: &ClassNames<'_>, now: Time) -> Vec<(usize, BudgetId, SpanNow)> {
        let used = |(place, budget): (usize, &Budget)| {
            Some((place, budget.id_for(class)?, budget.span.at(&self.policy.timezone, now)))
        };
        self.policy.budgets.iter().enumerate().filter_map(used).collect()
    }
}

impl SpentBudget {
    /// What becomes of the intent.
    #[must_use]
    pub fn suppressed<'p>(&self, policy: &'p Policy) -> Suppressed<'p> {
        let Budget { name, limit, .. } = &policy.budgets[self.place];
        let budget = DenyingBudget { name, limit: *limit, used: self.used };
        Suppressed { cause: Cause::Budget(budget), eligible_at: self.eligible_at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{document::Format, policy_file::parse_policy};

    const PUSH: ClassNames<'_> = ClassNames { channel: Some("push"), category: None, campaign: Some("spring") };
    const SMS: ClassNames<'_> = ClassNames { channel: Some("sms"), category: None, campaign: None };

    fn budgets(text: &str) -> ReplayBudgets {
        let text = format!("version = \"1\"\ntimezone = \"Asia/Singapore\"\n[default]\ncaps = \"unlimited\"\n{text}");
        ReplayBudgets::new(Arc::new(parse_policy("p", &text, Format::Toml, i64::MAX).unwrap()))
    }

    fn at(text: &str) -> Time {
        Time::from_rfc3339(&format!("2026-11-16T{text}Z")).unwrap()
    }

    /// The name of the budget that denies, what is used of it, and when it frees.
    fn denied(budgets: &mut ReplayBudgets, class: &ClassNames<'_>, cost: u8, now: Time) -> (String, u64, Option<Time>) {
        let spent = budgets.take(class, cost, now).unwrap_err();
        let policy = Arc::clone(&budgets.policy);
        let Suppressed { cause: Cause::Budget(budget), eligible_at } = spent.suppressed(&policy) else { panic!() };
        (budget.name.to_owned(), budget.used, eligible_at)
    }

    #[test]
    fn a_rolling_window_frees_to_the_millisecond_when_enough_has_left_it() {
        let mut budgets = budgets("[[budgets]]\nname = \"b\"\nlimit = 10\nwindow = \"1h\"\n");
        for (time, cost) in [("00:00:00", 3), ("00:10:00", 4), ("00:20:00", 3)] {
            budgets.take(&PUSH, cost, at(time)).unwrap();
        }
        assert_eq!(denied(&mut budgets, &PUSH, 1, at("00:30:00")), ("b".to_owned(), 10, Some(at("01:00:00"))));
        assert_eq!(denied(&mut budgets, &SMS, 4, at("00:30:00")), ("b".to_owned(), 10, Some(at("01:10:00"))));
        assert_eq!(denied(&mut budgets, &PUSH, 11, at("00:30:00")).2, None, "more than the limit never fits");
        budgets.take(&PUSH, 1, at("00:59:59.999")).unwrap_err();
        budgets.take(&PUSH, 3, at("01:00:00")).unwrap();
        assert_eq!(budgets.first_spent().collect::<Vec<_>>(), [("b", at("00:30:00"))]);
    }

    #[test]
    fn a_period_ends_in_the_policy_s_zone_and_a_total_never() {
        let mut budgets = budgets(
            "[[budgets]]\nname = \"day\"\nlimit = 2\nper = \"day\"\n\
             [[budgets]]\nname = \"all\"\nchannel = \"sms\"\nlimit = 3\ntotal = true\n",
        );
        budgets.take(&SMS, 2, at("15:59:59")).unwrap();
        assert_eq!(denied(&mut budgets, &PUSH, 1, at("15:59:59")), ("day".to_owned(), 2, Some(at("16:00:00"))));
        budgets.take(&SMS, 1, at("16:00:00")).unwrap();
        assert_eq!(denied(&mut budgets, &SMS, 1, at("16:00:01")), ("all".to_owned(), 3, None));
        // An intent takes from all of its budgets or from none.
        budgets.take(&PUSH, 1, at("16:00:01")).unwrap();
        assert_eq!(denied(&mut budgets, &SMS, 1, at("16:00:01")).0, "all", "the one that frees last denies");
    }

    #[test]
    fn each_campaign_has_its_own_and_what_is_given_back_is_there_for_others() {
        let mut budgets = budgets("[[budgets]]\nname = \"b\"\neach = \"campaign\"\nlimit = 1\ntotal = true\n");
        let summer = ClassNames { campaign: Some("summer"), ..PUSH };
        budgets.take(&PUSH, 1, at("00:00:00")).unwrap();
        budgets.take(&summer, 1, at("00:00:00")).unwrap();
        budgets.take(&SMS, 9, at("00:00:00")).unwrap();
        budgets.take(&summer, 1, at("00:00:01")).unwrap_err();
        budgets.give_back(&PUSH, 1, at("00:00:00"));
        budgets.take(&PUSH, 1, at("00:00:02")).unwrap();
    }

    #[test]
    fn approvals_of_before_the_replay_count_in_any_order() {
        let mut budgets = budgets("[[budgets]]\nname = \"b\"\nlimit = 3\nwindow = \"1h\"\n");
        for time in ["00:50:00", "00:10:00", "00:40:00"] {
            budgets.remember(&PUSH, 1, at(time));
        }
        assert_eq!(denied(&mut budgets, &PUSH, 1, at("01:00:00")).2, Some(at("01:10:00")));
        budgets.take(&PUSH, 1, at("01:10:00")).unwrap();
    }
}
