//! How budgets stand, for people: `GET /v1/budgets`, the page, `/v1/status` and `weir explain`. Nothing here takes tokens.

mod ledger;
mod view;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use tokio::sync::Mutex;
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
/// How long a look answers everybody who asks: each takes a call of a script for each row.
const FRESH_FOR: Duration = Duration::from_millis(500);
/// How often it is looked which budgets are unavailable here.
const STATES_EVERY: Duration = Duration::from_secs(1);

/// Where budgets are looked at.
pub struct BudgetDesk {
    policy: Arc<Refreshed<Policy>>,
    budgets: Budgets,
    ledger: Arc<dyn LooksAtLedger>,
    /// What the ledger answered last, of the budgets that were looked at last.
    known: ArcSwap<HashMap<BudgetId, TakeAnswer>>,
    /// What was looked up lately, of all budgets (under no name) and of single ones. Who looks holds it: there is one look at a time,
    /// and equal questions have one answer.
    seen: Mutex<HashMap<Option<Arc<str>>, BudgetsSeen>>,
}

/// What a look found.
struct BudgetsSeen {
    policy: Arc<Policy>,
    at: Instant,
    rows: Vec<BudgetView>,
    omitted: usize,
}

/// One budget to be looked at: its place in the policy.
type BudgetPlace = (usize, BudgetUse);

impl BudgetDesk {
    /// Of the policy in force, the leases of this process, and the ledger.
    #[must_use]
    pub fn new(policy: Arc<Refreshed<Policy>>, budgets: Budgets, ledger: Arc<dyn LooksAtLedger>) -> Self {
        Self { policy, budgets, ledger, known: ArcSwap::default(), seen: Mutex::default() }
    }

    /// All budgets in the policy's order; of those per campaign, the campaigns that this process knows.
    pub async fn all(&self) -> BudgetList {
        let policy = self.policy.current();
        let (budgets, omitted) = self.seen(&policy, None).await;
        BudgetList { budgets, omitted }
    }

    /// The budget of this name; `None` where the policy has none.
    pub async fn one(&self, name: &str) -> Option<OneBudget> {
        let policy = self.policy.current();
        let budget = policy.budgets.iter().find(|budget| &*budget.name == name)?;
        let (mut found, omitted) = self.seen(&policy, Some(&budget.name)).await;
        match budget.scope {
            Scope::Every => found.pop().map(OneBudget::Every),
            Scope::SameCampaign => Some(OneBudget::Campaigns(CampaignBudgets::new(budget, found, omitted))),
        }
    }

    /// What was looked up lately of all budgets, or of the one of this name; else looks.
    async fn seen(&self, policy: &Arc<Policy>, name: Option<&Arc<str>>) -> (Vec<BudgetView>, usize) {
        let mut seen = self.seen.lock().await;
        seen.retain(|_, seen| Arc::ptr_eq(&seen.policy, policy) && seen.at.elapsed() < FRESH_FOR);
        if let Some(BudgetsSeen { rows, omitted, .. }) = seen.get(&name.cloned()) {
            return (rows.clone(), *omitted);
        }
        let (rows, omitted) = self.look(policy, |budget| name.is_none_or(|name| budget.name == *name)).await;
        let found = BudgetsSeen { policy: Arc::clone(policy), at: Instant::now(), rows: rows.clone(), omitted };
        seen.insert(name.cloned(), found);
        (rows, omitted)
    }

    /// Looks at the budgets that are wanted. Those that were left out are counted.
    async fn look(&self, policy: &Policy, wanted: impl Fn(&Budget) -> bool) -> (Vec<BudgetView>, usize) {
        if !policy.budgets.iter().any(&wanted) {
            return (Vec::new(), 0);
        }
        let now = SystemClock.now();
        let states = self.budgets.states().await;
        let states: BTreeMap<&BudgetId, &BudgetState> = states.iter().map(|state| (&state.id, state)).collect();
        let mut rows: Vec<BudgetPlace> = Vec::new();
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
        let view = |((place, used), answer): (&BudgetPlace, Option<TakeAnswer>)| {
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

#[cfg(test)]
mod tests {
    use std::{
        pin::Pin,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use tokio::task::JoinSet;
    use weir_core::{document::Format, ledger::EmbeddedLedger, policy_file::parse_policy};
    use weir_worker::budgets::BudgetKeeper;

    use super::*;
    use crate::metrics::Metrics;

    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl LooksAtLedger for Counting {
        fn look<'a>(&'a self, uses: &'a [BudgetUse], _: u64) -> Pin<Box<dyn Future<Output = Looked> + Send + 'a>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                tokio::task::yield_now().await;
                Looked { answers: vec![None; uses.len()], error: None }
            })
        }
    }

    fn policy(budgets: &[&str]) -> Arc<Policy> {
        let one = |name: &&str| format!("[[budgets]]\nname = {name:?}\nlimit = 10\ntotal = true\n");
        let budgets: String = budgets.iter().map(one).collect();
        let text = format!("version = \"1\"\n[default]\ncaps = \"unlimited\"\n{budgets}");
        Arc::new(parse_policy("policy.toml", &text, Format::Toml, 86_400_000).unwrap())
    }

    #[tokio::test]
    async fn however_many_ask_the_ledger_is_looked_at_now_and_then() {
        let embedded = EmbeddedLedger::new("test", || SystemClock.now());
        let (keeper, budgets) = BudgetKeeper::new(move || embedded.clone(), SystemClock, Arc::new(Metrics::default()));
        tokio::spawn(keeper.run());
        let (ledger, in_force) = (Arc::new(Counting::default()), Refreshed::new(policy(&["a", "b"])));
        let desk = Arc::new(BudgetDesk::new(in_force, budgets, Arc::<Counting>::clone(&ledger)));
        let begun = Instant::now();
        let mut asking = JoinSet::new();
        for _ in 0..100 {
            let desk = Arc::clone(&desk);
            asking.spawn(async move { desk.all().await });
        }
        for list in asking.join_all().await {
            assert_eq!((list.budgets.len(), list.omitted), (2, 0));
        }
        for _ in 0..100 {
            assert!(desk.one("a").await.is_some() && desk.one("none").await.is_none());
        }
        let most = 2 * (1 + begun.elapsed().as_millis() / FRESH_FOR.as_millis());
        let looks = ledger.0.load(Ordering::Relaxed);
        assert!((2..=most).contains(&(looks as u128)), "{looks} looks; at most {most}");
    }

    #[tokio::test]
    async fn another_policy_is_looked_up_at_once() {
        let embedded = EmbeddedLedger::new("test", || SystemClock.now());
        let (keeper, budgets) = BudgetKeeper::new(move || embedded.clone(), SystemClock, Arc::new(Metrics::default()));
        tokio::spawn(keeper.run());
        let desk = BudgetDesk::new(Refreshed::new(policy(&["a"])), budgets, Arc::new(Counting::default()));
        assert_eq!(desk.all().await.budgets.len(), 1);
        let (rows, _) = desk.seen(&policy(&["a", "b", "c"]), None).await;
        assert_eq!(rows.len(), 3);
    }
}
