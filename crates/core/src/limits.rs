//! How large a record each output topic takes. The Kafka edge finds out, the decider keeps to it.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::{
    record::Destination,
    wheel::{Bucket, LONGEST_MS, Ring},
};

/// The largest record that each output topic takes, in bytes: of the topic's `max.message.bytes` and the producer's own
/// `message.max.bytes` the smaller one. Shared by all lanes.
#[derive(Debug)]
pub struct OutputLimits {
    approved: AtomicU64,
    suppressed: AtomicU64,
    dead_letters: AtomicU64,
    hours: AtomicU64,
    minutes: AtomicU64,
    waiting: AtomicU64,
    undelivered: AtomicU64,
    /// How long the topics of deferred intents keep one, in milliseconds, less the time that weir may be off.
    deferrable_ms: AtomicI64,
}

/// Nothing is known yet, or nothing is written: anything goes.
impl Default for OutputLimits {
    fn default() -> Self {
        let any = || AtomicU64::new(u64::MAX);
        Self {
            approved: any(),
            suppressed: any(),
            dead_letters: any(),
            hours: any(),
            minutes: any(),
            waiting: any(),
            undelivered: any(),
            deferrable_ms: AtomicI64::new(LONGEST_MS),
        }
    }
}

impl OutputLimits {
    fn of(&self, to: Destination) -> Option<&AtomicU64> {
        match to {
            Destination::Approved(_) => Some(&self.approved),
            Destination::Suppressed => Some(&self.suppressed),
            Destination::DeadLetters => Some(&self.dead_letters),
            Destination::Deferred(Bucket { ring: Ring::Hours, .. }) => Some(&self.hours),
            Destination::Deferred(Bucket { ring: Ring::Minutes, .. }) => Some(&self.minutes),
            Destination::Waiting { .. } => Some(&self.waiting),
            Destination::Undelivered => Some(&self.undelivered),
            Destination::Nowhere => None,
        }
    }

    /// What a topic takes; no limit where it is not known.
    #[must_use]
    pub fn get(&self, to: Destination) -> u64 {
        self.of(to).map_or(u64::MAX, |limit| limit.load(Ordering::Relaxed))
    }

    /// A topic takes so much: of the approved topics, and of the topics of waiting intents, the one that takes the least.
    pub fn set(&self, to: Destination, bytes: u64) {
        if let Some(limit) = self.of(to) {
            limit.store(bytes, Ordering::Relaxed);
        }
    }

    /// The longest that an intent may be deferred, in milliseconds, whatever the policy says.
    #[must_use]
    pub fn deferrable_ms(&self) -> i64 {
        self.deferrable_ms.load(Ordering::Relaxed)
    }

    /// An intent may be deferred for so long.
    pub fn set_deferrable_ms(&self, ms: i64) {
        self.deferrable_ms.store(ms.min(LONGEST_MS), Ordering::Relaxed);
    }

    /// What all topics take that an intent may go to.
    #[must_use]
    pub fn of_decisions(&self) -> u64 {
        let decided = self.get(Destination::APPROVED).min(self.get(Destination::Suppressed));
        let later = [&self.hours, &self.minutes, &self.waiting].map(|limit| limit.load(Ordering::Relaxed));
        later.into_iter().fold(decided, u64::min)
    }

    /// What all topics take.
    #[must_use]
    pub fn smallest(&self) -> u64 {
        self.of_decisions().min(self.get(Destination::DeadLetters))
    }
}
