//! How long a budget is in use, and what becomes of its tokens when it no longer is.

use std::time::Duration;

use super::{
    super::{held::Grant, length::KEPT, moment::Moment},
    BudgetSlot, first_refill,
};

/// A budget of which nothing is held is forgotten when it was not claimed for this long.
const FORGET: Duration = Duration::from_secs(60);

impl BudgetSlot {
    /// Whether intents come: the last one within a lease, and lately.
    pub(super) fn is_in_use(&self, now: Moment) -> bool {
        !self.is_superseded && now < self.claimed_at.plus(self.lease.get().min(KEPT))
    }

    /// Whether nobody waits, and every turn has its answer.
    fn is_quiet(&self) -> bool {
        self.waiting.is_empty() && self.call.is_none() && self.unanswered.is_none()
    }

    /// Until when that may wait for the next turn which is left of a lease that ends now. There is a turn soon while the budget is in use,
    /// and it goes at once when it no longer is. Where little is left of the budget, others may need the tokens before.
    pub(in crate::limit::budget::lease) fn back_by(&self, now: Moment) -> Moment {
        let is_scarce = self.closed.is_some() || self.used.is_none_or(|used| used >= self.key.limit / 10 * 9);
        if self.is_in_use(now) && !is_scarce { now.plus(self.lease.get()) } else { now }
    }

    /// When what is more than a first refill is for others, because intents no longer come here. What is held or was left of a lease may be
    /// half of all that the ledger had, and a lease lasts for up to a minute.
    pub(super) fn leaves_at(&self) -> Moment {
        let has_much = self.has_left_much || self.held.total() > first_refill(self.key.limit);
        if has_much && self.is_quiet() { self.claimed_at.plus(KEPT) } else { Moment::NEVER }
    }

    /// Whether that is for others now.
    pub(in crate::limit::budget::lease) fn leaves(&self, now: Moment) -> bool {
        self.leaves_at() <= now
    }

    /// Removes it from what is held. It begins anew when intents come again.
    pub(in crate::limit::budget::lease) fn leave(&mut self) -> Vec<Grant> {
        let first = first_refill(self.key.limit);
        self.has_left_much = false;
        self.batch = self.batch.min(first);
        self.held.take_beyond(first)
    }

    /// Another limit or period of the same budget is claimed: what is held of this one goes back, unless it is claimed again soon.
    pub(in crate::limit::budget::lease) fn supersede(&mut self) {
        self.is_superseded = true;
    }

    /// When nothing of it needs to be known any more, as it is.
    pub(super) fn over_at(&self) -> Moment {
        match (self.is_quiet(), self.is_superseded) {
            (true, true) => self.claimed_at.plus(KEPT),
            (true, false) if self.held.total() == 0 => self.claimed_at.plus(FORGET),
            _ => Moment::NEVER,
        }
    }

    /// Whether nothing of it needs to be known any more.
    pub(in crate::limit::budget::lease) fn is_over(&self, now: Moment) -> bool {
        self.over_at() <= now
    }
}
