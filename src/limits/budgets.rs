//! Budgets: what may be approved, in costs. The ledger is asked how they stand.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use indicatif::HumanCount;
use serde::Serialize;
use tokio::sync::Mutex;
use utoipa::ToSchema;
use weir_core::{
    basis::time::Time,
    history::decide::Scope,
    limit::budget::{
        Budget, BudgetId, WhenUnavailable,
        lease::{BudgetState, BudgetUse},
        ledger::TakeAnswer,
    },
    policy::{Action, Policy},
    ports::Clock as _,
};
use weir_worker::{budgets::Budgets, clock::SystemClock, refresh::Refreshed};

use super::{Degraded, FindingRows, LimitView, Looked, LooksAtLedger, PolicyLimits, ShownLimits, row};
use crate::{
    http::Degradation,
    selections::{or_all, selection_in_words},
};

/// `weir explain` looks at budgets: see [`budgets_of`].
pub(super) const OF_POLICY: PolicyLimits = PolicyLimits {
    in_words: |policy| policy.budgets.iter().map(budget_in_words).collect(),
    not_looked_at: |_, _| Vec::new(),
};

/// The most budgets of one answer.
const MOST_ROWS: usize = 1_000;
/// How long a look at budgets answers everybody who asks: each takes a call of a script for each row.
const FRESH_FOR: Duration = Duration::from_millis(500);
/// The most budgets that are named in one message.
const MOST_NAMED: usize = 10;

pub struct BudgetsShown {
    policy: Arc<Refreshed<Policy>>,
    budgets: Budgets,
    ledger: Arc<dyn LooksAtLedger>,
    /// What was found lately of all budgets (under no name), and of single ones. Who looks holds it: there is one look at a time, and equal
    /// questions have one answer.
    found: Mutex<HashMap<Option<Arc<str>>, BudgetsSeen>>,
    /// The budgets whose ledger does not answer this process, and since when, by the monotonic clock.
    unavailable: ArcSwap<BTreeMap<BudgetId, Duration>>,
}

/// Budgets of the policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(example = json!({"budgets": [{
    "kind": "budget", "name": "spring", "total": true, "limit": 1_000_000, "used": 640_000, "left": 360_000, "held": 1_000,
    "leased": 3_000, "members": null, "free_at": null, "why": null, "available": true
}], "omitted": 0}))]
pub struct BudgetList {
    /// In the policy's order; of a budget per campaign, one for each campaign that this instance has decided for lately.
    pub budgets: Vec<LimitView>,
    /// How many more there are: an answer has 1,000 at most.
    pub omitted: usize,
}

/// What a look found.
struct BudgetsSeen {
    policy: Arc<Policy>,
    at: Instant,
    list: BudgetList,
}

impl BudgetsShown {
    /// Of the policy in force, the leases of this process, and the ledger.
    #[must_use]
    pub fn new(policy: Arc<Refreshed<Policy>>, budgets: Budgets, ledger: Arc<dyn LooksAtLedger>) -> Self {
        Self { policy, budgets, ledger, found: Mutex::default(), unavailable: ArcSwap::default() }
    }

    /// Finds out which budgets are unavailable.
    pub(super) async fn refresh_states(&self) {
        let states = self.budgets.states().await.into_iter();
        let unavailable = states.filter_map(|state| Some((state.id, state.unavailable_since?)));
        self.unavailable.store(Arc::new(unavailable.collect()));
    }

    /// All budgets in the policy's order; of those per campaign, the campaigns that this process knows.
    pub async fn all(&self) -> BudgetList {
        self.seen(&self.policy.current(), None).await
    }

    /// Those of this name; `None` where the policy has none.
    pub async fn named(&self, name: &str) -> Option<BudgetList> {
        let policy = self.policy.current();
        let budget = policy.budgets.iter().find(|budget| &*budget.name == name)?;
        Some(self.seen(&policy, Some(&budget.name)).await)
    }

    /// What was found lately of all budgets, or of the one of this name; else looks.
    async fn seen(&self, policy: &Arc<Policy>, name: Option<&Arc<str>>) -> BudgetList {
        let mut lists = self.found.lock().await;
        lists.retain(|_, seen| Arc::ptr_eq(&seen.policy, policy) && seen.at.elapsed() < FRESH_FOR);
        if let Some(BudgetsSeen { list, .. }) = lists.get(&name.cloned()) {
            return list.clone();
        }
        let list = self.look(policy, |budget| name.is_none_or(|name| budget.name == *name)).await;
        let seen = BudgetsSeen { policy: Arc::clone(policy), at: Instant::now(), list: list.clone() };
        lists.insert(name.cloned(), seen);
        list
    }

    /// Looks at the budgets that are wanted. Those that were left out are counted.
    async fn look(&self, policy: &Policy, wanted: impl Fn(&Budget) -> bool) -> BudgetList {
        if !policy.budgets.iter().any(&wanted) {
            return BudgetList { budgets: Vec::new(), omitted: 0 };
        }
        let now = SystemClock.now();
        let states = self.budgets.states().await;
        let states: BTreeMap<&BudgetId, &BudgetState> = states.iter().map(|state| (&state.id, state)).collect();
        let (mut budgets, mut uses): (Vec<&Budget>, Vec<BudgetUse>) = (Vec::new(), Vec::new());
        for budget in policy.budgets.iter().filter(|budget| wanted(budget)) {
            for id in ids(budget, &states) {
                budgets.push(budget);
                uses.push(budget.used_by(id, &policy.timezone, now));
            }
        }
        let omitted = uses.len().saturating_sub(MOST_ROWS);
        budgets.truncate(MOST_ROWS);
        uses.truncate(MOST_ROWS);
        let Looked { answers, error } = self.ledger.look(&uses, 1).await;
        if let Some(error) = error {
            tracing::debug!("budgets could not be looked at: {error}");
        }
        let view = |((budget, BudgetUse { id, .. }), answer): ((&Budget, BudgetUse), Option<TakeAnswer>)| {
            let state = states.get(&id).copied();
            let view = match answer {
                Some(answer) => LimitView::of_budget(budget, &id, &answer, now),
                None => LimitView::of_silent(budget, &id, state.and_then(|one| one.used)),
            };
            // The ledger does not know yet of tokens that have come back here since the last turn.
            let held = state.map_or(0, |state| state.held);
            LimitView { held: Some(held), leased: view.leased.map(|leased| leased.max(held)), ..view }
        };
        BudgetList { budgets: budgets.into_iter().zip(uses).zip(answers).map(view).collect(), omitted }
    }
}

impl ShownLimits for BudgetsShown {
    fn rows(&self) -> FindingRows<'_> {
        Box::pin(async move {
            let BudgetList { budgets, omitted } = self.all().await;
            (budgets.iter().map(row).collect::<Vec<_>>(), omitted)
        })
    }

    fn degraded(&self) -> Vec<Degradation> {
        let unavailable = self.unavailable.load();
        let Some(since) = unavailable.values().copied().min() else { return Vec::new() };
        let named: Vec<String> = unavailable.iter().take(MOST_NAMED).map(|(id, _)| id.to_string()).collect();
        let more = match unavailable.len().saturating_sub(MOST_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let message = format!(
            "the ledger in Redis does not answer for the budgets {}{more}: once this instance has spent its lease, their intents \
             wait, or follow on_unavailable",
            named.join(", ")
        );
        vec![Degradation::lasting(Degraded::Budget, SystemClock.passed().saturating_sub(since), message)]
    }
}

/// A budget's own id, or those of the campaigns that this process knows.
fn ids(budget: &Budget, states: &BTreeMap<&BudgetId, &BudgetState>) -> Vec<BudgetId> {
    let campaigns = states.keys().filter(|id| id.name == budget.name && id.campaign.is_some());
    match budget.scope {
        Scope::Every => vec![BudgetId { name: Arc::clone(&budget.name), campaign: None }],
        Scope::SameCampaign => campaigns.map(|id| (*id).clone()).collect(),
    }
}

pub fn budget_in_words(budget: &Budget) -> String {
    let Budget { name, selection, scope, limit, span, best_effort, when_spent, on_unavailable } = budget;
    let (amount, then) = match limit {
        0 => ("never any".to_owned(), ""),
        limit => (format!("at most {} {span}", HumanCount(*limit)), "then "),
    };
    let scope = match scope {
        Scope::Every => "",
        Scope::SameCampaign => " of each campaign",
    };
    let intents = or_all(selection_in_words(selection), "all intents");
    let action = match when_spent {
        Action::Suppress => "suppressed",
        Action::Defer => "deferred",
    };
    let last = if *best_effort { " Tokens are granted one by one." } else { "" };
    let unavailable = match on_unavailable {
        WhenUnavailable::Wait => "",
        WhenUnavailable::Suppress => {
            " While Redis is unavailable for longer than redis.unavailable_after, intents without a token are suppressed."
        }
    };
    format!("Budget {name}: {amount}{scope}, for {intents}; {then}intents are {action}.{last}{unavailable}")
}

/// How budgets stand that an intent would take from, as `weir explain` reports them.
#[must_use]
pub fn budgets_of(policy: &Policy, uses: &[BudgetUse], looked: &Looked, now: Time) -> Vec<LimitView> {
    let view = |(used, answer): (&BudgetUse, &Option<TakeAnswer>)| {
        let budget = policy.budgets.iter().find(|budget| budget.name == used.id.name)?;
        Some(match answer {
            Some(answer) => LimitView::of_budget(budget, &used.id, answer, now),
            None => LimitView::of_silent(budget, &used.id, None),
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
    use weir_core::{basis::document::Format, limit::budget::ledger::EmbeddedLedger, policy::file::parse_policy};
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

    /// What is shown of these budgets of a process that has decided nothing.
    fn shown(names: &[&str], ledger: Arc<Counting>) -> BudgetsShown {
        let embedded = EmbeddedLedger::new("test", || SystemClock.now());
        let (keeper, budgets) = BudgetKeeper::new(move || embedded.clone(), SystemClock, Arc::new(Metrics::default()));
        tokio::spawn(keeper.run());
        BudgetsShown::new(Refreshed::new(policy(names)), budgets, ledger)
    }

    #[tokio::test]
    async fn however_many_ask_the_ledger_is_looked_at_now_and_then() {
        let ledger = Arc::new(Counting::default());
        let desk = Arc::new(shown(&["a", "b"], Arc::<Counting>::clone(&ledger)));
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
            assert!(desk.named("a").await.is_some() && desk.named("none").await.is_none());
        }
        let most = 2 * (1 + begun.elapsed().as_millis() / FRESH_FOR.as_millis());
        let looks = ledger.0.load(Ordering::Relaxed);
        assert!((2..=most).contains(&(looks as u128)), "{looks} looks; at most {most}");
    }

    #[tokio::test]
    async fn another_policy_is_looked_up_at_once() {
        let desk = shown(&["a"], Arc::default());
        assert_eq!(desk.all().await.budgets.len(), 1);
        assert_eq!(desk.seen(&policy(&["a", "b", "c"]), None).await.budgets.len(), 3);
    }
}
