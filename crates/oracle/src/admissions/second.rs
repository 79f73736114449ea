//! How many admissions there were within the last second, exactly.

use std::collections::VecDeque;

/// A clock that is rounded down to milliseconds tells two moments of one second apart by less than this.
const MILLIS: u64 = 1_001;

/// The milliseconds of the last second in which there were some, ascending, each with how many.
#[derive(Debug, Clone, Default)]
pub(super) struct LastSecond {
    counts: VecDeque<(u64, u64)>,
    sum: u64,
}

impl LastSecond {
    /// How many there were in the second that ends now.
    pub(super) fn sum(&mut self, now_ms: u64) -> u64 {
        while let Some((_, gone)) = self.counts.pop_front_if(|(at_ms, _)| *at_ms + MILLIS <= now_ms) {
            self.sum -= gone;
        }
        self.sum
    }

    pub(super) fn count(&mut self, now_ms: u64) {
        self.sum(now_ms);
        match self.counts.back_mut() {
            Some((at_ms, count)) if *at_ms >= now_ms => *count += 1,
            Some(_) | None => self.counts.push_back((now_ms, 1)),
        }
        self.sum += 1;
    }

    /// In how many milliseconds fewer than `limit` are within a second; 0: now.
    pub(super) fn below_in_ms(&mut self, limit: u64, now_ms: u64) -> u64 {
        let mut left = self.sum(now_ms);
        if left < limit {
            return 0;
        }
        // The oldest ones leave first.
        let leaves = self.counts.iter().find(|(_, count)| {
            left -= count;
            left < limit
        });
        leaves.map_or(MILLIS, |(at_ms, _)| at_ms + MILLIS - now_ms)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_list_of_moments(passed in prop::collection::vec(prop_oneof![3 => 0..40_u64, 1 => 0..1_500_u64], 1..300)) {
            let (mut second, mut moments, mut now) = (LastSecond::default(), Vec::new(), 0);
            for passed in passed {
                now += passed;
                // Earlier moments never count again.
                moments.retain(|moment| now - moment < 1_001);
                let within = |now: u64| moments.iter().filter(|moment: &&u64| now - **moment < 1_001).count() as u64;
                prop_assert_eq!(second.sum(now), within(now));
                for limit in [0, 1, 5] {
                    let found = (0..1_001).find(|later| within(now + later) < limit);
                    prop_assert_eq!(second.below_in_ms(limit, now), found.unwrap_or(1_001));
                }
                second.count(now);
                moments.push(now);
            }
        }
    }
}
