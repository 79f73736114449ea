//! The task that takes a process's turns at the log of activity.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::block_in_place,
};
use tokio_util::sync::CancellationToken;
use weir_core::{
    activity::{AHEAD_MINUTES, Minute},
    activity_log::{ActiveIn, Cursor, SyncReply, SyncRequest},
    current::Current,
    policy::Policy,
    ports::{ActivityLog, Clock, StoreError},
    pressure::{Pressure, PressureRule, PressureState},
};

use super::{PressureSeen, PressureStatus, Unsynced, untold::Untold};
use crate::observer::Observer;

/// From one turn to the next.
const TURN_EVERY: Duration = Duration::from_secs(1);
/// How long an instance stays a member, and may use its places, without another turn.
pub const MEMBER_FOR: Duration = Duration::from_secs(10);
/// How long the last turn may take when the process ends.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);
/// Users that a turn tells, at most: 1 MiB.
const USERS_A_TURN: usize = 128 * 1024;

/// Who is active, as far as the log was read.
struct View {
    state: Arc<PressureState>,
    window_ms: i64,
    cursor: Cursor,
    /// The minute of the last sweep.
    swept: Minute,
}

impl View {
    fn is_of(&self, rule: &PressureRule) -> bool {
        self.state.max() == rule.max_active_users && self.state.users.window() == rule.window_minutes
    }
}

/// Tells the log who became active here, notes who did elsewhere, and gets places for users of this process.
pub struct PressureKeeper<L, C> {
    log: L,
    clock: C,
    policy: Arc<Current<Policy>>,
    pressure: Arc<Pressure>,
    inbox: mpsc::Receiver<ActiveIn>,
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
    /// In force before; batches that have begun by it are still decided by it.
    before: Option<Arc<PressureState>>,
    /// The fair share of the places, by the last turn.
    fair: u64,
    /// The places held after the last turn, and the users who became active since, with a place or without.
    held: u64,
    came: u64,
    members: u64,
    /// When the last turn was sent that was answered, and when the answer came.
    synced: Option<(Duration, Duration)>,
    unsynced: Option<Unsynced>,
}

impl<L, C> PressureKeeper<L, C>
where
    L: ActivityLog,
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
            before: None,
            fair: 0,
            held: 0,
            came: 0,
            members: 0,
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
                self.freeze();
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
        self.sweep(now);

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
            let active = state.look();
            room = (!state.is_throttling()).then(|| state.max().saturating_sub(active));
        }
        self.drain();
        if !before_is_used {
            self.before = None;
        }
        // Reports may be of more users than the maximum; what one turn tells is not dropped.
        let most = usize::try_from(rule.max_active_users).unwrap_or(usize::MAX).max(USERS_A_TURN);
        let dropped = self.untold.keep(most);
        if dropped > 0 {
            self.observer.activity_synced(0, dropped);
        }
        self.telling = self.untold.take(USERS_A_TURN);
        held += self.untold.new_users();
        if self.next.is_some() || !self.untold.is_empty() {
            room = None;
        }

        let Some(reading) = self.next.as_mut().or(self.view.as_mut()) else { return Ok(false) };
        let sent_at = self.clock.passed();
        let frozen_at = self.synced.map_or(Duration::ZERO, |(sent_at, _)| sent_at + MEMBER_FOR);
        let within = frozen_at.checked_sub(sent_at).filter(|within| !within.is_zero()).unwrap_or(MEMBER_FOR);
        let request = SyncRequest {
            cursor: &reading.cursor,
            active: &self.telling,
            window_ms: reading.window_ms,
            member_for_ms: i64::try_from(member_for.as_millis()).unwrap_or(i64::MAX),
            held,
            room,
        };
        let reply = tokio::select! {
            biased;
            reply = self.log.sync(&request) => reply?,
            () = self.clock.sleep(within) => return Err(StoreError::Temporary(no_answer_within(within))),
        };
        self.told.rotate_right(1);
        self.told[0] = std::mem::take(&mut self.telling);
        self.synced = Some((sent_at, self.clock.passed()));
        let ignored = note(reading, &reply, now);
        self.observer.activity_synced(reply.bytes, ignored);
        if reply.lost {
            tracing::warn!("the log of activity was lost in part: it is read from the beginning of the window");
            // What this turn told is there.
            self.told[1..].iter_mut().flat_map(|told| told.drain(..)).for_each(|active| self.untold.add(active));
        }
        self.members = reply.members;
        if !reply.more && self.next.is_some() {
            self.take_up();
        }
        if let Some(View { state, .. }) = &self.view {
            state.places.add(reply.held.saturating_sub(held));
            self.held = state.places.held();
            let active = state.look();
            self.fair = state.max().saturating_sub(active) / self.members.max(1);
        }
        Ok(reply.more || !self.untold.is_empty())
    }

    /// The policy has no pressure.
    fn end(&mut self) {
        if self.view.take().is_some() {
            self.pressure.replace(None);
        }
        (self.next, self.before, self.synced, self.fair, self.held) = (None, None, None, 0, 0);
        self.drain();
        (self.untold, self.telling, self.told) = (Untold::default(), Vec::new(), Default::default());
    }

    /// Begins to read for a rule with another maximum or window.
    fn follow(&mut self, rule: &PressureRule, now: Minute) {
        if self.view.as_ref().is_some_and(|view| view.is_of(rule)) {
            self.next = None;
        } else if !self.next.as_ref().is_some_and(|next| next.is_of(rule)) {
            let state = Arc::new(aside(|| PressureState::new(rule)));
            self.next = Some(View { state, window_ms: rule.window_ms(), cursor: None, swept: now });
        }
    }

    /// What has been read comes into force.
    fn take_up(&mut self) {
        let Some(next) = self.next.take() else { return };
        self.pressure.replace(Some(Arc::clone(&next.state)));
        let before = self.view.replace(next);
        self.before = before.map(|before| {
            before.state.places.withdraw_above(0);
            before.state
        });
    }

    fn sweep(&mut self, now: Minute) {
        if let Some(view) = self.view.as_mut().filter(|view| view.swept != now) {
            aside(|| view.state.users.sweep(now));
            view.swept = now;
        }
    }

    /// Takes what batches and reports have told.
    fn drain(&mut self) {
        self.telling.drain(..).for_each(|active| self.untold.add(active));
        // By the state of before, or before this one is in force.
        let elsewhere = self.view.as_ref().filter(|_| self.before.is_some());
        let states = [elsewhere, self.next.as_ref()];
        for active in self.inbox.try_iter() {
            for View { state, .. } in states.into_iter().flatten() {
                for user in &active.users {
                    state.users.note(*user, active.minute, active.minute);
                }
            }
            self.came += active.new;
            self.untold.add(active);
        }
    }

    /// Gives up the places, where other instances may take this one for gone.
    fn freeze(&mut self) {
        let frozen = self.synced.is_none_or(|(sent_at, _)| self.clock.passed() >= sent_at + MEMBER_FOR);
        if let Some(view) = self.view.as_ref().filter(|_| frozen) {
            view.state.places.withdraw_above(0);
            self.fair = 0;
        }
    }

    fn publish(&self) {
        let seen = self.view.as_ref().zip(self.synced).map(|(View { state, .. }, (_, synced_at))| PressureSeen {
            active_users: state.look(),
            max_active_users: state.max(),
            window_minutes: state.users.window(),
            throttling: state.is_throttling(),
            members: self.members,
            places: state.places.left(),
            synced_at,
            unsynced: self.unsynced.clone(),
        });
        self.status.set(seen, self.unsynced.clone());
    }
}

/// Notes what a reply has; gives how many users are ignored, because their minute is ahead of the clock.
fn note(view: &mut View, reply: &SyncReply, now: Minute) -> u64 {
    let mut ignored = 0;
    for ActiveIn { minute, users, .. } in &reply.active {
        if minute.0 > now.0 + AHEAD_MINUTES {
            ignored += users.len();
            continue;
        }
        for user in users {
            view.state.users.note(*user, *minute, now);
        }
    }
    view.cursor.clone_from(&reply.cursor);
    u64::try_from(ignored).unwrap_or(u64::MAX)
}

/// Does what takes long for many users. Where the runtime has several threads, its other tasks go on meanwhile.
fn aside<T>(work: impl FnOnce() -> T) -> T {
    if Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread { block_in_place(work) } else { work() }
}

fn no_answer_within(limit: Duration) -> String {
    format!("no answer within {} ms", limit.as_millis())
}

#[cfg(test)]
mod tests;
