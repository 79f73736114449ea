//! What batches come to, counted before they are committed.

use super::CapLabels;
use crate::domain::refund::RefundOutcome;

/// Counts by key, of which there are few: to look at them all is faster than a tree.
#[derive(Debug, Clone)]
pub(super) struct Few<K>(Vec<(K, u64)>);

impl<K> Default for Few<K> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: PartialEq + Copy> Few<K> {
    /// One more of a key.
    fn one_more(&mut self, key: K) {
        match self.0.iter_mut().find(|(known, _)| *known == key) {
            Some((_, count)) => *count += 1,
            None => self.0.push((key, 1)),
        }
    }

    /// The keys that were counted, with their counts.
    pub(super) fn iter(&self) -> impl Iterator<Item = (K, u64)> {
        self.0.iter().copied()
    }
}

/// What a batch came to; added to the metrics when it is committed.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    pub(super) decisions: Few<(&'static str, &'static str)>,
    pub(super) dead_letters: Few<&'static str>,
    pub(super) unavailable: Few<&'static str>,
    pub(super) cap_denials: Vec<(CapLabels, u64)>,
    /// Decisions that the store had made before.
    pub replayed: u64,
    /// Decisions for users with an entry far ahead of the clock.
    pub ahead: u64,
}

impl Tally {
    /// One more decision.
    pub fn decision(&mut self, verdict: &'static str, reason: &'static str) {
        self.decisions.one_more((verdict, reason));
    }

    /// Intents of users in a segment that a cap denied.
    pub fn cap_denials(&mut self, segment: Option<&str>, cap: &str, count: u64) {
        let labels = CapLabels { segment: segment.unwrap_or_default().to_owned(), cap: cap.to_owned() };
        self.cap_denials.push((labels, count));
    }

    /// One more decision without the user's history.
    pub fn unavailable(&mut self, action: &'static str) {
        self.unavailable.one_more(action);
    }

    /// One more dead letter.
    pub fn dead_letter(&mut self, reason: &'static str) {
        self.dead_letters.one_more(reason);
    }
}

/// What a batch of refunds came to; added to the metrics when it is committed.
#[derive(Debug, Clone, Default)]
pub struct RefundTally {
    pub(super) refunds: Few<&'static str>,
    pub(super) dead_letters: Few<&'static str>,
}

impl RefundTally {
    /// One more refund.
    pub fn refund(&mut self, outcome: RefundOutcome) {
        self.refunds.one_more(outcome.as_str());
    }

    /// One more record that is none.
    pub fn dead_letter(&mut self, reason: &'static str) {
        self.dead_letters.one_more(reason);
    }
}
