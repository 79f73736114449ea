//! What limits gave to intents that are not approved, because a cap denies them or the store knows them, is offered to intents of the
//! same batch that these limits denied. Else an intent would be suppressed for want of what is given back a moment later.
//!
//! invariant: no intent is asked for after a later one of its user, as in a batch without limits.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::{
    BatchDecision, Disposition, GateResult, GatedBatch,
    capacity::{BackPermits, Lacks},
    pressure::BackPlaces,
};
use crate::{admit::AdmitBatch, class::ClassNames, policy::Mode, record::Records, routes::Pool, shard::UserHash};

/// What came back of a batch's limits.
struct Back {
    /// Tokens, by the budget's place in the claim.
    tokens: Vec<u64>,
    /// Permits, by the route's place in the policy.
    permits: Vec<BackPermits>,
    places: BackPlaces,
}

impl Back {
    fn is_nothing(&self) -> bool {
        let has_permits = self.permits.iter().any(|permits| permits.left(Pool::Reserved) > 0);
        self.places.is_empty() && !has_permits && self.tokens.iter().all(|left| *left == 0)
    }
}

impl BatchDecision {
    /// How often a batch offers what came back, at most; mostly for fewer intents each time.
    pub const MOST_OFFERS: usize = 16;

    /// Offers what came back to the intents that the limits denied, in their order, once the store has answered everything. `true`: some
    /// got it, and the store has to be asked what it has no answer to yet.
    pub fn offer<R: Records>(&mut self, gated: &mut GatedBatch<'_, R>) -> bool {
        // Nothing is denied in shadow mode.
        let has_limits = self.budgets.is_some() || self.pressure.is_some() || self.capacity.is_some();
        if !has_limits || self.eval.policy().mode == Mode::Shadow || gated.unanswered().next().is_some() {
            return false;
        }
        if !(0..gated.results.len()).any(|index| self.fate(gated, index).is_limited()) {
            return false;
        }
        let mut back = self.back(gated);
        if back.is_nothing() {
            return false;
        }
        let (asked, last_asked, now) = (gated.requests.requests.len(), last_asked(gated), self.now);
        let (records, decoded, mut has_offered) = (gated.records, gated.decoded, false);
        for (index, decoded) in decoded.iter().enumerate() {
            let Ok(intent) = decoded else { continue };
            let is_behind = || last_asked.get(&intent.user).is_some_and(|last| *last > index);
            if !self.fate(gated, index).is_limited()
                || is_behind()
                || !self.take_back(index, &intent.class(), &mut back)
            {
                continue;
            }
            let (segment, requests) = (gated.results[index].segment, &mut gated.requests.requests);
            let disposition = self.disposition((index, intent, now), segment, &records.get(index), requests);
            gated.results[index].disposition = disposition;
            has_offered = true;
        }
        let AdmitBatch { cap_sets, requests, .. } = &mut gated.requests;
        if let Some(place) = self.nothing_fits {
            requests[asked..].iter_mut().filter(|request| request.cap_set >= place).for_each(|of| of.cap_set += 1);
        }
        self.add_cap_sets(cap_sets, requests);
        has_offered
    }

    fn back<R>(&self, gated: &GatedBatch<'_, R>) -> Back {
        let fates = self.fates(gated);
        Back {
            tokens: self.budgets.as_ref().map(|budgets| budgets.back(fates)).unwrap_or_default(),
            permits: self.capacity.as_ref().map(|capacity| capacity.back(fates)).unwrap_or_default(),
            places: self.pressure.as_ref().map(|pressure| pressure.back(fates)).unwrap_or_default(),
        }
    }

    /// Takes what an intent needs of all limits, or nothing.
    fn take_back(&mut self, index: usize, class: &ClassNames<'_>, back: &mut Back) -> bool {
        let Self { eval, pressure, capacity, budgets, .. } = self;
        let lacks = capacity.as_ref().map_or(Lacks::Nothing, |capacity| capacity.lacks(index, eval.policy(), class));
        let has_permit = match lacks {
            Lacks::Nothing => true,
            Lacks::Permit(route, pool) => back.permits[route].left(pool) > 0,
            Lacks::More => false,
        };
        if !has_permit
            || pressure.as_ref().is_some_and(|pressure| pressure.lacks_place(index, &back.places))
            || budgets.as_ref().is_some_and(|budgets| budgets.lacks_tokens(index, &back.tokens))
        {
            return false;
        }
        if let (Some(capacity), Lacks::Permit(route, pool)) = (capacity, lacks) {
            capacity.give(index, (route, pool), &mut back.permits[route]);
        }
        if let Some(pressure) = pressure {
            pressure.give(index, &mut back.places);
        }
        if let Some(budgets) = budgets {
            budgets.give(index, &mut back.tokens);
        }
        true
    }
}

/// The last record of each user that the store was asked to decide.
fn last_asked<R>(gated: &GatedBatch<'_, R>) -> HashMap<UserHash, usize, RandomState> {
    let asked = |(index, gate_result): (usize, &GateResult)| match gate_result.disposition {
        Disposition::CheckCaps { request, .. } => Some((gated.request(request).user, index)),
        Disposition::Undecided | Disposition::Suppress(_) | Disposition::LookUp { .. } | Disposition::Bypass { .. } => {
            None
        }
    };
    gated.results.iter().enumerate().filter_map(asked).collect()
}
