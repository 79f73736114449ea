//! A ticket that waits for one budget.

use std::time::Duration;

use super::{claim::BudgetMode, moment::Moment};

/// A ticket that waits for this budget.
#[derive(Debug, Clone)]
pub(super) struct Waiter {
    /// Its place in the order of arrival, over all budgets.
    pub(super) place: u64,
    /// The tokens reserved for it, including those that are missing.
    pub(super) need: u64,
    /// The smallest cost that it needs them for.
    pub(super) smallest: u8,
    /// As in [`BudgetUse`](super::BudgetUse).
    pub(super) unavailable_after: Option<Duration>,
    /// Whether the call in flight asks for what it lacks.
    pub(super) is_asked: bool,
    /// The budget's answer to this ticket, once known, until when: the ledger could not grant all that it was asked for. Without
    /// it, a ticket would wait for as long as a little frees again and again.
    pub(super) settled: Option<(BudgetMode, Moment)>,
}

impl Waiter {
    pub(super) fn settled(&self, now: Moment) -> Option<BudgetMode> {
        self.settled.and_then(|(mode, until)| (now < until).then_some(mode))
    }
}
