//! What goes by the second, however many turns it has: turns that are asked for follow others sooner.

use std::time::Duration;

use weir_core::limit::pressure::activity_log::ActiveIn;

/// How often a turn is taken that nobody has asked for.
pub(super) const TURN_EVERY: Duration = Duration::from_secs(1);

/// What came of the last seconds. A turn ends one, unless it follows the turn that ended the one before within half a second: then it is
/// of the second that has begun.
#[derive(Default)]
pub(super) struct Seconds {
    /// When the turn began that ended the last one, by the monotonic clock.
    ended_at: Option<Duration>,
    /// Whether the last turn that began ends none.
    is_within: bool,
    /// How many users became active without a place in the one that has begun, and in the one before.
    without_place: [u64; 2],
    /// What the last turn told, and what was told in about a second before it, and in one more. Others may not have read it: it is told
    /// again where the log has lost it.
    told: [Vec<ActiveIn>; 3],
}

impl Seconds {
    /// A turn begins at this time of the monotonic clock.
    pub(super) fn begin_turn(&mut self, at: Duration) {
        self.is_within = self.ended_at.is_some_and(|ended_at| at < ended_at + TURN_EVERY / 2);
        if !self.is_within {
            self.ended_at = Some(at);
        }
    }

    /// Whether the last turn that began ends none of them.
    pub(super) const fn is_within(&self) -> bool {
        self.is_within
    }

    /// So many users became active without a place since the turn before; gives how many may until the next one: as many as in the last
    /// second.
    pub(super) fn may_come(&mut self, came: u64) -> u64 {
        let [now, before] = self.without_place;
        let now = now + came;
        if self.is_within {
            self.without_place = [now, before];
            return now.max(before);
        }
        self.without_place = [0, now];
        now
    }

    /// The turn has told of these users.
    pub(super) fn tell(&mut self, active: Vec<ActiveIn>) {
        if self.is_within {
            let last = std::mem::take(&mut self.told[0]);
            self.told[1].extend(last);
        } else {
            self.told.rotate_right(1);
        }
        self.told[0] = active;
    }

    /// Takes what is to be told again, with what the last turn told or without it.
    pub(super) fn take_told(&mut self, with_last: bool) -> impl Iterator<Item = ActiveIn> {
        self.told[usize::from(!with_last)..].iter_mut().flat_map(std::mem::take)
    }
}

#[cfg(test)]
mod tests {
    use weir_core::limit::pressure::activity::Minute;

    use super::*;

    #[test]
    fn as_many_may_come_as_in_the_last_second_however_many_turns_it_had() {
        let mut seconds = Seconds::default();
        // When a turn begins, how many came since the one before, and how many may until the next one.
        let turns =
            [(0, 5, 5), (1_000, 40, 40), (1_100, 3, 40), (1_499, 50, 53), (1_500, 7, 60), (2_500, 1, 1), (3_100, 0, 0)];
        for (millis, came, expected) in turns {
            seconds.begin_turn(Duration::from_millis(millis));
            assert_eq!(seconds.may_come(came), expected, "after {millis} ms");
        }
    }

    #[test]
    fn what_was_told_is_kept_for_two_seconds_however_many_turns_they_had() {
        let mut seconds = Seconds::default();
        let one = |minute| ActiveIn { minute: Minute(minute), new: 0, users: Vec::new() };
        for millis in [0, 1_000, 2_000, 2_100, 2_200, 3_200, 3_300] {
            seconds.begin_turn(Duration::from_millis(millis));
            seconds.tell(vec![one(i64::try_from(millis).unwrap())]);
        }
        let mut again: Vec<i64> = seconds.take_told(false).map(|told| told.minute.0).collect();
        again.sort_unstable();
        assert_eq!(again, [1_000, 2_000, 2_100, 2_200, 3_200]);
        assert_eq!(seconds.take_told(true).map(|told| told.minute.0).collect::<Vec<_>>(), [3_300]);
    }
}
