//! The timer wheel in Kafka: which bucket an intent is deferred to, and from when on a bucket is emptied.
//!
//! Two rings of buckets, each a topic: 96 of an hour and 120 of a minute. A bucket is one partition a share; the user selects the
//! share, so that several lanes can empty one bucket. An intent that is due in a later hour goes into that hour's bucket. Five
//! minutes before the hour begins, what is in the bucket is moved on into the buckets of its minutes; what is due in the running
//! hour goes there right away.
//!
//! Rounds of a ring never mix: a bucket takes intents of the next round only when those of this one have been due for an hour or
//! longer, so records that are due later are always behind records that are due earlier. So a reader that meets a record that is
//! not due may wait for it, and nothing is scanned twice.

use crate::basis::{clocks::MAX_SKEW_MS, shard::UserHash, time::Time, words};

const MINUTE_MS: i64 = 60 * 1000;
const HOUR_MS: i64 = 60 * MINUTE_MS;

/// How long before its hour begins a bucket of the hours is emptied into the minutes.
pub const OPENS_BEFORE_MS: i64 = 5 * MINUTE_MS;
/// The longest that an intent can be deferred, in milliseconds: two buckets less than the hours have, so that an intent never
/// goes into the bucket of the running hour or of the one before.
pub const LONGEST_MS: i64 = (HOURS - 2) * HOUR_MS;
/// How long the topics must keep a record beyond the longest deferral, in milliseconds: the time that weir may be off before
/// deferred intents are lost.
pub const KEPT_BEYOND_MS: i64 = 24 * HOUR_MS;

/// How far the clocks of two instances may be apart, in milliseconds.
const APART_MS: i64 = 2 * MAX_SKEW_MS;
const HOURS: i64 = 96;
const MINUTES: i64 = 120;

words! {
    /// A ring of buckets; with what its topic's name ends in, behind the prefix and `-`.
    pub enum Ring {
        /// 96 buckets of an hour.
        Hours = "hours",
        /// 120 buckets of a minute.
        Minutes = "minutes",
    }
}

impl Ring {
    pub fn topic(self, prefix: &str) -> String {
        format!("{prefix}-{}", self.as_str())
    }

    pub const fn buckets(self) -> i64 {
        match self {
            Self::Hours => HOURS,
            Self::Minutes => MINUTES,
        }
    }

    /// How long a bucket is, in milliseconds.
    pub const fn width_ms(self) -> i64 {
        match self {
            Self::Hours => HOUR_MS,
            Self::Minutes => MINUTE_MS,
        }
    }

    /// When the bucket of a due time begins.
    pub fn slot(self, due: Time) -> Time {
        due.plus(-due.millis().rem_euclid(self.width_ms()))
    }

    /// From when on a record with this due time may be taken out of its bucket.
    pub fn opens(self, due: Time) -> Time {
        match self {
            Self::Hours => self.slot(due).plus(-OPENS_BEFORE_MS),
            Self::Minutes => due,
        }
    }

    /// How many shares a topic with so many partitions has; `None` where they are no multiple of the buckets.
    pub fn shares(self, partitions: usize) -> Option<u16> {
        let buckets = usize::try_from(self.buckets()).ok()?;
        (partitions > 0 && partitions.is_multiple_of(buckets)).then(|| u16::try_from(partitions / buckets).ok())?
    }

    fn bucket(self, time: Time) -> i64 {
        time.millis().div_euclid(self.width_ms()).rem_euclid(self.buckets())
    }

    /// The next time, from `now` on, whose bucket has this partition: an estimate of when its records are due, from the
    /// partition's number alone. A bucket that began within the last half round is overdue.
    pub fn slot_of(self, partition: i32, shares: u16, now: Time) -> Time {
        let bucket = i64::from(partition) / i64::from(shares.max(1));
        let round = self.buckets();
        let ahead = (bucket - self.bucket(now)).rem_euclid(round);
        // The hours hold what is due up to two buckets before the round is over; the minutes a little over one hour.
        let longest = match self {
            Self::Hours => round - 2,
            Self::Minutes => 66,
        };
        let ahead = if ahead > longest { ahead - round } else { ahead };
        self.slot(now).plus(ahead * self.width_ms())
    }
}

/// A due time: rounded up to a full minute.
pub fn rounded(due: Time) -> Time {
    due.plus((-due.millis()).rem_euclid(MINUTE_MS))
}

/// A place in the wheel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket {
    pub ring: Ring,
    pub partition: i32,
}

/// A wheel whose buckets have so many partitions each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wheel {
    /// Partitions of a bucket, at least 1.
    pub shares: u16,
}

impl Wheel {
    /// Where an intent goes that is deferred now, until a (rounded) due time after now.
    pub fn place(self, user: UserHash, due: Time, now: Time) -> Bucket {
        let ring = if Ring::Hours.slot(due) > now { Ring::Hours } else { Ring::Minutes };
        self.bucket(ring, due, user.shard(self.shares))
    }

    /// Where a record goes on from this partition of the hours: into the minute that it is due in, or, where that is long past, into
    /// one that is past by every clock. What is in the running minute may not be due by another clock, and would hold it up.
    pub fn move_on(self, partition: i32, due: Time, now: Time) -> Bucket {
        let share = u16::try_from(partition.rem_euclid(i32::from(self.shares.max(1)))).unwrap_or(0);
        self.bucket(Ring::Minutes, due.max(Ring::Minutes.slot(now.plus(-APART_MS))), share)
    }

    /// When the bucket of a record begins that is in this partition: what is older is emptied first. A record that was long overdue
    /// when it was moved on is as old as the minute in which it is read: neither what is due by then waits until all such are
    /// released, nor they until nothing is due.
    pub fn slot_of(self, bucket: Bucket, due: Time, now: Time) -> Time {
        bucket.ring.slot(if self.is_own(bucket, due) { due } else { now })
    }

    /// Whether a record is in a bucket that it does not belong to, because partitions were added to the topic since. One that is
    /// overdue may be in any, and so may one that is nearly, which a version of before has moved on by a clock that is ahead.
    pub fn is_misplaced(self, bucket: Bucket, due: Time, now: Time) -> bool {
        due > now.plus(APART_MS) && !self.is_own(bucket, due)
    }

    /// Whether a partition is of the bucket of this due time.
    fn is_own(self, Bucket { ring, partition }: Bucket, due: Time) -> bool {
        ring.bucket(due) == i64::from(partition) / i64::from(self.shares.max(1))
    }

    fn bucket(self, ring: Ring, slot: Time, share: u16) -> Bucket {
        let partition = ring.bucket(slot) * i64::from(self.shares) + i64::from(share);
        Bucket { ring, partition: i32::try_from(partition).unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn time(text: &str) -> Time {
        Time::from_rfc3339(text).unwrap()
    }

    /// The walk of an intent that is deferred at a time, moved on as soon as its hour is opened: where it was, and when it is
    /// released.
    fn walk(wheel: Wheel, user: UserHash, due: Time, at: Time) -> (Vec<Bucket>, Time) {
        let first = wheel.place(user, due, at);
        match first.ring {
            Ring::Minutes => (vec![first], Ring::Minutes.opens(due).max(at)),
            Ring::Hours => {
                let moved_at = Ring::Hours.opens(due).max(at);
                (vec![first, wheel.move_on(first.partition, due, moved_at)], Ring::Minutes.opens(due).max(moved_at))
            }
        }
    }

    #[test]
    fn an_intent_goes_to_its_hour_and_from_the_hour_s_begin_on_to_its_minute() {
        let (wheel, user) = (Wheel { shares: 1 }, UserHash::of("42"));
        let due = time("2026-11-20T18:30:00Z");
        // 1970 began with the buckets 0: hour 18 of day 20,777 is hour 498,666, which is bucket 42 of 96.
        let hours = Bucket { ring: Ring::Hours, partition: 42 };
        let minutes = Bucket { ring: Ring::Minutes, partition: 30 };
        assert_eq!(wheel.place(user, due, time("2026-11-20T17:59:59.999Z")), hours);
        assert_eq!(wheel.place(user, due, time("2026-11-20T18:00:00Z")), minutes);
        assert_eq!(Ring::Hours.opens(due), time("2026-11-20T17:55:00Z"));
        assert_eq!(wheel.move_on(42, due, time("2026-11-20T17:55:00Z")), minutes);
        assert_eq!(wheel.move_on(42, due, time("2026-11-20T18:34:00Z")), minutes, "overdue by a clock that is ahead");
        let overdue = Bucket { ring: Ring::Minutes, partition: 35 };
        assert_eq!(wheel.move_on(42, due, time("2026-11-23T18:45:12Z")), overdue, "past by every clock");
    }

    #[test]
    fn a_due_time_is_rounded_up_to_a_full_minute() {
        for (due, expected) in [
            ("2026-11-20T18:30:00Z", "2026-11-20T18:30:00Z"),
            ("2026-11-20T18:30:00.001Z", "2026-11-20T18:31:00Z"),
            ("1969-12-31T23:59:30Z", "1970-01-01T00:00:00Z"),
        ] {
            assert_eq!(rounded(time(due)), time(expected));
        }
    }

    #[test]
    fn a_topic_has_the_shares_that_its_partitions_are_a_multiple_of() {
        assert_eq!([0, 7, 96, 97, 288].map(|all| Ring::Hours.shares(all)), [None, None, Some(1), None, Some(3)]);
        assert_eq!([96, 120, 480].map(|partitions| Ring::Minutes.shares(partitions)), [None, Some(1), Some(4)]);
    }

    proptest! {
        /// Two writes at most, and never released before it is due, nor later than its minute. The slot of a partition is that of the
        /// records in it.
        #[test]
        fn a_deferral_costs_two_writes_at_most_and_is_released_on_time(
            at in 0_i64..4_000_000_000_000, after in 1..=LONGEST_MS, shares in 1_u16..64, user in any::<u128>(),
        ) {
            let at = Time::from_millis(at).unwrap();
            let due = rounded(at.plus(after));
            let (places, released) = walk(Wheel { shares }, UserHash(user), due, at);
            prop_assert!(places.len() <= 2);
            prop_assert_eq!(released, due);
            for place in &places {
                let partitions = place.ring.buckets() * i64::from(shares);
                prop_assert!((0..partitions).contains(&i64::from(place.partition)));
                // A user stays in its share.
                prop_assert_eq!(place.partition % i32::from(shares), places[0].partition % i32::from(shares));
                let now = if place.ring == Ring::Minutes { Ring::Hours.opens(due).max(at) } else { at };
                prop_assert_eq!(place.ring.slot_of(place.partition, shares, now), place.ring.slot(due));
            }
        }

        /// A record that is moved on lies in its own minute, or in one that has begun by the clock of the instance that releases it.
        #[test]
        fn what_is_moved_on_waits_for_nothing_that_is_due_later(
            at in 1_000_000_000_000_i64..4_000_000_000_000, late in -(65 * MINUTE_MS)..(4 * LONGEST_MS),
            moves in -MAX_SKEW_MS..=MAX_SKEW_MS, releases in -MAX_SKEW_MS..=MAX_SKEW_MS, shares in 1_u16..64,
        ) {
            let now = Time::from_millis(at).unwrap();
            let due = rounded(now.plus(-late));
            let Bucket { partition, .. } = Wheel { shares }.move_on(0, due, now.plus(moves));
            let slot = Ring::Minutes.slot_of(partition, shares, now);
            prop_assert!(slot == due || (due..=now.plus(releases)).contains(&slot), "{slot:?} for {due:?} at {now:?}");
        }

        /// Rounds do not mix: where a record is behind another one in a partition, it is not due before that one's bucket, also
        /// if the clocks of the two writers differ by the 5 minutes that they may.
        #[test]
        fn what_is_behind_in_a_bucket_is_due_in_the_same_bucket_or_later(
            at in 1_000_000_000_000_i64..4_000_000_000_000, later in 0..(4 * LONGEST_MS), skew in -600_000_i64..=600_000,
            after in 1..=LONGEST_MS, after_later in 1..=LONGEST_MS,
        ) {
            let (wheel, user) = (Wheel { shares: 1 }, UserHash::of("42"));
            let first_at = Time::from_millis(at).unwrap();
            let second_at = first_at.plus(later + skew);
            let (first, second) = (rounded(first_at.plus(after)), rounded(second_at.plus(after_later)));
            let (one, _) = walk(wheel, user, first, first_at);
            let (other, _) = walk(wheel, user, second, second_at);
            if later > 600_000 && one[0] == other[0] {
                let ring = one[0].ring;
                prop_assert!(ring.slot(second) >= ring.slot(first), "{ring:?} {first:?} {second:?}");
            }
        }
    }
}
