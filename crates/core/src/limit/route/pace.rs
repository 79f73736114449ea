//! The pace of one route: how much may be approved, from what delivery takes.
//!
//! The approved topic holds what delivery takes in [`crate::limit::route::Route::ahead_ms`]: room = ahead x drain rate - lag. The lag is
//! Kafka's own count, so a permit that is lost, or an error of the estimate, heals by itself.
//!
//! The drain rate is measured where it is known to be the consumer's own: while intents stand in the topic. Consumers commit in
//! steps (every 5 s, as a rule), so it is measured from one commit to another. A consumer that has nothing to do shows only what it
//! was given; the estimate then rises, to twice what was seen. It does not rise while something was approved after the last commit,
//! since the consumer may have stopped; and it falls where intents stand and nothing is committed for two commits' time.
//!
//! Offsets that hold no record (of aborted transactions, and the ends of transactions) look like intents that stand. A consumer that
//! commits what it has delivered passes them with the next record alone, so while nothing shows that delivery goes on, the floor is
//! approved, whatever the lag says.
//!
//! What was learnt is kept outside the process ([`KeptRates`]). One that begins goes by that, and takes no more at once than delivery
//! takes from one look to the next, until it has measured a rate itself.

mod delivered;
mod drain;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;

use std::time::Duration;

pub use self::delivered::{Behind, Delivered, DeliveryLook, PartitionLag};
use self::drain::Drain;
use crate::basis::words;
// For the simulation.
#[cfg(test)]
use crate::limit::route::delivery_signals::{Deliveries, DeliverySignals, WaitingQueue};

/// The least that a route may take: this share of its ceiling, or of the highest rate that was seen.
const FLOOR: f64 = 0.01;
/// How fast the share that signals of overload leave returns, per second.
const RECOVERY: f64 = 0.05;
/// How long a lag that is not known changes nothing, and then how long until permits halve again, in seconds.
const UNKNOWN_S: f64 = 10.0;

/// The offsets of a route's approved topic, summed over its partitions, from any beginning on. Of a partition that is behind the others,
/// no more than its share ([`Delivered`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lag {
    /// The end offsets, as far as they count.
    pub end: u64,
    pub committed: u64,
    /// The least that was undelivered of each partition since more of it was committed last, or since it was found first, summed: what a
    /// commit has left. Between two commits, what is delivered looks undelivered. Partitions that are behind have no part in it.
    pub least: u64,
    /// The same, where a partition that has far more left than most counts little: its consumer is slower than others.
    pub even: u64,
    /// The longest time from one commit of a partition to the next, as it was seen lately, in looks: 5 at least, and at most 60.
    pub step: u64,
}

impl Lag {
    /// The lag of consumers that have just committed.
    pub const fn new(end: u64, committed: u64) -> Self {
        let least = end.saturating_sub(committed);
        Self { end, committed, least, even: least, step: delivered::STEP }
    }

    /// Approved intents that are not delivered.
    pub const fn undelivered(self) -> u64 {
        self.end.saturating_sub(self.committed)
    }
}

/// What delivery takes per second, as instances keep it for each other and for those that come after them.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct KeptRates {
    /// What it is known to take; `None`: it is not known.
    pub drain_per_s: Option<f64>,
    /// Of one that keeps it: the highest rate that it has measured and that others have not been told of. Of what is kept: the highest one of
    /// the last hour. `None`: nothing was measured.
    pub best_per_s: Option<f64>,
}

/// What a route's pace goes by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The monotonic clock when the lag was sampled.
    pub at: Duration,
    /// `None`: it could not be found out.
    pub lag: Option<Lag>,
    /// The most per second: of the route's rate and what its service has registered the smaller one; `None`: there is neither.
    pub ceiling: Option<u64>,
    /// What signals of overload leave of the drain rate: 1, or 0.7 for each that holds.
    pub slow: f64,
    /// How many were approved at the most since the lag was last known, permits that are held included: no more than these, and what
    /// stood then, can have been delivered since.
    pub approved: u64,
}

/// What a route may take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// What delivery takes, per second.
    pub drain_per_s: f64,
    /// The best rate that is known, per second: of the ceiling and the highest rate that was measured within the last hour the higher
    /// one, whoever measured it. Whether delivery goes on does not matter. `None`: there is no ceiling, and nothing was measured.
    pub best_per_s: Option<f64>,
    /// What delivery takes, per second, as it was measured since it has enough to do; of a route without a consumer group the ceiling.
    /// `None`: it has little to do, or nothing was measured yet, or it is not known whether it goes on.
    pub measured_per_s: Option<f64>,
    /// How many more may be approved than were when the lag was last known: permits that instances hold, or have spent since, are
    /// among them ([`crate::limit::route::routes::RouteState::spent`]).
    pub room: u64,
    /// How many of these are for the reserved share only.
    pub reserved: u64,
    /// The most that one instance may be granted at once: until this process has measured a rate, what delivery takes in a second.
    pub most: u64,
    /// Why it is less than the ceiling.
    pub why: Throttle,
}

words! {
    /// Why a route takes less than its ceiling.
    #[derive(Default)]
    pub enum Throttle {
        #[default]
        No = "no",
        /// Delivery takes no more.
        Lag = "lag",
        /// Nothing is delivered: weir probes.
        Stopped = "stopped",
        /// A signal of overload holds, or did a moment ago.
        Signal = "signal",
        LagUnknown = "lag_unknown",
    }
}

impl Throttle {
    pub const fn in_words(self) -> Option<&'static str> {
        match self {
            Self::No => None,
            Self::Lag => Some("delivery takes no more"),
            Self::Stopped => Some("nothing is delivered: weir probes"),
            Self::Signal => Some("a signal of overload holds, or did a moment ago"),
            Self::LagUnknown => Some("the lag of the consumer group is not known"),
        }
    }

    /// Whether nothing but probes are approved.
    pub const fn is_closed(self) -> bool {
        match self {
            Self::Stopped | Self::LagUnknown => true,
            Self::No | Self::Lag | Self::Signal => false,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Controller {
    reserved: f64,
    drain: Drain,
    /// What signals leave of the drain rate.
    slow: f64,
    /// The last sample's time, in seconds.
    at: Option<f64>,
    /// The lag when it was last known, less what was delivered since, as far as that can be assumed.
    lag: Option<f64>,
    unknown_since: Option<f64>,
}

impl Controller {
    /// A controller that has seen nothing yet.
    #[expect(clippy::cast_precision_loss, reason = "an hour at most")]
    pub fn new(ahead_ms: i64, reserved_permille: u32) -> Self {
        let (at, lag, unknown_since) = (None, None, None);
        let (drain, reserved) = (Drain::new(ahead_ms as f64 / 1000.0), f64::from(reserved_permille) / 1000.0);
        Self { reserved, drain, slow: 1.0, at, lag, unknown_since }
    }

    /// What the route may take after another sample. Samples come every second.
    pub fn turn(&mut self, sample: &Sample) -> Pace {
        let now = sample.at.as_secs_f64();
        let passed = self.at.replace(now).map_or(0.0, |before| (now - before).max(0.0));
        self.slow = sample.slow.min(self.slow + RECOVERY * passed).max(FLOOR);
        let ceiling = sample.ceiling.map(|ceiling| to_f64(ceiling.max(1)));
        match sample.lag {
            Some(lag) => {
                self.drain.see(now, passed, lag, ceiling);
                self.lag = Some(to_f64(lag.undelivered()));
                self.unknown_since = None;
            }
            None => {
                let since = *self.unknown_since.get_or_insert(now);
                let halved = ((now - since) / UNKNOWN_S).floor().max(0.0);
                let (per_s, floor) = (self.drain.per_s(ceiling) * self.slow, self.drain.floor(ceiling));
                // Of offsets that were never seen it is not known whether there is room for more.
                let rate = if self.drain.last.is_some() { (per_s * (-halved).exp2()).max(floor) } else { floor };
                // Before the first answer only this is approved; and so it is where more stood than there is room for, but too long ago
                // to be known of.
                let full = per_s.max(floor) * self.drain.ahead_s;
                let lag = self.lag.filter(|lag| halved < 1.0 || *lag < full).unwrap_or(full);
                self.lag = Some((lag - rate * passed).max(-to_f64(sample.approved)));
            }
        }
        let drain_per_s = (self.drain.per_s(ceiling) * self.slow).max(self.drain.floor(ceiling));
        let ahead = self.drain.ahead_s * drain_per_s;
        let room = whole(ahead - self.lag.unwrap_or(0.0));
        let reserved = room.min(whole(ahead * self.reserved));
        let why = self.why(now, room);
        if room > 0 {
            self.drain.has_room();
        }
        // Probes are for any intent: where no reserved one comes, another passes offsets without a record.
        let floor = self.drain.floor(ceiling);
        let is_probed = sample.lag.is_some_and(|lag| self.drain.is_probed(to_f64(lag.undelivered()), floor));
        let probes = if is_probed { whole(floor) } else { 0 };
        let room = room.max(probes);
        let reserved = reserved.min(room - probes);
        let most = if self.drain.counted { u64::MAX } else { whole(drain_per_s) };
        let (best_per_s, measured_per_s) = (self.drain.best(ceiling), self.measured(why, ceiling));
        Pace { drain_per_s, best_per_s, measured_per_s, room, reserved, most, why }
    }

    /// Takes up what instances have kept of this delivery, with what this one has told them then ([`Controller::to_keep`]).
    pub fn recall(&mut self, kept: KeptRates, told: KeptRates) {
        self.drain.recall(kept, told);
    }

    /// What is to be kept of this delivery, after a turn. While the lag is not known it may take less by now, but the best rate is what it was.
    pub fn to_keep(&self) -> KeptRates {
        let kept = self.drain.to_keep();
        KeptRates { drain_per_s: kept.drain_per_s.filter(|_| self.unknown_since.is_none()), ..kept }
    }

    /// The same controller for a route whose policy has changed, but not what is delivered to whom.
    #[must_use]
    pub fn changed_to(mut self, ahead_ms: i64, reserved_permille: u32) -> Self {
        let fresh = Self::new(ahead_ms, reserved_permille);
        (self.reserved, self.drain.ahead_s) = (fresh.reserved, fresh.drain.ahead_s);
        self
    }

    /// See [`Pace::measured_per_s`].
    fn measured(&self, why: Throttle, ceiling: Option<f64>) -> Option<f64> {
        let goes_on = !why.is_closed() && self.unknown_since.is_none() && self.drain.probed.is_none();
        (goes_on && self.drain.measured).then(|| self.drain.per_s(ceiling))
    }

    fn why(&self, now: f64, room: u64) -> Throttle {
        if self.unknown_since.is_some_and(|since| now - since >= UNKNOWN_S) {
            Throttle::LagUnknown
        } else if self.drain.stopped {
            Throttle::Stopped
        } else if self.slow < 1.0 {
            Throttle::Signal
        } else if room == 0 || self.drain.busy {
            Throttle::Lag
        } else {
            Throttle::No
        }
    }
}

/// The pace of a route without a consumer group: it is bound by its ceiling alone. Both are as in [`Sample`].
pub fn by_ceiling(ceiling: Option<u64>, slow: f64) -> Pace {
    let best_per_s = ceiling.map(|ceiling| to_f64(ceiling.max(1)));
    let ceiling = best_per_s.unwrap_or(1.0);
    let drain_per_s = (ceiling * slow).max(ceiling * FLOOR);
    let why = if slow < 1.0 { Throttle::Signal } else { Throttle::No };
    Pace { drain_per_s, best_per_s, measured_per_s: best_per_s, room: u64::MAX, reserved: 0, most: u64::MAX, why }
}

#[expect(clippy::cast_precision_loss, reason = "counts of records are far below 2^53")]
const fn to_f64(count: u64) -> f64 {
    count as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates at 0 and at the maximum"
)]
const fn whole(count: f64) -> u64 {
    count as u64
}
