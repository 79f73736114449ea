//! What the intents of a batch need of budgets.

use std::{collections::HashMap, sync::Arc, time::Duration};

use foldhash::fast::RandomState;

use crate::{
    basis::time::Time,
    batch::decider::Patience,
    intent::class::ClassNames,
    limit::budget::{
        BudgetId, WhenUnavailable,
        lease::{BudgetUse, Claim},
    },
    policy::{Mode, Policy},
};

/// Adds up what intents need.
pub(super) struct Needs<'p> {
    policy: &'p Policy,
    now: Time,
    patience: Patience,
    pub(super) claim: Claim,
    /// See [`BatchBudgets::rules`](super::BatchBudgets).
    pub(super) rules: Vec<usize>,
    /// The names of the budgets of each set of the claim.
    pub(super) names: Vec<Vec<Arc<str>>>,
    places: HashMap<BudgetId, u32, RandomState>,
}

impl<'p> Needs<'p> {
    pub(super) fn new(policy: &'p Policy, (now, judged_at): (Time, Duration), patience: Patience) -> Self {
        let claim = Claim { judged_at, budgets: Vec::new(), sets: Vec::new(), wants: Vec::new() };
        let (rules, names, places) = Default::default();
        Self { policy, now, patience, claim, rules, names, places }
    }

    /// Adds the set of budgets that intents of a class take from; `None`: it takes from none.
    pub(super) fn set(&mut self, class: &ClassNames<'_>) -> Option<u32> {
        let ids = self.policy.budgets.iter().enumerate();
        let ids: Vec<_> = ids.filter_map(|(rule, budget)| Some((rule, budget.id_for(class)?))).collect();
        if ids.is_empty() {
            return None;
        }
        self.names.push(ids.iter().map(|(_, id)| Arc::clone(&id.name)).collect());
        let places = ids.into_iter().map(|(rule, id)| self.place(rule, id)).collect();
        self.claim.sets.push(places);
        u32::try_from(self.claim.sets.len() - 1).ok()
    }

    fn place(&mut self, rule: usize, id: BudgetId) -> u32 {
        if let Some(place) = self.places.get(&id) {
            return *place;
        }
        let (budget, Patience { unavailable_after, may_defer, .. }) = (&self.policy.budgets[rule], self.patience);
        let unavailable_after = match (budget.on_unavailable, self.policy.mode) {
            // Nothing is kept back in shadow mode.
            (_, Mode::Shadow) => Some(Duration::ZERO),
            (WhenUnavailable::Wait, Mode::Enforce) if !may_defer => None,
            (WhenUnavailable::Wait | WhenUnavailable::Suppress, Mode::Enforce) => unavailable_after,
        };
        let place = u32::try_from(self.claim.budgets.len()).expect("a batch has fewer budgets than 2^32");
        let used = budget.used_by(id.clone(), &self.policy.timezone, self.now);
        self.claim.budgets.push(BudgetUse { unavailable_after, ..used });
        self.rules.push(rule);
        self.places.insert(id, place);
        place
    }
}
