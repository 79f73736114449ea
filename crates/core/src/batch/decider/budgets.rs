//! The budgets of one batch: what its intents need, and what became of that.

mod needs;

use std::{ops::Range, slice, sync::Arc};

use needs::Needs;

use super::{
    GateDenial, Ground, Settlement,
    fate::{Fate, Fates},
    intents::{Denials, Intents},
    kept::{KeptRound, KeptSet},
    limits::{Ending, Limit, is_worth_it},
    settlement::{Stake, Stakes},
};
use crate::{
    basis::time::Time,
    batch::{record::Records, tally::Tally},
    decision::verdict::{Cause, DenyingBudget},
    limit::budget::{
        Budget, WhenUnavailable,
        lease::{Answers, Claim, Funded, LATE_MS, LeaseNumber, Lender, Outcome, Spent, Want},
    },
    policy::{GateReason, Mode, Policy},
};

/// A record takes from no budget.
const NONE: u32 = u32::MAX;
/// When no time is.
const NEVER: Range<Time> = Time::MIN..Time::MIN;

#[derive(Debug, Clone, Copy)]
struct Wanted {
    /// The set of its budgets; [`NONE`] where it has none.
    set: u32,
    /// The place of its want; [`NONE`] where something denies it before.
    want: u32,
    /// What it takes from each of them.
    cost: u8,
}

pub(super) struct BatchBudgets {
    policy: Arc<Policy>,
    claim: Arc<Claim>,
    /// The rule of each budget of the claim: its place in the policy.
    rules: Vec<usize>,
    /// The names of the budgets of each set of the claim.
    names: Vec<Vec<Arc<str>>>,
    /// Of each record.
    wanted: Vec<Wanted>,
    /// The records that take from budgets and were granted nothing, but perhaps what came back.
    refused: Vec<usize>,
    answers: Option<Answers>,
    /// Who has granted the tokens; `None`: nobody, or they are settled.
    lender: Option<Lender>,
    /// The tokens of each budget of the claim that the batch was granted.
    taken: Vec<u64>,
    /// Those that had come back at the last look.
    back: Vec<u64>,
    /// Those that came back, and that another intent of the batch got.
    moved: Vec<u64>,
    now: Time,
    /// As [`Patience::replays_pay`](super::Patience) says.
    replays_pay: bool,
}

/// The names of the budgets that each record takes from.
#[derive(Clone, Copy, Default)]
pub(crate) struct TakenNames<'l> {
    wanted: &'l [Wanted],
    of_sets: &'l [Vec<Arc<str>>],
}

impl<'l> TakenNames<'l> {
    pub(super) const fn is_empty(self) -> bool {
        self.of_sets.is_empty()
    }

    pub(crate) fn of(self, record: usize) -> &'l [Arc<str>] {
        let set = self.wanted.get(record).and_then(|wanted| self.of_sets.get(wanted.set as usize));
        set.map_or(&[], Vec::as_slice)
    }
}

impl Limit for BatchBudgets {
    fn claim(&self) -> Option<&Arc<Claim>> {
        Some(&self.claim)
    }

    fn answer(&mut self, funded: Option<Funded>, denials: &mut Denials) {
        if let Some(funded) = funded {
            let (answers, lender) = funded.open();
            let is_all = answers.outcomes.iter().all(|outcome| *outcome == Outcome::Granted);
            (self.taken, self.answers, self.lender) = (answers.granted(&self.claim), Some(answers), lender);
            if is_all {
                return;
            }
        }
        let refused = |(record, wanted): (usize, &Wanted)| {
            let outcome = self.outcome(*wanted).filter(|outcome| *outcome != Outcome::Granted)?;
            if let Some(denial) = self.denial(outcome, wanted.cost) {
                denials.deny(record, denial);
            }
            Some(record)
        };
        let refused: Vec<usize> = self.wanted.iter().enumerate().filter_map(refused).collect();
        self.refused.extend(refused);
    }

    fn comes_back(&mut self, fates: &Fates) -> bool {
        self.back = self.tokens(fates, |_, fate, place| !self.pays(fate, place));
        self.back.iter().zip(&self.taken).any(|(back, taken)| is_worth_it(*back, *taken))
    }

    fn lacks(&self, record: usize) -> bool {
        let Wanted { set, cost, .. } = self.wanted[record];
        let lacks = |place: &u32| self.back[*place as usize] < u64::from(cost);
        set != NONE && (self.answers.is_none() || self.places(set).iter().any(lacks))
    }

    fn give(&mut self, record: usize) {
        let Wanted { set, want, cost } = self.wanted[record];
        let Some(answers) = self.answers.as_mut().filter(|_| set != NONE) else { return };
        // Its own may be among these.
        let has_own = answers.outcomes.get(want as usize) == Some(&Outcome::Granted);
        for place in &self.claim.sets[set as usize] {
            self.back[*place as usize] -= u64::from(cost);
            self.moved[*place as usize] += if has_own { 0 } else { u64::from(cost) };
        }
        if want == NONE {
            // Another limit had denied it.
            self.wanted[record].want = u32::try_from(self.claim.wants.len()).unwrap_or(NONE);
            Arc::make_mut(&mut self.claim).wants.push(Want { set, cost });
            answers.outcomes.push(Outcome::Granted);
        } else {
            answers.outcomes[want as usize] = Outcome::Granted;
        }
    }

    /// Two kinds are settled after the commit: tokens that are spent although nothing is recorded, which are claimed again where the commit
    /// fails, and what replays owe.
    fn settle(&mut self, ending: &Ending<'_>, left: &mut Settlement) {
        let mut of_records = Vec::new();
        self.back = self.tokens(ending.fates, |record, fate, place| {
            let pays = self.pays(fate, place);
            if pays && !fate.is_recorded(self.now) {
                let places = place.as_ref().map_or_else(|| self.places(self.wanted[record].set), slice::from_ref);
                of_records.extend(places.iter().map(|place| self.stake((record, *place), None, ending)));
            }
            !pays
        });
        let Some(lender) = self.lender.take() else { return };
        self.give_back(&self.back, &lender);
        of_records.extend(self.owed(ending));
        if !of_records.is_empty() {
            let (claim, leases, now) = (Arc::clone(&self.claim), self.leases(), self.now);
            left.stakes = Some(Stakes { lender, claim, leases, now, of_records });
        }
    }

    fn give_up(&mut self, fates: &Fates) -> Option<KeptRound> {
        let lender = self.lender.take()?;
        self.give_back(&self.tokens(fates, |_, fate, _| !fate.is_recorded(self.now)), &lender);
        let spent = (0..self.wanted.len()).filter(|record| self.is_spent(*record, fates));
        let of = |record: usize| KeptSet { record, set: self.wanted[record].set, cost: self.wanted[record].cost };
        let sets: Vec<KeptSet> = spent.map(of).collect();
        let (now, claim, leases) = (self.now, Arc::clone(&self.claim), self.leases());
        (!sets.is_empty()).then_some(KeptRound { now, lender, claim, leases, sets })
    }

    /// It is recorded, or may be.
    fn is_spent(&self, record: usize, fates: &Fates) -> bool {
        self.is_granted(record) && fates.get(record).is_recorded(self.now)
    }

    fn cause(&self, reason: GateReason) -> Option<Cause<'_>> {
        let GateReason::Budget(place) = reason else { return None };
        let Budget { name, limit, .. } = self.rule(place);
        let used = self.spent(place).map_or(0, |spent| spent.used);
        Some(Cause::Budget(DenyingBudget { name, limit: *limit, used }))
    }

    fn names(&self) -> TakenNames<'_> {
        TakenNames { wanted: &self.wanted, of_sets: &self.names }
    }

    fn count(&self, tally: &mut Tally) {
        let mut denied = vec![0_u64; self.claim.budgets.len()];
        for wanted in self.refused.iter().map(|record| self.wanted[*record]) {
            if let Some(Outcome::Denied(place)) = self.outcome(wanted) {
                denied[place as usize] += u64::from(wanted.cost);
            }
        }
        for (place, budget) in self.claim.budgets.iter().enumerate() {
            let (taken, back) = (self.taken[place], self.back[place]);
            tally.budget_tokens.push((Arc::clone(&budget.id.name), [taken - back, back, denied[place]]));
        }
    }
}

impl BatchBudgets {
    /// Finds what the intents need: nothing is taken before somebody is asked.
    pub(super) fn take<R: Records>(intents: &mut Intents<'_, R>, ground: &Ground<'_>) -> Option<Self> {
        let policy = Arc::clone(intents.eval.policy());
        let (patience, now) = (ground.budgets?, ground.times.first());
        if policy.budgets.is_empty() {
            return None;
        }
        let mut needs = Needs::new(&policy, (now, ground.passed), patience);
        let mut sets = vec![None; intents.classes.number_all(intents.decoded)];
        let mut wanted = vec![Wanted { set: NONE, want: NONE, cost: 0 }; intents.decoded.len()];
        let mut refused = Vec::new();
        for (record, decoded) in intents.decoded.iter().enumerate() {
            let Ok(intent) = decoded else { continue };
            let class = intents.classes.number(record, intent) as usize;
            let Some(set) = *sets[class].get_or_insert_with(|| needs.set(&intent.class())) else { continue };
            let (cost, is_denied) = (intent.cost, intents.denial(record).is_some());
            let want = if is_denied { NONE } else { u32::try_from(needs.claim.wants.len()).unwrap_or(NONE) };
            wanted[record] = Wanted { set, want, cost };
            if is_denied {
                refused.push(record);
            } else {
                needs.claim.wants.push(Want { set, cost });
            }
        }
        let Needs { claim, rules, names, .. } = needs;
        if claim.sets.is_empty() {
            return None;
        }
        let [taken, back, moved] = [(); 3].map(|()| vec![0; claim.budgets.len()]);
        let (claim, replays_pay) = (Arc::new(claim), patience.replays_pay);
        Some(Self {
            policy,
            claim,
            rules,
            names,
            wanted,
            refused,
            answers: None,
            lender: None,
            taken,
            back,
            moved,
            now,
            replays_pay,
        })
    }

    /// What became of a want. No budget can be asked where nobody has asked.
    #[inline]
    fn outcome(&self, Wanted { set, want, .. }: Wanted) -> Option<Outcome> {
        if want == NONE {
            return None;
        }
        match &self.answers {
            Some(answers) => answers.outcomes.get(want as usize).copied(),
            None => self.places(set).first().map(|place| Outcome::Unavailable(*place)),
        }
    }

    fn is_granted(&self, record: usize) -> bool {
        self.outcome(self.wanted[record]) == Some(Outcome::Granted)
    }

    /// Why an intent of this cost is denied of whose want this became, if it is.
    fn denial(&self, outcome: Outcome, cost: u8) -> Option<GateDenial> {
        match outcome {
            Outcome::Granted => None,
            Outcome::Denied(place) => Some((GateReason::Budget(place), self.free_at(place, cost))),
            Outcome::Unavailable(place) => match (self.rule(place).on_unavailable, self.policy.mode) {
                (_, Mode::Shadow) => None,
                (WhenUnavailable::Wait, Mode::Enforce) => Some((GateReason::BudgetWaits, None)),
                (WhenUnavailable::Suppress, Mode::Enforce) => Some((GateReason::BudgetUnavailable, None)),
            },
        }
    }

    fn rule(&self, place: u32) -> &Budget {
        &self.policy.budgets[self.rules[place as usize]]
    }

    fn spent(&self, place: u32) -> Option<Spent> {
        self.answers.as_ref()?.spent.get(place as usize).copied().flatten()
    }

    /// When a budget that denies may have tokens again for an intent of this cost: never so many as are more than its limit.
    fn free_at(&self, place: u32, cost: u8) -> Option<Time> {
        let free_at = self.spent(place)?.free_at.filter(|_| u64::from(cost) <= self.rule(place).limit)?;
        let wait = free_at.saturating_sub(self.claim.judged_at);
        Some(self.now.plus(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX)))
    }

    /// The budgets of a set, by their places in the claim.
    fn places(&self, set: u32) -> &[u32] {
        &self.claim.sets[set as usize]
    }

    /// Whether the tokens that an intent was granted are spent by this fate: those of a budget, or, where that is the same for all of them,
    /// those of all.
    #[inline]
    fn pays(&self, fate: Fate, place: Option<u32>) -> bool {
        fate.pays(self.now, place.map_or(NEVER, |place| self.uncounted(place)))
    }

    /// The leases that its tokens are of, by the budget's place in the claim.
    fn leases(&self) -> Vec<Option<LeaseNumber>> {
        self.answers.as_ref().map(|answers| answers.leases.clone()).unwrap_or_default()
    }

    /// Gives tokens of each budget of the claim back to their leases.
    fn give_back(&self, tokens: &[u64], lender: &Lender) {
        if let Some(answers) = &self.answers {
            self.claim.give_back(&answers.leases, tokens, lender);
        }
    }

    /// The tokens that go back, for each budget of the claim, less those that another intent got. Of a replay, `is_back` is asked for each
    /// of its budgets, because one may have counted the admission and another not. It is not asked of what the store has just recorded: that
    /// is spent.
    fn tokens(&self, fates: &Fates, mut is_back: impl FnMut(usize, Fate, Option<u32>) -> bool) -> Vec<u64> {
        let mut tokens = vec![0_u64; self.claim.budgets.len()];
        // An intent takes the same of all budgets of its set.
        let mut of_sets = vec![0_u64; self.claim.sets.len()];
        let outcomes = self.answers.as_ref().map(|answers| answers.outcomes.as_slice()).unwrap_or_default();
        for (record, wanted) in self.wanted.iter().enumerate() {
            if outcomes.get(wanted.want as usize) != Some(&Outcome::Granted) || fates.is_allowed(record) {
                continue;
            }
            let (fate, cost) = (fates.get(record), u64::from(wanted.cost));
            if fate.replayed_from().is_none() {
                of_sets[wanted.set as usize] += if is_back(record, fate, None) { cost } else { 0 };
                continue;
            }
            for place in self.places(wanted.set) {
                tokens[*place as usize] += if is_back(record, fate, Some(*place)) { cost } else { 0 };
            }
        }
        self.claim.add_sets(&of_sets, &mut tokens);
        for (tokens, moved) in tokens.iter_mut().zip(&self.moved) {
            *tokens = tokens.saturating_sub(*moved);
        }
        tokens
    }

    /// What replays owe. They were admitted before this batch, and took no tokens in it, because a budget or a gate denies them now. A replay
    /// whose admission has left the window owes nothing. If tokens are kept for it, they were granted before the admission: then it owes
    /// others only to a count that began after that.
    fn owed(&self, ending: &Ending<'_>) -> Vec<Stake> {
        let mut owed = Vec::new();
        for record in self.refused.iter().copied().filter(|record| self.replays_pay && !self.is_granted(*record)) {
            let replayed_from = ending.fates.get(record).replayed_from();
            let Some(at) = replayed_from.filter(|at| *at < self.now) else { continue };
            let places = self.places(self.wanted[record].set).iter().filter(|place| self.start(**place) <= at);
            owed.extend(places.map(|place| {
                let is_counted = ending.kept.has_of(record, &self.claim.budgets[*place as usize]);
                let since = if is_counted { at.plus(LATE_MS) } else { at };
                self.stake((record, *place), Some(since), ending)
            }));
        }
        owed
    }

    fn stake(&self, (record, place): (usize, u32), owed_since: Option<Time>, ending: &Ending<'_>) -> Stake {
        let (partition, offset) = (ending.place)(record);
        Stake { partition, offset, place, tokens: self.wanted[record].cost, owed_since }
    }

    /// When the window of a budget of the claim begins.
    fn start(&self, place: u32) -> Time {
        self.claim.budgets[place as usize].span.start(self.now)
    }

    /// When an admission was before the count of a budget of the claim began, and counts in its window, by the clock of this batch; no
    /// time where it is not known when that was, or does not matter.
    fn uncounted(&self, place: u32) -> Range<Time> {
        if !self.replays_pay {
            return NEVER;
        }
        let counted_for_ms = self.answers.as_ref().and_then(|answers| *answers.counted_for_ms.get(place as usize)?);
        self.start(place)..counted_for_ms.map_or(Time::MIN, |ms| self.now.plus(ms.saturating_neg()))
    }
}

impl Drop for BatchBudgets {
    /// The store was not asked: something has failed between the answer to the claim and that.
    fn drop(&mut self) {
        if let Some(lender) = self.lender.take() {
            self.give_back(&self.taken, &lender);
        }
    }
}
