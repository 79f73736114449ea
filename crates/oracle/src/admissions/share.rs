//! One instance's share of one service.

use std::{collections::VecDeque, time::Duration};

use weir_core::{
    basis::words,
    limit::share::{Answered, Silence, TurnNumber, Turns},
};

use super::{TURN_EVERY_MS, second::LastSecond};
use crate::service::{
    ENDS_PER_TURN, End, Holder, LEASE_MS, ServiceName, ServiceShares, ShareReply, ShareTurn, Total, Use,
};

/// A share of the rate counts for as long after it was replaced: a second, and one for the rounded clock.
const COUNTS_FOR_MS: u64 = 1_001;
/// What an admission takes where no time was reported yet, in milliseconds.
const UNKNOWN_TIME_MS: u64 = 1_000;
/// The longest that a service is asked to wait, in seconds, without the jitter.
const LONGEST_WAIT_S: u64 = 60;

words! {
    /// Why an admission is not given.
    pub enum Denial {
        /// The share of the rate is used.
        Rate = "over_rate",
        /// The share of concurrency is used.
        Concurrency = "over_concurrency",
        /// The service has become known just now: other instances may hold shares that nobody knows of.
        Starting = "service_starting",
        /// The lease has ended, because Redis does not answer.
        NoLease = "no_lease",
        /// This instance has as many admissions as it can hold.
        Full = "admissions_full",
    }
}

/// How one instance's share of a service stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmissionsView {
    pub service: ServiceName,
    /// What is registered, as of the last turn.
    pub total: Total,
    /// The instances of weir that share it; `None`: no share is in force.
    pub members: Option<u64>,
    /// The share in force here, per second.
    pub per_s: u64,
    /// The share of concurrency in force here.
    pub concurrency: u64,
    /// Admissions given here that have not ended.
    pub outstanding: u64,
    /// Since when Redis does not answer turns, and why; `None`: none has failed since its last answer.
    pub silence: Option<Silence>,
}

/// What was asked for in a turn's time, a second at least.
#[derive(Debug, Clone, Copy, Default)]
struct Asks {
    all: u64,
    /// Of these, denied by rate, and by concurrency.
    over_rate: u64,
    over_concurrency: u64,
}

impl Asks {
    /// What was asked for per second, over so many milliseconds: a denied caller asks again after a second, and is to count once.
    fn per_s(self, passed_ms: u64) -> Self {
        let part = |asks: u64| (asks * 1_000).div_ceil(passed_ms.max(TURN_EVERY_MS));
        Self { all: part(self.all), over_rate: part(self.over_rate), over_concurrency: part(self.over_concurrency) }
    }
}

#[derive(Default)]
pub(super) struct Sharing {
    /// Which run of its turns this is.
    run: i64,
    turns: Turns<ServiceShares>,
    /// When the turn under way was made.
    made_ms: Option<u64>,
    /// The last reply; `None`: there has been none.
    pub(super) reply: Option<ShareReply>,
    lease_ends_ms: u64,
    /// Shares of the rate that were in force before, and until when.
    replaced: VecDeque<(u64, u64)>,
    second: LastSecond,
    outstanding: u64,
    asks: Asks,
    /// What was asked for per second in the time before, and what was wanted then.
    asks_before: Asks,
    wanted_before: (u64, u64),
    took: (u64, u64),
    /// Those that are to be handed on.
    pub(super) ends: Vec<(Holder, End)>,
    taken_bytes: u64,
    /// Since when turns are not answered, and why; `None`: none has failed since the last answer.
    pub(super) silence: Option<Silence>,
    began_ms: u64,
    pub(super) due_ms: u64,
    asked_ms: u64,
}

impl Sharing {
    pub(super) fn new(run: i64, now_ms: u64) -> Self {
        Self {
            run,
            // Who begins does so because somebody asks, and is counted once the first turn is answered.
            wanted_before: (1, 0),
            began_ms: now_ms,
            due_ms: now_ms,
            asked_ms: now_ms,
            ..Self::default()
        }
    }

    pub(super) fn is_used(&self) -> bool {
        let hands_on = !self.ends.is_empty() || self.turns.unanswered().is_some_and(|last| !last.turn.ends.is_empty());
        self.outstanding > 0 || self.made_ms.is_some() || hands_on
    }

    pub(super) fn is_idle(&self, now_ms: u64, idle_ms: u64) -> bool {
        !self.is_used() && now_ms.saturating_sub(self.asked_ms) >= idle_ms
    }

    /// Somebody asks before the first turn is answered, and is counted then.
    pub(super) fn waits(&mut self, now_ms: u64) {
        (self.asked_ms, self.wanted_before.0) = (now_ms, self.wanted_before.0.max(1));
    }

    /// Gives an admission: its timeout in ms.
    pub(super) fn ask(&mut self, now_ms: u64, full: bool) -> Result<u64, Denial> {
        (self.asks.all, self.asked_ms) = (self.asks.all + 1, now_ms);
        let used = self.second.sum(now_ms);
        let Some(reply) = self.reply.as_ref().filter(|_| now_ms < self.lease_ends_ms) else {
            return Err(Denial::NoLease);
        };
        let over_rate = used >= reply.per_s;
        if full {
            return Err(Denial::Full);
        }
        if (over_rate || self.outstanding >= reply.concurrency) && reply.starts_in_ms > 0 {
            return Err(Denial::Starting);
        }
        if self.outstanding >= reply.concurrency {
            self.asks.over_concurrency += 1;
            return Err(Denial::Concurrency);
        }
        if over_rate {
            self.asks.over_rate += 1;
            return Err(Denial::Rate);
        }
        self.second.count(now_ms);
        self.outstanding += 1;
        Ok(reply.total.timeout_ms)
    }

    /// When to ask again, in seconds: the time until those who were denied before could be admitted, and up to half of it more.
    pub(super) fn retry_after_s(&mut self, denial: Denial, now_ms: u64, random: u32) -> u64 {
        let reply = self.reply.clone().unwrap_or_default();
        let ShareReply { per_s, concurrency, total, members, .. } = reply;
        let even = |total: u64| (total / members.max(1)).max(1);
        let denied = |now: u64, before: u64| now.max(before);
        let asks = self.asks.per_s(now_ms.saturating_sub(self.began_ms));
        let wait_ms = match denial {
            Denial::Rate => {
                let share = if per_s > 0 { per_s } else { even(total.per_s) };
                let ahead = denied(asks.over_rate, self.asks_before.over_rate);
                self.second.below_in_ms(share, now_ms) + ahead * 1_000 / share
            }
            Denial::Concurrency => {
                let share = if concurrency > 0 { concurrency } else { even(total.concurrency) };
                let ahead = denied(asks.over_concurrency, self.asks_before.over_concurrency);
                let takes_ms = if reply.processing_us > 0 { reply.processing_us / 1_000 } else { UNKNOWN_TIME_MS };
                takes_ms * (ahead + 1) / share
            }
            Denial::Starting => reply.starts_in_ms,
            Denial::NoLease | Denial::Full => TURN_EVERY_MS,
        };
        let wait_s = wait_ms.div_ceil(1_000).clamp(1, LONGEST_WAIT_S);
        wait_s + u64::from(random) % (wait_s / 2 + 2)
    }

    /// An admission has ended, after this time where that is known.
    pub(super) fn ended(&mut self, took_ms: Option<u64>) {
        self.outstanding = self.outstanding.saturating_sub(1);
        if let Some(took_ms) = took_ms {
            self.took = (self.took.0 + 1, self.took.1 + took_ms);
        }
    }

    pub(super) fn hand_on(&mut self, holder: Holder, end: End, now_ms: u64) {
        self.ends.push((holder, end));
        self.asked_ms = now_ms;
    }

    pub(super) fn due_at_ms(&self) -> Option<u64> {
        self.made_ms.is_none().then_some(self.due_ms)
    }

    /// The largest share of the rate that was in force within the last second.
    pub(super) fn rate_held(&mut self, now_ms: u64) -> u64 {
        if let Some(reply) = self.reply.as_mut().filter(|_| now_ms >= self.lease_ends_ms) {
            self.replaced.push_back((reply.per_s, self.lease_ends_ms));
            (reply.per_s, reply.concurrency) = (0, 0);
        }
        self.replaced.retain(|(_, until_ms)| now_ms < until_ms + COUNTS_FOR_MS);
        let before = self.replaced.iter().map(|(per_s, _)| *per_s).max();
        self.reply.as_ref().map_or(0, |reply| reply.per_s).max(before.unwrap_or(0))
    }

    /// The turn that is to be made now, and its number. The last one is made again where it has no answer, as long as the share lasts of
    /// which it says that it is held: after a loss, a holder gets what it holds, which others may be given by then.
    pub(super) fn make_turn(&mut self, now_ms: u64) -> Option<(TurnNumber, ShareTurn)> {
        if self.turns.unanswered().is_none() || self.lease_ends_ms <= now_ms {
            // Ends that come twice have no effect; times are counted at most once.
            self.ends.extend(self.turns.give_up().map(|turn| turn.ends).unwrap_or_default());
            let turn = self.new_turn(now_ms);
            self.turns.begin(turn, Duration::from_millis(now_ms), || TurnNumber { run: self.run, number: 0 });
        }
        self.made_ms = Some(now_ms);
        let (number, turn) = self.turns.make()?;
        Some((number, turn.clone()))
    }

    fn new_turn(&mut self, now_ms: u64) -> ShareTurn {
        let held = self.rate_held(now_ms);
        let in_force = self.reply.as_ref().map_or(0, |reply| reply.concurrency);
        let passed_ms = now_ms.saturating_sub(self.began_ms);
        let asks = self.asks.per_s(passed_ms);
        let wants_now = (asks.all, self.outstanding + asks.over_concurrency);
        let wanted = (wants_now.0.max(self.wanted_before.0), wants_now.1.max(self.wanted_before.1));
        // A turn that comes sooner, because somebody registers, tells what was asked for so far.
        if passed_ms >= TURN_EVERY_MS {
            self.wanted_before = wants_now;
            (self.asks, self.asks_before) = (Asks::default(), asks);
            self.began_ms = now_ms;
        }
        ShareTurn {
            rate: Use { held, wanted: wanted.0 },
            concurrency: Use { held: in_force.max(self.outstanding), wanted: wanted.1 },
            took: std::mem::take(&mut self.took),
            taken_bytes: std::mem::take(&mut self.taken_bytes),
            ends: self.ends.drain(..self.ends.len().min(ENDS_PER_TURN)).collect(),
        }
    }

    pub(super) fn turned(&mut self, reply: &ShareReply, now_ms: u64) {
        let Some(made_ms) = self.made_ms.take() else { return };
        let Some(Answered { mut reply, is_repeated, .. }) = self.turns.answered(reply.clone()) else { return };
        self.silence = None;
        self.rate_held(now_ms);
        if let Some(before) = &self.reply {
            self.replaced.push_back((before.per_s, now_ms));
        }
        self.taken_bytes = std::mem::take(&mut reply.ends).len() as u64;
        self.reply = Some(reply);
        self.lease_ends_ms = made_ms + LEASE_MS as u64;
        // What it wants by now, a new one says at once. Where more ends wait, sooner.
        self.due_ms = match (is_repeated, self.ends.is_empty()) {
            (true, _) => now_ms,
            (false, true) => made_ms + TURN_EVERY_MS,
            (false, false) => made_ms + TURN_EVERY_MS / 2,
        };
    }

    pub(super) fn not_turned(&mut self, why: &str, now_ms: u64) {
        let Some(made_ms) = self.made_ms.take() else { return };
        let since = self.silence.as_ref().map_or(Duration::from_millis(made_ms), |silence| silence.since);
        self.silence = Some(Silence { since, why: why.to_owned() });
        // Where the reply was lost, at once: its lease would end before it is renewed.
        self.due_ms = now_ms.max(made_ms + TURN_EVERY_MS);
    }

    pub(super) fn view(&self, service: &ServiceName, now_ms: u64) -> AdmissionsView {
        let reply = self.reply.as_ref().filter(|_| now_ms < self.lease_ends_ms);
        let (per_s, concurrency) = reply.map_or((0, 0), |reply| (reply.per_s, reply.concurrency));
        let (members, outstanding) = (reply.map(|reply| reply.members), self.outstanding);
        let (service, total, silence) = (service.clone(), self.total(), self.silence.clone());
        AdmissionsView { service, total, members, per_s, concurrency, outstanding, silence }
    }

    pub(super) fn total(&self) -> Total {
        self.reply.as_ref().map_or_else(Total::default, |reply| reply.total)
    }
}
