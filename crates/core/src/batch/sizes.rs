//! How large a record each output topic takes. The Kafka edge finds out, the decider keeps to it.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use arc_swap::ArcSwap;

use super::record::Destination;
use crate::deferral::wheel::{Bucket, LONGEST_MS, Ring};

/// The largest record that each output topic takes, in bytes: of the topic's `max.message.bytes` and the producer's own
/// `message.max.bytes` the smaller one. Shared by all lanes.
#[derive(Debug)]
pub struct OutputLimits {
    approved: AtomicU64,
    suppressed: AtomicU64,
    dead_letters: AtomicU64,
    hours: AtomicU64,
    minutes: AtomicU64,
    undelivered: AtomicU64,
    /// Of the topics of waiting intents, by their numbers.
    waiting: ArcSwap<Vec<u64>>,
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
            undelivered: any(),
            waiting: ArcSwap::default(),
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
            Destination::Undelivered => Some(&self.undelivered),
            Destination::Waiting { .. } | Destination::Nowhere => None,
        }
    }

    /// What a topic takes; no limit where it is not known.
    pub fn get(&self, to: Destination) -> u64 {
        if let Destination::Waiting { topic, .. } = to {
            return self.waiting.load().get(usize::from(topic.0)).copied().unwrap_or(u64::MAX);
        }
        self.of(to).map_or(u64::MAX, |limit| limit.load(Ordering::Relaxed))
    }

    /// A topic takes so much: of the approved topics, the one that takes the least.
    pub fn set(&self, to: Destination, bytes: u64) {
        if let Destination::Waiting { topic, .. } = to {
            let place = usize::from(topic.0);
            self.waiting.rcu(|waiting| {
                let mut waiting = Vec::clone(waiting);
                waiting.resize(waiting.len().max(place + 1), u64::MAX);
                waiting[place] = bytes;
                waiting
            });
        } else if let Some(limit) = self.of(to) {
            limit.store(bytes, Ordering::Relaxed);
        }
    }

    /// The longest that an intent may be deferred, in milliseconds, whatever the policy says.
    pub fn deferrable_ms(&self) -> i64 {
        self.deferrable_ms.load(Ordering::Relaxed)
    }

    pub fn set_deferrable_ms(&self, ms: i64) {
        self.deferrable_ms.store(ms.min(LONGEST_MS), Ordering::Relaxed);
    }

    /// What all topics take that any intent may go to: not those of waiting intents, which are for the intents of one route each.
    pub fn of_decisions(&self) -> u64 {
        let decided = self.get(Destination::APPROVED).min(self.get(Destination::Suppressed));
        let later = [&self.hours, &self.minutes].map(|limit| limit.load(Ordering::Relaxed));
        later.into_iter().fold(decided, u64::min)
    }

    /// What all topics take.
    pub fn smallest(&self) -> u64 {
        let others = self.of_decisions().min(self.get(Destination::DeadLetters));
        self.waiting.load().iter().copied().fold(others, u64::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::record::WaitingTopic;

    #[test]
    fn each_topic_of_waiting_intents_has_its_own_limit_which_bounds_no_other_output() {
        let limits = OutputLimits::default();
        let waiting = |number| Destination::Waiting { topic: WaitingTopic(number), partition: 3 };
        limits.set(waiting(2), 5_000);
        assert_eq!([0, 2, 9].map(|number| limits.get(waiting(number))), [u64::MAX, 5_000, u64::MAX]);
        assert_eq!((limits.of_decisions(), limits.smallest()), (u64::MAX, 5_000), "but each batch must fit each topic");
        limits.set(waiting(2), 6_000);
        limits.set(Destination::Suppressed, 7_000);
        assert_eq!((limits.get(waiting(2)), limits.of_decisions(), limits.smallest()), (6_000, 7_000, 6_000));
    }
}
