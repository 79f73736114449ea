//! Quiet hours: the time of day at which nothing is sent, by the user's clock.

use jiff::{
    ToSpan,
    civil::Time as CivilTime,
    tz::{AmbiguousOffset, TimeZone},
};

use super::Action;
use crate::{
    basis::{
        shard::UserHash,
        time::Time,
        window::{DAY_MS, first_instant, local},
        zone::Zone,
    },
    intent::class::Filter,
};

/// From one time of day until before another, over midnight where the second is earlier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuietHours {
    /// When they begin, by the user's clock; never when they end.
    pub from: CivilTime,
    /// When they have ended, by the user's clock.
    pub to: CivilTime,
    pub filter: Filter,
    pub action: Action,
    /// Over how long behind their end deferred intents return, in milliseconds.
    pub spread_ms: i64,
}

impl QuietHours {
    /// Quiet hours for the intents that the filter speaks of; `None` where they begin and end at the same
    /// time of day, which could mean never and always.
    pub fn new(from: CivilTime, to: CivilTime, filter: Filter) -> Option<Self> {
        (from != to).then_some(Self { from, to, filter, action: Action::Suppress, spread_ms: 0 })
    }

    /// The same, with intents deferred until their end, and spread over so many milliseconds behind it.
    #[must_use]
    pub fn deferring(self, spread_ms: i64) -> Self {
        Self { action: Action::Defer, spread_ms, ..self }
    }

    /// How long behind their end a user's deferred intents return, in milliseconds: the same for all intents of a user, and
    /// even over the users.
    pub fn spread_of(&self, user: UserHash) -> i64 {
        let parts = u64::try_from(self.spread_ms).unwrap_or(0);
        // Other bits than those that the share of a bucket is found by: neighbours are spread, too.
        let place = xxhash_rust::xxh3::xxh3_64(&user.0.to_le_bytes());
        i64::try_from((u128::from(place) * u128::from(parts)) >> 64).unwrap_or(0)
    }

    /// Whether it is quiet when a clock shows this time of day.
    pub fn cover(&self, clock: CivilTime) -> bool {
        if self.from < self.to { self.from <= clock && clock < self.to } else { self.from <= clock || clock < self.to }
    }

    /// The first moment after `now` at which it is not quiet in this zone; `None` where it is not quiet now.
    ///
    /// Clocks that are moved may end them early, late, or twice in a night: what counts is what they show.
    pub fn end(&self, zone: &Zone, now: Time) -> Option<Time> {
        if !self.cover(local(zone, now).time()) {
            return None;
        }
        let loud = |at: &Time| *at > now && !self.cover(local(zone, *at).time());
        let by_clock = self.ends_by_clock(zone, now).into_iter().find(loud).unwrap_or_else(|| now.plus(DAY_MS));
        let moves = zone.time_zone().following(now.timestamp()).map(|transition| Time::from(transition.timestamp()));
        Some(moves.take_while(|&at| at < by_clock).find(loud).unwrap_or(by_clock))
    }

    /// The first moment after `now` at which it becomes quiet in this zone, or has ceased to be.
    pub fn change(&self, zone: &Zone, now: Time) -> Time {
        let complement = Self { from: self.to, to: self.from, filter: Filter::default(), ..*self };
        self.end(zone, now).or_else(|| complement.end(zone, now)).unwrap_or(now)
    }

    /// The instants from yesterday to the day after tomorrow at which the clocks show the end, ascending.
    fn ends_by_clock(&self, zone: &Zone, now: Time) -> Vec<Time> {
        let today = local(zone, now).date();
        let days = (-1..=2_i64).map(|days| today.saturating_add(days.days()).to_datetime(self.to));
        days.flat_map(|end| [Some(first_instant(zone, end)), second_instant(zone.time_zone(), end)]).flatten().collect()
    }
}

/// Where clocks that are put back show `local` for the second time.
fn second_instant(zone: &TimeZone, local: jiff::civil::DateTime) -> Option<Time> {
    match zone.to_ambiguous_timestamp(local).offset() {
        AmbiguousOffset::Fold { after, .. } => after.to_timestamp(local).ok().map(Time::from),
        AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Gap { .. } => None,
    }
}
