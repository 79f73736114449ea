//! The budgets of one batch: what its intents need, and what became of that.

mod moved;

use std::{collections::HashMap, ops::Range, sync::Arc, time::Duration};

use foldhash::fast::RandomState;

use super::{
    GateDenial,
    fate::{Fate, Fates},
    ground::Patience,
    intents::Intents,
    kept::{KeptRound, KeptSet, KeptTokens},
    limits::BatchLimits,
    settlement::{Stake, Stakes},
};
use crate::{
    basis::time::Time,
    batch::{
        record::{RecordView, Records},
        tally::Tally,
    },
    decision::verdict::DenyingBudget,
    intent::class::ClassNames,
    limit::budget::{
        Budget, BudgetId, WhenUnavailable,
        lease::{Answers, BudgetUse, Claim, Funded, LATE_MS, LeaseNumber, Lender, Outcome, Spent, Want},
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

pub(crate) struct BatchBudgets {
    policy: Arc<Policy>,
    claim: Arc<Claim>,
    /// The rule of each budget of the claim: its place in the policy.
    rules: Vec<usize>,
    /// The names of the budgets of each set of the claim.
    names: Vec<Vec<Arc<str>>>,
    /// Of each record.
    wanted: Vec<Wanted>,
    answers: Option<Answers>,
    /// Who has granted the tokens; `None`: nobody, or they are settled.
    lender: Option<Arc<dyn Lender>>,
    /// The tokens of each budget of the claim that came back and were given to another intent of the batch.
    moved: Vec<u64>,
    now: Time,
    /// As [`Patience::replays_pay`] says.
    replays_pay: bool,
}

/// Adds up what intents need.
struct Needs<'p> {
    policy: &'p Policy,
    now: Time,
    patience: Patience,
    claim: Claim,
    rules: Vec<usize>,
    names: Vec<Vec<Arc<str>>>,
    places: HashMap<BudgetId, u32, RandomState>,
}

impl Needs<'_> {
    /// Adds the set of budgets that intents of a class take from; `None`: it takes from none.
    fn set(&mut self, class: &ClassNames<'_>) -> Option<u32> {
        let ids = self.policy.budgets.iter().enumerate();
        let ids: Vec<_> = ids.filter_map(|(rule, budget)| Some((rule, budget.id_for(class)?))).collect();
        if ids.is_empty() {
            return None;
        }
        self.names.push(ids.iter().map(|(_, id)| Arc::clone(&id.name)).collect());
        let places = ids.into_iter().map(|(rule, id)| self.place(rule, id)).collect();
        self.claim.sets.push(places);
        u32::try_from(self.claim.sets.len() - 1).ok()
    }

    fn place(&mut self, rule: usize, id: BudgetId) -> u32 {
        if let Some(place) = self.places.get(&id) {
            return *place;
        }
        let (budget, Patience { unavailable_after, may_defer, .. }) = (&self.policy.budgets[rule], self.patience);
        let unavailable_after = match (budget.on_unavailable, self.policy.mode) {
            // Nothing is kept back in shadow mode.
            (_, Mode::Shadow) => Some(Duration::ZERO),
            (WhenUnavailable::Wait, Mode::Enforce) if !may_defer => None,
            (WhenUnavailable::Wait | WhenUnavailable::Suppress, Mode::Enforce) => unavailable_after,
        };
        let place = u32::try_from(self.claim.budgets.len()).expect("a batch has fewer budgets than 2^32");
        let used = budget.used_by(id.clone(), &self.policy.timezone, self.now);
        self.claim.budgets.push(BudgetUse { unavailable_after, ..used });
        self.rules.push(rule);
        self.places.insert(id, place);
        place
    }
}

impl BatchBudgets {
    /// What the intents need that nothing before denies; `None` where they take from no budget.
    pub(super) fn of<R: Records>(
        intents: &mut Intents<'_, R>,
        before: &BatchLimits,
        (now, judged_at): (Time, Duration),
        patience: Patience,
    ) -> Option<Self> {
        let policy = Arc::clone(intents.eval.policy());
        let claim = Claim { judged_at, budgets: Vec::new(), sets: Vec::new(), wants: Vec::new() };
        let (rules, names, places) = (Vec::new(), Vec::new(), HashMap::default());
        let mut needs = Needs { policy: &policy, now, patience, claim, rules, names, places };
        let mut sets = vec![None; intents.classes.number_all(intents.decoded)];
        let mut wanted = vec![Wanted { set: NONE, want: NONE, cost: 0 }; intents.decoded.len()];
        for (record, decoded) in intents.decoded.iter().enumerate() {
            let Ok(intent) = decoded else { continue };
            let class = intents.classes.number(record, intent) as usize;
            let Some(set) = *sets[class].get_or_insert_with(|| needs.set(&intent.class())) else { continue };
            (wanted[record].set, wanted[record].cost) = (set, intent.cost);
            if intents.denial(record).is_some() || before.denial(record, now).is_some() {
                continue;
            }
            wanted[record].want = u32::try_from(needs.claim.wants.len()).unwrap_or(NONE);
            needs.claim.wants.push(Want { set, cost: intent.cost });
        }
        let Needs { claim, rules, names, .. } = needs;
        let (moved, claim, answers) = (vec![0; claim.budgets.len()], Arc::new(claim), None);
        let replays_pay = patience.replays_pay;
        if claim.sets.is_empty() {
            return None;
        }
        let policy = Arc::clone(&policy);
        Some(Self { policy, claim, rules, names, wanted, answers, lender: None, moved, now, replays_pay })
    }

    pub(super) const fn claim(&self) -> &Arc<Claim> {
        &self.claim
    }

    pub(super) fn answer(&mut self, funded: Funded) {
        let (answers, lender) = funded.open();
        (self.answers, self.lender) = (Some(answers), lender);
    }

    /// What became of a record's want. No budget can be asked where nobody has asked.
    fn outcome(&self, record: usize) -> Option<Outcome> {
        let Wanted { set, want, .. } = self.wanted[record];
        if want == NONE {
            return None;
        }
        match &self.answers {
            Some(answers) => answers.outcomes.get(want as usize).copied(),
            None => self.places(set).first().map(|place| Outcome::Unavailable(*place)),
        }
    }

    /// Why an intent is denied that its budgets have been asked for, if it is.
    pub(super) fn denial(&self, record: usize) -> Option<GateDenial> {
        match self.outcome(record)? {
            Outcome::Granted => None,
            Outcome::Denied(place) => Some((GateReason::Budget(place), self.free_at(place))),
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

    /// From when on a budget that denies may have tokens again.
    fn free_at(&self, place: u32) -> Option<Time> {
        let free_at = self.spent(place)?.free_at?;
        let wait = free_at.saturating_sub(self.claim.judged_at);
        Some(self.now.plus(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX)))
    }

    pub(crate) fn denying(&self, place: u32) -> DenyingBudget<'_> {
        let Budget { name, limit, .. } = self.rule(place);
        DenyingBudget { name, limit: *limit, used: self.spent(place).map_or(0, |spent| spent.used) }
    }

    /// The set of the budgets that a record takes from; `None` where from none.
    pub(super) fn set_of(&self, record: usize) -> Option<u32> {
        Some(self.wanted[record].set).filter(|set| *set != NONE)
    }

    pub(crate) fn names(&self, set: u32) -> &[Arc<str>] {
        self.names.get(set as usize).map_or(&[], Vec::as_slice)
    }

    /// The budgets of a set, by their places in the claim.
    fn places(&self, set: u32) -> &[u32] {
        &self.claim.sets[set as usize]
    }

    /// How many tokens of each budget of the claim are not spent by these fates, so far.
    pub(super) fn back(&self, fates: &Fates) -> Vec<u64> {
        self.tokens(fates, |fate, uncounted| !fate.pays(self.now, uncounted))
    }

    /// Gives back what is not spent by these fates, how many tokens of each budget of the claim that is; with what is spent, or owed,
    /// once the records are committed. `kept`: the tokens that are spent of rounds before.
    pub(super) fn settle<R: Records>(
        &mut self,
        fates: &Fates,
        records: &R,
        kept: &KeptTokens,
    ) -> (Vec<u64>, Option<Stakes>) {
        let (now, mut has_stakes) = (self.now, false);
        let back = self.tokens(fates, |fate, uncounted| {
            let pays = fate.pays(now, uncounted);
            has_stakes |= pays && !fate.is_recorded(now);
            !pays
        });
        let Some(lender) = self.lender.take() else { return (back, None) };
        self.give_back(&back, &*lender);
        let mut of_records = self.owed(fates, records, kept);
        if has_stakes {
            of_records.extend(self.spent_later(fates, records));
        }
        let stakes =
            |of_records| Stakes { lender, claim: Arc::clone(&self.claim), leases: self.leases(), now, of_records };
        (back, Some(of_records).filter(|stakes| !stakes.is_empty()).map(stakes))
    }

    /// The batch is not decided: gives back all but what is recorded, or may be. Gives that.
    pub(super) fn give_up(&mut self, fates: &Fates) -> Option<KeptRound> {
        let lender = self.lender.take()?;
        self.give_back(&self.tokens(fates, |fate, _| !fate.is_recorded(self.now)), &*lender);
        let spent = (0..self.wanted.len()).filter(|record| self.is_spent(*record, fates));
        let of = |record: usize| KeptSet { record, set: self.wanted[record].set, cost: self.wanted[record].cost };
        let sets: Vec<KeptSet> = spent.map(of).collect();
        let (now, claim, leases) = (self.now, Arc::clone(&self.claim), self.leases());
        (!sets.is_empty()).then_some(KeptRound { now, lender, claim, leases, sets })
    }

    /// Whether the tokens that a record was granted are spent whatever becomes of its batch: it is recorded, or may be.
    pub(super) fn is_spent(&self, record: usize, fates: &Fates) -> bool {
        self.outcome(record) == Some(Outcome::Granted) && fates.get(record).is_recorded(self.now)
    }

    /// The leases that its tokens are of, by the budget's place in the claim.
    fn leases(&self) -> Vec<Option<LeaseNumber>> {
        self.answers.as_ref().map(|answers| answers.leases.clone()).unwrap_or_default()
    }

    /// Gives back all that is not settled: of a batch that only asks.
    pub(super) fn put_back(&mut self) {
        if let Some(lender) = self.lender.take() {
            self.give_back(&self.taken(), &*lender);
        }
    }

    /// Gives tokens of each budget of the claim back to their leases.
    fn give_back(&self, tokens: &[u64], lender: &dyn Lender) {
        if let Some(answers) = &self.answers {
            self.claim.give_back(&answers.leases, tokens, lender);
        }
    }

    /// The tokens of each budget of the claim that the batch was granted.
    pub(super) fn taken(&self) -> Vec<u64> {
        let granted = self.answers.as_ref().map(|answers| answers.granted(&self.claim));
        let mut taken = granted.unwrap_or_else(|| vec![0; self.claim.budgets.len()]);
        // Two intents were granted what came back of one and the other has by now.
        taken.iter_mut().zip(&self.moved).for_each(|(taken, moved)| *taken -= moved);
        taken
    }

    /// The tokens of each budget of the claim that go back, without those that others have by now. What only a replay depends on is asked
    /// of each of its budgets: when an admission was that it has not counted.
    fn tokens(&self, fates: &Fates, mut is_back: impl FnMut(Fate, Range<Time>) -> bool) -> Vec<u64> {
        let mut tokens = vec![0_u64; self.claim.budgets.len()];
        // An intent takes the same of all budgets of its set.
        let mut of_sets = vec![0_u64; self.claim.sets.len()];
        for (record, Wanted { set, cost, .. }) in self.wanted.iter().enumerate() {
            if self.outcome(record) != Some(Outcome::Granted) {
                continue;
            }
            let (fate, cost) = (fates.get(record), u64::from(*cost));
            if fate.replayed_from().is_none() {
                of_sets[*set as usize] += if is_back(fate, NEVER) { cost } else { 0 };
                continue;
            }
            for place in self.places(*set).iter().filter(|place| is_back(fate, self.uncounted(**place))) {
                tokens[*place as usize] += cost;
            }
        }
        self.claim.add_sets(&of_sets, &mut tokens);
        for (tokens, moved) in tokens.iter_mut().zip(&self.moved) {
            *tokens = tokens.saturating_sub(*moved);
        }
        tokens
    }

    /// What replays owe that were admitted before this batch and took no tokens: a budget or a gate denies them now. Nothing where
    /// their admission has left the window. The tokens that are kept for one were granted before it was admitted, in the count of then: it owes
    /// others only to a count that began later.
    fn owed<R: Records>(&self, fates: &Fates, records: &R, kept: &KeptTokens) -> Vec<Stake> {
        let mut owed = Vec::new();
        for (record, Wanted { set, .. }) in self.wanted.iter().enumerate() {
            if *set == NONE || !self.replays_pay || self.outcome(record) == Some(Outcome::Granted) {
                continue;
            }
            let Some(at) = fates.get(record).replayed_from().filter(|at| *at < self.now) else { continue };
            let places = self.places(*set).iter().filter(|place| self.start(**place) <= at);
            owed.extend(places.map(|place| {
                let is_counted = kept.has_of(record, &self.claim.budgets[*place as usize]);
                let since = if is_counted { at.plus(LATE_MS) } else { at };
                self.stake(record, records, *place, Some(since))
            }));
        }
        owed
    }

    /// What is spent of these fates, and claimed again where the batch is not committed: nothing is recorded for it.
    fn spent_later<R: Records>(&self, fates: &Fates, records: &R) -> Vec<Stake> {
        let mut stakes = Vec::new();
        for (record, Wanted { set, .. }) in self.wanted.iter().enumerate() {
            let fate = fates.get(record);
            if self.outcome(record) != Some(Outcome::Granted) || fate.is_recorded(self.now) {
                continue;
            }
            let places = self.places(*set).iter().filter(|place| fate.pays(self.now, self.uncounted(**place)));
            stakes.extend(places.map(|place| self.stake(record, records, *place, None)));
        }
        stakes
    }

    fn stake<R: Records>(&self, record: usize, records: &R, place: u32, owed_since: Option<Time>) -> Stake {
        let RecordView { partition, offset, .. } = records.get(record);
        Stake { partition, offset, place, tokens: self.wanted[record].cost, owed_since }
    }

    /// From when on approvals count in a budget of the claim.
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

    /// Counts what was taken and denied, and that these tokens go back.
    pub(super) fn count(&self, back: &[u64], tally: &mut Tally) {
        let (taken, mut denied) = (self.taken(), vec![0_u64; self.claim.budgets.len()]);
        let outcomes = self.answers.iter().flat_map(|answers| &answers.outcomes);
        for (want, outcome) in self.claim.wants.iter().zip(outcomes) {
            if let Outcome::Denied(place) = outcome {
                denied[*place as usize] += u64::from(want.cost);
            }
        }
        for (place, budget) in self.claim.budgets.iter().enumerate() {
            tally.budget_tokens(&budget.id.name, [taken[place] - back[place], back[place], denied[place]]);
        }
    }
}

impl Drop for BatchBudgets {
    /// The store was not asked: something has failed between the answer to the claim and that.
    fn drop(&mut self) {
        self.put_back();
    }
}
