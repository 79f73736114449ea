//! How long the leases of one budget last.

use std::time::Duration;

use super::moment::milliseconds;
use crate::budget::SpanNow;

/// How long a lease lasts; a rolling window's lease lasts at most a hundredth of the window at first. Also how long a place is kept
/// for a ticket that could claim.
pub const LEASE: Duration = Duration::from_secs(5);
/// How often a lease's length is doubled, at most: the shortest becomes as long as [`LEASE`].
const MOST_DOUBLINGS: u8 = 8;

/// The length of the next lease. A hundredth of a short window may be less than the ledger takes to answer, or than all the budgets of a
/// batch take: such leases end again and again before anybody can spend them.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeaseLength {
    span: SpanNow,
    doublings: u8,
}

impl LeaseLength {
    pub(super) fn new(span: SpanNow) -> Self {
        Self { span, doublings: 0 }
    }

    pub(super) fn get(self) -> Duration {
        match self.span {
            SpanNow::Rolling { window_ms } => {
                LEASE.min(milliseconds((window_ms / 100).max(1)) * 2_u32.pow(u32::from(self.doublings)))
            }
            SpanNow::Period { .. } | SpanNow::Total => LEASE,
        }
    }

    /// Whether it can grow.
    pub(super) fn may_be_longer(self) -> bool {
        self.get() < LEASE
    }

    /// A lease has ended before its tokens could be spent.
    pub(super) fn was_too_short(&mut self) {
        self.doublings = (self.doublings + 1).min(MOST_DOUBLINGS);
    }

    /// A lease of half the length would have done.
    pub(super) fn was_too_long(&mut self) {
        self.doublings = self.doublings.saturating_sub(1);
    }
}
