//! The pressure of a replay, as one instance alone would see it: all places are its own.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    basis::{shard::UserHash, time::Time},
    limit::pressure::{
        Pressure, PressureState,
        activity::{ActivityHash, Minute},
    },
    policy::Policy,
};

/// How long users who have left the window may stay in the array, in minutes. With the longest window and as long without intents,
/// a cell's minute is told apart from others for longer.
const UNSWEPT_MINUTES: i64 = 60;
/// An array that was not swept says too many. It is swept when that would be more than the peak by this share.
const PEAK_PERCENT: u64 = 101;

/// The active users under one policy.
#[derive(Debug)]
pub struct ReplayPressure {
    pressure: Arc<Pressure>,
    state: Arc<PressureState>,
    /// When the replay begins: who was active before its window is not noted.
    first: Minute,
    /// The last minute that was judged.
    now: Minute,
    swept: Minute,
    /// The most users that were active at a time, estimated within 3%.
    pub(super) peak: u64,
    /// When they first were; `None` without one.
    pub(super) peak_at: Option<Time>,
    /// How many intents were deferred because of pressure, once or more often.
    pub deferred: u64,
}

/// What the pressure of a policy came to, as one instance alone would see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PressureTotals {
    /// The most users that may be active.
    pub max_active_users: u64,
    /// How long a user is active, in words.
    pub window: String,
    /// The most users that were active at a time, estimated within 3%.
    pub peak_active_users: u64,
    /// When they first were; null if nobody ever was.
    pub peak_at: Option<Time>,
    /// How many intents it suppressed (or would have, in shadow mode).
    pub suppressed: u64,
    /// How many intents it deferred, once or more often.
    pub deferred: u64,
}

impl ReplayPressure {
    /// Nobody is active; `None` where the policy has no pressure. `first`: the time of the first intent.
    pub fn new(policy: &Policy, first: Time) -> Option<Self> {
        let (pressure, _) = Pressure::new();
        let state = Arc::new(PressureState::new(policy.pressure.as_ref()?));
        pressure.replace(Some(Arc::clone(&state)));
        let first = Minute::from(first);
        Some(Self { pressure, state, first, now: first, swept: first, peak: 0, peak_at: None, deferred: 0 })
    }

    /// What a decider asks.
    pub fn shared(&self) -> Arc<Pressure> {
        Arc::clone(&self.pressure)
    }

    /// A user was active before the replay, whatever the order.
    pub fn remember(&self, user: UserHash, at: Time) {
        self.state.users.note(ActivityHash::from(user), Minute::from(at), self.first);
    }

    /// Hands out the places for intents of one minute, at most so many; calls are in the order of time.
    pub fn turn_to(&mut self, now: Time, intents: usize) {
        let Self { state, .. } = self;
        let minute = Minute::from(now).max(self.now);
        if minute.0 - self.swept.0 > UNSWEPT_MINUTES {
            // By the minute before, so that each cell's minute is told apart by the one now.
            state.users.sweep(self.now);
            state.users.sweep(minute);
            self.swept = minute;
        }
        self.now = minute;
        let room = |active: u64| state.max().saturating_sub(active);
        let mut active = state.look();
        let matters = state.is_throttling() || room(active) < intents as u64;
        if matters && self.swept < minute {
            state.users.sweep(minute);
            self.swept = minute;
            active = state.look();
        }
        state.places.withdraw_above(0);
        if !state.is_throttling() {
            state.places.add(room(active));
        }
    }

    /// Looks at how many are active, now that the intents at `now` have been judged.
    pub fn judged(&mut self, now: Time) {
        let users = &self.state.users;
        if users.estimate() > self.peak.saturating_mul(PEAK_PERCENT) / 100 && self.swept < self.now {
            self.state.users.sweep(self.now);
            self.swept = self.now;
        }
        let active = users.estimate();
        if self.swept == self.now && active > self.peak {
            (self.peak, self.peak_at) = (active, Some(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::intent::class::Filter;

    const MINUTE_MS: i64 = 60_000;

    fn pressure(max: u64, window: &str) -> ReplayPressure {
        let rule = format!("[pressure]\nmax_active_users = {max}\nwindow = \"{window}\"\naction = \"suppress\"\n");
        let policy = Policy::uncapped(&rule);
        assert_eq!(policy.pressure.as_ref().unwrap().filter, Filter::default());
        ReplayPressure::new(&policy, Time::default()).unwrap()
    }

    fn hash(user: u64) -> UserHash {
        UserHash::of(&user.to_string())
    }

    /// So many users come in at a minute, each if there is a place; gives how many did.
    fn come(pressure: &mut ReplayPressure, minute: i64, users: std::ops::Range<u64>) -> usize {
        let now = Time::default().plus(minute * MINUTE_MS);
        pressure.turn_to(now, users.clone().count());
        let state = pressure.pressure.state().unwrap();
        let minute = Minute::from(now);
        let comes = |user: &u64| {
            let user = ActivityHash::from(hash(*user));
            let comes = state.users.is_active(user, minute) || state.take_place(Duration::ZERO);
            if comes && state.users.note(user, minute, minute) == crate::limit::pressure::activity::Noted::New {
                state.places.used(1);
            }
            comes
        };
        let came = users.filter(comes).count();
        pressure.judged(now);
        came
    }

    #[test]
    fn a_pause_of_any_length_empties_the_window() {
        for window in [1, 30, 120] {
            for pause in [window, 60, 61, 120, 130, 134, 135, 150, 180, 253, 254, 255, 256, 500, 100_000] {
                if pause < window {
                    continue;
                }
                for spread in [0, 1, 59, 60] {
                    let mut pressure = pressure(2_000, &format!("{window}m"));
                    // Some at the begin, some later: the pause is counted from the last of them.
                    assert_eq!(come(&mut pressure, 0, 0..500), 500);
                    assert_eq!(come(&mut pressure, spread, 500..1_000), 500);
                    let case = format!("window {window}, pause {pause}, spread {spread}");
                    assert!(come(&mut pressure, spread + pause, 2_000..6_000) > 1_950, "{case}");
                    let state = pressure.pressure.state().unwrap();
                    let now = pressure.now;
                    let active = (0..1_000).filter(|user| state.users.is_active(ActivityHash::from(hash(*user)), now));
                    assert!(active.count() < 20, "{case}");
                }
            }
        }
    }
}
