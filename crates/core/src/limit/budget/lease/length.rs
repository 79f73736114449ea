//! How long the leases of one budget last.

use std::time::Duration;

use super::moment::milliseconds;
use crate::limit::budget::SpanNow;

/// How long a lease lasts at most. A rolling window counts a grant until the window has passed since the end of its lease, so there a lease
/// lasts a hundredth of the window; in a calendar period and in total its length costs nothing.
pub const LONGEST_LEASE: Duration = Duration::from_secs(60);
/// How long a place is kept for a ticket that could claim, how long a budget is in use after a claim, and how long leases of short windows may
/// become.
pub(super) const KEPT: Duration = Duration::from_secs(5);

/// The length of the next lease. A hundredth of a short window may be less than the ledger takes to answer, or than all the budgets of a
/// batch take: such leases end again and again before anybody can spend them.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeaseLength {
    first_ms: u32,
    ms: u32,
}

impl LeaseLength {
    pub(super) fn new(span: SpanNow) -> Self {
        let first = match span {
            SpanNow::Rolling { window_ms } => milliseconds((window_ms / 100).max(1)).min(LONGEST_LEASE),
            SpanNow::Period { .. } | SpanNow::Total => LONGEST_LEASE,
        };
        let first_ms = u32::try_from(first.as_millis()).unwrap_or(u32::MAX);
        Self { first_ms, ms: first_ms }
    }

    pub(super) fn get(self) -> Duration {
        Duration::from_millis(self.ms.into())
    }

    pub(super) fn may_be_longer(self) -> bool {
        self.get() < KEPT
    }

    /// A lease has ended before its tokens could be spent.
    pub(super) fn was_too_short(&mut self) {
        if self.may_be_longer() {
            self.ms = u32::try_from(KEPT.as_millis()).unwrap_or(u32::MAX).min(2 * self.ms);
        }
    }

    /// A lease of half the length would have done.
    pub(super) fn was_too_long(&mut self) {
        self.ms = self.first_ms.max(self.ms / 2);
    }
}
