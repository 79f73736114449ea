//! How fast the tokens of one budget are spent here.

use std::time::Duration;

use super::moment::Moment;

const SECOND: Duration = Duration::from_secs(1);

/// The tokens that were spent in a second, and those in the second before.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Spending {
    began: Moment,
    tokens: u64,
    before: u64,
}

impl Spending {
    pub(super) fn add(&mut self, tokens: u64, now: Moment) {
        *self = Self { tokens: self.at(now).tokens + tokens, ..self.at(now) };
    }

    /// So many were not spent after all. Most come back at once, so they are looked for in this second first.
    pub(super) fn take_off(&mut self, tokens: u64, now: Moment) {
        let at = self.at(now);
        let before = at.before.saturating_sub(tokens.saturating_sub(at.tokens));
        *self = Self { tokens: at.tokens.saturating_sub(tokens), before, ..at };
    }

    /// What was spent in the last second, about: the more of this one and of the one before.
    pub(super) fn in_a_second(self, now: Moment) -> u64 {
        let Self { tokens, before, .. } = self.at(now);
        tokens.max(before)
    }

    fn at(self, now: Moment) -> Self {
        if now < self.began.plus(SECOND) {
            return self;
        }
        let before = if now < self.began.plus(2 * SECOND) { self.tokens } else { 0 };
        Self { began: now, tokens: 0, before }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_spent_counts_for_this_second_and_the_next() {
        let at = |ms| Moment::of(Duration::from_millis(ms));
        let mut spending = Spending::default();
        for (ms, tokens, expected) in [(5_000, 7, 7), (5_999, 2, 9), (6_000, 4, 9), (6_500, 9, 13), (7_000, 0, 13)] {
            spending.add(tokens, at(ms));
            assert_eq!(spending.in_a_second(at(ms)), expected, "{ms}");
        }
        assert_eq!([7_999, 8_000, 9_000].map(|ms| spending.in_a_second(at(ms))), [13, 0, 0]);
        // What comes back was spent in this second or in the one before.
        let mut spending = Spending::default();
        spending.add(7, at(5_000));
        spending.add(4, at(6_000));
        for (tokens, expected) in [(3, 7), (3, 5), (9, 0)] {
            spending.take_off(tokens, at(6_500));
            assert_eq!(spending.in_a_second(at(6_500)), expected, "{tokens} come back");
        }
    }
}
