//! What batches come to, counted before they are committed.

use std::collections::BTreeMap;

use super::CapLabels;
use crate::domain::refund::RefundOutcome;

/// What a batch came to; added to the metrics when it is committed.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    pub(super) decisions: BTreeMap<(&'static str, &'static str), u64>,
    pub(super) dead_letters: BTreeMap<&'static str, u64>,
    pub(super) unavailable: BTreeMap<&'static str, u64>,
    pub(super) cap_denials: Vec<(CapLabels, u64)>,
    /// Decisions that the store had made before.
    pub replayed: u64,
    /// Decisions for users with an entry far ahead of the clock.
    pub ahead: u64,
}

impl Tally {
    /// One more decision.
    pub fn decision(&mut self, verdict: &'static str, reason: &'static str) {
        *self.decisions.entry((verdict, reason)).or_default() += 1;
    }

    /// Intents of users in a segment that a cap denied.
    pub fn cap_denials(&mut self, segment: Option<&str>, cap: &str, count: u64) {
        let labels = CapLabels { segment: segment.unwrap_or_default().to_owned(), cap: cap.to_owned() };
        self.cap_denials.push((labels, count));
    }

    /// One more decision without the user's history.
    pub fn unavailable(&mut self, action: &'static str) {
        *self.unavailable.entry(action).or_default() += 1;
    }

    /// One more dead letter.
    pub fn dead_letter(&mut self, reason: &'static str) {
        *self.dead_letters.entry(reason).or_default() += 1;
    }
}

/// What a batch of refunds came to; added to the metrics when it is committed.
#[derive(Debug, Clone, Default)]
pub struct RefundTally {
    pub(super) refunds: BTreeMap<&'static str, u64>,
    pub(super) dead_letters: BTreeMap<&'static str, u64>,
}

impl RefundTally {
    /// One more refund.
    pub fn refund(&mut self, outcome: RefundOutcome) {
        *self.refunds.entry(outcome.as_str()).or_default() += 1;
    }

    /// One more record that is none.
    pub fn dead_letter(&mut self, reason: &'static str) {
        *self.dead_letters.entry(reason).or_default() += 1;
    }
}
