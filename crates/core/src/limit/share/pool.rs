//! What a process holds of a limit, for its batches to take from.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::basis::time::millis;

/// Units of a limit, such as places or permits: taken by batches, and granted by the task that shares them with other instances.
///
/// Invariant: a unit counts as held from when it is granted until it is used or withdrawn, or lapses. So units held, and what was used of
/// the limit, are together never fewer than what may have been used.
#[derive(Debug, Default)]
pub struct UnitPool {
    /// Not taken.
    left: AtomicU64,
    /// Taken or not.
    held: AtomicU64,
    /// Until when they are this process's, by the monotonic clock in milliseconds; other members may have them later.
    until_ms: AtomicU64,
    /// See [`UnitPool::end_leases`].
    ended_ms: AtomicU64,
}

impl UnitPool {
    /// Nothing is held; what is added is this process's until then, by the monotonic clock.
    pub fn new(until: Duration) -> Self {
        Self { until_ms: AtomicU64::new(millis(until)), ..Self::default() }
    }

    /// Takes at most so many; gives how many. They are to be put back or used. `passed`: the monotonic clock.
    pub fn take(&self, most: u64, passed: Duration) -> u64 {
        if self.is_over(passed) {
            return 0;
        }
        let mut taken = 0;
        let take = |left: u64| {
            taken = left.min(most);
            (taken > 0).then(|| left - taken)
        };
        match self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, take) {
            Ok(_) => taken,
            Err(_) => 0,
        }
    }

    /// Units that were taken and not used, by a lease until then. They lapse where it [is over](Self::end_leases).
    pub fn put_back(&self, units: u64, until: Duration) {
        if millis(until) <= self.ended_ms.load(Ordering::Acquire) {
            self.used(units);
        } else {
            self.left.fetch_add(units, Ordering::AcqRel);
        }
    }

    /// Leases that end by then, by the monotonic clock, are over: what was taken by them lapses where it is put back, because other members
    /// may have been granted it. To be called before what is left is withdrawn, and before a turn begins whose answer would make this
    /// process's again what comes back meanwhile.
    pub fn end_leases(&self, until: Duration) {
        self.ended_ms.fetch_max(millis(until), Ordering::AcqRel);
    }

    /// Units that were taken are held no longer: they are used, or have lapsed because other members may have them by now.
    pub fn used(&self, units: u64) {
        self.held.fetch_sub(units, Ordering::AcqRel);
    }

    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Acquire)
    }

    /// How many a batch would find. `passed`: the monotonic clock.
    pub fn free(&self, passed: Duration) -> u64 {
        if self.is_over(passed) { 0 } else { self.left() }
    }

    /// How many are held, taken or not.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Acquire)
    }

    pub fn add(&self, units: u64) {
        self.held.fetch_add(units, Ordering::AcqRel);
        self.left.fetch_add(units, Ordering::AcqRel);
    }

    /// They are this process's until then, by the monotonic clock.
    pub fn renew(&self, until: Duration) {
        self.until_ms.store(millis(until), Ordering::Release);
    }

    /// Until when they are this process's, by the monotonic clock.
    pub fn until(&self) -> Duration {
        Duration::from_millis(self.until_ms.load(Ordering::Acquire))
    }

    /// Whether they may be others' by now.
    pub fn is_over(&self, passed: Duration) -> bool {
        millis(passed) >= self.until_ms.load(Ordering::Acquire)
    }

    /// Gives up what is left, by leases that end by then: other members may have all of it by now.
    pub fn give_up(&self, until: Duration) {
        self.end_leases(until);
        self.renew(Duration::ZERO);
        self.withdraw_above(0);
    }

    /// Gives up what is left beyond so many held.
    pub fn withdraw_above(&self, held: u64) {
        let surplus = self.held().saturating_sub(held);
        self.withdraw(|_| surplus);
    }

    /// Gives up what is left beyond so many; gives how many that were.
    pub fn keep(&self, most: u64) -> u64 {
        self.withdraw(|left| left.saturating_sub(most))
    }

    fn withdraw(&self, surplus_of: impl Fn(u64) -> u64) -> u64 {
        let mut withdrawn = 0;
        let withdraw = |left: u64| {
            withdrawn = surplus_of(left).min(left);
            Some(left - withdrawn)
        };
        // It always gives a value, so it never fails.
        if self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, withdraw).is_ok() {
            self.held.fetch_sub(withdrawn, Ordering::AcqRel);
        }
        withdrawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(10);

    #[test]
    fn units_are_held_until_they_are_used_or_withdrawn() {
        let pool = UnitPool::new(Duration::MAX);
        pool.add(5);
        assert_eq!([pool.take(2, NOW), pool.take(1, NOW)], [2, 1]);
        assert_eq!((pool.left(), pool.held()), (2, 5));
        pool.withdraw_above(4);
        assert_eq!((pool.left(), pool.held()), (1, 4), "one that is left is given up");
        pool.withdraw_above(0);
        assert_eq!((pool.left(), pool.held()), (0, 3), "those that are taken are not");
        assert_eq!(pool.take(1, NOW), 0);
        pool.used(2);
        pool.put_back(1, Duration::MAX);
        assert_eq!((pool.left(), pool.held()), (1, 1));
        pool.withdraw_above(7);
        assert_eq!(pool.take(1, NOW), 1);
        pool.used(1);
        assert_eq!((pool.left(), pool.held()), (0, 0));
        pool.add(5);
        assert_eq!((pool.keep(2), pool.left(), pool.held()), (3, 2, 2));
        assert_eq!((pool.keep(9), pool.take(9, NOW)), (0, 2));
    }

    #[test]
    fn none_is_taken_that_others_may_have() {
        let pool = UnitPool::new(Duration::ZERO);
        pool.add(5);
        assert_eq!(pool.take(1, Duration::ZERO), 0, "until when they are its own is not known");
        pool.renew(NOW);
        assert_eq!((pool.until(), pool.take(1, NOW - Duration::from_millis(1))), (NOW, 1));
        assert_eq!((pool.take(1, NOW), pool.is_over(NOW), pool.left()), (0, true, 4));
        let until = 2 * NOW;
        pool.renew(until);
        assert_eq!(pool.take(2, NOW), 2);
        pool.give_up(until);
        assert_eq!((pool.take(1, NOW), pool.left(), pool.held()), (0, 0, 3), "three are taken still");
        pool.renew(Duration::MAX);
        pool.put_back(1, until);
        assert_eq!((pool.take(9, NOW), pool.held()), (0, 2), "others may have had it");
        pool.put_back(1, Duration::MAX);
        assert_eq!((pool.take(9, NOW), pool.held()), (1, 2));
    }

    #[test]
    fn what_was_taken_in_a_period_does_not_come_back_in_the_next_one() {
        let (first, second) = (NOW, 2 * NOW);
        let pool = UnitPool::new(first);
        pool.add(3);
        assert_eq!((pool.take(2, Duration::ZERO), pool.free(first)), (2, 0), "the period is over");
        pool.give_up(first);
        pool.add(5);
        pool.renew(second);
        pool.put_back(2, first);
        assert_eq!((pool.free(first), pool.held()), (5, 5));
        assert_eq!(pool.take(1, first), 1);
        pool.put_back(1, second);
        assert_eq!(pool.free(first), 5, "nor is anything of the next one lost");
    }
}
