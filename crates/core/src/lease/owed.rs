//! What replays owe to a budget.

use std::time::Duration;

use super::BudgetUse;
use crate::ledger::{TakeAnswer, TakeRequest};

/// Tokens of intents that are approved as replays and took none, because a budget or a gate denies them now. A budget that was counted
/// since they were admitted has to count them, or it grants their tokens to others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owed {
    /// The budget.
    pub used: BudgetUse,
    /// How many.
    pub tokens: u64,
    /// How long before their batch was judged they were admitted, in milliseconds.
    pub admitted_ago_ms: i64,
    /// When the batch was judged, on the monotonic clock.
    pub judged_at: Duration,
}

impl Owed {
    /// What to take, by the answer of a ledger that has come by then: nothing where it has counted them. The tokens are spent, so their
    /// lease is over at once; where fewer are left, these are taken.
    #[must_use]
    pub fn due(&self, answer: &TakeAnswer, passed: Duration) -> Option<TakeRequest> {
        let judged_ago_ms = i64::try_from(passed.saturating_sub(self.judged_at).as_millis()).unwrap_or(i64::MAX);
        // Rounded up: what was admitted in the millisecond in which the count began may not be in it.
        let ago_ms = self.admitted_ago_ms.saturating_add(judged_ago_ms).saturating_add(1);
        let tokens = TakeRequest { need: self.tokens, want: self.tokens, unit: 1, least: 1, ..self.look() };
        (answer.counted_for_ms < ago_ms && self.used.limit > 0).then_some(tokens)
    }

    /// Asks how the budget stands.
    #[must_use]
    pub fn look(&self) -> TakeRequest {
        TakeRequest::look(&self.used, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        budget::{BudgetId, SpanNow},
        ledger::CountId,
    };

    #[test]
    fn what_was_admitted_before_the_count_began_is_due_and_nothing_else() {
        let id = BudgetId { name: "a".into(), campaign: None };
        let used = BudgetUse { id, limit: 10, span: SpanNow::Total, best_effort: false, unavailable_after: None };
        let owed = Owed { used, tokens: 3, admitted_ago_ms: 1_000, judged_at: Duration::from_secs(100) };
        let answer = |counted_for_ms| TakeAnswer {
            granted: 0,
            used: 4,
            leased: 0,
            bucket: 0,
            free_in_ms: Some(0),
            counted_for_ms,
            count_id: CountId(1),
        };
        // The answer comes 50 ms after the batch was judged.
        let passed = Duration::from_millis(100_050);
        for (counted_for_ms, is_due) in [(0, true), (1_050, true), (1_051, false), (i64::MAX, false)] {
            let due = owed.due(&answer(counted_for_ms), passed);
            assert_eq!(due.map(|due| (due.need, due.want, due.least)), is_due.then_some((3, 3, 1)), "{counted_for_ms}");
        }
    }
}
