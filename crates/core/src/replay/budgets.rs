//! The budgets of a replay: an exact count of what was approved, without leases and buckets.
//!
//! A worker approves up to some hundredths less in a rolling window, because it counts leases and whole buckets.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, mpsc},
    time::Duration,
};

use crate::{
    basis::time::Time,
    intent::class::ClassNames,
    limit::budget::{
        BudgetId,
        lease::{Answers, BudgetUse, Claim, Funded, LeaseNumber, Lender, Outcome, Settling, Spent, Unspent, Want},
        ledger::Account,
    },
    policy::Policy,
};

/// What was approved, by the budgets of a policy. It grants what the decider claims.
pub struct ReplayBudgets {
    policy: Arc<Policy>,
    accounts: HashMap<BudgetId, Account>,
    /// When a budget first denied an intent, by its name in the policy. A budget that denied none is not in it.
    pub first_spent: BTreeMap<Arc<str>, Time>,
    /// It hears what was granted and not spent.
    lender: Lender,
    unspent: mpsc::Receiver<Unspent>,
}

impl ReplayBudgets {
    /// Nothing was approved yet under this policy.
    pub fn new(policy: Arc<Policy>) -> Self {
        let (back, unspent) = mpsc::channel();
        let (accounts, first_spent) = Default::default();
        let lender: Lender = Arc::new(move |settling| match settling {
            // Nobody asks budgets any more that are gone.
            Settling::Unspent(tokens) => drop(back.send(tokens)),
            // All that was approved has been counted.
            Settling::Owed(_) => {}
        });
        Self { policy, accounts, first_spent, lender, unspent }
    }

    pub fn is_empty(&self) -> bool {
        self.policy.budgets.is_empty()
    }

    /// Counts an approval of before the replay, whatever the order.
    pub fn remember(&mut self, class: &ClassNames<'_>, cost: u8, at: Time) {
        for budget in &self.policy.budgets {
            let Some(id) = budget.id_for(class) else { continue };
            let place = budget.span.at(&self.policy.timezone, at).place(at.millis());
            self.accounts.entry(id).or_default().add(place, u64::from(cost));
        }
    }

    /// Takes what intents cost that come at `now`, of each from all of its budgets or from none. Calls are in the order of time.
    #[must_use]
    pub fn fund(&mut self, claim: &Arc<Claim>, now: Time) -> Funded {
        for (id, lease, tokens) in self.unspent.try_iter().flatten() {
            self.accounts.entry(id).or_default().take_back(lease.place(), tokens);
        }
        let mut outcomes = Vec::with_capacity(claim.wants.len());
        let mut spent = vec![None; claim.budgets.len()];
        for want in &claim.wants {
            outcomes.push(match self.take(claim, *want, now) {
                Ok(()) => Outcome::Granted,
                Err((place, denying)) => {
                    spent[place as usize] = Some(denying);
                    Outcome::Denied(place)
                }
            });
        }
        let lease = |used: &BudgetUse| Some(LeaseNumber::of_place(used, used.span.place(now.millis())));
        let leases = claim.budgets.iter().map(lease).collect();
        let counted_for_ms = vec![None; claim.budgets.len()];
        let answers = Answers { outcomes, spent, leases, counted_for_ms };
        Funded::new(Arc::clone(claim), answers, Arc::clone(&self.lender))
    }

    /// Takes what an intent costs from all of its budgets, or says which one denies; of several, the one that frees last.
    fn take(&mut self, claim: &Claim, want: Want, now: Time) -> Result<(), (u32, Spent)> {
        let (now_ms, cost) = (now.millis(), u64::from(want.cost));
        let places = &claim.sets[want.set as usize];
        let mut denying: Option<(u32, Spent)> = None;
        for place in places {
            let BudgetUse { id, limit, span, .. } = &claim.budgets[*place as usize];
            let account = self.accounts.entry(id.clone()).or_default();
            account.drop_ended(*span, now_ms);
            let free_in_ms = account.free_in_ms(*span, now_ms, *limit, cost);
            if free_in_ms == Some(0) {
                continue;
            }
            self.first_spent.entry(Arc::clone(&id.name)).or_insert(now);
            let free_at = |ms| claim.judged_at + Duration::from_millis(u64::try_from(ms).unwrap_or(0));
            let spent = Spent { used: account.used(*span, now_ms), free_at: free_in_ms.map(free_at) };
            let frees = |spent: &Spent| spent.free_at.unwrap_or(Duration::MAX);
            if denying.as_ref().is_none_or(|(_, before)| frees(before) < frees(&spent)) {
                denying = Some((*place, spent));
            }
        }
        if let Some(denying) = denying {
            return Err(denying);
        }
        for place in places {
            let BudgetUse { id, span, .. } = &claim.budgets[*place as usize];
            self.accounts.entry(id.clone()).or_default().add(span.place(now_ms), cost);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::budget::Budget;

    const PUSH: ClassNames<'_> = ClassNames { channel: Some("push"), category: None, campaign: Some("spring") };
    const SMS: ClassNames<'_> = ClassNames { channel: Some("sms"), category: None, campaign: None };
    const JUDGED_AT: Duration = Duration::from_secs(100);

    fn budgets(text: &str) -> ReplayBudgets {
        ReplayBudgets::new(Arc::new(Policy::uncapped(&format!("timezone = \"Asia/Singapore\"\n{text}"))))
    }

    fn at(text: &str) -> Time {
        Time::from_rfc3339(&format!("2026-11-16T{text}Z")).unwrap()
    }

    /// What one intent of this class claims.
    fn claim(policy: &Policy, class: &ClassNames<'_>, cost: u8, now: Time) -> Arc<Claim> {
        let used = |budget: &Budget| Some(budget.used_by(budget.id_for(class)?, &policy.timezone, now));
        let budgets: Vec<BudgetUse> = policy.budgets.iter().filter_map(used).collect();
        let sets = vec![(0..).take(budgets.len()).collect()];
        Arc::new(Claim { judged_at: JUDGED_AT, budgets, sets, wants: vec![Want { set: 0, cost }] })
    }

    /// The name of the budget that denies, what is used of it, and when it frees.
    type Denied = (String, u64, Option<Time>);

    fn take(budgets: &mut ReplayBudgets, class: &ClassNames<'_>, cost: u8, now: Time) -> Option<Denied> {
        let claim = claim(&budgets.policy, class, cost, now);
        let Answers { outcomes, spent, .. } = budgets.fund(&claim, now).keep();
        let place = match outcomes[..] {
            [Outcome::Denied(place)] => place as usize,
            [Outcome::Granted] => return None,
            _ => panic!("{outcomes:?}"),
        };
        let Spent { used, free_at } = spent[place].unwrap();
        let frees = |at: Duration| now.plus(i64::try_from((at - JUDGED_AT).as_millis()).unwrap());
        Some((claim.budgets[place].id.name.to_string(), used, free_at.map(frees)))
    }

    #[test]
    fn a_period_ends_in_the_policy_s_zone_and_a_total_never() {
        let mut budgets = budgets(
            "[[budgets]]\nname = \"day\"\nlimit = 2\nper = \"day\"\n\
             [[budgets]]\nname = \"all\"\nchannel = \"sms\"\nlimit = 3\ntotal = true\n",
        );
        assert_eq!(take(&mut budgets, &SMS, 2, at("15:59:59")), None);
        assert_eq!(take(&mut budgets, &PUSH, 1, at("15:59:59")), Some(("day".to_owned(), 2, Some(at("16:00:00")))));
        assert_eq!(take(&mut budgets, &SMS, 1, at("16:00:00")), None);
        assert_eq!(take(&mut budgets, &SMS, 1, at("16:00:01")), Some(("all".to_owned(), 3, None)));
        // An intent takes from all of its budgets or from none.
        assert_eq!(take(&mut budgets, &PUSH, 1, at("16:00:01")), None);
        assert_eq!(take(&mut budgets, &SMS, 1, at("16:00:01")).unwrap().0, "all", "the one that frees last denies");
    }

    #[test]
    fn each_campaign_has_its_own_and_what_is_given_back_is_there_for_others() {
        let mut budgets = budgets("[[budgets]]\nname = \"b\"\neach = \"campaign\"\nlimit = 1\ntotal = true\n");
        let summer = ClassNames { campaign: Some("summer"), ..PUSH };
        let claim = claim(&budgets.policy, &PUSH, 1, at("00:00:00"));
        let funded = budgets.fund(&claim, at("00:00:00"));
        assert_eq!(take(&mut budgets, &summer, 1, at("00:00:00")), None);
        assert_eq!(take(&mut budgets, &SMS, 9, at("00:00:00")), None);
        assert!(take(&mut budgets, &summer, 1, at("00:00:01")).is_some());
        assert!(take(&mut budgets, &PUSH, 1, at("00:00:02")).is_some());
        drop(funded);
        assert_eq!(take(&mut budgets, &PUSH, 1, at("00:00:02")), None);
    }

    #[test]
    fn approvals_of_before_the_replay_count_in_any_order() {
        let mut budgets = budgets("[[budgets]]\nname = \"b\"\nlimit = 3\nwindow = \"1h\"\n");
        for time in ["00:50:00", "00:10:00", "00:40:00"] {
            budgets.remember(&PUSH, 1, at(time));
        }
        assert_eq!(take(&mut budgets, &PUSH, 1, at("01:00:00")).unwrap().2, Some(at("01:10:00")));
        assert_eq!(take(&mut budgets, &PUSH, 1, at("01:10:00")), None);
    }
}
