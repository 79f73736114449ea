//! What the headers of approved records differ by.

use std::hash::{Hash, Hasher};

use super::Came;
use crate::{
    basis::time::Time,
    decision::verdict::{Counts, Decision, Suppressed},
};

/// What the headers of approved records differ by within a batch. The budgets that they took from are those of their class.
#[derive(PartialEq, Eq)]
pub(super) struct Stamp<'w> {
    /// By its number in the batch.
    class: u32,
    /// By its place in the policy.
    segment: Option<usize>,
    cost: u8,
    counts: Counts,
    decided_at: Time,
    /// In shadow mode.
    denied: Option<Suppressed<'w>>,
}

impl<'w> Stamp<'w> {
    /// Of an approved intent of this class.
    #[inline(always)]
    pub(super) fn of(came: &Came<'_, '_>, class: u32, decision: &Decision<'w>, counts: Counts) -> Self {
        Self {
            class,
            segment: came.result.segment,
            cost: came.intent.cost,
            counts,
            decided_at: decision.decided_at,
            denied: decision.verdict.suppressed().copied(),
        }
    }
}

/// Each approved intent is looked up by it, so in few steps: the rest is nearly always the same for these.
impl Hash for Stamp<'_> {
    #[inline(always)]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let segment = self.segment.map_or(0, |place| place as u64 + 1);
        state.write_u64(u64::from(self.class) | (segment << 32));
        // Replays are of many times.
        state.write_i64(self.decided_at.millis());
    }
}
