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
    /// When they were admitted, in milliseconds on the monotonic clock: below 0 where that was before the clock began.
    pub admitted_at_ms: i64,
}

impl Owed {
    /// Of intents that were admitted so many milliseconds before their batch was judged, which was then on the monotonic clock.
    #[must_use]
    pub fn of(used: BudgetUse, tokens: u64, judged_at: Duration, admitted_ago_ms: i64) -> Self {
        Self { used, tokens, admitted_at_ms: Moment::of(judged_at).millis().saturating_sub(admitted_ago_ms) }
    }

    /// As a turn has it that is made now.
    pub(super) fn at(&self, now: Moment) -> OwedTokens {
        let ago_ms = now.millis().saturating_sub(self.admitted_at_ms).saturating_add(LATE_MS);
        OwedTokens { tokens: self.tokens, ago_ms }
    }

    /// Takes the other's tokens, too, as if all had been admitted when the first were, if it is owed to the same budget in the same window.
    pub(super) fn merge(&mut self, other: &Self) -> bool {
        let is_of_same = (self.used.span, self.used.limit) == (other.used.span, other.used.limit);
        if is_of_same {
            self.tokens += other.tokens;
            self.admitted_at_ms = self.admitted_at_ms.min(other.admitted_at_ms);
        }
        is_of_same
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::budget::{BudgetId, SpanNow};

    fn owed(admitted_ago_ms: i64, judged_s: u64) -> Owed {
        let id = BudgetId { name: "a".into(), campaign: None };
        let used = BudgetUse { id, limit: 10, span: SpanNow::Total, best_effort: false, unavailable_after: None };
        Owed::of(used, 3, Duration::from_secs(judged_s), admitted_ago_ms)
    }

    #[test]
    fn how_long_ago_goes_on_until_the_turn_is_made_and_the_earliest_counts_of_those_that_are_merged() {
        let at = |owed: &Owed, seconds| owed.at(Moment::of(Duration::from_secs(seconds)));
        let mut first = owed(1_000, 100);
        assert_eq!(at(&first, 107), OwedTokens { tokens: 3, ago_ms: 8_000 + LATE_MS });
        assert!(first.merge(&owed(1_000, 103)));
        assert_eq!(at(&first, 107), OwedTokens { tokens: 6, ago_ms: 8_000 + LATE_MS });
        assert!(first.merge(&owed(160_000, 101)));
        assert_eq!(at(&first, 107), OwedTokens { tokens: 9, ago_ms: 166_000 + LATE_MS });
    }
}
