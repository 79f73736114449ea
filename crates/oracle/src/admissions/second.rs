//! How many admissions there were within the last second, exactly.

/// A clock that is rounded down to milliseconds tells two moments of one second apart by at most this many.
const MILLIS: usize = 1_001;

/// A count for each millisecond of the last second.
#[derive(Debug, Clone)]
pub(super) struct LastSecond {
    counts: Box<[u32]>,
    sum: u64,
    /// The millisecond that was counted last.
    at: u64,
}

impl Default for LastSecond {
    fn default() -> Self {
        Self { counts: vec![0; MILLIS].into(), sum: 0, at: 0 }
    }
}

impl LastSecond {
    /// How many there were in the second that ends now.
    pub(super) fn sum(&mut self, now_ms: u64) -> u64 {
        let passed = now_ms.saturating_sub(self.at);
        if passed >= MILLIS as u64 {
            self.counts.fill(0);
            (self.sum, self.at) = (0, now_ms);
            return 0;
        }
        for millisecond in self.at + 1..=self.at + passed {
            let gone = std::mem::take(&mut self.counts[place(millisecond)]);
            self.sum -= u64::from(gone);
        }
        self.at += passed;
        self.sum
    }

    pub(super) fn count(&mut self, now_ms: u64) {
        self.sum(now_ms);
        self.counts[place(self.at)] += 1;
        self.sum += 1;
    }

    /// In how many milliseconds fewer than `limit` are within a second; 0: now.
    pub(super) fn below_in_ms(&mut self, limit: u64, now_ms: u64) -> u64 {
        let mut left = self.sum(now_ms);
        for passed in 0..MILLIS as u64 {
            if left < limit {
                return passed;
            }
            // The oldest one leaves first.
            left -= u64::from(self.counts[place(self.at + passed + 1)]);
        }
        MILLIS as u64
    }
}

fn place(millisecond: u64) -> usize {
    (millisecond % MILLIS as u64) as usize
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
