//! How many records are decided together: fewer where the brokers are too slow for so many.

use std::time::Duration;

/// A commit that took less leaves room for twice as many records: that would still be half of what a transaction has.
const EASY: Duration = Duration::from_secs(3);

/// The bound on a lane's batches. A batch that is not committed before its transaction ends is never committed, however often it is
/// decided again; the next one is half as large. In records alone: what was in the batch that was too slow is known, so its bytes
/// are halved with it.
#[derive(Debug)]
pub struct BatchLimit {
    most: usize,
    now: usize,
}

impl BatchLimit {
    pub fn new(most: usize) -> Self {
        Self { most: most.max(1), now: most.max(1) }
    }

    /// Records of the next batch, at most; never none.
    pub fn get(&self) -> usize {
        self.now
    }

    /// A batch of so many records could not be committed in time. Gives the new bound. One without records says nothing.
    pub fn too_slow(&mut self, records: usize) -> usize {
        if records > 0 {
            self.now = (self.now.min(records) / 2).max(1);
        }
        self.now
    }

    /// A batch of so many records was committed; it took so long. One without records says nothing.
    pub fn committed(&mut self, records: usize, took: Duration) {
        if records > 0 && took < EASY {
            self.now = self.now.saturating_mul(2).min(self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_too_slow_is_halved_down_to_one_record() {
        let mut limit = BatchLimit::new(10_000);
        assert_eq!(limit.get(), 10_000);
        // A batch that its bytes had closed: half of what was in it, not of the bound.
        assert_eq!(limit.too_slow(300), 150);
        assert_eq!(limit.too_slow(150), 75);
        for _ in 0..10 {
            limit.too_slow(1_000);
        }
        assert_eq!(limit.get(), 1);
    }

    #[test]
    fn easy_commits_bring_the_setting_back_and_long_ones_leave_it_as_it_is() {
        let mut limit = BatchLimit::new(1_000);
        limit.too_slow(10);
        for expected in [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000] {
            limit.committed(1, Duration::from_millis(50));
            assert_eq!(limit.get(), expected);
        }
        limit.too_slow(1_000);
        limit.committed(500, EASY);
        assert_eq!(limit.get(), 500);
    }

    #[test]
    fn a_batch_without_records_neither_halves_the_bound_nor_doubles_it() {
        let mut limit = BatchLimit::new(1_000);
        assert_eq!(limit.too_slow(0), 1_000);
        limit.too_slow(1_000);
        limit.committed(0, Duration::ZERO);
        assert_eq!(limit.get(), 500);
    }

    /// Brokers that take so many records a second.
    #[test]
    fn a_steady_broker_is_found_and_never_asked_for_too_much_again() {
        for a_second in [1, 7, 40, 999, 100_000] {
            let (mut limit, mut slow) = (BatchLimit::new(10_000), 0);
            for _ in 0..100 {
                let took = Duration::from_millis(u64::try_from(limit.get() * 1_000 / a_second).unwrap());
                if took > Duration::from_secs(12) {
                    limit.too_slow(limit.get());
                    slow += 1;
                } else {
                    limit.committed(limit.get(), took);
                }
            }
            assert!(slow <= 11, "{a_second} records a second: {slow} batches were too slow");
        }
    }
}
