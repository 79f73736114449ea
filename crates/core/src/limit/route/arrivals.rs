//! When the oldest record that waits in a partition came, from the partition's ends alone: a record came after the last look that
//! did not find its offset, and before the first that did. No record is read.

use std::collections::VecDeque;

/// So many looks are kept, about; more are thinned out.
const MOST: usize = 256;
/// Looks that are thinned out lie at most this part of their age apart: so much of an age may be missing.
const APART: i64 = 6;
/// The first time before a first look that is asked for, in milliseconds, and how much further back each next one is: a half more.
const FIRST_BEFORE_MS: i64 = 5_000;
/// The longest, in milliseconds: 14 days.
const LONGEST_BEFORE_MS: i64 = 14 * 86_400_000;

/// How far a partition's records wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waiting {
    /// The first offset that waits.
    pub from: u64,
    /// The offset behind the last one.
    pub end: u64,
}

impl Waiting {
    /// How many wait at the most.
    #[must_use]
    pub const fn count(self) -> u64 {
        self.end.saturating_sub(self.from)
    }
}

/// The looks at one partition: when it ended where, ascending, from the first end behind the offsets that are done.
#[derive(Debug, Clone, Default)]
pub struct Arrivals(VecDeque<EndSeen>);

#[derive(Debug, Clone, Copy)]
struct EndSeen {
    at_ms: i64,
    end: u64,
}

impl Arrivals {
    /// Notes a look. `at_ms`: of any clock that never goes back, later than all before.
    pub fn note(&mut self, at_ms: i64, waiting: Waiting) {
        let Self(seen) = self;
        // A topic that was recreated, or a broker that knows of less than the one before.
        while seen.pop_back_if(|last| last.end > waiting.end).is_some() {}
        if seen.back().is_none_or(|last| last.end < waiting.end) {
            seen.push_back(EndSeen { at_ms, end: waiting.end });
        }
        while seen.pop_front_if(|first| first.end <= waiting.from).is_some() {}
        if seen.len() > MOST {
            self.thin_out(at_ms);
        }
    }

    /// The partition ended there at a time before the first look; `None`: no record is as late.
    pub fn note_before(&mut self, at_ms: i64, end: Option<u64>) {
        let Self(seen) = self;
        let Some((first, last)) = seen.front().zip(seen.back()) else { return };
        if at_ms < first.at_ms {
            let end = end.unwrap_or(last.end).min(last.end);
            while seen.pop_front_if(|first| first.end <= end).is_some() {}
            seen.push_front(EndSeen { at_ms, end });
        }
    }

    /// When the oldest record that waits came, at the latest; `None`: none waits.
    #[must_use]
    pub fn oldest_ms(&self) -> Option<i64> {
        self.0.front().map(|first| first.at_ms)
    }

    /// Drops looks between others that lie close to each other for their age.
    fn thin_out(&mut self, now_ms: i64) {
        let Self(seen) = self;
        let mut kept = VecDeque::with_capacity(MOST);
        for (place, look) in seen.iter().enumerate() {
            let before = kept.back().map(|before: &EndSeen| before.at_ms);
            let is_between = before
                .zip(seen.get(place + 1))
                .is_some_and(|(before_ms, next)| next.at_ms - before_ms <= (now_ms - next.at_ms) / APART);
            if !is_between {
                kept.push_back(*look);
            }
        }
        *seen = kept;
    }
}

/// How long before a first look its partitions are asked for, in milliseconds: records that were there then are as old at least.
pub fn before_the_first_ms() -> impl Iterator<Item = i64> {
    std::iter::successors(Some(FIRST_BEFORE_MS), |before| Some(before + before / 2))
        .take_while(|ms| *ms <= LONGEST_BEFORE_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(from: u64, end: u64) -> Waiting {
        Waiting { from, end }
    }

    #[test]
    fn the_oldest_record_came_when_the_end_first_was_behind_it() {
        let mut arrivals = Arrivals::default();
        for (at, from, end, oldest) in [
            (0, 10, 10, None),
            (1_000, 10, 14, Some(1_000)),
            (2_000, 12, 14, Some(1_000)),
            (3_000, 12, 20, Some(1_000)),
            (4_000, 14, 20, Some(3_000)),
            (5_000, 20, 20, None),
            (6_000, 20, 21, Some(6_000)),
            // A broker that knows of less, and a topic that was recreated.
            (7_000, 19, 20, Some(7_000)),
            (8_000, 0, 3, Some(8_000)),
        ] {
            arrivals.note(at, waiting(from, end));
            assert_eq!(arrivals.oldest_ms(), oldest, "at {at}");
        }
    }

    #[test]
    fn what_waited_before_the_first_look_is_found_by_asking_back() {
        let (mut arrivals, came_ms, first_ms) = (Arrivals::default(), 100_000, 700_000);
        arrivals.note(first_ms, waiting(5, 80));
        assert_eq!(arrivals.oldest_ms(), Some(first_ms));
        for before in before_the_first_ms() {
            // One record every 10 s since then.
            let end = 5 + u64::try_from((first_ms - before - came_ms).max(0) / 10_000).unwrap();
            if end <= 5 {
                break;
            }
            arrivals.note_before(first_ms - before, Some(end));
        }
        let found = first_ms - arrivals.oldest_ms().unwrap();
        assert!((400_000..=600_000).contains(&found), "of 600 s, at most a third is missing: {found}");
        arrivals.note(first_ms + 1_000, waiting(40, 80));
        let later = first_ms + 1_000 - arrivals.oldest_ms().unwrap();
        assert!((160_000..=251_000).contains(&later), "what came 250 s before is the oldest: {later}");
        assert!(before_the_first_ms().count() < 40);
        arrivals.note_before(-1_000_000, None);
        assert_eq!(arrivals.oldest_ms(), Some(-1_000_000), "all that waits came before");
    }

    #[test]
    fn looks_are_thinned_out_and_an_age_keeps_five_sixths() {
        let mut arrivals = Arrivals::default();
        for second in 0..200_000_u64 {
            let now = i64::try_from(second * 1_000).unwrap();
            // A record a second, and what came half of the time ago is the oldest.
            arrivals.note(now, waiting(second / 2, second + 1));
            let (age, found) = (now / 2, now - arrivals.oldest_ms().unwrap());
            assert!(found <= age + 1_000 && found >= age - age / APART - 1_000, "{second}: {found} of {age}");
            assert!(arrivals.0.len() <= MOST);
        }
    }
}
