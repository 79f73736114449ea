//! What limits gave to intents that are not approved, because a cap denies them or the store knows them, is offered to intents of the
//! same batch that these limits denied. Else an intent would be suppressed for want of what is given back a moment later.
//!
//! invariant: no intent is asked for after a later one of its user, as in a batch without limits.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::{
    AskedBatch, Disposition, GateResult,
    capacity::{BackPermits, Lacks},
    fate::Fates,
    limits::BatchLimits,
    pressure::BackPlaces,
};
use crate::{
    basis::shard::UserHash,
    batch::record::Records,
    intent::class::ClassNames,
    limit::route::routes::Pool,
    policy::{Mode, Policy},
};

/// How often a batch offers what came back, at most. Where its users are in no order, each time some six tenths come back of what came
/// back before.
pub const MOST_OFFERS: usize = 10;
/// What came back is worth another call of the store if it is one part in so many of what the limit gave, or more.
const WORTH: u64 = 100;

struct Back {
    /// Tokens, by the budget's place in the claim.
    tokens: Vec<u64>,
    /// Permits, by the route's place in the policy.
    permits: Vec<BackPermits>,
    places: BackPlaces,
}

impl Back {
    fn of(limits: &BatchLimits, fates: &Fates) -> Self {
        let BatchLimits { pressure, capacity, budgets, .. } = limits;
        Self {
            tokens: budgets.as_ref().map(|budgets| budgets.back(fates)).unwrap_or_default(),
            permits: capacity.as_ref().map(|capacity| capacity.back(fates)).unwrap_or_default(),
            places: pressure.as_ref().map(|pressure| pressure.back(fates)).unwrap_or_default(),
        }
    }

    /// Whether it is worth another call of the store.
    fn is_worth_it(&self, limits: &BatchLimits) -> bool {
        let BatchLimits { pressure, capacity, budgets, .. } = limits;
        let is_worth_it = |back: u64, given: u64| back > 0 && back.saturating_mul(WORTH) >= given;
        let of_pressure = pressure.as_ref().is_some_and(|of| is_worth_it(self.places.len(), of.placed()));
        let of_routes = || {
            let mut permits = capacity.iter().flat_map(|of| self.permits.iter().zip(of.given()));
            permits.any(|(back, given)| is_worth_it(back.left(Pool::Reserved), given))
        };
        let of_budgets = || {
            let mut tokens = budgets.iter().flat_map(|of| self.tokens.iter().zip(of.taken()));
            tokens.any(|(back, taken)| is_worth_it(*back, taken))
        };
        of_pressure || of_routes() || of_budgets()
    }

    /// Gives an intent what it needs of all limits, or nothing.
    fn give(&mut self, record: usize, limits: &mut BatchLimits, policy: &Policy, class: &ClassNames<'_>) -> bool {
        let BatchLimits { pressure, capacity, budgets, .. } = limits;
        let lacks = capacity.as_ref().map_or(Lacks::Nothing, |capacity| capacity.lacks(record, policy, class));
        let has_permit = match lacks {
            Lacks::Nothing => true,
            Lacks::Permit(route, pool) => self.permits[route].left(pool) > 0,
            Lacks::More => false,
        };
        if !has_permit
            || pressure.as_ref().is_some_and(|pressure| pressure.lacks_place(record, &self.places))
            || budgets.as_ref().is_some_and(|budgets| budgets.lacks_tokens(record, &self.tokens))
        {
            return false;
        }
        if let (Some(capacity), Lacks::Permit(route, pool)) = (capacity, lacks) {
            capacity.give(record, (route, pool), &mut self.permits[route]);
        }
        if let Some(pressure) = pressure {
            pressure.give(record, &mut self.places);
        }
        if let Some(budgets) = budgets {
            budgets.give(record, &mut self.tokens);
        }
        true
    }
}

impl<R: Records> AskedBatch<'_, R> {
    /// Offers what came back to the intents that the limits denied, in their order, once the store has answered everything. `true`: some
    /// got it, and the store has to be asked what it has no answer to yet. At most [`MOST_OFFERS`] times a batch, and only
    /// while what came back is worth a call.
    pub fn offer(&mut self) -> bool {
        // Nothing is denied in shadow mode.
        let is_shadow = self.fates.mode == Mode::Shadow;
        if self.gated.limits.is_empty() || is_shadow || self.unanswered().next().is_some() {
            return false;
        }
        if !(0..self.fates.results.len()).any(|record| self.fate(record).is_limited()) {
            return false;
        }
        let mut back = Back::of(&self.gated.limits, &self.fates);
        if !back.is_worth_it(&self.gated.limits) {
            return false;
        }
        let last_asked = self.last_asked();
        let (asked, decoded, mut has_offered) = (self.requests.len(), self.gated.intents.decoded, false);
        for (record, decoded) in decoded.iter().enumerate() {
            let Ok(intent) = decoded else { continue };
            let is_behind = || last_asked.get(&intent.user).is_some_and(|last| *last > record);
            if !self.fate(record).is_limited() || is_behind() {
                continue;
            }
            let policy = self.gated.intents.eval.policy();
            if back.give(record, &mut self.gated.limits, policy, &intent.class()) {
                let result = &mut self.fates.results[record];
                result.disposition = self.gated.dispose(record, result.segment, &mut self.requests);
                has_offered = true;
            }
        }
        self.requests.add_cap_sets(asked, self.gated.intents.eval.take_cap_sets());
        has_offered
    }

    /// The last record of each user that the store was asked to decide.
    fn last_asked(&self) -> HashMap<UserHash, usize, RandomState> {
        let asked = |(record, result): (usize, &GateResult)| match result.disposition {
            Disposition::CheckCaps { request, .. } => Some((self.request(request).user, record)),
            Disposition::Undecided
            | Disposition::Suppress(_)
            | Disposition::LookUp { .. }
            | Disposition::Bypass { .. } => None,
        };
        self.fates.results.iter().enumerate().filter_map(asked).collect()
    }
}
