//! What a batch keeps that is given up, until it is judged again.
//!
//! invariant: the tokens of an intent that the store was asked about have one owner. The batch has them until the store says whether it had
//! recorded the intent. They are spent where nobody hears that.

use std::sync::Arc;

use super::{GateResult, RequestIndex};
use crate::{
    basis::time::Time,
    limit::{
        budget::lease::{BudgetUse, Claim, LeaseNumber, Lender},
        share::Taken,
    },
};

/// What a batch that is given up keeps until it is judged again.
pub struct KeptLimits {
    /// Those of all records that have some, such as permits.
    pub units: Vec<Taken>,
    /// The tokens of what is recorded, or may be.
    pub tokens: KeptTokens,
}

/// The tokens of intents that the store has recorded, or may have: one set for each, of the last round in which it was asked with tokens.
/// That is enough, whichever round it was recorded in: the lease of a later round ends behind all rounds before it, so its tokens count for
/// a window of each, and they are granted before the others go back. Until that round ends there are both: nothing is approved by a lease
/// that has ended. Dropped, they count as spent.
///
/// The exception is an intent that takes from other budgets in the later round, because a period has ended or the policy has changed: those of
/// the earlier round get their tokens back, though it may have been recorded then. Nobody approves in a period that has ended, and by the new
/// policy the intent does not count in the other budgets.
pub struct KeptTokens {
    rounds: Vec<KeptRound>,
    since: Time,
}

/// Those of one round.
pub(super) struct KeptRound {
    /// The clock that it was judged by.
    pub(super) now: Time,
    pub(super) lender: Lender,
    pub(super) claim: Arc<Claim>,
    pub(super) leases: Vec<Option<LeaseNumber>>,
    /// In the order of the records.
    pub(super) sets: Vec<KeptSet>,
}

/// Those of one record.
pub(super) struct KeptSet {
    pub(super) record: usize,
    /// The set of its budgets in the claim.
    pub(super) set: u32,
    /// What it took of each.
    pub(super) cost: u8,
}

impl Default for KeptTokens {
    fn default() -> Self {
        Self { rounds: Vec::new(), since: Time::MAX }
    }
}

impl KeptRound {
    fn set_of(&self, record: usize) -> Option<&KeptSet> {
        self.sets.binary_search_by_key(&record, |kept| kept.record).ok().map(|place| &self.sets[place])
    }
}

impl KeptTokens {
    pub(super) const fn is_empty(&self) -> bool {
        self.rounds.is_empty()
    }

    /// The earliest clock of a round that has kept some. Nothing is recorded at a time before the clock of its round, so an earlier reader
    /// has asked for what was recorded before this.
    pub(super) const fn since(&self) -> Time {
        self.since
    }

    fn has(&self, record: usize) -> bool {
        self.rounds.iter().any(|round| round.set_of(record).is_some())
    }

    /// Whether tokens of this budget are among those of a record.
    pub(super) fn has_of(&self, record: usize, budget: &BudgetUse) -> bool {
        let is_of = |round: &KeptRound, set: &KeptSet| {
            let budgets = &round.claim.budgets;
            let mut taken = round.claim.sets[set.set as usize].iter().map(|place| &budgets[*place as usize]);
            taken.any(|taken| (&taken.id, taken.span) == (&budget.id, budget.span))
        };
        self.rounds.iter().any(|round| round.set_of(record).is_some_and(|set| is_of(round, set)))
    }

    pub(super) fn add(&mut self, round: Option<KeptRound>) {
        if let Some(round) = round {
            self.since = self.since.min(round.now);
            self.rounds.push(round);
        }
    }

    /// The requests of the records that have some, ascending.
    pub(super) fn requests(&self, results: &[GateResult]) -> Vec<RequestIndex> {
        if self.is_empty() {
            return Vec::new();
        }
        let kept = results.iter().enumerate().filter(|(record, _)| self.has(*record));
        kept.filter_map(|(_, result)| result.request()).collect()
    }

    /// Gives back those of these records.
    pub(super) fn give_back(&mut self, is_back: impl Fn(usize) -> bool) {
        self.rounds.retain_mut(|KeptRound { lender, claim, leases, sets, .. }| {
            let mut of_sets = vec![0; claim.sets.len()];
            sets.retain(|KeptSet { record, set, cost }| {
                let is_back = is_back(*record);
                of_sets[*set as usize] += if is_back { u64::from(*cost) } else { 0 };
                !is_back
            });
            let mut tokens = vec![0; claim.budgets.len()];
            claim.add_sets(&of_sets, &mut tokens);
            claim.give_back(leases, &tokens, lender);
            !sets.is_empty()
        });
    }

    /// Whether there are some of these records.
    pub(super) fn has_any(&self, is_one: impl Fn(usize) -> bool) -> bool {
        self.rounds.iter().flat_map(|round| &round.sets).any(|kept| is_one(kept.record))
    }
}
