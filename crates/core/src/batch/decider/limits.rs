//! What a batch has of the limits that all instances share. Each is asked of intents that nothing before it denies: the gate, pressure,
//! routes, budgets.

use std::sync::Arc;

use super::{
    Decider, GateDenial, Takes, budgets::BatchBudgets, capacity::BatchCapacity, fate::Fates, ground::Ground,
    intents::Intents, kept::KeptTokens, pressure::BatchPressure,
};
use crate::{basis::time::Time, batch::record::Records, limit::route::routes::Taken, policy::Mode};

/// The limits of one batch. Places and permits that nobody used go back when it is dropped.
#[derive(Default)]
pub(super) struct BatchLimits {
    /// `None` where there is no pressure.
    pub(super) pressure: Option<BatchPressure>,
    /// `None` where there are no routes.
    pub(super) capacity: Option<BatchCapacity>,
    /// `None` where no intent takes from a budget.
    pub(super) budgets: Option<BatchBudgets>,
    /// What is kept of rounds before this one.
    pub(super) kept: KeptTokens,
}

impl BatchLimits {
    /// Takes places and permits, and finds what is needed of budgets.
    pub(super) fn take<R: Records>(decider: &Decider, intents: &mut Intents<'_, R>, ground: Ground<'_>) -> Self {
        let Ground { times, passed, takes, budgets, .. } = ground;
        let (policy, now) = (Arc::clone(intents.eval.policy()), times.first());
        let mut limits = Self::default();
        if policy.pressure.is_some()
            && let Some(pressure) = &decider.pressure
        {
            limits.pressure = BatchPressure::of(pressure, intents, (now, passed), matches!(takes, Takes::Nothing));
        }
        // Nothing waits for a route in shadow mode.
        if !policy.routes.is_empty()
            && policy.mode == Mode::Enforce
            && let Some(routes) = &decider.routes
        {
            limits.capacity = Some(BatchCapacity::of(routes, intents, &limits, takes, passed));
        }
        if !policy.budgets.is_empty()
            && let Some(patience) = budgets
        {
            limits.budgets = BatchBudgets::of(intents, &limits, (now, passed), patience);
        }
        limits
    }

    pub(super) const fn is_empty(&self) -> bool {
        let Self { pressure, capacity, budgets, .. } = self;
        pressure.is_none() && capacity.is_none() && budgets.is_none()
    }

    /// Why one of them denies what a record brings at `now`, which the gate lets in.
    #[inline]
    pub(super) fn denial(&self, record: usize, now: Time) -> Option<GateDenial> {
        let Self { pressure, capacity, budgets, .. } = self;
        let denial = pressure.as_ref().and_then(|pressure| pressure.denial(record, now));
        let denial = denial.or_else(|| capacity.as_ref()?.denial(record, now));
        denial.or_else(|| budgets.as_ref()?.denial(record))
    }

    /// Gives back what was kept of intents that this round has spent other tokens for, and of those that no round before it has recorded:
    /// where an earlier reader had, that one has paid.
    pub(super) fn settle_kept(&mut self, fates: &Fates) {
        let Self { budgets, kept, .. } = self;
        if !kept.is_empty() {
            let since = kept.since();
            kept.give_back(goes_back(budgets.as_ref(), fates, since));
        }
    }

    /// Whether that gives something back.
    pub(super) fn frees_kept(&self, fates: &Fates) -> bool {
        let Self { budgets, kept, .. } = self;
        kept.has_any(goes_back(budgets.as_ref(), fates, kept.since()))
    }

    /// The batch is not decided: gives back all tokens but those of what is recorded, or may be. Whoever judges it again claims the same
    /// again.
    pub(super) fn give_up(&mut self, fates: &Fates) -> KeptTokens {
        self.settle_kept(fates);
        let round = self.budgets.as_mut().and_then(|budgets| budgets.give_up(fates));
        let mut kept = std::mem::take(&mut self.kept);
        kept.add(round);
        kept
    }

    pub(super) fn permits(&mut self) -> Vec<Taken> {
        self.capacity.take().map(|capacity| capacity.used(|_| true)).unwrap_or_default()
    }
}

/// Whether the tokens go back that rounds from `since` on have kept of a record.
fn goes_back(budgets: Option<&BatchBudgets>, fates: &Fates, since: Time) -> impl Fn(usize) -> bool {
    move |record| {
        let is_spent = budgets.is_some_and(|budgets| budgets.is_spent(record, fates));
        is_spent || fates.was_unrecorded(record, since)
    }
}
