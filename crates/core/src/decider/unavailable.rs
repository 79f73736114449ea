//! What becomes of intents whose history is unavailable.

use super::{BatchDecision, Disposition, GateResult, GatedBatch, PerRequest};
use crate::policy::{Mode, Unavailable};

/// The outcome of a request that the store cannot answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnavailableOutcome {
    /// Its intent waits, or is deferred where it may be.
    Wait,
    /// Its intent is approved, and the write to its history is deferred.
    Approved,
    /// Its intent is suppressed.
    Suppressed,
}

impl BatchDecision {
    /// What becomes of each request that the store has no answer to.
    #[must_use]
    pub fn fallback<R>(&self, gated: &GatedBatch<'_, R>) -> PerRequest<UnavailableOutcome> {
        let mode = self.eval.policy().mode;
        let outcome = |gate_result: &GateResult| match gate_result.disposition {
            Disposition::Undecided | Disposition::Suppress(_) | Disposition::Bypass { .. } => None,
            Disposition::LookUp { fallback, .. } => Some(match fallback {
                Unavailable::Wait => UnavailableOutcome::Wait,
                Unavailable::Approve | Unavailable::Suppress => UnavailableOutcome::Suppressed,
            }),
            Disposition::CheckCaps { fallback, .. } => Some(match (fallback, mode) {
                (Unavailable::Wait, _) => UnavailableOutcome::Wait,
                (Unavailable::Approve, _) | (Unavailable::Suppress, Mode::Shadow) => UnavailableOutcome::Approved,
                (Unavailable::Suppress, Mode::Enforce) => UnavailableOutcome::Suppressed,
            }),
        };
        // Requests are in the order of their records.
        gated.results().iter().filter_map(outcome).collect()
    }

    /// Whether an intent whose history is unavailable, and which may wait, is deferred.
    #[must_use]
    pub fn may_defer(&self) -> bool {
        self.decider.wheel.is_some() && self.eval.policy().mode == Mode::Enforce
    }
}
