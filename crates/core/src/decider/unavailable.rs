//! What becomes of intents whose history is unavailable.

use super::{BatchDecision, Fate, GatedBatch, PerRequest};
use crate::policy::Mode;

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

impl BatchDecision {
    /// What becomes of each request that the store has no answer to.
    #[must_use]
    pub fn fallback<R>(&self, gated: &GatedBatch<'_, R>) -> PerRequest<UnavailableOutcome> {
        let fates = self.fates(gated);
        // A request that no record has any more was answered.
        let mut outcomes = vec![UnavailableOutcome::GivenUp; gated.requests().requests.len()];
        for (index, gate_result) in gated.results().iter().enumerate() {
            if let (Some(request), Fate::Unanswered { outcome, .. }) = (gate_result.request(), fates.get(index)) {
                outcomes[request.get()] = outcome;
            }
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
