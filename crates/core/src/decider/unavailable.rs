//! What becomes of intents whose history is unavailable.

use super::{BatchDecision, Disposition, GatedBatch, PerRequest};
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
    /// Its intent is suppressed at once, however long its history has been unavailable: its class does not depend on the store.
    GivenUp,
}

impl UnavailableOutcome {
    /// Of an intent that is only looked up, because a gate denies it.
    pub(super) const fn of_look_up(fallback: Option<Unavailable>) -> Self {
        match fallback {
            Some(Unavailable::Wait) => Self::Wait,
            Some(Unavailable::Approve | Unavailable::Suppress) => Self::Suppressed,
            None => Self::GivenUp,
        }
    }

    /// Of an intent that caps are checked for.
    pub(super) const fn of_caps(fallback: Unavailable, mode: Mode) -> Self {
        match (fallback, mode) {
            (Unavailable::Wait, _) => Self::Wait,
            (Unavailable::Suppress, Mode::Enforce) => Self::Suppressed,
            (Unavailable::Approve | Unavailable::Suppress, _) => Self::Approved,
        }
    }
}

impl BatchDecision {
    /// What becomes of each request that the store has no answer to.
    #[must_use]
    pub fn fallback<R>(&self, gated: &GatedBatch<'_, R>) -> PerRequest<UnavailableOutcome> {
        let mode = self.eval.policy().mode;
        // A request that no record has any more was answered.
        let mut outcomes = vec![UnavailableOutcome::GivenUp; gated.requests().requests.len()];
        for gate_result in gated.results() {
            let (request, outcome) = match gate_result.disposition {
                Disposition::LookUp { request, fallback, .. } => (request, UnavailableOutcome::of_look_up(fallback)),
                Disposition::CheckCaps { request, fallback, .. } => {
                    (request, UnavailableOutcome::of_caps(fallback, mode))
                }
                Disposition::Undecided | Disposition::Suppress(_) | Disposition::Bypass { .. } => continue,
            };
            outcomes[request.get()] = outcome;
        }
        outcomes.into_iter().collect()
    }

    /// Whether the batch needs no answer to the requests that have none.
    #[must_use]
    pub fn gives_up<R>(&self, gated: &GatedBatch<'_, R>) -> bool {
        let outcomes = self.fallback(gated);
        gated.unanswered().all(|request| outcomes[request] == UnavailableOutcome::GivenUp)
    }

    /// Whether an intent whose history is unavailable, and which may wait, is deferred.
    #[must_use]
    pub fn may_defer(&self) -> bool {
        self.decider.wheel.is_some() && self.eval.policy().mode == Mode::Enforce
    }
}
