//! Counts of the situations that runs reached, to check that the seeds reach all of them.

use std::collections::BTreeMap;

use weir_redis::RetryCause;

/// The counts of one run or of many.
#[derive(Debug, Default, Clone)]
pub struct Tale {
    /// How often each thing happened.
    pub counts: BTreeMap<&'static str, u64>,
    /// Errors that Redis answered.
    pub troubles: BTreeMap<&'static str, u64>,
    /// The longest history of a user.
    pub longest: usize,
}

impl Tale {
    /// The situations that these runs did not reach.
    pub fn unreached(&self) -> Vec<&'static str> {
        // Nothing else writes to the keyspace.
        let beyond = RetryCause::Refused.label();
        let all = self.troubles.iter().chain(&self.counts);
        all.filter(|(what, times)| **times == 0 && **what != beyond).map(|(what, _)| *what).collect()
    }

    pub fn count(&mut self, what: &'static str, times: usize) {
        *self.counts.entry(what).or_default() += times as u64;
    }

    pub fn add(&mut self, other: &Self) {
        for (what, times) in &other.counts {
            *self.counts.entry(what).or_default() += times;
        }
        for (cause, times) in &other.troubles {
            *self.troubles.entry(cause).or_default() += times;
        }
        self.longest = self.longest.max(other.longest);
    }
}
