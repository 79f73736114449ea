//! The budgets of one batch: what its intents need, and what became of that.

mod moved;

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::Arc,
    time::Duration,
};

use foldhash::fast::RandomState;

use super::{
    GateDenial,
    fate::{Fate, Fates},
    ground::Patience,
    intents::Intents,
    limits::BatchLimits,
};
use crate::{
    budget::{Budget, BudgetId, WhenUnavailable},
    class::ClassNames,
    lease::{Answers, BudgetUse, Claim, LeaseNumber, Outcome, Owed, Spent, Want},
    policy::{GateReason, Mode, Policy},
    record::Records,
    tally::Tally,
    time::Time,
    verdict::DenyingBudget,
};

/// A record takes from no budget.
const NONE: u32 = u32::MAX;
/// When no time is.
const NEVER: Range<Time> = Time::MIN..Time::MIN;

/// What a record takes.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    /// The set of its budgets; [`NONE`] where it has none.
    set: u32,
    /// The place of its want; [`NONE`] where something denies it before.
    want: u32,
    /// What it takes from each of them.
    cost: u8,
}

/// Tokens of a lease that were not spent.
pub type Unspent = Vec<(BudgetId, LeaseNumber, u64)>;

/// The budgets of one batch.
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
        Some(Self { policy, claim, rules, names, wanted, answers, moved, now, replays_pay })
    }

    pub(super) const fn claim(&self) -> &Arc<Claim> {
        &self.claim
    }

    pub(super) fn answer(&mut self, answers: Answers) {
        self.answers = Some(answers);
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

    /// A budget that denies, as it is reported.
    pub(crate) fn denying(&self, place: u32) -> DenyingBudget<'_> {
        let Budget { name, limit, .. } = self.rule(place);
        DenyingBudget { name, limit: *limit, used: self.spent(place).map_or(0, |spent| spent.used) }
    }

    /// The set of the budgets that a record takes from; `None` where from none.
    pub(super) fn set_of(&self, record: usize) -> Option<u32> {
        Some(self.wanted[record].set).filter(|set| *set != NONE)
    }

    /// The names of the budgets of a set.
    pub(crate) fn names(&self, set: u32) -> &[Arc<str>] {
        self.names.get(set as usize).map_or(&[], Vec::as_slice)
    }

    /// The budgets of a set, by their places in the claim.
    fn places(&self, set: u32) -> &[u32] {
        &self.claim.sets[set as usize]
    }

    /// How many tokens of each budget of the claim are not spent by these fates.
    pub(super) fn back(&self, fates: &Fates) -> Vec<u64> {
        self.tokens(fates, |fate, uncounted| !fate.pays(self.now, uncounted))
    }

    /// The same, where the batch is not decided, and is judged again: what nothing was recorded for claims again then.
    pub(super) fn back_so_far(&self, fates: &Fates) -> Vec<u64> {
        self.tokens(fates, |fate, _| !fate.is_recorded(self.now))
    }

    /// All of them, of a batch that only asks: it has none afterwards.
    pub(super) fn give_up(&mut self, fates: &Fates) -> Unspent {
        let unspent = self.unspent(&self.tokens(fates, |_, _| true));
        if let Some(answers) = &mut self.answers {
            answers.leases.fill(None);
        }
        unspent
    }

    /// The tokens of each budget of the claim that go back, without those that others have by now. What only a replay depends on is asked
    /// of each of its budgets: when an admission was that it has not counted.
    fn tokens(&self, fates: &Fates, is_back: impl Fn(Fate, Range<Time>) -> bool) -> Vec<u64> {
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
        self.add_sets(&of_sets, &mut tokens);
        for (tokens, moved) in tokens.iter_mut().zip(&self.moved) {
            *tokens = tokens.saturating_sub(*moved);
        }
        tokens
    }

    /// Adds the tokens of sets to those of their budgets.
    fn add_sets(&self, of_sets: &[u64], tokens: &mut [u64]) {
        for (places, of_set) in self.claim.sets.iter().zip(of_sets) {
            for place in places {
                tokens[*place as usize] += of_set;
            }
        }
    }

    /// What replays owe that were admitted before this batch and took no tokens: a budget or a gate denies them now. Nothing where
    /// their admission has left the window.
    pub(super) fn owed(&self, fates: &Fates) -> Vec<Owed> {
        let mut owed: BTreeMap<(u32, Time), u64> = BTreeMap::new();
        for (record, Wanted { set, cost, .. }) in self.wanted.iter().enumerate() {
            if *set == NONE || !self.replays_pay || self.outcome(record) == Some(Outcome::Granted) {
                continue;
            }
            let Some(at) = fates.get(record).replayed_from().filter(|at| *at < self.now) else { continue };
            for place in self.places(*set).iter().filter(|place| self.start(**place) <= at) {
                *owed.entry((*place, at)).or_default() += u64::from(*cost);
            }
        }
        let owed = owed.into_iter().map(|((place, at), tokens)| Owed {
            used: self.claim.budgets[place as usize].clone(),
            tokens,
            admitted_ago_ms: self.now.millis().saturating_sub(at.millis()),
            judged_at: self.claim.judged_at,
        });
        owed.collect()
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

    /// Tokens of each budget of the claim, with the leases that they go back to.
    pub(super) fn unspent(&self, tokens: &[u64]) -> Unspent {
        let leases = self.answers.iter().flat_map(|answers| &answers.leases);
        let budgets = self.claim.budgets.iter().zip(leases).zip(tokens);
        budgets
            .filter(|(_, tokens)| **tokens > 0)
            .filter_map(|((budget, lease), tokens)| Some((budget.id.clone(), (*lease)?, *tokens)))
            .collect()
    }

    /// Counts what was taken and denied, and that these tokens go back.
    pub(super) fn count(&self, back: &[u64], tally: &mut Tally) {
        let (mut taken, mut denied) = (vec![0_u64; self.claim.budgets.len()], vec![0_u64; self.claim.budgets.len()]);
        let mut of_sets = vec![0_u64; self.claim.sets.len()];
        let outcomes = self.answers.iter().flat_map(|answers| &answers.outcomes);
        for (want, outcome) in self.claim.wants.iter().zip(outcomes) {
            match outcome {
                Outcome::Granted => of_sets[want.set as usize] += u64::from(want.cost),
                Outcome::Denied(place) => denied[*place as usize] += u64::from(want.cost),
                Outcome::Unavailable(_) => {}
            }
        }
        self.add_sets(&of_sets, &mut taken);
        for (place, budget) in self.claim.budgets.iter().enumerate() {
            let spent = taken[place] - self.moved[place] - back[place];
            tally.budget_tokens(&budget.id.name, [spent, back[place], denied[place]]);
        }
    }
}
