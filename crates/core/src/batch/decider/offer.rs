//! What limits gave to intents that are not approved, because a cap denies them or the store knows them, is offered to intents of the
//! same batch that these limits denied. Else an intent would be suppressed for want of what is given back a moment later.
//!
//! invariant: no intent is asked for after a later one of its user, as in a batch without limits.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::{AskedBatch, Disposition, GateResult};
use crate::{basis::shard::UserHash, batch::record::Records, policy::Mode};

/// How often a batch offers what came back, at most. Where its users are in no order, each time some six tenths come back of what came
/// back before.
const MOST_OFFERS: usize = 10;

impl<R: Records> AskedBatch<'_, R> {
    /// Offers what came back to the intents that the limits denied, in their order, once the store has answered everything. `true`: some
    /// got it, and the store has to be asked what it has no answer to yet. At most ten times a batch, and only while
    /// what came back is worth a call.
    pub fn offer(&mut self) -> bool {
        // Nothing is denied in shadow mode.
        let is_over = self.fates.mode == Mode::Shadow || self.offers == MOST_OFFERS;
        if self.gated.limits.is_empty() || is_over || self.unanswered().next().is_some() {
            return false;
        }
        if !(0..self.fates.results.len()).any(|record| self.fate(record).is_limited()) {
            return false;
        }
        if !self.gated.limits.come_back(&self.fates) {
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
            if self.gated.limits.give(record) {
                self.gated.intents.denials.lift(record);
                let result = &mut self.fates.results[record];
                result.disposition = self.gated.dispose(record, result.segment, &mut self.requests);
                has_offered = true;
            }
        }
        self.requests.add_cap_sets(asked, self.gated.intents.eval.take_cap_sets());
        self.offers += 1;
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
