//! The limits of a batch, which all instances share. Each is asked of intents that nothing before it denies: the gate, pressure, routes,
//! budgets.

use std::sync::Arc;

use super::{
    Decider, Ground, KeptLimits, KeptTokens, Settlement,
    budgets::{BatchBudgets, TakenNames},
    capacity::BatchCapacity,
    fate::Fates,
    intents::{Denials, Intents},
    pressure::BatchPressure,
};
use crate::{
    basis::time::Time,
    batch::{record::Records, tally::Tally},
    decision::verdict::Cause,
    limit::{
        budget::lease::{Claim, Funded},
        route::routes::Taken,
    },
    policy::GateReason,
};

/// What came back is worth another call of the store if it is one part in so many of what the limit gave, or more.
const WORTH: u64 = 100;

/// What a batch does with a limit: once for all its records, or for one that is denied. What it took and did not use goes back when it is
/// dropped.
pub(super) trait Limit {
    /// Takes what intents need, unless [something else](Intents::denial) denies them already. [Denies](Denials::deny) those for which nothing
    /// is left. `None`: it limits nothing of this batch.
    fn take<R: Records>(decider: &Decider, intents: &mut Intents<'_, R>, ground: &mut Ground<'_>) -> Option<Self>
    where
        Self: Sized;

    /// Finds what intents do not use of it by these fates. Whether that is [worth](is_worth_it) another call of the store.
    fn comes_back(&mut self, fates: &Fates) -> bool;

    /// Whether an intent needs more than has come back.
    fn lacks(&self, record: usize) -> bool;

    /// Gives an intent that does not [lack](Self::lacks) it what it needs, of what has come back.
    fn give(&mut self, record: usize);

    /// The batch is decided: what its intents do not use goes back. What is used once they are committed is left to be settled.
    fn settle(&mut self, ending: &Ending<'_>, left: &mut Settlement);
}

/// What a batch that is decided is settled by.
pub(super) struct Ending<'s> {
    pub(super) fates: &'s Fates,
    /// What is kept of rounds before this one.
    pub(super) kept: &'s KeptTokens,
    /// The partition and offset of a record.
    pub(super) place: &'s dyn Fn(usize) -> (i32, i64),
}

/// The limits of one batch, in the order in which they are asked. `None`: it limits nothing of this batch.
#[derive(Default)]
pub(crate) struct BatchLimits {
    pressure: Option<BatchPressure>,
    capacity: Option<BatchCapacity>,
    budgets: Option<BatchBudgets>,
    /// What is kept of rounds before this one.
    pub(super) kept: KeptTokens,
}

pub(super) const fn is_worth_it(back: u64, given: u64) -> bool {
    back > 0 && back.saturating_mul(WORTH) >= given
}

impl BatchLimits {
    /// Takes of all limits; finds what has to be asked for outside.
    pub(super) fn take<R: Records>(decider: &Decider, intents: &mut Intents<'_, R>, ground: &mut Ground<'_>) -> Self {
        let pressure = BatchPressure::take(decider, intents, ground);
        let capacity = BatchCapacity::take(decider, intents, ground);
        let budgets = BatchBudgets::take(decider, intents, ground);
        Self { pressure, capacity, budgets, kept: KeptTokens::default() }
    }

    fn all(&mut self) -> impl Iterator<Item = &mut dyn Limit> {
        let Self { pressure, capacity, budgets, .. } = self;
        let all: [Option<&mut dyn Limit>; 3] = [
            pressure.as_mut().map(|limit| limit as &mut dyn Limit),
            capacity.as_mut().map(|limit| limit as &mut dyn Limit),
            budgets.as_mut().map(|limit| limit as &mut dyn Limit),
        ];
        all.into_iter().flatten()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.pressure.is_none() && self.capacity.is_none() && self.budgets.is_none()
    }

    /// Whether the permits that were brought along are too few.
    pub(super) fn is_short(&self) -> bool {
        self.capacity.as_ref().is_some_and(BatchCapacity::is_short)
    }

    pub(super) fn claim(&self) -> Option<&Arc<Claim>> {
        self.budgets.as_ref().map(BatchBudgets::claim)
    }

    pub(super) fn answer(&mut self, funded: Option<Funded>, denials: &mut Denials) {
        if let Some(budgets) = &mut self.budgets {
            budgets.answer(funded, denials);
        }
    }

    /// Finds what comes back of all limits by these fates. Whether it is worth another call of the store.
    pub(super) fn come_back(&mut self, fates: &Fates) -> bool {
        self.all().fold(false, |is_worth_it, limit| limit.comes_back(fates) | is_worth_it)
    }

    /// Gives an intent what it needs of all limits, or nothing.
    pub(super) fn give(&mut self, record: usize) -> bool {
        let lacks = self.all().any(|limit| limit.lacks(record));
        if !lacks {
            self.all().for_each(|limit| limit.give(record));
        }
        !lacks
    }

    /// The batch is decided; what is left to be settled. `place`: the partition and offset of a record.
    pub(super) fn settle(&mut self, fates: &Fates, place: &dyn Fn(usize) -> (i32, i64)) -> Settlement {
        self.settle_kept(fates);
        let kept = std::mem::take(&mut self.kept);
        let (mut left, ending) = (Settlement::default(), Ending { fates, kept: &kept, place });
        self.all().for_each(|limit| limit.settle(&ending, &mut left));
        left
    }

    /// Gives kept tokens back: those of intents for which this round has spent others, and those of intents that no earlier round has
    /// recorded. If an earlier reader had recorded one, that reader has paid.
    fn settle_kept(&mut self, fates: &Fates) {
        let Self { budgets, kept, .. } = self;
        if !kept.is_empty() {
            let since = kept.since();
            kept.give_back(|record| goes_back(budgets.as_ref(), fates, (record, since)));
        }
    }

    /// Whether that gives something back.
    pub(super) fn frees_kept(&self, fates: &Fates) -> bool {
        let Self { budgets, kept, .. } = self;
        kept.has_any(|record| goes_back(budgets.as_ref(), fates, (record, kept.since())))
    }

    /// The batch is given up before the store is asked: what it keeps until it is judged again. The rest goes back.
    pub(super) fn keep(&mut self) -> KeptLimits {
        KeptLimits { permits: self.permits(), tokens: std::mem::take(&mut self.kept) }
    }

    /// The batch is not decided: gives back all tokens but those of what is recorded, or may be. Whoever judges it again claims the same
    /// again.
    pub(super) fn give_up(&mut self, fates: &Fates) -> KeptTokens {
        self.settle_kept(fates);
        let mut kept = std::mem::take(&mut self.kept);
        kept.add(self.budgets.as_mut().and_then(|budgets| budgets.give_up(fates)));
        kept
    }

    pub(super) fn permits(&mut self) -> Vec<Taken> {
        self.capacity.as_mut().map(BatchCapacity::permits).unwrap_or_default()
    }

    /// What the limit says that denies for this reason, where that is more than the reason.
    pub(crate) fn cause(&self, reason: GateReason) -> Option<Cause<'_>> {
        self.budgets.as_ref()?.cause(reason)
    }

    pub(crate) fn names(&self) -> TakenNames<'_> {
        self.budgets.as_ref().map(BatchBudgets::names).unwrap_or_default()
    }

    pub(super) fn count(&self, tally: &mut Tally) {
        if let Some(budgets) = &self.budgets {
            budgets.count(tally);
        }
    }
}

/// Whether the tokens go back that rounds from `since` on have kept of a record.
fn goes_back(budgets: Option<&BatchBudgets>, fates: &Fates, (record, since): (usize, Time)) -> bool {
    budgets.is_some_and(|budgets| budgets.is_spent(record, fates)) || fates.was_unrecorded(record, since)
}
