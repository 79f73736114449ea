//! The limits of a batch, which all instances share. Each is asked of intents that nothing before it denies: the gate, pressure, routes,
//! budgets.

use std::sync::Arc;

use super::{
    Decider, Ground, KeptTokens, Settlement, Takes,
    budgets::{BatchBudgets, TakenNames},
    fate::Fates,
    intents::{Denials, Intents},
    kept::KeptRound,
    pressure::BatchPressure,
    units::BatchUnits,
};
use crate::{
    basis::time::Time,
    batch::{record::Records, tally::Tally},
    decision::verdict::Cause,
    limit::{
        budget::lease::{Claim, Funded},
        share::{Pool, Taken},
    },
    policy::{GateReason, Mode},
};

/// What came back is worth another call of the store if it is one part in so many of what the limit gave, or more.
const WORTH: u64 = 100;

/// What a batch does with a limit that it takes of: once for all its records, or for one that is denied. What it took and did not use goes
/// back when it is dropped.
pub(super) trait Limit: Send + Sync + 'static {
    /// Finds what intents do not use of it by these fates. Whether that is [worth](is_worth_it) another call of the store.
    fn comes_back(&mut self, fates: &Fates) -> bool;

    /// Whether an intent needs more than has come back.
    fn lacks(&self, record: usize) -> bool;

    /// Gives an intent that does not [lack](Self::lacks) it what it needs, of what has come back.
    fn give(&mut self, record: usize);

    /// The batch is decided: what its intents do not use goes back. What is used once they are committed is left to be settled.
    fn settle(&mut self, ending: &Ending<'_>, left: &mut Settlement);

    /// What has to be asked for outside of the process.
    fn claim(&self) -> Option<&Arc<Claim>> {
        None
    }

    /// What became of [that](Self::claim); `None`: nobody could be asked. Denies what was not granted.
    fn answer(&mut self, _: Option<Funded>, _: &mut Denials) {}

    /// Whether what was brought along for these records is too little.
    fn is_short(&self) -> bool {
        false
    }

    /// The units of all records that have some, such as permits: a lane keeps those of its route until the batch is judged again.
    fn units(&mut self) -> Vec<Taken> {
        Vec::new()
    }

    /// The batch is not decided: gives back all but the tokens of what is recorded, or may be. Gives those.
    fn give_up(&mut self, _: &Fates) -> Option<KeptRound> {
        None
    }

    /// Whether the tokens that a record took are spent whatever becomes of its batch. Then its kept tokens go back.
    fn is_spent(&self, _record: usize, _: &Fates) -> bool {
        false
    }

    /// What is said of its own denials, where that is more than the reason.
    fn cause(&self, _: GateReason) -> Option<Cause<'_>> {
        None
    }

    /// What approved records say that they took from; none for most limits.
    fn names(&self) -> TakenNames<'_> {
        TakenNames::default()
    }

    /// Counts what was taken and denied, once it is settled.
    fn count(&self, _: &mut Tally) {}
}

/// What a batch that is decided is settled by.
pub(super) struct Ending<'s> {
    pub(super) fates: &'s Fates,
    /// What is kept of rounds before this one.
    pub(super) kept: &'s KeptTokens,
    /// The partition and offset of a record.
    pub(super) place: &'s dyn Fn(usize) -> (i32, i64),
}

#[derive(Default)]
pub(crate) struct BatchLimits {
    /// In the order in which they are asked; empty where nothing is limited.
    list: Vec<Box<dyn Limit>>,
    /// What is kept of rounds before this one.
    pub(super) kept: KeptTokens,
}

pub(super) const fn is_worth_it(back: u64, given: u64) -> bool {
    back > 0 && back.saturating_mul(WORTH) >= given
}

impl BatchLimits {
    /// Takes what intents need of all limits, unless [something else](Intents::denial) denies them already, and [denies](Denials::deny)
    /// those for which nothing is left. Finds what has to be asked for outside.
    pub(super) fn take<R: Records>(decider: &Decider, intents: &mut Intents<'_, R>, ground: &mut Ground<'_>) -> Self {
        let mut limits = Self::default();
        limits.add(BatchPressure::take(decider, intents, ground));
        limits.add(of_routes(decider, intents, ground));
        limits.add(BatchBudgets::take(intents, ground));
        limits
    }

    pub(super) fn add(&mut self, limit: Option<impl Limit>) {
        if let Some(limit) = limit {
            self.list.push(Box::new(limit));
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn is_short(&self) -> bool {
        self.list.iter().any(|limit| limit.is_short())
    }

    pub(super) fn claim(&self) -> Option<&Arc<Claim>> {
        self.list.iter().find_map(|limit| limit.claim())
    }

    pub(super) fn answer(&mut self, funded: Option<Funded>, denials: &mut Denials) {
        if let Some(limit) = self.list.iter_mut().find(|limit| limit.claim().is_some()) {
            limit.answer(funded, denials);
        }
    }

    /// Finds what comes back of all limits by these fates. Whether it is worth another call of the store.
    pub(super) fn come_back(&mut self, fates: &Fates) -> bool {
        let mut is_worth_it = false;
        for limit in &mut self.list {
            is_worth_it |= limit.comes_back(fates);
        }
        is_worth_it
    }

    /// Gives an intent what it needs of all limits, or nothing.
    pub(super) fn give(&mut self, record: usize) -> bool {
        let lacks = self.list.iter().any(|limit| limit.lacks(record));
        if !lacks {
            self.list.iter_mut().for_each(|limit| limit.give(record));
        }
        !lacks
    }

    /// The batch is decided; what is left to be settled. `place`: the partition and offset of a record.
    pub(super) fn settle(&mut self, fates: &Fates, place: &dyn Fn(usize) -> (i32, i64)) -> Settlement {
        self.settle_kept(fates);
        let (mut left, ending) = (Settlement::default(), Ending { fates, kept: &self.kept, place });
        self.list.iter_mut().for_each(|limit| limit.settle(&ending, &mut left));
        left
    }

    /// Gives kept tokens back: those of intents for which this round has spent others, and those of intents that no earlier round has
    /// recorded. If an earlier reader had recorded one, that reader has paid.
    fn settle_kept(&mut self, fates: &Fates) {
        let Self { list, kept } = self;
        if !kept.is_empty() {
            let since = kept.since();
            kept.give_back(|record| goes_back(list, fates, (record, since)));
        }
    }

    /// Whether that gives something back.
    pub(super) fn frees_kept(&self, fates: &Fates) -> bool {
        self.kept.has_any(|record| goes_back(&self.list, fates, (record, self.kept.since())))
    }

    /// The batch is not decided: gives back all tokens but those of what is recorded, or may be. Whoever judges it again claims the same
    /// again.
    pub(super) fn give_up(&mut self, fates: &Fates) -> KeptTokens {
        self.settle_kept(fates);
        let mut kept = std::mem::take(&mut self.kept);
        self.list.iter_mut().for_each(|limit| kept.add(limit.give_up(fates)));
        kept
    }

    pub(super) fn units(&mut self) -> Vec<Taken> {
        self.list.iter_mut().flat_map(|limit| limit.units()).collect()
    }

    /// What the limit says that denies for this reason, where that is more than the reason.
    pub(crate) fn cause(&self, reason: GateReason) -> Option<Cause<'_>> {
        self.list.iter().find_map(|limit| limit.cause(reason))
    }

    pub(crate) fn names(&self) -> TakenNames<'_> {
        self.list.iter().map(|limit| limit.names()).find(|names| !names.is_empty()).unwrap_or_default()
    }

    pub(super) fn count(&self, tally: &mut Tally) {
        self.list.iter().for_each(|limit| limit.count(tally));
    }
}

/// The permits of routes: an intent takes one of the first route that matches its class. Nothing waits for a route in shadow mode.
fn of_routes<R: Records>(
    decider: &Decider,
    intents: &mut Intents<'_, R>,
    ground: &mut Ground<'_>,
) -> Option<BatchUnits> {
    let policy = Arc::clone(intents.eval.policy());
    let is_limited = !policy.routes.is_empty() && policy.mode == Mode::Enforce;
    let routes = decider.held.routes.as_ref().filter(|_| is_limited)?;
    let brought = match &mut ground.takes {
        Takes::WithPermits(permits) => Some(permits),
        Takes::FromPools | Takes::Nothing => None,
    };
    let rules = routes.rules(&policy.routes, brought);
    let mut of_classes = vec![None; intents.classes.number_all(intents.decoded)];
    let units = BatchUnits::take(rules, intents, ground, |intents, record, intent| {
        let class = intents.classes.number(record, intent) as usize;
        *of_classes[class].get_or_insert_with(|| {
            let class = intent.class();
            let place = policy.route_of(&class)?;
            Some((place, if policy.routes[place].reserves(&class) { Pool::Reserved } else { Pool::General }))
        })
    });
    Some(units)
}

/// Whether the tokens go back that rounds from `since` on have kept of a record.
fn goes_back(list: &[Box<dyn Limit>], fates: &Fates, (record, since): (usize, Time)) -> bool {
    list.iter().any(|limit| limit.is_spent(record, fates)) || fates.was_unrecorded(record, since)
}
