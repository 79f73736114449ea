//! When a batch is closed: so that what is in it is committed within the commit interval, not decided by then.

use std::time::Duration;

/// A batch stays open for this part of the interval at the least, however long deciding and committing take: more and
/// smaller transactions would make the brokers slower still.
const LEAST_PART: u32 = 4;
/// The part by which one batch moves what is expected of the next.
const WEIGHT: u32 = 4;
/// So many deviations of what commits lately took are added to what the next one is expected to take, so that few are late. TCP's
/// time-out is reckoned so, with four of them (RFC 6298); a late batch costs less than a needless resend.
const DEVIATIONS: u32 = 2;

#[derive(Debug)]
pub struct BatchTimer {
    interval: Duration,
    /// What a batch has lately taken from its end to its commit, smoothed.
    after: Duration,
    /// By how much that was wrong, smoothed.
    deviation: Duration,
}

impl BatchTimer {
    /// The timer for this commit interval, before anything was committed.
    pub fn new(interval: Duration) -> Self {
        Self { interval, after: Duration::ZERO, deviation: Duration::ZERO }
    }

    /// How long a batch is open, from the end of the one before: whole milliseconds, as clients wait.
    pub fn open_for(&self) -> Duration {
        let expected = self.after + DEVIATIONS * self.deviation;
        let open = self.interval.saturating_sub(expected).max(self.interval / LEAST_PART);
        open - Duration::from_nanos(u64::from(open.subsec_nanos() % 1_000_000))
    }

    /// A batch was committed so long after it was closed.
    pub fn took(&mut self, after: Duration) {
        let smoothed = |before: Duration, now: Duration| (before * (WEIGHT - 1) + now) / WEIGHT;
        self.deviation = smoothed(self.deviation, self.after.abs_diff(after));
        self.after = smoothed(self.after, after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_batch_closes_as_much_earlier_as_its_commit_takes() {
        let mut batch_timer = BatchTimer::new(ms(100));
        assert_eq!(batch_timer.open_for(), ms(100));
        for _ in 0..50 {
            batch_timer.took(ms(20));
        }
        // 80 less a little, since the deviation never quite goes.
        assert_eq!(batch_timer.open_for(), ms(79), "in whole milliseconds: {batch_timer:?}");
    }

    #[test]
    fn commits_that_differ_leave_time_for_the_slower_ones() {
        let mut batch_timer = BatchTimer::new(ms(100));
        for _ in 0..50 {
            batch_timer.took(ms(10));
            batch_timer.took(ms(30));
        }
        assert!(batch_timer.open_for() < ms(70), "the slower ones would be late: {batch_timer:?}");
        assert!(batch_timer.open_for() > ms(40), "{batch_timer:?}");
    }

    #[test]
    fn slow_commits_do_not_make_batches_ever_smaller() {
        let mut batch_timer = BatchTimer::new(ms(20));
        for _ in 0..50 {
            batch_timer.took(ms(400));
        }
        assert_eq!(batch_timer.open_for(), ms(5));
        for _ in 0..50 {
            batch_timer.took(ms(5));
        }
        assert_eq!(batch_timer.open_for(), ms(14), "{batch_timer:?}");
    }
}
