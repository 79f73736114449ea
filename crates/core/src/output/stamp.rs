//! What the headers of approved records differ by.

use std::hash::{Hash, Hasher};

use super::super::{
    class::ClassNames,
    decider::GateResult,
    intent::Intent,
    time::Time,
    verdict::{Counts, Decision, Suppressed},
};

/// What the headers of approved records differ by within a batch.
#[derive(PartialEq, Eq)]
pub(super) struct Stamp<'w, 'b> {
    class: ClassNames<'b>,
    /// By its place in the policy.
    segment: Option<usize>,
    cost: u8,
    counts: Counts,
    decided_at: Time,
    /// In shadow mode.
    denied: Option<Suppressed<'w>>,
    /// By the place of their claim.
    budgets: Option<u32>,
}

impl<'w, 'b> Stamp<'w, 'b> {
    /// Of an approved intent.
    #[inline(always)]
    pub(super) fn of(
        intent: &'b Intent<'b>,
        gate_result: &GateResult,
        decision: &Decision<'w>,
        counts: Counts,
    ) -> Self {
        Self {
            class: intent.class(),
            segment: gate_result.segment,
            cost: intent.cost,
            counts,
            decided_at: decision.decided_at,
            denied: decision.verdict.suppressed().copied(),
            budgets: gate_result.budgets,
        }
    }
}

/// Each approved intent is looked up by it, so in few steps: the rest is nearly always the same for a class and segment.
impl Hash for Stamp<'_, '_> {
    #[inline(always)]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.class.hash(state);
        state.write_usize(self.segment.map_or(0, |place| place + 1));
    }
}
