//! The task of one route that takes a process's turns at its permits.

mod known;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use weir_core::{
    limit::{
        route::{
            Route,
            delivery_signals::Deliveries,
            pace::{Pace, Sample, by_ceiling},
            permits::{LEASE, MOST, PermitTurn, RoutePermits},
            routes::{Pool, RouteState},
        },
        share::{Answered, HoldsPart, Silence, Turns, Unanswered, is_overtaken},
    },
    ports::{Clock, StoreError},
};

use super::{
    learnt::{LastLearnt, Learnt},
    offsets::{LOOK_HOLDS, LastLook, OffsetsSeen},
};

/// From one turn to the next: at most two a second, but for one that follows a repeated one.
const TURN_EVERY: Duration = Duration::from_millis(550);
/// So long a lane finds intents that wait until their count is one of intents: it has passed offsets without a record by then, and
/// the look is a new one.
const FINDS_FOR: Duration = Duration::from_secs(5);
/// While the store does not answer, this instance's part of the room is halved so often.
const HALVED_EVERY: Duration = Duration::from_secs(10);
/// An instance without demand holds at most this part of its share, so that a burst finds permits.
const IDLE_PART: u64 = 4;
/// The part of what is left, or was used by the last turn, that lanes keep while a turn is under way.
const KEPT_PART: u64 = 4;
/// Who is overtaken for so long shares its name with a process that lives: one that has ended is no member after [`LEASE`].
const TAKEN_OVER_AFTER: Duration = Duration::from_secs(10);

/// The permits of this process at one route, and what it knows of that. The permits of the last turn end with their lease.
pub struct HeldPermits {
    route: Arc<Route>,
    state: Arc<RouteState>,
    last_look: LastLook,
    /// For the one that comes after a change of the policy.
    last_learnt: LastLearnt,
    /// When a turn was made last, by the monotonic clock.
    made_at: Duration,
    /// Permits that lanes were given while the store did not answer, and that it has not granted since. They were not taken out of the
    /// route's rate: what is left of them is not returned to that, and what the store grants next, with a turn that is made again too, is
    /// for them first. So a lost reply neither burns permits nor doubles them.
    given_alone: u64,
    /// How many of them before the turn began that was made last: they are spent, or held by that.
    given_before: u64,
    learnt: Learnt,
    sampled_at: Option<Duration>,
    overtaken_since: Option<Duration>,
    /// Permits used by the last turn that told of it, since the process began: one that is made again tells nothing new.
    used: u64,
    /// The same when a turn was made last.
    used_at_look: u64,
    /// What was taken back since then, unused.
    withdrawn: u64,
    /// What of that the store has granted, with what it granted beyond the room.
    returned: u64,
    /// Processing times, so many with this sum in milliseconds, that no turn has told of which has an answer.
    untold_times: (u64, u64),
    /// What the last turn went by; `None`: there was none yet.
    went_by: Option<(Arc<OffsetsSeen>, Pace)>,
    /// The permits that it came to, and those of them that only reserved intents may take.
    permits: u64,
    reserved: u64,
}

impl HeldPermits {
    pub(super) fn new(route: &Route, state: Arc<RouteState>, (last_look, last_learnt): (LastLook, LastLearnt)) -> Self {
        Self {
            route: Arc::new(route.clone()),
            used: used_by_now(&state),
            used_at_look: used_by_now(&state),
            state,
            last_look,
            learnt: Learnt::clone(&last_learnt.load_full()),
            last_learnt,
            made_at: Duration::ZERO,
            given_alone: 0,
            given_before: 0,
            sampled_at: None,
            overtaken_since: None,
            withdrawn: 0,
            returned: 0,
            untold_times: (0, 0),
            went_by: None,
            permits: 0,
            reserved: 0,
        }
    }

    /// Takes back what lanes have left, also where a turn is made again: what they are given meanwhile must not gather.
    fn withdraw(&mut self, now: Duration) {
        let by_now = used_by_now(&self.state);
        let used = by_now.saturating_sub(std::mem::replace(&mut self.used_at_look, by_now));
        // But for what lanes may take until this turn has its answer: they are not to find nothing. What may be others' by now is not kept:
        // the turn would make it this instance's again.
        let keep = |pool, used: u64| match self.state.left(pool, now) {
            0 => 0,
            left => (left / KEPT_PART).max(used / KEPT_PART),
        };
        let withdrawn = self.state.withdraw_above(keep(Pool::General, used), keep(Pool::Reserved, 0));
        let returned = self.settle(withdrawn);
        (self.withdrawn, self.returned) = (self.withdrawn + withdrawn, self.returned + returned);
    }

    /// So many permits are for those that were given alone first, because they come back from lanes, or the store grants them; gives what
    /// is beyond.
    fn settle(&mut self, permits: u64) -> u64 {
        let settled = permits.min(self.given_alone);
        self.given_alone -= settled;
        permits - settled
    }

    /// The turn that was made last has come to so many permits.
    fn put_in_force(&mut self, permits: u64) {
        let Some((_, pace)) = &self.went_by else { return };
        let reserved = self.reserved_of(permits, pace);
        (self.permits, self.reserved) = (permits, reserved);
        self.state.grant(permits - reserved, reserved, self.made_at + LEASE);
    }

    /// The room that is left by the newest lag. The answer of a turn that was made again goes by a room of up to [`LEASE`] ago.
    fn left_by_now(&self) -> u64 {
        let Some((look, pace)) = &self.went_by else { return 0 };
        pace.room.saturating_sub(self.recent(look)).saturating_sub(self.learnt.grant.held_by_others)
    }

    /// Whether the turn that was made last was overtaken, by the store's answer.
    fn overtaken(&mut self, is_so: bool) {
        self.overtaken_since = is_so.then(|| self.overtaken_since.unwrap_or(self.made_at));
        let lasts = self.overtaken_since.map_or(Duration::ZERO, |since| self.made_at.saturating_sub(since));
        self.state.set_taken_over(lasts >= TAKEN_OVER_AFTER);
    }

    /// Permits that are held, or were spent since the lag was last known.
    fn recent(&self, look: &OffsetsSeen) -> u64 {
        self.state.held().saturating_add(self.state.spent().saturating_sub(look.spent))
    }

    /// What signals of overload that this instance sees leave of the drain rate, in thousandths.
    fn signals(&mut self, (look, pace): (&OffsetsSeen, &Pace), now: Duration) -> u64 {
        let queue = (!is_old(look, now)).then(|| look.queue(pace, self.route.ahead_ms)).flatten();
        let (approved, failed, processing_ms) = (self.state.spent(), self.state.failed(), self.processing_ms());
        self.learnt.signals.turn(now, &Deliveries { approved, failed, processing_ms, queue })
    }

    /// How long a delivery takes, by what all instances know, else by the reports that this one has read.
    fn processing_ms(&self) -> Option<u64> {
        self.learnt.grant.processing_ms.or(self.learnt.mean_ms())
    }

    fn paced(&mut self, look: &OffsetsSeen, now: Duration, learns: bool) -> Pace {
        let is_old = is_old(look, now);
        let lag = look.known_lag().filter(|_| !is_old);
        let at = if is_old { now } else { look.at };
        if let Some((_, pace)) = self.went_by.as_ref().filter(|_| self.sampled_at == Some(at)) {
            return *pace;
        }
        let (ceiling, slow, is_there) = (self.ceiling(), self.learnt.grant.slow as f64 / 1e3, self.is_there());
        let approved = self.recent(look).saturating_add(self.learnt.grant.held_by_others);
        let sample = Sample { at, lag, ceiling, slow, approved };
        let pace = match &self.route.consumer_group {
            // The store has the ceiling, and what was learnt before: until its first answer, nothing is learnt.
            Some(_) if !learns => return guess(self.learnt.controller.clone().turn(&sample)),
            Some(_) => self.learnt.controller.turn(&sample),
            // Nobody reports what is delivered: the ceiling is what is.
            None => by_ceiling(ceiling, slow),
        };
        let pace = if is_there { pace } else { guess(pace) };
        self.sampled_at = Some(at);
        pace
    }

    /// The most per second: the route's rate and what its service has registered, the smaller one.
    fn ceiling(&self) -> Option<u64> {
        let registered = self.learnt.grant.registered_per_s.map(|registered| registered.max(1));
        [self.route.rate, registered].into_iter().flatten().min()
    }

    /// Whether its service, if it has one, has live instances. Without them it may be starting.
    fn is_there(&self) -> bool {
        self.route.service.is_none() || self.learnt.grant.registered_per_s > Some(0)
    }

    /// Whether what waits by a look is intents. What was seen some time ago may have had its turn. Offsets without a record count as
    /// long as no lane reads them, after a restart or a rebalance; what this process reads none of may be no more than that.
    fn is_counted(&self, look: &OffsetsSeen, now: Duration) -> bool {
        let finds = self.state.finds_since().is_some_and(|since| since + FINDS_FOR <= look.at);
        finds && look.waiting.is_ok() && !is_old(look, now)
    }

    /// How many permits this instance wants: any number where it used all that it had; else as many as it uses, with some for a
    /// burst. One that had none may have no use for any.
    fn wanted(&self, room: Option<u64>, (used, unused): (u64, u64)) -> u64 {
        if unused == 0 && used > 0 {
            return MOST;
        }
        let most = [room, self.ceiling()].into_iter().flatten().min().unwrap_or(MOST);
        used.saturating_mul(2).max(most / (IDLE_PART * self.learnt.grant.members.max(1))).max(1)
    }

    /// What this instance takes while the store does not answer: what is left of its part of the room, however often the turn is made, and
    /// its part of what the ceiling gives from one turn to the next. Both are halved again and again, and are one permit at the least. The
    /// room is without what others had by the last answer, as long as they may use it: later it is in the lag, or has ended.
    fn part_alone(&self, turn: &PermitTurn, silent_for: Duration) -> u64 {
        let halvings = u32::try_from(silent_for.as_millis() / HALVED_EVERY.as_millis()).unwrap_or(u32::MAX);
        let members = self.learnt.grant.members.max(1);
        let part = |all: u64| (all / members).checked_shr(halvings).unwrap_or(0).max(all.min(1));
        let per_turn = self.ceiling().map(|ceiling| part((ceiling * TURN_EVERY.as_millis() as u64 / 1_000).max(1)));
        let had = self.given_alone.saturating_sub(self.given_before);
        let others = if silent_for < LEASE { self.learnt.grant.held_by_others } else { 0 };
        let left = |room: u64| room.saturating_sub(turn.recent).saturating_sub(others);
        let room = turn.room.map(|room| part(left(room)).saturating_sub(had));
        [room, per_turn].into_iter().flatten().min().unwrap_or(1)
    }

    fn reserved_of(&self, granted: u64, pace: &Pace) -> u64 {
        let Some(reserved) = &self.route.reserved else { return 0 };
        let (part, whole) = match self.route.consumer_group {
            Some(_) => (pace.reserved, pace.room.max(1)),
            None => (u64::from(reserved.share_permille), 1_000),
        };
        let kept = u128::from(granted) * u128::from(part) / u128::from(whole);
        u64::try_from(kept).unwrap_or(granted).min(granted)
    }
}

impl HoldsPart for HeldPermits {
    type Limit = RoutePermits;
    const EVERY: Duration = TURN_EVERY;
    const LASTS: Duration = LEASE;
    const SAYS: [&'static str; 3] = [
        "the permits of the route are not shared",
        "the permits of the route are shared again",
        "the permits of the route are not given up",
    ];

    /// By what Kafka says, and what the route takes by that.
    fn look(&mut self, clock: &impl Clock, silence: Option<&Silence>) -> Result<Option<Duration>, StoreError> {
        // Until Kafka has been looked at nothing is known of the route.
        let Some(look) = self.last_look.load_full() else { return Ok(None) };
        let now = clock.passed();
        let pace = self.paced(&look, now, self.learnt.is_answered || silence.is_some());
        self.state.end_leases(now);
        self.made_at = now;
        self.withdraw(now);
        self.went_by = Some((look, pace));
        Ok(Some(now))
    }

    fn next_turn(&mut self, _: Option<PermitTurn>, now: Duration) -> Option<PermitTurn> {
        let (look, pace) = self.went_by.clone()?;
        let (used_by_now, withdrawn, returned) = (used_by_now(&self.state), self.withdrawn, self.returned);
        let used = used_by_now.saturating_sub(self.used);
        (self.used, self.withdrawn, self.returned) = (used_by_now, 0, 0);
        // While the store granted nothing the rate came in, and its bucket holds a second of that: more than this instance's part of it need
        // not be settled.
        self.given_alone = self.given_alone.min(self.ceiling().unwrap_or(0) / self.learnt.grant.members.max(1));
        self.given_before = self.given_alone;
        let (took, untold) = (self.state.take_times(), self.untold_times);
        self.learnt.note_times(took);
        self.untold_times = (took.0.saturating_add(untold.0), took.1.saturating_add(untold.1));
        let room = self.route.consumer_group.as_ref().map(|_| pace.room);
        Some(PermitTurn {
            lease: LEASE,
            room,
            want: self.wanted(room, (used, withdrawn)).min(pace.most),
            unused: returned,
            recent: self.recent(&look),
            rate: self.route.rate,
            took: self.untold_times,
            slow: self.signals((&look, &pace), now),
            delivery: self.route.delivery(),
            rates: self.learnt.controller.to_keep(),
        })
    }

    /// Behind one that was made again the next turn, which says what there is room for by then, follows at once.
    fn answered(&mut self, Answered { turn, reply, is_repeated, .. }: Answered<RoutePermits>, _: Duration) -> bool {
        (self.learnt.grant, self.learnt.is_answered, self.learnt.silent_since) = (reply, true, None);
        self.untold_times = (0, 0);
        self.learnt.controller.recall(reply.rates, turn.rates);
        self.overtaken(false);
        let granted = self.settle(reply.permits);
        let given = if is_repeated { granted.min(self.left_by_now()) } else { granted };
        self.returned += granted - given;
        self.put_in_force(given);
        is_repeated
    }

    fn not_answered(&mut self, turns: &mut Turns<RoutePermits>, error: &StoreError, since: Duration, _: Duration) {
        let Some(Unanswered { turn, .. }) = turns.unanswered() else { return };
        let turn = *turn;
        // It may be silent since before the policy was changed.
        let since = *self.learnt.silent_since.get_or_insert(since);
        self.overtaken(is_overtaken(error));
        if is_overtaken(error) {
            // Whoever has overtaken it may have its permits by now.
            turns.give_up();
            self.state.end_leases(self.made_at + LEASE);
            self.state.withdraw_above(0, 0);
            (self.given_alone, self.withdrawn, self.returned) = Default::default();
            return self.put_in_force(0);
        }
        let most = self.went_by.as_ref().map_or(0, |(_, pace)| pace.most);
        let permits = self.part_alone(&turn, self.made_at.saturating_sub(since)).min(most);
        self.given_alone = self.given_alone.saturating_add(permits);
        self.put_in_force(permits);
    }

    fn show(&self, now: Duration, silence: Option<&Silence>) {
        self.last_learnt.store(Arc::new(self.learnt.clone()));
        if let Some(known) = self.known(now, silence) {
            self.state.learn(known);
        }
    }

    fn name(&self) -> Option<&str> {
        Some(&self.route.name)
    }

    fn leave(&mut self) -> bool {
        self.state.withdraw_above(0, 0);
        self.state.forget_rates();
        false
    }
}

/// The same, where no intent may be denied for the time that it would wait.
fn guess(pace: Pace) -> Pace {
    Pace { best_per_s: None, measured_per_s: None, ..pace }
}

/// Permits that lanes have taken, since the process began.
fn used_by_now(state: &RouteState) -> u64 {
    let left = [Pool::General, Pool::Reserved].map(|pool| state.left(pool, Duration::ZERO)).into_iter().sum();
    (state.spent() + state.held()).saturating_sub(left)
}

fn is_old(look: &OffsetsSeen, now: Duration) -> bool {
    now.saturating_sub(look.at) > LOOK_HOLDS
}
