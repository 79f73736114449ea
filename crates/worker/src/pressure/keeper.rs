//! The task that takes a process's turns at the log of activity.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use weir_core::{
    basis::current::Current,
    limit::{
        pressure::{
            ActiveTold, Pressure,
            activity::Minute,
            activity_log::{ActiveIn, SharedPlaces, SyncReply, SyncRequest, USERS_A_TURN},
            most_untold,
        },
        share::{Answered, HoldsPart, Silence, Turns, Unanswered, is_overtaken},
    },
    policy::Policy,
    ports::{Clock, Share, StoreError},
};

use super::{
    PressureStatus, TURN_EVERY,
    lately::Lately,
    untold::Untold,
    view::{View, Views},
};
use crate::{observer::Observer, share::PoolKeeper};

/// How long an instance stays a member, and may use its places, without another turn.
pub const MEMBER_FOR: Duration = Duration::from_secs(10);

/// What came before a turn is of the last second until then: one begins a second after the one before, or a little sooner where that took long
/// to begin.
const OF_LAST_SECOND: Duration = Duration::from_millis(900);

/// Tells the log who became active here, notes who did elsewhere, and gets places for users of this process.
pub type PressureKeeper<L, C> = PoolKeeper<HeldPlaces, L, C>;

/// The places of this process, and who is active.
pub struct HeldPlaces {
    policy: Arc<Current<Policy>>,
    pressure: Arc<Pressure>,
    inbox: mpsc::Receiver<ActiveTold>,
    observer: Arc<dyn Observer>,
    status: PressureStatus,
    /// How long each turn makes it a member.
    member_for: Duration,
    /// That of the last turn.
    minute: Minute,
    untold: Untold,
    /// What turns have told so lately that others may not have read it: who is a member has taken a turn within that time.
    told: Lately<Vec<ActiveIn>>,
    /// How many users became active without a place before each turn of the last second.
    without_place: Lately<u64>,
    views: Views,
    /// The fair part of the places, by the last turn that was told what is left.
    fair: u64,
    /// The places held after the last turn, and the users who became active since, with a place or without.
    held: u64,
    came: u64,
    members: u64,
    /// The log was lost: nobody gets more places before so many members have taken a turn since, or until then. What the others hold
    /// and whom they let in last is not known sooner.
    gathers: Option<(u64, Duration)>,
    /// When the last turn began that was answered, and when the answer came.
    synced: Option<(Duration, Duration)>,
}

impl<L, C> PressureKeeper<L, C>
where
    L: Share<SharedPlaces>,
    C: Clock + Clone,
{
    /// The task, to be run; what lanes ask, and how it stands.
    pub fn new(
        log: L,
        clock: C,
        policy: Arc<Current<Policy>>,
        observer: Arc<dyn Observer>,
    ) -> (Self, Arc<Pressure>, PressureStatus) {
        let (pressure, inbox) = Pressure::new();
        let status = PressureStatus::default();
        let part = HeldPlaces {
            policy,
            pressure: Arc::clone(&pressure),
            inbox,
            observer,
            status: status.clone(),
            member_for: MEMBER_FOR,
            minute: Minute(0),
            untold: Untold::default(),
            told: Lately::default(),
            without_place: Lately::default(),
            views: Views::default(),
            fair: 0,
            held: 0,
            came: 0,
            members: 0,
            gathers: None,
            synced: None,
        };
        let asked = status.turns();
        (Self::of(part, ((), log), clock, asked), pressure, status)
    }

    /// Reads who is active, where the policy has pressure: to be done before the process is ready. Asks again for so long.
    ///
    /// # Errors
    /// The log did not answer, or asking again cannot help.
    pub async fn load(&mut self, patience: Duration) -> Result<(), StoreError> {
        let until = self.clock.passed() + patience;
        while self.part.policy.get().pressure.is_some() && self.part.views.now.is_none() {
            match self.take_turn().await {
                Ok(_) => {}
                Err(StoreError::Temporary(message)) if self.clock.passed() < until => {
                    tracing::warn!("who is active could not be read: {message}; trying again");
                    self.clock.sleep(TURN_EVERY).await;
                }
                Err(error) => return Err(error),
            }
        }
        // Nothing is decided yet.
        let HeldPlaces { views, pressure, .. } = &mut self.part;
        if views.waits_for_places {
            views.put_in_force(pressure);
        }
        Ok(())
    }
}

impl HeldPlaces {
    fn take_up_answer(&mut self, answered: Answered<SharedPlaces>, answered_at: Duration) {
        let Answered { turn: SyncRequest { active, held, room, .. }, reply, began_at, is_repeated } = answered;
        self.told.add(active, began_at, MEMBER_FOR);
        // Those of before may be others' by now, where the process stood still until it heard the answer.
        self.give_up_overdue(answered_at);
        self.synced = Some((began_at, answered_at));
        self.take_reply(&reply, is_repeated, answered_at);
        let until = began_at + MEMBER_FOR;
        self.views.before.iter().for_each(|before| before.places.renew(until));
        if let Some(View { state, .. }) = &self.views.now {
            state.places.renew(until);
            // Whoever stood still since may read it when others have them.
            if !state.places.is_over(answered_at) {
                state.places.add(reply.held.saturating_sub(held));
            }
            self.held = state.places.held();
            state.look();
            // Without room it has no part. After a loss it keeps its places all the same; while it throttles, they are of no use.
            if room > Some(0) || state.is_throttling() {
                self.fair = reply.part;
            }
        }
    }

    /// The places held and the users who may become active without one until the next turn; and how many more may come in, as far as
    /// this instance knows.
    fn places_to_ask(&mut self, begun_at: Duration) -> (u64, Option<u64>) {
        // Whoever becomes active from here on is counted in one of these at least: as held, as active, or as told.
        let before = &self.views.before;
        let before_held: u64 = before.iter().map(|before| before.places.held()).sum();
        let still_used = before.iter().filter(|before| Arc::strong_count(before) > 1).cloned().collect();
        self.drain();
        let (mut held, mut room) = (before_held, None);
        if let Some(View { state, .. }) = &self.views.now {
            let used = self.held.saturating_sub(state.places.held());
            // As many as became active without a place in the last second, by reports or other intents, may do so until the next turn.
            let without = std::mem::take(&mut self.came).saturating_sub(used);
            self.without_place.add(without, begun_at, OF_LAST_SECOND);
            let without: u64 = self.without_place.all().sum();
            state.places.withdraw_above(self.fair.saturating_sub(without));
            held += state.places.held() + without;
            room = Some(state.room());
        }
        self.drain();
        self.views.before = still_used;
        (held, room)
    }

    /// Chooses which of the users that the log does not have yet this turn adds to it.
    fn choose_told(&mut self, most_untold: usize) -> Vec<ActiveIn> {
        let dropped = self.untold.keep(most_untold) + self.pressure.take_dropped();
        if dropped > 0 {
            self.observer.activity_synced(0, dropped);
        }
        self.untold.take(USERS_A_TURN)
    }

    /// Takes what a turn has read, and what it says of the log.
    fn take_reply(&mut self, reply: &SyncReply, is_repeated: bool, answered_at: Duration) {
        let reading = self.views.reading_mut();
        let ignored = reading.map_or(0, |reading| reading.note(reply, self.minute));
        self.observer.activity_synced(reply.bytes, ignored);
        if reply.lost {
            tracing::warn!("the log of activity was lost in part: it is read from the beginning of the window");
            // What this turn told is there, if it was told just now.
            let last = usize::from(!is_repeated);
            self.told.take_all_but(last).flatten().for_each(|active| self.untold.add(active));
            self.gathers = Some((self.members, answered_at + MEMBER_FOR));
        } else {
            self.gathers = self.gathers.filter(|(members, _)| reply.members < *members);
        }
        self.members = reply.members;
        if !reply.more {
            self.views.take_up();
        }
    }

    /// The policy has no pressure.
    fn end(&mut self) {
        if std::mem::take(&mut self.views).now.is_some() {
            self.pressure.replace(None);
        }
        (self.synced, self.fair, self.held) = (None, 0, 0);
        self.drain();
        (self.untold, self.told, self.without_place) = Default::default();
    }

    /// Takes what batches and reports have told.
    fn drain(&mut self) {
        let Views { now, next, before, .. } = &mut self.views;
        for ActiveTold { active, exempt } in self.inbox.try_iter() {
            self.pressure.heard(active.users.len());
            // By the state of before, or before this one is in force.
            let elsewhere = now.as_ref().filter(|_| !before.is_empty());
            for View { state, .. } in elsewhere.into_iter().chain(next.as_ref()) {
                for user in &active.users {
                    state.users.note(*user, active.minute, active.minute);
                }
            }
            if let Some(view) = now.as_mut().filter(|_| exempt > 0) {
                *view.exempt.entry(active.minute).or_default() += exempt;
            }
            self.came += active.new;
            self.untold.add(active);
        }
    }

    /// From when on other instances may take this one for gone, by the monotonic clock.
    fn overdue_at(&self) -> Duration {
        self.synced.map_or(Duration::ZERO, |(begun_at, _)| begun_at + MEMBER_FOR)
    }

    /// Gives up the places, where other instances may take this one for gone. `passed`: the monotonic clock.
    fn give_up_overdue(&mut self, passed: Duration) {
        if passed >= self.overdue_at() {
            self.views.states().for_each(|state| state.places.give_up(passed));
            self.fair = 0;
        }
    }
}

impl HoldsPart for HeldPlaces {
    type Limit = SharedPlaces;
    const EVERY: Duration = TURN_EVERY;
    const SAYS: [&'static str; 3] = [
        "this instance and others do not tell each other who is active",
        "the log of activity answers again",
        "other instances do not know who became active here last",
    ];

    fn look(&mut self, clock: &impl Clock, _: Option<&Silence>) -> Result<Option<Duration>, StoreError> {
        let Some(rule) = self.policy.get().pressure.clone() else {
            self.end();
            return Ok(None);
        };
        let now = clock.time_to_decide(&[]).map_err(|wrong| StoreError::Temporary(wrong.to_string()))?;
        self.minute = Minute::from(now);
        self.views.follow(&rule, self.minute);
        if let Some(view) = &mut self.views.now {
            view.sweep(self.minute);
        }

        // The membership starts here: the process may stand still before the request is sent, and others get its places meanwhile.
        let begun_at = clock.passed();
        self.give_up_overdue(begun_at);
        self.gathers = self.gathers.filter(|(_, until)| begun_at < *until);
        Ok(Some(begun_at))
    }

    /// It reads what is to be read. While a window is read for another rule, what was granted by the maximum of before is not for its state.
    fn stands(&self, Unanswered { turn, began_at, .. }: &Unanswered<SharedPlaces>, now: Duration) -> bool {
        let Some(reading) = self.views.reading() else { return false };
        let is_read = (&turn.cursor, turn.window_ms) == (&reading.cursor, reading.window_ms);
        let is_by_rule = self.views.next.is_none() || turn.room.is_none();
        is_read && is_by_rule && turn.member_for_ms == in_ms(self.member_for) && now < *began_at + MEMBER_FOR
    }

    /// Those whom a turn tells that is given up are told by the next one.
    fn next_turn(&mut self, given_up: Option<SyncRequest>, begun_at: Duration) -> Option<SyncRequest> {
        let given_up = given_up.map(|turn| turn.active).unwrap_or_default();
        given_up.into_iter().for_each(|active| self.untold.add(active));
        let most_untold = most_untold(self.policy.get().pressure.as_ref()?.max_active_users);
        let (mut held, mut room) = self.places_to_ask(begun_at);
        let active = self.choose_told(most_untold);
        held += self.untold.new_users();
        if self.views.next.is_some() || !self.untold.is_empty() {
            room = None;
        } else if self.gathers.is_some() {
            // Nor do those get any who do not know that the log was lost.
            room = Some(0);
        }
        let reading = self.views.reading_mut()?;
        let (cursor, window_ms, wanted) = (reading.cursor.clone(), reading.window_ms, reading.wanted(begun_at));
        Some(SyncRequest { cursor, active, window_ms, member_for_ms: in_ms(self.member_for), held, wanted, room })
    }

    fn answer_within(&self, now: Duration) -> Duration {
        self.overdue_at().checked_sub(now).filter(|within| !within.is_zero()).unwrap_or(MEMBER_FOR)
    }

    fn answered(&mut self, answered: Answered<SharedPlaces>, now: Duration) -> bool {
        // While it reads for another rule, a turn asks for none.
        let gets_places = self.views.waits_for_places && self.views.next.is_none();
        // What came meanwhile is not in it.
        let again = answered.reply.more || answered.is_repeated;
        self.take_up_answer(answered, now);
        if gets_places {
            self.views.put_in_force(&self.pressure);
        }
        again || !self.untold.is_empty() || self.views.waits_for_places
    }

    fn not_answered(&mut self, _: &mut Turns<SharedPlaces>, error: &StoreError, _: Duration, now: Duration) {
        // Whoever has overtaken it may have its places by now.
        self.give_up_overdue(if is_overtaken(error) { now.max(self.overdue_at()) } else { now });
    }

    fn show(&self, _: Duration, silence: Option<&Silence>) {
        let seen = self.views.now.as_ref().zip(self.synced);
        let seen = seen.map(|(view, (_, synced_at))| view.seen(self.members, synced_at));
        self.status.set(seen, silence.cloned());
    }

    fn leave(&mut self) -> bool {
        self.member_for = Duration::ZERO;
        self.views.now.is_some()
    }
}

fn in_ms(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
