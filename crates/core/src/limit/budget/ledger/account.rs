//! What was charged to one budget, and what of it counts: the one account of the ledger, of a rebuild and of a replay.
//!
//! Charges are kept by place, a number: of a rolling window when the charge was made, of a calendar period when the period began, both in
//! milliseconds since 1970; 0 in total. An account has charges of one of these three kinds.

use std::collections::{BTreeMap, btree_map::Entry};

use crate::limit::budget::SpanNow;

/// The buckets of a rolling window. Charges of one bucket leave the window together.
pub const BUCKETS: i64 = 60;
/// How long the charges of a calendar period are kept after its end, for those whose clock is behind.
const KEPT_AFTER_PERIOD_MS: i64 = 3_600_000;

impl SpanNow {
    /// The place of a charge at a time, in milliseconds since 1970.
    #[must_use]
    pub fn place(self, at: i64) -> i64 {
        match self {
            Self::Rolling { .. } => at,
            Self::Period { start, .. } => start.millis(),
            Self::Total => 0,
        }
    }

    /// The same, in a rolling window rounded up to a bucket, as the ledger has it: a charge leaves the window no earlier than a window later.
    #[must_use]
    pub fn bucket(self, at: i64) -> i64 {
        match self {
            Self::Rolling { window_ms } => {
                let width = (window_ms / BUCKETS).max(1);
                -(-at).div_euclid(width) * width
            }
            Self::Period { .. } | Self::Total => self.place(at),
        }
    }
}

/// What was charged to one budget.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Account {
    /// By place; none is 0.
    charges: BTreeMap<i64, u64>,
    /// Their sum: a replay has too many of them to add up for each intent.
    sum: u64,
}

impl Account {
    pub fn add(&mut self, place: i64, tokens: u64) {
        if tokens > 0 {
            *self.charges.entry(place).or_default() += tokens;
            self.sum += tokens;
        }
    }

    /// Takes up to so many tokens back out of a place; gives how many.
    pub fn take_back(&mut self, place: i64, tokens: u64) -> u64 {
        let Entry::Occupied(mut charged) = self.charges.entry(place) else { return 0 };
        let back = tokens.min(*charged.get());
        *charged.get_mut() -= back;
        self.sum -= back;
        if *charged.get() == 0 {
            charged.remove();
        }
        back
    }

    pub fn merge(&mut self, other: Self) {
        for (place, tokens) in other.charges {
            self.add(place, tokens);
        }
    }

    /// Drops what no longer counts at `now`, in milliseconds since 1970.
    pub fn drop_ended(&mut self, span: SpanNow, now: i64) {
        while let Some(first) = self.charges.first_entry()
            && !is_kept(span, *first.key(), now)
        {
            self.sum -= first.remove();
        }
    }

    #[must_use]
    pub fn used(&self, span: SpanNow, now: i64) -> u64 {
        match span {
            SpanNow::Rolling { window_ms } => {
                self.sum - self.charges.range(..=now - window_ms).map(|(_, tokens)| tokens).sum::<u64>()
            }
            SpanNow::Period { start, .. } => self.charges.get(&start.millis()).copied().unwrap_or(0),
            SpanNow::Total => self.sum,
        }
    }

    /// In how many milliseconds from `now` on at the earliest `least` more are within the limit, 0: now; `None`: never, or not by the
    /// passing of time alone.
    #[must_use]
    pub fn free_in_ms(&self, span: SpanNow, now: i64, limit: u64, least: u64) -> Option<i64> {
        let used = self.used(span, now);
        if limit.saturating_sub(used) >= least {
            return Some(0);
        }
        if least > limit {
            return None;
        }
        match span {
            SpanNow::Rolling { window_ms } => {
                let mut over = used + least - limit;
                let enough = self.charges.range(now - window_ms + 1..).find(|(_, tokens)| {
                    over = over.saturating_sub(**tokens);
                    over == 0
                });
                enough.map(|(place, _)| place + window_ms - now)
            }
            SpanNow::Period { end, .. } => Some((end.millis() - now).max(1)),
            SpanNow::Total => None,
        }
    }

    /// The places and what was charged in each, ascending.
    pub fn charges(&self) -> impl DoubleEndedIterator<Item = (i64, u64)> {
        self.charges.iter().map(|(place, tokens)| (*place, *tokens))
    }
}

/// Whether what is in a place counts at `now`, or may still be asked for.
pub(super) fn is_kept(span: SpanNow, place: i64, now: i64) -> bool {
    match span {
        SpanNow::Rolling { window_ms } => place + window_ms > now,
        SpanNow::Period { start, .. } => place >= start.millis() || now < start.millis() + KEPT_AFTER_PERIOD_MS,
        SpanNow::Total => true,
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, sample::Index};

    use super::*;
    use crate::basis::time::Time;

    const WINDOW_MS: i64 = 6_000;
    const LIMIT: u64 = 700;
    const BEGIN_MS: i64 = 1_795_132_800_000;
    const ROLLING: SpanNow = SpanNow::Rolling { window_ms: WINDOW_MS };

    /// The period that a time is in.
    fn period(at: i64) -> SpanNow {
        let start = at - at % WINDOW_MS;
        let [start, end] = [start, start + WINDOW_MS].map(|millis| Time::from_millis(millis).unwrap());
        SpanNow::Period { start, end }
    }

    /// A span at a time, and since when charges count in it.
    fn span_at(kind: u8, now: i64) -> (SpanNow, i64) {
        match kind {
            0 => (ROLLING, now - WINDOW_MS + 1),
            1 => (period(now), now - now % WINDOW_MS),
            _ => (SpanNow::Total, 0),
        }
    }

    fn is_free(account: &Account, kind: u8, now: i64, least: u64) -> bool {
        account.used(span_at(kind, now).0, now) + least <= LIMIT
    }

    proptest! {
        #[test]
        fn an_account_counts_what_a_list_of_all_charges_does(
            steps in prop::collection::vec((0..500_i64, 0..60_u64, 0..2_usize, any::<Index>(), 0..90_u64), 1..150),
            (kind, is_exact, least) in (0..3_u8, any::<bool>(), 1..=LIMIT),
        ) {
            let place = |span: SpanNow, at| if is_exact { span.place(at) } else { span.bucket(at) };
            let late_ms = if kind == 0 && !is_exact { WINDOW_MS / BUCKETS } else { 0 };
            // Each charge: in which of two accounts that are merged, when, and what is left of it.
            let (mut accounts, mut charges, mut now) = ([(); 2].map(|()| Account::default()), Vec::new(), BEGIN_MS);
            for (passed_ms, tokens, number, which, back) in steps {
                now += passed_ms;
                let (span, since) = span_at(kind, now);
                accounts[number].add(place(span, now), tokens);
                charges.push((number, now, tokens));
                let which = which.index(charges.len());
                let (number, at, left) = &mut charges[which];
                if *at >= since {
                    let back = back.min(*left);
                    prop_assert_eq!(accounts[*number].take_back(place(span, *at), back), back);
                    *left -= back;
                } else {
                    accounts[*number].drop_ended(span, now);
                }

                let [mut account, other] = accounts.clone();
                account.merge(other);
                let sum_since = |since: i64| -> u64 {
                    charges.iter().filter(|(_, at, _)| *at >= since).map(|(_, _, left)| left).sum()
                };
                let used = account.used(span, now);
                prop_assert!((sum_since(since)..=sum_since(since - late_ms)).contains(&used), "{used} used");
                match account.free_in_ms(span, now, LIMIT, least) {
                    Some(0) => prop_assert!(is_free(&account, kind, now, least)),
                    Some(wait) => {
                        prop_assert!(!is_free(&account, kind, now + wait - 1, least), "{wait} ms is too late");
                        prop_assert!(is_free(&account, kind, now + wait, least), "{wait} ms is too early");
                    }
                    None => prop_assert!(kind == 2 && !is_free(&account, kind, now, least)),
                }
            }
        }
    }

    #[test]
    fn a_bucket_is_a_sixtieth_of_a_window_and_a_time_is_in_the_one_that_it_is_rounded_up_to() {
        let bucket = |window_ms, at| SpanNow::Rolling { window_ms }.bucket(at);
        assert_eq!([-1, 0, 1, 100, 101].map(|at| bucket(WINDOW_MS, at)), [0, 0, 100, 100, 200]);
        assert_eq!(bucket(59, 7), 7, "a millisecond at least");
        assert_eq!(ROLLING.place(101), 101);
        for (span, place) in [(period(WINDOW_MS + 1), WINDOW_MS), (SpanNow::Total, 0)] {
            assert_eq!([span.place(7), span.bucket(7)], [place; 2]);
        }
    }

    #[test]
    fn the_charges_of_a_period_are_kept_for_an_hour_after_it_for_those_whose_clock_is_behind() {
        let (mut account, next) = (Account::default(), BEGIN_MS + WINDOW_MS);
        account.add(period(BEGIN_MS).bucket(BEGIN_MS), 5);
        for (now, used) in [(next + KEPT_AFTER_PERIOD_MS - 1, 5), (next + KEPT_AFTER_PERIOD_MS, 0)] {
            account.drop_ended(period(next), now);
            assert_eq!([period(next), period(BEGIN_MS)].map(|span| account.used(span, now)), [0, used]);
        }
    }
}
