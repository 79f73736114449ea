//! The admissions that one instance of weir gives to services: pure, at times that the caller passes in.
//!
//! An instance has a share of a service's rate and concurrency until its lease ends ([`crate::service`]). It gives an admission where
//! the last second and the admissions that have not ended both leave room in the share. The rate is exact: no window of one second
//! holds more admissions than the share. An admission ends when the service reports that, or at its timeout.

mod second;
mod share;

use std::{collections::BTreeMap, fmt};

use weir_core::limit::share::TurnNumber;

use self::share::Sharing;
pub use self::share::{AdmissionsView, Denial};
use crate::{
    service::{End, Holder, ServiceName, ShareReply, ShareTurn},
    timer_wheel::{TimerKey, TimerWheel},
};

/// The most admissions that have not ended, of all services of one instance.
pub const MAX_OUTSTANDING: usize = 100_000;
/// The most services that one instance gives admissions to.
pub const MAX_SERVICES: usize = 64;
/// From one turn to the next, in milliseconds.
pub const TURN_EVERY_MS: u64 = 1_000;
/// A service that nobody has asked for within this time, in milliseconds, is forgotten here, so that others get its share.
const IDLE_MS: u64 = 60_000;
/// When to ask again for a service without live instances, in seconds: within this time, one that lives renews its registration.
const RENEWED_WITHIN_S: u64 = 10;
/// The most ends that wait to be handed on to other holders.
const MAX_ENDS: usize = 100_000;

/// All admissions of one instance. Times are milliseconds of a monotonic clock, rounded down.
pub struct Admissions {
    holder: Holder,
    services: BTreeMap<ServiceName, Sharing>,
    /// The admissions that have not ended, each with its service.
    outstanding: TimerWheel<ServiceName>,
    /// How often a service has begun to be shared. Turns at it are of that run: those of before it was forgotten are of an earlier one.
    begun: i64,
    timed_out: Vec<ServiceName>,
}

/// What a service is answered that asks for an admission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// It may work.
    Given {
        id: AdmissionId,
        /// It is over after so many milliseconds.
        timeout_ms: u64,
    },
    /// Not now: why, and when to ask again, in seconds.
    Denied(Denial, u64),
    /// No live instance of the service is registered; when to ask again, in seconds.
    NoInstances(u64),
}

/// Names an admission over all instances: `<holder>.<number>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmissionId {
    pub(crate) holder: Holder,
    pub(crate) number: u64,
}

impl AdmissionId {
    /// The longest holder, in bytes.
    const MAX_HOLDER_BYTES: usize = 64;

    pub fn parse(text: &str) -> Option<Self> {
        let (holder, number) = text.split_once('.')?;
        let is_holder = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_name = (1..=Self::MAX_HOLDER_BYTES).contains(&holder.len()) && holder.bytes().all(is_holder);
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        Some(Self { holder: is_name.then(|| holder.into())?, number: number.parse().ok().filter(|_| is_number)? })
    }
}

impl fmt::Display for AdmissionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.holder, self.number)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The admission has ended.
    Now,
    /// Another instance gave it, and hears of it with its next turn.
    HandedOn,
    /// It had ended before, by an end or its timeout.
    Before,
    /// Too many ends wait to be handed on: it ends by its timeout.
    Full,
}

/// When to ask again for a service without live instances, in seconds. `random` spreads that.
pub fn no_instances_retry_s(random: u32) -> u64 {
    RENEWED_WITHIN_S + u64::from(random) % (RENEWED_WITHIN_S / 2 + 1)
}

impl Admissions {
    /// No admissions yet; this holder gives them.
    pub fn new(holder: &str, now_ms: u64) -> Self {
        let outstanding = TimerWheel::new(now_ms, MAX_OUTSTANDING);
        Self { holder: holder.into(), services: BTreeMap::new(), outstanding, begun: 0, timed_out: Vec::new() }
    }

    /// How many have not ended.
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// A service asks for an admission; `None`: this instance has no share of it yet, and a turn has to be taken first. `random` spreads
    /// when it should ask again.
    pub fn ask(&mut self, service: &ServiceName, now_ms: u64, random: u32) -> Option<Admission> {
        self.time_out(now_ms);
        let sharing = self.services.get_mut(service)?;
        if sharing.reply.is_none() {
            sharing.waits(now_ms);
            return None;
        }
        if sharing.total().instances == 0 {
            return Some(Admission::NoInstances(no_instances_retry_s(random)));
        }
        let timeout_ms = match sharing.ask(now_ms, self.outstanding.is_full()) {
            Ok(timeout_ms) => timeout_ms,
            Err(denial) => return Some(Admission::Denied(denial, sharing.retry_after_s(denial, now_ms, random))),
        };
        // A millisecond more, because the clock is rounded down.
        let deadline = now_ms + 1 + timeout_ms;
        let Some(key) = self.outstanding.insert(deadline, service.clone()) else {
            return Some(Admission::Denied(Denial::Full, 1));
        };
        let id = AdmissionId { holder: Holder::clone(&self.holder), number: key.to_number() };
        Some(Admission::Given { id, timeout_ms })
    }

    /// Whether a turn at the service is due or under way.
    pub fn is_turning(&self, service: &ServiceName, now_ms: u64) -> bool {
        self.services.get(service).is_some_and(|sharing| sharing.due_at_ms().is_none_or(|due_ms| due_ms <= now_ms))
    }

    /// Begins to share a service, unless there are too many; gives whether it is shared. Its first turn is due at once.
    pub fn begin(&mut self, service: &ServiceName, now_ms: u64) -> bool {
        if self.services.contains_key(service) {
            return true;
        }
        let has_room = self.services.len() < MAX_SERVICES;
        if has_room {
            self.begun += 1;
            self.services.insert(service.clone(), Sharing::new(self.begun, now_ms));
        }
        has_room
    }

    /// Takes a turn at a service as soon as possible, where this instance shares it.
    pub fn hasten(&mut self, service: &ServiceName) {
        if let Some(sharing) = self.services.get_mut(service) {
            sharing.due_ms = 0;
        }
    }

    /// An admission has ended, of this holder or another one.
    pub fn end(&mut self, service: &ServiceName, holder: &str, end: End, now_ms: u64) -> Ended {
        self.time_out(now_ms);
        if *holder == *self.holder {
            return if self.end_here(service, end) { Ended::Now } else { Ended::Before };
        }
        let waiting: usize = self.services.values().map(|sharing| sharing.ends.len()).sum();
        if waiting >= MAX_ENDS || !self.begin(service, now_ms) {
            return Ended::Full;
        }
        if let Some(sharing) = self.services.get_mut(service) {
            sharing.hand_on(holder.into(), end, now_ms);
        }
        Ended::HandedOn
    }

    /// Ends an admission of this holder; whether there was one.
    fn end_here(&mut self, service: &ServiceName, end: End) -> bool {
        let key = TimerKey::from_number(end.number);
        if self.outstanding.get(key) != Some(service) {
            return false;
        }
        self.outstanding.cancel(key);
        if let Some(sharing) = self.services.get_mut(service) {
            sharing.ended(end.took_ms);
        }
        true
    }

    fn time_out(&mut self, now_ms: u64) {
        let Self { outstanding, services, timed_out, .. } = self;
        outstanding.advance(now_ms, |_, service| {
            if let Some(sharing) = services.get_mut(&service) {
                sharing.ended(None);
            }
            timed_out.push(service);
        });
    }

    /// The services whose admissions have timed out since the last call, one for each.
    pub fn take_timed_out(&mut self) -> Vec<ServiceName> {
        std::mem::take(&mut self.timed_out)
    }

    /// The turns that are due now, each with its number: one a service at a time. One without an answer is made again. Services that nobody
    /// asks for are forgotten.
    pub fn due_turns(&mut self, now_ms: u64) -> Vec<(ServiceName, TurnNumber, ShareTurn)> {
        self.time_out(now_ms);
        self.services.retain(|_, sharing| !sharing.is_idle(now_ms, IDLE_MS));
        let made = self.services.iter_mut().filter_map(|(service, sharing)| {
            sharing.due_at_ms().filter(|due_ms| *due_ms <= now_ms)?;
            let (number, turn) = sharing.make_turn(now_ms)?;
            Some((service.clone(), number, turn))
        });
        made.collect()
    }

    /// When the next turn is due, in ms of the clock; `None` while there is none to be taken.
    pub fn next_turn_ms(&self) -> Option<u64> {
        self.services.values().filter_map(Sharing::due_at_ms).min()
    }

    /// A turn was answered. Gives how many admissions ended by what others have handed on; `None` where no instance of the service is
    /// registered.
    pub fn turned(&mut self, service: &ServiceName, reply: &ShareReply, now_ms: u64) -> Option<u64> {
        self.time_out(now_ms);
        let sharing = self.services.get_mut(service)?;
        sharing.turned(reply, now_ms);
        let mut ended = 0;
        for end in End::parse_all(&reply.ends) {
            ended += u64::from(self.end_here(service, end));
        }
        if reply.total.instances > 0 {
            return Some(ended);
        }
        // What was given within the last second counts still.
        self.services.retain(|name, sharing| name != service || sharing.is_used() || sharing.rate_held(now_ms) > 0);
        None
    }

    /// A turn was not answered, or it is not known whether it was taken: why.
    pub fn not_turned(&mut self, service: &ServiceName, why: &str, now_ms: u64) {
        if let Some(sharing) = self.services.get_mut(service) {
            sharing.not_turned(why, now_ms);
        }
    }

    /// Whether the last turn at a service was not answered.
    pub fn is_silent(&self, service: &ServiceName) -> bool {
        self.services.get(service).is_some_and(|sharing| sharing.silence.is_some())
    }

    /// How each service stands here.
    pub fn look(&mut self, now_ms: u64) -> Vec<AdmissionsView> {
        self.time_out(now_ms);
        self.services.iter().map(|(service, sharing)| sharing.view(service, now_ms)).collect()
    }
}

#[cfg(test)]
mod tests;
