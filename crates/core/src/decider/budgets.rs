//! The budgets of one batch: what its intents need, and what became of that.

mod moved;

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::Arc,
    time::Duration,
};

use foldhash::fast::RandomState;

use super::{Decoded, Fate, capacity::BatchCapacity, fate::Fates, gate::facts, pressure::BatchPressure};
use crate::{
    budget::{Budget, BudgetId, WhenUnavailable},
    class::ClassNames,
    lease::{Answers, BudgetUse, Claim, LeaseNumber, Outcome, Owed, Spent, Want},
    policy::{Gate, GateReason, Mode, PolicyEval},
    record::Records,
    tally::Tally,
    time::Time,
    verdict::DenyingBudget,
};

/// A record takes from no budget.
const NONE: u32 = u32::MAX;

/// What a record takes.
#[derive(Debug, Clone, Copy)]
struct Takes {
    /// The set of its budgets; [`NONE`] where it has none.
    set: u32,
    /// The place of its want; [`NONE`] where a gate denies it.
    want: u32,
    /// What it takes from each of them.
    cost: u8,
}

/// Tokens of a lease that were not spent.
pub type Unspent = Vec<(BudgetId, LeaseNumber, u64)>;

/// How long a budget may be unavailable until its intents go by `on_unavailable`; `None`: they wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Of intents that are suppressed then, or deferred.
    pub unavailable_after: Option<Duration>,
    /// Whether intents that wait can be deferred.
    pub may_defer: bool,
}

/// The budgets of one batch.
pub(crate) struct BatchBudgets {
    claim: Arc<Claim>,
    /// The rule of each budget of the claim: its place in the policy.
    rules: Vec<usize>,
    /// The names of the budgets of each set of the claim.
    names: Vec<Vec<Arc<str>>>,
    /// Of each record.
    takes: Vec<Takes>,
    answers: Option<Answers>,
    /// The tokens of each budget of the claim that came back and were given to another intent of the batch.
    moved: Vec<u64>,
    now: Time,
}

/// Adds up what intents need.
struct Needs<'b, 'p> {
    policy: &'p [Budget],
    claim: Claim,
    rules: Vec<usize>,
    names: Vec<Vec<Arc<str>>>,
    places: HashMap<BudgetId, u32, RandomState>,
    /// The set of each class; `None`: it takes from no budget.
    sets: HashMap<ClassNames<'b>, Option<u32>, RandomState>,
}

impl<'b> Needs<'b, '_> {
    /// The set of budgets that an intent of this class takes from.
    fn set(&mut self, eval: &PolicyEval, class: ClassNames<'b>, now: Time, patience: Patience) -> Option<u32> {
        if let Some(set) = self.sets.get(&class) {
            return *set;
        }
        let ids = self.policy.iter().enumerate().filter_map(|(rule, budget)| Some((rule, budget.id_for(&class)?)));
        let ids: Vec<(usize, BudgetId)> = ids.collect();
        let set = (!ids.is_empty()).then(|| {
            self.names.push(ids.iter().map(|(_, id)| Arc::clone(&id.name)).collect());
            let places = ids.into_iter().map(|(rule, id)| self.place(eval, (rule, id), now, patience)).collect();
            self.claim.sets.push(places);
            u32::try_from(self.claim.sets.len() - 1).unwrap_or(NONE)
        });
        self.sets.insert(class, set);
        set
    }

    fn place(&mut self, eval: &PolicyEval, (rule, id): (usize, BudgetId), now: Time, patience: Patience) -> u32 {
        if let Some(place) = self.places.get(&id) {
            return *place;
        }
        let budget = &self.policy[rule];
        let unavailable_after = match (budget.on_unavailable, eval.policy().mode) {
            // Nothing is kept back in shadow mode.
            (_, Mode::Shadow) => Some(Duration::ZERO),
            (WhenUnavailable::Wait, Mode::Enforce) if !patience.may_defer => None,
            (WhenUnavailable::Wait | WhenUnavailable::Suppress, Mode::Enforce) => patience.unavailable_after,
        };
        let place = u32::try_from(self.claim.budgets.len()).expect("a batch has fewer budgets than 2^32");
        let used = budget.used_by(id.clone(), &eval.policy().timezone, now);
        self.claim.budgets.push(BudgetUse { unavailable_after, ..used });
        self.rules.push(rule);
        self.places.insert(id, place);
        place
    }
}

impl BatchBudgets {
    /// What the intents need that no gate denies; `None` where they take from no budget.
    pub(crate) fn of<'b>(
        (eval, pressure, capacity): (&mut PolicyEval, Option<&BatchPressure>, Option<&BatchCapacity>),
        (records, decoded): (&'b impl Records, &'b [Decoded<'b>]),
        (now, judged_at): (Time, Duration),
        patience: Patience,
    ) -> Option<Self> {
        let policy = Arc::clone(eval.policy());
        let claim = Claim { judged_at, budgets: Vec::new(), sets: Vec::new(), wants: Vec::new() };
        let (places, sets) = (HashMap::default(), HashMap::default());
        let mut needs = Needs { policy: &policy.budgets, claim, rules: Vec::new(), names: Vec::new(), places, sets };
        let mut takes = vec![Takes { set: NONE, want: NONE, cost: 0 }; decoded.len()];
        for (index, decoded) in decoded.iter().enumerate() {
            let Ok(intent) = decoded else { continue };
            let class = intent.class();
            let Some(set) = needs.set(eval, class, now, patience) else { continue };
            (takes[index].set, takes[index].cost) = (set, intent.cost);
            if pressure.is_some_and(|pressure| pressure.denies(index))
                || capacity.is_some_and(|capacity| capacity.denies(index))
                || eval.denial(&facts(intent, None, &records.get(index))).is_some()
            {
                continue;
            }
            takes[index].want = u32::try_from(needs.claim.wants.len()).unwrap_or(NONE);
            needs.claim.wants.push(Want { set, cost: intent.cost });
        }
        let Needs { claim, rules, names, .. } = needs;
        let moved = vec![0; claim.budgets.len()];
        (!claim.sets.is_empty()).then(|| Self {
            claim: Arc::new(claim),
            rules,
            names,
            takes,
            answers: None,
            moved,
            now,
        })
    }

    pub(crate) fn claim(&self) -> Arc<Claim> {
        Arc::clone(&self.claim)
    }

    pub(crate) fn answer(&mut self, answers: Answers) {
        self.answers = Some(answers);
    }

    fn outcome(&self, record: usize) -> Option<(&Want, Outcome)> {
        let want = usize::try_from(self.takes[record].want).ok()?;
        let outcome = self.answers.as_ref()?.outcomes.get(want)?;
        Some((&self.claim.wants[want], *outcome))
    }

    /// What the gate makes of an intent that its budgets have been asked for.
    pub(crate) fn gate(&self, record: usize, gate: Gate, eval: &PolicyEval) -> Gate {
        match self.outcome(record) {
            None | Some((_, Outcome::Granted)) => gate,
            Some((_, Outcome::Denied(place))) => {
                Gate::Suppress { reason: GateReason::Budget(place), eligible_at: self.free_at(place) }
            }
            Some((_, Outcome::Unavailable(place))) => match (self.rule(place, eval).on_unavailable, eval.policy().mode)
            {
                (_, Mode::Shadow) => gate,
                (WhenUnavailable::Wait, Mode::Enforce) => {
                    Gate::Suppress { reason: GateReason::BudgetWaits, eligible_at: None }
                }
                (WhenUnavailable::Suppress, Mode::Enforce) => {
                    Gate::Suppress { reason: GateReason::BudgetUnavailable, eligible_at: None }
                }
            },
        }
    }

    fn rule<'e>(&self, place: u32, eval: &'e PolicyEval) -> &'e Budget {
        &eval.policy().budgets[self.rules[place as usize]]
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
    pub(crate) fn denying<'e>(&self, place: u32, eval: &'e PolicyEval) -> DenyingBudget<'e> {
        let Budget { name, limit, .. } = self.rule(place, eval);
        DenyingBudget { name, limit: *limit, used: self.spent(place).map_or(0, |spent| spent.used) }
    }

    /// The set of the budgets that a record takes from; `None` where from none.
    pub(crate) fn set_of(&self, record: usize) -> Option<u32> {
        Some(self.takes[record].set).filter(|set| *set != NONE)
    }

    /// The names of the budgets of a set.
    pub(crate) fn names(&self, set: u32) -> &[Arc<str>] {
        usize::try_from(set).ok().and_then(|set| self.names.get(set)).map_or(&[], Vec::as_slice)
    }

    /// The tokens of the batch that are not spent.
    pub(crate) fn unspent(&self, fates: Fates<'_>) -> Unspent {
        self.with_leases(self.back(fates))
    }

    /// How many of each budget of the claim these are.
    pub(super) fn back(&self, fates: Fates<'_>) -> Vec<u64> {
        let is_spent = |fate: Fate, place| fate.pays(self.now, || self.uncounted(place));
        self.tokens(|record| fates.get(record), |fate, place| !is_spent(fate, place))
    }

    /// The tokens of the batch that are not spent, where it is not decided yet: it claims again.
    pub(crate) fn unspent_so_far(&self, fates: Fates<'_>) -> Unspent {
        self.with_leases(self.tokens(|record| fates.get(record), |fate, _| !fate.is_recorded(self.now)))
    }

    /// What replays owe that were admitted before this batch and took no tokens: a budget or a gate denies them now. Nothing where
    /// their admission has left the window.
    pub(crate) fn owed(&self, fates: Fates<'_>) -> Vec<Owed> {
        let mut owed: BTreeMap<(u32, Time), u64> = BTreeMap::new();
        for (record, takes) in self.takes.iter().enumerate().filter(|(_, takes)| takes.set != NONE) {
            let Some(at) = fates.get(record).replayed_from().filter(|at| *at < self.now) else { continue };
            if matches!(self.outcome(record), Some((_, Outcome::Granted))) {
                continue;
            }
            for place in self.claim.sets[takes.set as usize].iter().filter(|place| self.start(**place) <= at) {
                *owed.entry((*place, at)).or_default() += u64::from(takes.cost);
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

    /// All tokens of the batch.
    pub(crate) fn granted(&self) -> Unspent {
        self.with_leases(self.tokens(|_| (), |(), _| true))
    }

    /// From when on approvals count in a budget of the claim.
    fn start(&self, place: u32) -> Time {
        self.claim.budgets[place as usize].span.start(self.now)
    }

    /// When an admission was before the count of a budget of the claim began, and counts in its window, by the clock of this batch; no
    /// time where it is not known when that was.
    fn uncounted(&self, place: u32) -> Range<Time> {
        let counted_for_ms = self.answers.as_ref().and_then(|answers| *answers.counted_for_ms.get(place as usize)?);
        self.start(place)..counted_for_ms.map_or(Time::MIN, |ms| self.now.plus(ms.saturating_neg()))
    }

    /// The tokens of these records from these budgets of the claim, without those that others have by now. The fate of a record is asked
    /// for once, not once per budget.
    fn tokens<F: Copy>(&self, fate_of: impl Fn(usize) -> F, of: impl Fn(F, u32) -> bool) -> Vec<u64> {
        let mut tokens = vec![0_u64; self.claim.budgets.len()];
        for record in 0..self.takes.len() {
            let Some((want, Outcome::Granted)) = self.outcome(record) else { continue };
            let fate = fate_of(record);
            for place in self.places(want).iter().filter(|place| of(fate, **place)) {
                tokens[*place as usize] += u64::from(want.cost);
            }
        }
        for (tokens, moved) in tokens.iter_mut().zip(&self.moved) {
            *tokens = tokens.saturating_sub(*moved);
        }
        tokens
    }

    /// Tokens of each budget of the claim, and where they go back to.
    fn with_leases(&self, tokens: Vec<u64>) -> Unspent {
        let leases = self.answers.iter().flat_map(|answers| &answers.leases);
        let budgets = self.claim.budgets.iter().zip(leases).zip(tokens);
        budgets
            .filter(|(_, tokens)| *tokens > 0)
            .filter_map(|((budget, lease), tokens)| Some((budget.id.clone(), (*lease)?, tokens)))
            .collect()
    }

    fn places(&self, want: &Want) -> &[u32] {
        usize::try_from(want.set).map_or(&[], |set| &self.claim.sets[set])
    }

    /// Counts what was taken and denied.
    pub(crate) fn count(&self, unspent: &Unspent, tally: &mut Tally) {
        let (mut taken, mut denied) = (vec![0_u64; self.claim.budgets.len()], vec![0_u64; self.claim.budgets.len()]);
        let outcomes = self.answers.iter().flat_map(|answers| &answers.outcomes);
        for (want, outcome) in self.claim.wants.iter().zip(outcomes) {
            match outcome {
                Outcome::Granted => {
                    for place in self.places(want) {
                        taken[*place as usize] += u64::from(want.cost);
                    }
                }
                Outcome::Denied(place) => denied[*place as usize] += u64::from(want.cost),
                Outcome::Unavailable(_) => {}
            }
        }
        // Those that have some are in the order of the claim.
        let mut unspent = unspent.iter().peekable();
        for (place, budget) in self.claim.budgets.iter().enumerate() {
            let back = unspent.next_if(|(id, ..)| *id == budget.id).map_or(0, |(.., tokens)| *tokens);
            tally.budget_tokens(&budget.id.name, [taken[place] - self.moved[place] - back, back, denied[place]]);
        }
    }
}
