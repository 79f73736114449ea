//! Pressure: no more active users at once than the app carries.
//!
//! The policy's [rule](PressureRule), and what one process knows of who is active ([`Pressure`]): lanes ask it, and a task tells it
//! what other instances say. A user who is not active needs a [place](UnitPool) to become so. Places are shared by all instances through
//! the log ([`activity_log`]), so that no more users are brought in than the maximum,
//! within 2%, plus those whom an instance brought in during its last second before it was killed or frozen, or while the store answered it
//! 10 s later than others: these are told of them with a turn that it takes too late, or does not take.

pub mod activity;
pub mod activity_log;
pub mod activity_report;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{
    basis::{shard::UserHash, time::Time},
    intent::{class::Filter, selection::Action},
    limit::{
        pressure::{
            activity::{ActiveUsers, ActivityHash, Minute, Noted},
            activity_log::{ActiveIn, USERS_A_TURN},
            activity_report::ReportOutcome,
        },
        share::UnitPool,
    },
};

/// When nobody new comes in any more: at this share of the maximum, which is as exactly as the number of active users is known.
const FULL_PERCENT: u64 = 99;
/// When users come in again.
const OPEN_PERCENT: u64 = 95;
/// The least that an intent of a user who may not come in is put off, in milliseconds.
pub const PUT_OFF_MS: i64 = 60_000;

/// `[pressure]` of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PressureRule {
    /// The most users that may be active: 1 to [`activity::MAX_ACTIVE_USERS`].
    pub max_active_users: u64,
    /// How many minutes a user is active for, the current one included: 1 to [`activity::LONGEST_WINDOW_MINUTES`].
    pub window_minutes: u8,
    /// The intents that it applies to. Approved intents of all others make users active, too.
    pub filter: Filter,
    /// What becomes of an intent of a user who may not come in.
    pub action: Action,
}

impl PressureRule {
    pub fn window_ms(&self) -> i64 {
        i64::from(self.window_minutes) * 60_000
    }

    /// Where in the window a deferred user's turn is, in milliseconds: users who wait come back evenly over a window. Each minute in
    /// another order, so that nobody is always the last.
    pub fn spread_of(&self, user: UserHash, now: Time) -> i64 {
        let minute = Minute::from(now).0.unsigned_abs();
        let drawn = xxh3_64_with_seed(&ActivityHash::from(user).0.to_be_bytes(), minute);
        let window = u128::try_from(self.window_ms()).unwrap_or(0);
        let share = (u128::from(drawn) * window) >> 64;
        i64::try_from(share).unwrap_or(0)
    }
}

/// What makes a user active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActiveBy {
    /// An approved intent that the rule applies to.
    Intent,
    /// An approved intent that the rule does not apply to: the maximum does not bound it.
    ExemptIntent,
    Report,
}

/// Who is active, and who may become so: what a process knows. `None` in force: the policy has no rule, or its window has not been
/// read yet.
#[derive(Debug)]
pub struct Pressure {
    in_force: ArcSwapOption<PressureState>,
    told: mpsc::Sender<ActiveTold>,
    /// Users that the task has not heard of yet.
    unheard: AtomicUsize,
    /// Users that it never hears of, because too many waited.
    dropped: AtomicU64,
}

/// Users who became active here, as the task is told of them.
#[derive(Debug)]
pub struct ActiveTold {
    pub active: ActiveIn,
    /// How many of the new ones came by intents that the rule does not apply to.
    pub exempt: u64,
}

/// What is in force: made anew when the policy's maximum or window changes.
#[derive(Debug)]
pub struct PressureState {
    pub users: ActiveUsers,
    pub places: UnitPool,
    max: u64,
    throttling: AtomicBool,
    /// Users who have asked for a place, each once per batch, since somebody has counted them.
    asked: AtomicU64,
}

impl Pressure {
    /// Nothing is in force. What batches tell comes out of the receiver, in a task that drains it with each turn that it begins, about once a
    /// second, and says so ([`Pressure::heard`]). It begins none while one is repeated, or while the clock is wrong.
    #[must_use]
    pub fn new() -> (Arc<Self>, mpsc::Receiver<ActiveTold>) {
        let (told, inbox) = mpsc::channel();
        let (in_force, unheard, dropped) = Default::default();
        (Arc::new(Self { in_force, told, unheard, dropped }), inbox)
    }

    /// The task has heard of so many users: as many more may wait for it.
    pub fn heard(&self, users: usize) {
        self.unheard.fetch_sub(users, Ordering::Relaxed);
    }

    /// How many users were not told since the last call, because too many waited for the task.
    #[must_use]
    pub fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }

    /// What is in force; hold it for a batch.
    pub fn state(&self) -> Option<Arc<PressureState>> {
        self.in_force.load_full()
    }

    pub fn replace(&self, state: Option<Arc<PressureState>>) {
        self.in_force.store(state);
    }

    /// Users were reported to be active in a minute that is not ahead of the clock's. Nobody is active where nothing is in force.
    pub fn note(&self, users: impl IntoIterator<Item = ActivityHash>, minute: Minute, now: Minute) -> ReportOutcome {
        let state = self.in_force.load();
        let Some(state) = state.as_deref() else { return ReportOutcome::NoPressure };
        if now.0 - minute.0 >= i64::from(state.users.window()) {
            return ReportOutcome::Late;
        }
        self.tell(state, users.into_iter().map(|user| (user, ActiveBy::Report)), minute, now);
        ReportOutcome::Noted
    }

    /// The users of approved intents are active, in the state that a batch was judged by.
    pub fn note_in(
        &self,
        state: &PressureState,
        users: impl IntoIterator<Item = (ActivityHash, ActiveBy)>,
        now: Minute,
    ) {
        self.tell(state, users, now, now);
    }

    /// Notes users, and tells the keeper who was not known to be active in this minute.
    fn tell(
        &self,
        state: &PressureState,
        users: impl IntoIterator<Item = (ActivityHash, ActiveBy)>,
        minute: Minute,
        now: Minute,
    ) {
        let (mut active, mut exempt) = (ActiveIn { minute, new: 0, users: Vec::new() }, 0);
        for (user, by) in users {
            match state.users.note(user, minute, now) {
                Noted::Known => continue,
                Noted::Again => {}
                Noted::New => {
                    active.new += 1;
                    exempt += u64::from(by == ActiveBy::ExemptIntent);
                }
            }
            active.users.push(user);
        }
        if !active.users.is_empty() {
            self.hand_over(ActiveTold { active, exempt }, most_untold(state.max));
        }
    }

    /// Lanes do not wait for the task, which waits for Redis: where it hears nothing for long, so many users at the most wait for it.
    fn hand_over(&self, told: ActiveTold, most: usize) {
        let users = told.active.users.len();
        let unheard = self.unheard.fetch_add(users, Ordering::Relaxed);
        let is_full = unheard.saturating_add(users) > most;
        if is_full {
            self.dropped.fetch_add(u64::try_from(users).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        // Nobody listens in a process that is ending.
        if is_full || self.told.send(told).is_err() {
            self.heard(users);
        }
    }
}

/// How many users may wait in a process to be told to others: as many as may be active, or what one turn tells.
pub fn most_untold(max_active_users: u64) -> usize {
    usize::try_from(max_active_users).unwrap_or(usize::MAX).max(USERS_A_TURN)
}

impl PressureState {
    /// Nobody is active, and there are no places; those to come end when they are renewed until then.
    pub fn new(rule: &PressureRule) -> Self {
        Self {
            users: ActiveUsers::new(rule.max_active_users, rule.window_minutes),
            places: UnitPool::new(Duration::MAX),
            max: rule.max_active_users,
            throttling: AtomicBool::new(false),
            asked: AtomicU64::new(0),
        }
    }

    pub const fn max(&self) -> u64 {
        self.max
    }

    /// Whether only active users pass: starts at 99% of the maximum, ends below 95%.
    pub fn is_throttling(&self) -> bool {
        self.throttling.load(Ordering::Relaxed)
    }

    /// Looks again whether it is to throttle; gives the estimate.
    pub fn look(&self) -> u64 {
        let active = self.users.estimate();
        let limit = |percent: u64| self.max.saturating_mul(percent).div_ceil(100);
        if active >= limit(FULL_PERCENT) {
            self.throttling.store(true, Ordering::Relaxed);
        } else if active < limit(OPEN_PERCENT).min(self.max) {
            self.throttling.store(false, Ordering::Relaxed);
        }
        active
    }

    /// Looks again how many more users may become active: none while it throttles.
    #[must_use]
    pub fn room(&self) -> u64 {
        let active = self.look();
        if self.is_throttling() { 0 } else { self.max.saturating_sub(active) }
    }

    /// Takes a place for a user who is not active; `false`: nobody may come in now. `passed`: the monotonic clock.
    pub fn take_place(&self, passed: Duration) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        !self.is_throttling() && self.places.take(1, passed) > 0
    }

    /// How many users have asked for a place since the last call, each once per batch.
    #[must_use]
    pub fn take_asked(&self) -> u64 {
        self.asked.swap(0, Ordering::Relaxed)
    }

    /// Whether a user who is not active would find a place.
    pub fn has_place(&self, passed: Duration) -> bool {
        !self.is_throttling() && self.places.free(passed) > 0
    }
}

#[cfg(test)]
mod tests;
