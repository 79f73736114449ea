//! Who is active, as far as the log of activity was read: by the rule in force, and by those before and after it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::block_in_place,
};
use weir_core::limit::pressure::{
    Pressure, PressureRule, PressureState,
    activity::{AHEAD_MINUTES, Minute},
    activity_log::{ActiveIn, Cursor, SyncReply},
};

use super::{PressureSeen, TURN_EVERY, lately::Lately};

#[derive(Default)]
pub(super) struct Views {
    /// In force, or with the places of the next turn.
    pub(super) now: Option<View>,
    /// `now` has no places yet: it comes into force with those of the next turn.
    pub(super) waits_for_places: bool,
    /// Read from the beginning of its window, to be in force then.
    pub(super) next: Option<View>,
    /// In force before, or until `now` is; batches that have begun by them are still decided by them. Several, where rules follow each other
    /// faster than turns.
    pub(super) before: Vec<Arc<PressureState>>,
}

impl Views {
    /// Begins to read for a rule with another maximum or window.
    pub(super) fn follow(&mut self, rule: &PressureRule, now: Minute) {
        if self.now.as_ref().is_some_and(|view| view.is_of(rule)) {
            self.next = None;
        } else if !self.next.as_ref().is_some_and(|next| next.is_of(rule)) {
            self.next = Some(View::new(rule, now));
        }
    }

    /// The one that is read.
    pub(super) fn reading(&self) -> Option<&View> {
        self.next.as_ref().or(self.now.as_ref())
    }

    pub(super) fn reading_mut(&mut self) -> Option<&mut View> {
        self.next.as_mut().or(self.now.as_mut())
    }

    /// All is read: the next turn asks for places.
    pub(super) fn take_up(&mut self) {
        let Some(next) = self.next.take() else { return };
        self.before.extend(self.now.replace(next).map(|before| before.state));
        self.waits_for_places = true;
    }

    /// Puts the new view into force, with the places of this turn.
    pub(super) fn put_in_force(&mut self, pressure: &Pressure) {
        self.waits_for_places = false;
        pressure.replace(self.now.as_ref().map(|view| Arc::clone(&view.state)));
        self.before.iter().for_each(|before| before.places.withdraw_above(0));
    }

    /// Those whose places this instance holds.
    pub(super) fn states(&self) -> impl Iterator<Item = &Arc<PressureState>> {
        self.now.iter().map(|view| &view.state).chain(&self.before)
    }
}

pub(super) struct View {
    pub(super) state: Arc<PressureState>,
    pub(super) window_ms: i64,
    pub(super) cursor: Cursor,
    swept: Minute,
    /// How many users came here in the window by intents that the rule does not apply to, by minute.
    pub(super) exempt: BTreeMap<Minute, u64>,
    /// How many users have asked for a place before each turn of the last two seconds.
    asked: Lately<u64>,
}

impl View {
    pub(super) fn new(rule: &PressureRule, now: Minute) -> Self {
        let state = Arc::new(aside(|| PressureState::new(rule)));
        Self {
            state,
            window_ms: rule.window_ms(),
            cursor: None,
            swept: now,
            exempt: BTreeMap::new(),
            asked: Lately::default(),
        }
    }

    /// Whether it has the maximum and the window of a rule.
    pub(super) fn is_of(&self, rule: &PressureRule) -> bool {
        self.state.max() == rule.max_active_users && self.state.users.window() == rule.window_minutes
    }

    pub(super) fn seen(&self, members: u64, synced_at: Duration) -> PressureSeen {
        let state = &self.state;
        PressureSeen {
            active_users: state.look(),
            exempt_users: self.exempt.values().sum(),
            max_active_users: state.max(),
            window_minutes: state.users.window(),
            throttling: state.is_throttling(),
            members,
            places: state.places.left(),
            synced_at,
        }
    }

    /// Forgets who has left the window; once a minute.
    pub(super) fn sweep(&mut self, now: Minute) {
        if self.swept != now {
            aside(|| self.state.users.sweep(now));
            let window = i64::from(self.state.users.window());
            self.exempt.retain(|minute, _| (now.0 - minute.0).abs() < window);
            self.swept = now;
        }
    }

    /// How many users have asked for a place lately.
    pub(super) fn wanted(&mut self, now: Duration) -> u64 {
        self.asked.add(self.state.take_asked(), now, 2 * TURN_EVERY);
        self.asked.all().copied().max().unwrap_or(0)
    }

    /// Notes what the reply to a turn has; gives how many users are ignored, because their minute is ahead of the clock.
    pub(super) fn note(&mut self, reply: &SyncReply, now: Minute) -> u64 {
        let mut ignored = 0;
        for ActiveIn { minute, users, .. } in &reply.active {
            if minute.0 > now.0 + AHEAD_MINUTES {
                ignored += users.len();
                continue;
            }
            for user in users {
                self.state.users.note(*user, *minute, now);
            }
        }
        self.cursor.clone_from(&reply.cursor);
        u64::try_from(ignored).unwrap_or(u64::MAX)
    }
}

/// Does what takes long for many users. Where the runtime has several threads, its other tasks go on meanwhile.
fn aside<T>(work: impl FnOnce() -> T) -> T {
    if Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread { block_in_place(work) } else { work() }
}
