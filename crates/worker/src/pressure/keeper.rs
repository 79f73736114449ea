//! The task that takes a process's turns at the log of activity.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use tokio_util::sync::CancellationToken;
use weir_core::{
    activity::Minute,
    activity_log::{ActiveIn, SharedPlaces, SyncReply, SyncRequest, USERS_A_TURN},
    current::Current,
    policy::Policy,
    ports::{Clock, Share, StoreError},
    pressure::{Pressure, PressureRule, PressureState},
};

use super::{PressureStatus, Unsynced, untold::Untold, view::View};
use crate::{observer::Observer, share::TurnNumbers};

/// From one turn to the next.
const TURN_EVERY: Duration = Duration::from_secs(1);
/// How long an instance stays a member, and may use its places, without another turn.
pub const MEMBER_FOR: Duration = Duration::from_secs(10);
/// How long the last turn may take when the process ends.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// Tells the log who became active here, notes who did elsewhere, and gets places for users of this process.
pub struct PressureKeeper<L, C> {
    log: L,
    clock: C,
    policy: Arc<Current<Policy>>,
    pressure: Arc<Pressure>,
    inbox: mpsc::Receiver<ActiveIn>,
    turns: TurnNumbers,
    observer: Arc<dyn Observer>,
    status: PressureStatus,
    untold: Untold,
    /// What the turn under way tells: told again where it fails.
    telling: Vec<ActiveIn>,
    /// What the last turns told, which others may not have read: told again where the log has lost it.
    told: [Vec<ActiveIn>; 3],
    /// In force.
    view: Option<View>,
    /// Read from the beginning of its window, to be in force then.
    next: Option<View>,
    /// `view` has no places yet: it comes into force with those of the next turn.
    waits_for_places: bool,
    /// In force before; batches that have begun by it are still decided by it.
    before: Option<Arc<PressureState>>,
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
    unsynced: Option<Unsynced>,
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
        let keeper = Self {
            log,
            turns: TurnNumbers::new(&clock),
            clock,
            policy,
            pressure: Arc::clone(&pressure),
            inbox,
            observer,
            status: status.clone(),
            untold: Untold::default(),
            telling: Vec::new(),
            told: Default::default(),
            view: None,
            next: None,
            waits_for_places: false,
            before: None,
            fair: 0,
            held: 0,
            came: 0,
            members: 0,
            gathers: None,
            synced: None,
            unsynced: None,
        };
        (keeper, pressure, status)
    }

    /// Reads who is active, where the policy has pressure: to be done before the process is ready. Asks again for so long.
    ///
    /// # Errors
    /// The log did not answer, or asking again cannot help.
    pub async fn load(&mut self, patience: Duration) -> Result<(), StoreError> {
        let until = self.clock.passed() + patience;
        while self.policy.get().pressure.is_some() && self.view.is_none() {
            match self.turn(MEMBER_FOR).await {
                Ok(_) => {}
                Err(StoreError::Temporary(message)) if self.clock.passed() < until => {
                    tracing::warn!("who is active could not be read: {message}; trying again");
                    self.clock.sleep(TURN_EVERY).await;
                }
                Err(error) => return Err(error),
            }
        }
        // Nothing is decided yet.
        if self.waits_for_places {
            self.put_in_force();
        }
        Ok(())
    }

    /// Takes a turn each second until `stop`, and a last one then: for when nobody becomes active any more.
    pub async fn run(mut self, stop: CancellationToken) {
        let clock = self.clock.clone();
        loop {
            let began_at = clock.passed();
            let Some(again) = stop.run_until_cancelled(self.turn_or_report()).await else { break };
            let next_at = if again { began_at } else { began_at + TURN_EVERY };
            let wait = next_at.saturating_sub(clock.passed());
            if stop.run_until_cancelled(clock.sleep(wait)).await.is_none() {
                break;
            }
        }
        if self.view.is_none() {
            return;
        }
        let leave = async {
            while self.turn(Duration::ZERO).await? {}
            Ok::<(), StoreError>(())
        };
        let left = tokio::select! {
            biased;
            left = leave => left.map_err(|error| error.to_string()),
            () = clock.sleep(CLOSE_WITHIN) => Err(no_answer_within(CLOSE_WITHIN)),
        };
        if let Err(error) = left {
            tracing::warn!("other instances do not know who became active here last: {error}");
        }
    }

    /// Takes a turn, and reports how it went; gives whether to take another one at once.
    async fn turn_or_report(&mut self) -> bool {
        let began_at = self.clock.passed();
        let outcome = self.turn(MEMBER_FOR).await;
        let again = match outcome {
            Ok(again) => {
                if self.unsynced.take().is_some() {
                    tracing::info!("the log of activity answers again");
                }
                again
            }
            Err(error) => {
                let message = error.to_string();
                let since = match &self.unsynced {
                    None => {
                        tracing::warn!("this instance and others do not tell each other who is active: {message}");
                        began_at
                    }
                    Some((since, _)) => *since,
                };
                self.unsynced = Some((since, message));
                self.give_up_overdue(self.clock.passed());
                false
            }
        };
        self.publish();
        again
    }

    /// Takes a turn, as a member for so long; gives whether there is more to read or to tell.
    async fn turn(&mut self, member_for: Duration) -> Result<bool, StoreError> {
        let Some(rule) = self.policy.get().pressure.clone() else {
            self.end();
            return Ok(false);
        };
        let now = self.clock.time_to_decide(&[]).map_err(|wrong| StoreError::Temporary(wrong.to_string()))?;
        let now = Minute::from(now);
        self.follow(&rule, now);
        if let Some(view) = &mut self.view {
            view.sweep(now);
        }

        // The membership starts here: the process may stand still before the request is sent, and others get its places meanwhile.
        let begun_at = self.clock.passed();
        self.give_up_overdue(begun_at);
        let (mut held, mut room) = self.places_to_ask();
        self.choose_told(&rule);
        held += self.untold.new_users();
        self.gathers = self.gathers.filter(|(_, until)| begun_at < *until);
        let left = room;
        if self.next.is_some() || !self.untold.is_empty() {
            room = None;
        } else if self.gathers.is_some() {
            // Nor do those get any who do not know that the log was lost.
            room = Some(0);
        }

        let waited_for_places = self.waits_for_places;
        let Some(reply) = self.sync((begun_at, member_for), held, room).await? else { return Ok(false) };
        self.told.rotate_right(1);
        self.told[0] = std::mem::take(&mut self.telling);
        self.synced = Some((begun_at, self.clock.passed()));
        self.pressure.renew(begun_at + MEMBER_FOR);
        self.take_reply(&reply, now);
        if let Some(View { state, .. }) = &self.view {
            // Whoever stood still since may read it when others have them.
            if self.clock.passed() < begun_at + MEMBER_FOR {
                state.places.add(reply.held.saturating_sub(held));
            }
            self.held = state.places.held();
            state.look();
            if room == left {
                self.fair = reply.part;
            }
        }
        if waited_for_places {
            self.put_in_force();
        }
        Ok(reply.more || !self.untold.is_empty() || self.waits_for_places)
    }

    /// The places held and the users who may become active without one until the next turn; and how many more may come in, as far as
    /// this instance knows.
    fn places_to_ask(&mut self) -> (u64, Option<u64>) {
        // Whoever becomes active from here on is counted in one of these at least: as held, as active, or as told.
        let before_held = self.before.as_ref().map_or(0, |before| before.places.held());
        let before_is_used = self.before.as_ref().is_some_and(|before| Arc::strong_count(before) > 1);
        self.drain();
        let (mut held, mut room) = (before_held, None);
        if let Some(View { state, .. }) = &self.view {
            let used = self.held.saturating_sub(state.places.held());
            // As many as became active without a place since the last turn, by reports or other intents, may do so until the next one.
            let without = std::mem::take(&mut self.came).saturating_sub(used);
            state.places.withdraw_above(self.fair.saturating_sub(without));
            held += state.places.held() + without;
            room = Some(state.room());
        }
        self.drain();
        if !before_is_used {
            self.before = None;
        }
        (held, room)
    }

    /// Chooses which of the users that the log does not have yet this turn adds to it.
    fn choose_told(&mut self, rule: &PressureRule) {
        let dropped = self.untold.keep(rule.most_untold()) + self.pressure.take_dropped();
        if dropped > 0 {
            self.observer.activity_synced(0, dropped);
        }
        self.telling = self.untold.take(USERS_A_TURN);
    }

    /// Sends a turn that began at a moment, as a member for so long; gives the reply. `None`: nothing is read.
    async fn sync(
        &mut self,
        (begun_at, member_for): (Duration, Duration),
        held: u64,
        room: Option<u64>,
    ) -> Result<Option<SyncReply>, StoreError> {
        let Some(reading) = self.next.as_mut().or(self.view.as_mut()) else { return Ok(None) };
        let overdue_at = self.synced.map_or(Duration::ZERO, |(begun_at, _)| begun_at + MEMBER_FOR);
        let within = overdue_at.checked_sub(begun_at).filter(|within| !within.is_zero()).unwrap_or(MEMBER_FOR);
        let request = SyncRequest {
            wanted: reading.wanted(),
            cursor: reading.cursor.clone(),
            active: self.telling.clone(),
            window_ms: reading.window_ms,
            member_for_ms: i64::try_from(member_for.as_millis()).unwrap_or(i64::MAX),
            held,
            room,
        };
        let reply = tokio::select! {
            biased;
            reply = self.log.turn(&(), self.turns.next_turn(), &request) => reply?,
            () = self.clock.sleep(within) => return Err(StoreError::Temporary(no_answer_within(within))),
        };
        Ok(Some(reply))
    }

    /// Takes what a turn has read, and what it says of the log.
    fn take_reply(&mut self, reply: &SyncReply, now: Minute) {
        let reading = self.next.as_mut().or(self.view.as_mut());
        let ignored = reading.map_or(0, |reading| reading.note(reply, now));
        self.observer.activity_synced(reply.bytes, ignored);
        if reply.lost {
            tracing::warn!("the log of activity was lost in part: it is read from the beginning of the window");
            // What this turn told is there.
            self.told[1..].iter_mut().flat_map(|told| told.drain(..)).for_each(|active| self.untold.add(active));
            self.gathers = Some((self.members, self.clock.passed() + MEMBER_FOR));
        } else {
            self.gathers = self.gathers.filter(|(members, _)| reply.members < *members);
        }
        self.members = reply.members;
        if !reply.more && self.next.is_some() {
            self.take_up();
        }
    }

    /// The policy has no pressure.
    fn end(&mut self) {
        if self.view.take().is_some() {
            self.pressure.replace(None);
        }
        (self.next, self.before, self.synced, self.fair, self.held) = (None, None, None, 0, 0);
        self.waits_for_places = false;
        self.drain();
        (self.untold, self.telling, self.told) = (Untold::default(), Vec::new(), Default::default());
    }

    /// Begins to read for a rule with another maximum or window.
    fn follow(&mut self, rule: &PressureRule, now: Minute) {
        if self.view.as_ref().is_some_and(|view| view.is_of(rule)) {
            self.next = None;
        } else if !self.next.as_ref().is_some_and(|next| next.is_of(rule)) {
            self.next = Some(View::new(rule, now));
        }
    }

    /// All is read: the next turn asks for places.
    fn take_up(&mut self) {
        let Some(next) = self.next.take() else { return };
        self.before = self.view.replace(next).map(|before| before.state);
        self.waits_for_places = true;
    }

    /// Puts the new view into force, with the places of this turn.
    fn put_in_force(&mut self) {
        self.waits_for_places = false;
        self.pressure.replace(self.view.as_ref().map(|view| Arc::clone(&view.state)));
        if let Some(before) = &self.before {
            before.places.withdraw_above(0);
        }
    }

    /// Takes what batches and reports have told.
    fn drain(&mut self) {
        self.telling.drain(..).for_each(|active| self.untold.add(active));
        // By the state of before, or before this one is in force.
        let elsewhere = self.view.as_ref().filter(|_| self.before.is_some());
        let states = [elsewhere, self.next.as_ref()];
        for active in self.inbox.try_iter() {
            self.pressure.heard(active.users.len());
            for View { state, .. } in states.into_iter().flatten() {
                for user in &active.users {
                    state.users.note(*user, active.minute, active.minute);
                }
            }
            self.came += active.new;
            self.untold.add(active);
        }
    }

    /// Gives up the places, where other instances may take this one for gone. `passed`: the monotonic clock.
    fn give_up_overdue(&mut self, passed: Duration) {
        if self.synced.is_some_and(|(begun_at, _)| passed < begun_at + MEMBER_FOR) {
            return;
        }
        let states = self.view.iter().map(|view| &view.state).chain(&self.before);
        states.for_each(|state| state.places.withdraw_above(0));
        if self.view.is_some() {
            self.fair = 0;
        }
    }

    fn publish(&self) {
        let seen = self.view.as_ref().zip(self.synced);
        let seen = seen.map(|(view, (_, synced_at))| view.seen(self.members, synced_at, self.unsynced.clone()));
        self.status.set(seen, self.unsynced.clone());
    }
}

fn no_answer_within(limit: Duration) -> String {
    format!("no answer within {} ms", limit.as_millis())
}

#[cfg(test)]
mod tests;
