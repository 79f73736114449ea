//! How budgets stand, for people: `GET /v1/budgets`, the page, `/v1/status` and `weir explain`. Nothing here takes tokens.

mod ledger;
mod view;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;
use weir_core::{
    budget::{Budget, BudgetId},
    decide::Scope,
    lease::{BudgetState, BudgetUse},
    ledger::TakeAnswer,
    policy::Policy,
    ports::Clock as _,
    time::Time,
};
use weir_worker::{budgets::Budgets, clock::SystemClock, refresh::Refreshed};

pub use self::{
    ledger::{LedgerPool, Looked, LooksAtLedger},
    view::{BudgetList, BudgetView, CampaignBudgets, OneBudget},
};

/// The most budgets of one answer.
const MOST_ROWS: usize = 1_000;
/// How often it is looked which budgets are unavailable here.
const STATES_EVERY: Duration = Duration::from_secs(1);

/// Where budgets are looked at.
pub struct BudgetDesk {
    policy: Arc<Refreshed<Policy>>,
    budgets: Budgets,
    ledger: Arc<dyn LooksAtLedger>,
    /// What the ledger answered last, of the budgets that were looked at last.
    known: ArcSwap<HashMap<BudgetId, TakeAnswer>>,
}

/// One budget to be looked at: its place in the policy.
type Row = (usize, BudgetUse);

impl BudgetDesk {
    /// Of the policy in force, the leases of this process, and the ledger.
    #[must_use]
    pub fn new(policy: Arc<Refreshed<Policy>>, budgets: Budgets, ledger: Arc<dyn LooksAtLedger>) -> Self {
        Self { policy, budgets, ledger, known: ArcSwap::default() }
    }

    /// All budgets in the policy's order; of those per campaign, the campaigns that this process knows.
    pub async fn all(&self) -> BudgetList {
        let policy = self.policy.current();
        let (budgets, omitted) = self.look(&policy, |_| true).await;
        BudgetList { budgets, omitted }
    }

    /// The budget of this name; `None` where the policy has none.
    pub async fn one(&self, name: &str) -> Option<OneBudget> {
        let policy = self.policy.current();
        let budget = policy.budgets.iter().find(|budget| &*budget.name == name)?;
        let (mut found, omitted) = self.look(&policy, |budget| &*budget.name == name).await;
        match budget.scope {
            Scope::Every => found.pop().map(OneBudget::Every),
            Scope::SameCampaign => Some(OneBudget::Campaigns(CampaignBudgets::new(budget, found, omitted))),
        }
    }

    /// Looks at the budgets that are wanted. Those that were left out are counted.
    async fn look(&self, policy: &Policy, wanted: impl Fn(&Budget) -> bool) -> (Vec<BudgetView>, usize) {
        if !policy.budgets.iter().any(&wanted) {
            return (Vec::new(), 0);
        }
        let now = SystemClock.now();
        let states = self.budgets.states().await;
        let states: BTreeMap<&BudgetId, &BudgetState> = states.iter().map(|state| (&state.id, state)).collect();
        let mut rows: Vec<Row> = Vec::new();
        for (place, budget) in policy.budgets.iter().enumerate().filter(|(_, budget)| wanted(budget)) {
            rows.extend(ids(budget, &states).map(|id| (place, budget.used_by(id, &policy.timezone, now))));
        }
        let omitted = rows.len().saturating_sub(MOST_ROWS);
        rows.truncate(MOST_ROWS);
        let uses: Vec<BudgetUse> = rows.iter().map(|(_, used)| used.clone()).collect();
        let Looked { answers, error } = self.ledger.look(&uses, 1).await;
        if let Some(error) = error {
            tracing::debug!("budgets could not be looked at: {error}");
        }
        let known = self.remember(&uses, &answers);
        let view = |((place, used), answer): (&Row, Option<TakeAnswer>)| {
            let state = states.get(&used.id).copied();
            let held = state.map_or(0, |state| state.held);
            let view = match answer {
                Some(answer) => BudgetView::new(&policy.budgets[*place], &used.id, &answer, now),
                None => {
                    let before = known.get(&used.id).copied();
                    BudgetView::unavailable(&policy.budgets[*place], &used.id, before, state.and_then(|one| one.used))
                }
            };
            BudgetView { held: Some(held), ..view }
        };
        (rows.iter().zip(answers).map(view).collect(), omitted)
    }

    /// Remembers the answers, for when there are none; gives what is known now.
    fn remember(&self, uses: &[BudgetUse], answers: &[Option<TakeAnswer>]) -> Arc<HashMap<BudgetId, TakeAnswer>> {
        let before = self.known.load_full();
        let mut known: HashMap<BudgetId, TakeAnswer> =
            if before.len() > 2 * MOST_ROWS { HashMap::new() } else { (*before).clone() };
        for (used, answer) in uses.iter().zip(answers) {
            if let Some(answer) = answer {
                known.insert(used.id.clone(), *answer);
            }
        }
        let known = Arc::new(known);
        self.known.store(Arc::clone(&known));
        known
    }
}

/// A budget's own id, or those of the campaigns that this process knows.
fn ids(budget: &Budget, states: &BTreeMap<&BudgetId, &BudgetState>) -> impl Iterator<Item = BudgetId> {
    let every = BudgetId { name: Arc::clone(&budget.name), campaign: None };
    let campaigns = states.keys().filter(|id| id.name == budget.name && id.campaign.is_some());
    let ids: Vec<BudgetId> = match budget.scope {
        Scope::Every => vec![every],
        Scope::SameCampaign => campaigns.map(|id| (*id).clone()).collect(),
    };
    ids.into_iter()
}

/// The budgets whose ledger does not answer this process, and since when; written by who looks, read by `/v1/status`.
#[derive(Debug, Clone, Default)]
pub struct UnavailableBudgets(Arc<ArcSwap<Vec<(BudgetId, Duration)>>>);

impl UnavailableBudgets {
    /// Each with the time on the monotonic clock since when the ledger has not answered.
    #[must_use]
    pub fn current(&self) -> Arc<Vec<(BudgetId, Duration)>> {
        self.0.load_full()
    }

    /// Looks again and again, from now on until `stop`.
    pub fn keep_looking(&self, budgets: Budgets, ledger: Arc<dyn LooksAtLedger>, stop: CancellationToken) {
        let found = self.clone();
        tokio::spawn(stop.run_until_cancelled_owned(async move {
            loop {
                found.0.store(Arc::new(unavailable(&budgets, &*ledger).await));
                tokio::time::sleep(STATES_EVERY).await;
            }
        }));
    }
}

/// The budgets that a lease could not be taken of, and that do not answer a look either: the lease of one that nobody needs any
/// more is not asked for again. Nothing is asked while all leases are answered.
async fn unavailable(budgets: &Budgets, ledger: &dyn LooksAtLedger) -> Vec<(BudgetId, Duration)> {
    let states = budgets.states().await.into_iter();
    let unanswered = states.filter_map(|BudgetState { id, span, limit, unavailable_since, .. }| {
        Some((BudgetUse { id, limit, span, best_effort: true, unavailable_after: None }, unavailable_since?))
    });
    let (uses, since): (Vec<BudgetUse>, Vec<Duration>) = unanswered.take(MOST_ROWS).unzip();
    if uses.is_empty() {
        return Vec::new();
    }
    let looked = ledger.look(&uses, 1).await;
    let still = uses.into_iter().zip(since).zip(looked.answers).filter(|(_, answer)| answer.is_none());
    still.map(|((used, since), _)| (used.id, since)).collect()
}

/// How budgets stand that an intent would take from, as `weir explain` reports them.
#[must_use]
pub fn views_of(policy: &Policy, uses: &[BudgetUse], looked: &Looked, now: Time) -> Vec<BudgetView> {
    let view = |(used, answer): (&BudgetUse, &Option<TakeAnswer>)| {
        let budget = policy.budgets.iter().find(|budget| budget.name == used.id.name)?;
        Some(match answer {
            Some(answer) => BudgetView::new(budget, &used.id, answer, now),
            None => BudgetView::unavailable(budget, &used.id, None, None),
        })
    };
    uses.iter().zip(&looked.answers).filter_map(view).collect()
}
