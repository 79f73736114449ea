//! What replays owe to a budget.

use std::time::Duration;

use super::{BudgetUse, moment::Moment};
use crate::limit::budget::ledger::OwedTokens;

/// A count that began so shortly before an intent was admitted passes for one that has not counted it: the turn takes a while to be made.
/// Where it is known to have counted it, the admission is told as so much later.
pub(crate) const LATE_MS: i64 = 5_000;

/// Tokens of intents that are approved as replays and took none, because a budget or a gate denies them now. A budget that was counted
/// since they were admitted has to count them, or it grants their tokens to others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owed {
    pub used: BudgetUse,
    pub tokens: u64,
    /// How long before their batch was judged they were admitted, in milliseconds.
    pub admitted_ago_ms: i64,
    /// When the batch was judged, on the monotonic clock.
    pub judged_at: Duration,
}

impl Owed {
    /// As a turn has it that is made now.
    pub(super) fn at(&self, now: Moment) -> OwedTokens {
        let ago_ms = self.admitted_ago_ms.saturating_add(self.judged_ago_ms(now)).saturating_add(LATE_MS);
        OwedTokens { tokens: self.tokens, ago_ms }
    }

    fn judged_ago_ms(&self, now: Moment) -> i64 {
        let passed = now.passed().unwrap_or_default().saturating_sub(self.judged_at);
        i64::try_from(passed.as_millis()).unwrap_or(i64::MAX)
    }

    /// Whether it is owed to the same budget in the same window.
    pub(super) fn is_of_same(&self, other: &Self) -> bool {
        (self.used.span, self.used.limit) == (other.used.span, other.used.limit)
    }

    /// Takes the other's tokens, too, as if all had been admitted when the first were.
    pub(super) fn merge(&mut self, other: &Self) {
        let later = Moment::of(self.judged_at.max(other.judged_at));
        let [own, others] = [&*self, other].map(|owed| owed.admitted_ago_ms.saturating_add(owed.judged_ago_ms(later)));
        self.tokens += other.tokens;
        self.admitted_ago_ms = own.max(others);
        self.judged_at = self.judged_at.max(other.judged_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::budget::{BudgetId, SpanNow};

    fn owed(admitted_ago_ms: i64, judged_s: u64) -> Owed {
        let id = BudgetId { name: "a".into(), campaign: None };
        let used = BudgetUse { id, limit: 10, span: SpanNow::Total, best_effort: false, unavailable_after: None };
        Owed { used, tokens: 3, admitted_ago_ms, judged_at: Duration::from_secs(judged_s) }
    }

    #[test]
    fn how_long_ago_goes_on_until_the_turn_is_made_and_the_earliest_counts_of_those_that_are_merged() {
        let at = |owed: &Owed, seconds| owed.at(Moment::of(Duration::from_secs(seconds)));
        let mut first = owed(1_000, 100);
        assert_eq!(at(&first, 107), OwedTokens { tokens: 3, ago_ms: 8_000 + LATE_MS });
        first.merge(&owed(1_000, 103));
        assert_eq!(at(&first, 107), OwedTokens { tokens: 6, ago_ms: 8_000 + LATE_MS });
        first.merge(&owed(60_000, 101));
        assert_eq!(at(&first, 107), OwedTokens { tokens: 9, ago_ms: 66_000 + LATE_MS });
    }
}
