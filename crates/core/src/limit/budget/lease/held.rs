//! The tokens of one budget that this instance holds.

use super::moment::Moment;
use crate::limit::budget::ledger::CountId;

/// The most grants that are kept apart. Beyond that the two that end first become one, by the stricter terms of both. Usually a
/// budget has two: one is nearly used up when the next one arrives.
const MOST_GRANTS: usize = 8;

/// No count has this.
const NO_COUNT: CountId = CountId(i64::MIN);

/// When tokens may be spent, and where they are given back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LeaseTerms {
    pub(super) since: Moment,
    /// Until when: no longer at this moment.
    pub(super) ends: Moment,
    pub(super) bucket: i64,
    pub(super) count_id: CountId,
}

impl LeaseTerms {
    /// The stricter of both. Tokens of a later bucket that are given back to an earlier one count for longer than they must. Those of
    /// two counts cannot be told apart, and go back to neither.
    fn stricter(self, other: Self) -> Self {
        Self {
            since: self.since.max(other.since),
            ends: self.ends.min(other.ends),
            bucket: self.bucket.min(other.bucket),
            count_id: if self.count_id == other.count_id { self.count_id } else { NO_COUNT },
        }
    }

    fn allow(self, judged_at: Moment) -> bool {
        self.since <= judged_at && judged_at < self.ends
    }
}

/// Tokens with the same terms.
#[derive(Debug, Clone)]
pub(super) struct Grant {
    pub(super) terms: LeaseTerms,
    /// The unspent ones; above 0.
    pub(super) tokens: u64,
    /// How many the ledger granted; 0 where these came back from a claim.
    pub(super) granted: u64,
}

impl Grant {
    /// Whether at least half of what was granted is unspent.
    pub(super) fn is_mostly_unspent(&self) -> bool {
        self.granted > 0 && self.tokens >= self.granted.div_ceil(2)
    }
}

/// All grants of a budget that have unspent tokens; the one that ends first is the first.
#[derive(Debug, Clone, Default)]
pub(super) struct HeldTokens {
    grants: Vec<Grant>,
}

impl HeldTokens {
    /// How many a claim that was judged then may spend.
    pub(super) fn usable(&self, judged_at: Moment) -> u64 {
        self.grants.iter().filter(|grant| grant.terms.allow(judged_at)).map(|grant| grant.tokens).sum()
    }

    /// How many of them may be spent beyond this moment, too.
    pub(super) fn lasting(&self, judged_at: Moment, beyond: Moment) -> u64 {
        let lasting = |grant: &&Grant| grant.terms.allow(judged_at) && grant.terms.ends > beyond;
        self.grants.iter().filter(lasting).map(|grant| grant.tokens).sum()
    }

    pub(super) fn total(&self) -> u64 {
        self.grants.iter().map(|grant| grant.tokens).sum()
    }

    pub(super) fn first_end(&self) -> Moment {
        self.grants.first().map_or(Moment::NEVER, |grant| grant.terms.ends)
    }

    pub(super) fn next_end(&self, after: Moment) -> Moment {
        let ends = self.grants.iter().map(|grant| grant.terms.ends);
        ends.filter(|ends| *ends > after).min().unwrap_or(Moment::NEVER)
    }

    /// Adds tokens. Those that come back to a grant that is still held become part of it.
    pub(super) fn add(&mut self, grant: Grant) {
        if grant.tokens == 0 {
            return;
        }
        if let Some(same) = self.grants.iter_mut().find(|held| held.terms == grant.terms) {
            same.tokens += grant.tokens;
            same.granted += grant.granted;
            return;
        }
        let place = self.grants.partition_point(|held| held.terms.ends <= grant.terms.ends);
        self.grants.reserve_exact(1);
        self.grants.insert(place, grant);
        if self.grants.len() > MOST_GRANTS {
            let first = self.grants.remove(0);
            if let Some(second) = self.grants.first_mut() {
                second.terms = second.terms.stricter(first.terms);
                second.tokens += first.tokens;
                second.granted += first.granted;
            }
        }
    }

    /// Takes tokens to spend them in a claim that was judged then, those that end first before others. There must be as many. Gives the strictest
    /// of their terms (`None` where there were none), by which they may come back; and how many grants of the ledger this used up.
    pub(super) fn take(&mut self, tokens: u64, judged_at: Moment) -> (Option<LeaseTerms>, u32) {
        let (mut terms, mut used_up, mut missing): (Option<LeaseTerms>, u32, u64) = (None, 0, tokens);
        for grant in self.grants.iter_mut().filter(|grant| grant.terms.allow(judged_at)) {
            if missing == 0 {
                break;
            }
            let some = grant.tokens.min(missing);
            missing -= some;
            grant.tokens -= some;
            used_up += u32::from(grant.tokens == 0 && grant.granted > 0);
            terms = Some(terms.map_or(grant.terms, |terms| terms.stricter(grant.terms)));
        }
        assert_eq!(missing, 0, "a claim takes only tokens that are held");
        self.grants.retain(|grant| grant.tokens > 0);
        (terms, used_up)
    }

    /// Removes what is more than so many tokens, of the grants that end first.
    pub(super) fn take_beyond(&mut self, kept: u64) -> Vec<Grant> {
        let mut beyond = self.total().saturating_sub(kept);
        let mut taken = Vec::new();
        for grant in &mut self.grants {
            let tokens = grant.tokens.min(beyond);
            (beyond, grant.tokens) = (beyond - tokens, grant.tokens - tokens);
            taken.push(Grant { tokens, ..grant.clone() });
        }
        self.grants.retain(|grant| grant.tokens > 0);
        taken
    }

    /// Removes the grants that have ended.
    pub(super) fn end(&mut self, now: Moment) -> Vec<Grant> {
        let ended = self.grants.partition_point(|grant| grant.terms.ends <= now);
        self.grants.drain(..ended).collect()
    }
}
