//! The window a cap looks back over, at the time of one decision; and calendar periods in a time zone: where they begin, also where clocks are
//! moved.
//!
//! A period begins at the first instant at which the zone's clocks show midnight of its first day or later,
//! and ends where the next one begins. So periods never overlap and leave no gap, whatever clocks do: a day
//! that a zone left out (Apia, 2011-12-30) is empty, and an hour that repeats at midnight belongs to the
//! day that had begun.

use jiff::{
    SignedDuration, Timestamp, ToSpan,
    civil::{Date, DateTime, Time as CivilTime},
    tz::{AmbiguousOffset, TimeZone},
};

use super::{time::Time, words, zone::Zone};

const HOUR_MS: i64 = 60 * 60 * 1000;
/// A day on which no clock is moved.
pub(crate) const DAY_MS: i64 = 24 * HOUR_MS;

/// A window as a script or the reference sees it: numbers only. Zones and calendars are already resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Window {
    /// (t - length, t], in milliseconds.
    Sliding {
        /// The window's length in milliseconds, above 0.
        length_ms: i64,
    },
    /// [start, t], the calendar period that the time of decision lies in.
    Calendar {
        /// Start of the period that the batch's clock lies in.
        start: Time,
        /// Start of the next one, used when a user's time is ahead of the clock (by at most 5 minutes).
        next: Time,
        /// Start of the one after that.
        after: Time,
    },
}

impl Window {
    /// The first time that still counts at `now`: entries at or after it are in the window.
    pub fn first(&self, now: Time) -> Time {
        match *self {
            Self::Sliding { length_ms } => now.plus(1 - length_ms),
            Self::Calendar { start, next, .. } if now < next => start,
            Self::Calendar { next, .. } => next,
        }
    }

    /// The first moment at which an entry made at `entry` has left the window.
    ///
    /// For a calendar window an entry that lies beyond `after` (a clock was wrong by more than a whole
    /// period) gives its own time: a lower bound, by which caps are compared; `policy` then names the exact
    /// start of the period that follows it.
    pub fn freed(&self, entry: Time) -> Time {
        match *self {
            Self::Sliding { length_ms } => entry.plus(length_ms),
            Self::Calendar { next, .. } if entry < next => next,
            Self::Calendar { after, .. } if entry < after => after,
            Self::Calendar { .. } => entry,
        }
    }
}

words! {
    /// A calendar period, shortest first; with its name in a policy and in a decision.
    pub enum Period {
        /// From midnight.
        Day = "day",
        /// From Monday's midnight.
        Week = "week",
        /// From the first's midnight.
        Month = "month",
    }
}

impl Period {
    /// The longest that it lasts, in milliseconds: with clocks put back by an hour in it.
    ///
    /// Since 2022 only research stations in Antarctica put theirs back by more; a test looks at every zone.
    pub const fn longest_ms(self) -> i64 {
        match self {
            Self::Day => DAY_MS + HOUR_MS,
            Self::Week => 7 * DAY_MS + HOUR_MS,
            Self::Month => 31 * DAY_MS + HOUR_MS,
        }
    }

    /// The shortest that it lasts, in milliseconds: with clocks put forward by an hour in it.
    pub const fn shortest_ms(self) -> i64 {
        match self {
            Self::Day => DAY_MS - HOUR_MS,
            Self::Week => 7 * DAY_MS - HOUR_MS,
            Self::Month => 28 * DAY_MS - HOUR_MS,
        }
    }

    fn first_day(self, day: Date) -> Date {
        match self {
            Self::Day => day,
            Self::Week => day.saturating_sub(i64::from(day.weekday().to_monday_zero_offset()).days()),
            Self::Month => day.first_of_month(),
        }
    }

    /// The first day of the period after the one that begins with `first`.
    fn following(self, first: Date) -> Date {
        match self {
            Self::Day => first.saturating_add(1.day()),
            Self::Week => first.saturating_add(7.days()),
            Self::Month => first.saturating_add(1.month()),
        }
    }

    /// The window of this period around the batch's clock.
    pub fn window(self, zone: &Zone, now: Time) -> Window {
        let next = next_start(self, zone, now);
        Window::Calendar { start: start(self, zone, now), next, after: next_start(self, zone, next) }
    }
}

fn start(period: Period, zone: &Zone, at: Time) -> Time {
    let first = period.first_day(local(zone, at).date());
    let following = first_instant(zone, midnight(period.following(first)));
    if following <= at { following } else { first_instant(zone, midnight(first)) }
}

/// Where the period after the one that `at` lies in begins; [`Time::MAX`] at the end of time.
pub(crate) fn next_start(period: Period, zone: &Zone, at: Time) -> Time {
    /// An empty period (a day left out), or one that clocks fell back into, takes one step more each.
    const STEPS: usize = 4;
    let first = period.first_day(local(zone, at).date());
    let firsts = std::iter::successors(Some(period.following(first)), |&first| Some(period.following(first)));
    let mut starts = firsts.take(STEPS).map(|first| first_instant(zone, midnight(first)));
    starts.find(|&start| start > at).unwrap_or(Time::MAX)
}

/// What the zone's clocks show.
pub(crate) fn local(zone: &Zone, at: Time) -> DateTime {
    zone.time_zone().to_datetime(at.timestamp())
}

fn midnight(day: Date) -> DateTime {
    day.to_datetime(CivilTime::midnight())
}

/// The first instant at which the zone's clocks show `local`, or jump over it.
pub(crate) fn first_instant(zone: &Zone, local: DateTime) -> Time {
    let zone = zone.time_zone();
    let instant = match zone.to_ambiguous_timestamp(local).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(local),
        AmbiguousOffset::Fold { before, .. } => before.to_timestamp(local),
        AmbiguousOffset::Gap { before, .. } => before.to_timestamp(local).map(|late| jump_before(zone, late)),
    };
    Time::from(instant.unwrap_or(Timestamp::MAX))
}

/// The last time that clocks were moved at or before `late`.
fn jump_before(zone: &TimeZone, late: Timestamp) -> Timestamp {
    let after = late.checked_add(SignedDuration::from_secs(1)).unwrap_or(late);
    zone.preceding(after).next().map_or(late, |transition| transition.timestamp())
}
