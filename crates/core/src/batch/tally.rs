//! What batches come to, counted before they are committed.

use std::sync::Arc;

use crate::{batch::retry::GivenUp, intent::Intent};

/// Counts by key, of which there are few: to look at them all is faster than a tree.
#[derive(Debug, Clone, Default)]
pub struct SmallCounter<K>(Vec<(K, u64)>);

impl<K: PartialEq + Copy> SmallCounter<K> {
    pub fn one_more(&mut self, key: K) {
        one_more(&mut self.0, key);
    }

    pub fn iter(&self) -> impl Iterator<Item = (K, u64)> {
        self.0.iter().copied()
    }
}

impl SmallCounter<(&'static str, &'static str)> {
    /// One more of a pair of names, which nearly always are at the places where they were before.
    fn one_more_pair(&mut self, key: (&'static str, &'static str)) {
        let is_there = |known: (&str, &str)| std::ptr::eq(known.0, key.0) && std::ptr::eq(known.1, key.1);
        match self.0.iter_mut().find(|(known, _)| is_there(*known)) {
            Some((_, count)) => *count += 1,
            None => self.one_more(key),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapOfSegment {
    /// The segment; empty for users in none.
    pub segment: String,
    pub cap: String,
}

/// What a gate found of the segments of a batch's users.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SegmentCounts {
    /// Intents of users that are in more than one segment.
    pub overlaps: u64,
    /// Intents of users in a segment that the policy does not name.
    pub unnamed: u64,
}

/// What a batch came to; added to the metrics when it is committed.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Decisions by verdict and reason.
    pub decisions: SmallCounter<(&'static str, &'static str)>,
    /// Dead letters by reason.
    pub dead_letters: SmallCounter<&'static str>,
    /// Deferrals by why.
    pub deferred: SmallCounter<&'static str>,
    /// Deliveries that failed, by route.
    pub failed: Vec<(Arc<str>, u64)>,
    /// Deliveries that are tried again, by route; empty for none.
    pub retried: Vec<(Arc<str>, u64)>,
    /// Deliveries that were given up, by route and why.
    pub undelivered: Vec<((Arc<str>, GivenUp), u64)>,
    /// Deferred intents that were released, by how many whole seconds after they were due.
    pub late_s: SmallCounter<i64>,
    /// Decisions without the user's history, by what the policy said.
    pub unavailable: SmallCounter<&'static str>,
    pub cap_denials: Vec<(CapOfSegment, u64)>,
    /// Tokens of budgets: spent, returned because the intent was not approved, and denied.
    pub budget_tokens: Vec<(Arc<str>, [u64; 3])>,
    /// Decisions that the store had made before.
    pub replayed: u64,
    /// Decisions for users with an entry far ahead of the clock.
    pub ahead: u64,
    /// Decisions on intents with a time before 1971.
    pub early_times: u64,
}

impl Tally {
    pub fn decision(&mut self, verdict: &'static str, reason: &'static str, intent: &Intent<'_>) {
        self.decisions.one_more_pair((verdict, reason));
        self.early_times += u64::from(intent.has_early_time());
    }

    pub fn failed(&mut self, route: &Arc<str>) {
        one_more(&mut self.failed, Arc::clone(route));
    }

    pub fn retried(&mut self, route: Option<&Arc<str>>) {
        one_more(&mut self.retried, route.cloned().unwrap_or_default());
    }

    pub fn undelivered(&mut self, route: Option<&Arc<str>>, why: GivenUp) {
        one_more(&mut self.undelivered, (route.cloned().unwrap_or_default(), why));
    }
}

fn one_more<K: PartialEq>(counts: &mut Vec<(K, u64)>, key: K) {
    match counts.iter_mut().find(|(known, _)| *known == key) {
        Some((_, count)) => *count += 1,
        None => counts.push((key, 1)),
    }
}

/// What a batch of a topic that is read beside the intents came to; added to the metrics when it is committed.
#[derive(Debug, Clone, Default)]
pub struct TopicTally {
    /// Valid records by outcome.
    pub outcomes: SmallCounter<&'static str>,
    /// Dead letters by reason.
    pub dead_letters: SmallCounter<&'static str>,
}
