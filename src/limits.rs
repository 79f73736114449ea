//! How limits that instances share stand, for people: `GET /v1/budgets`, `/v1/pressure`, `/v1/routes`, the page and `weir explain`.
//! Nothing here takes anything.

mod ledger;
mod unavailable;
mod view;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Mutex;
use weir_core::{
    basis::time::Time,
    history::decide::Scope,
    intent::class::ClassNames,
    limit::budget::{
        Budget, BudgetId,
        lease::{BudgetState, BudgetUse},
        ledger::TakeAnswer,
    },
    policy::Policy,
    ports::Clock as _,
};
use weir_worker::{
    budgets::Budgets, clock::SystemClock, pressure::PressureStatus, refresh::Refreshed, routes::RoutesStatus,
};

pub use self::{
    ledger::{LedgerPool, Looked, LooksAtLedger},
    unavailable::UnavailableBudgets,
    view::{BudgetList, LimitKind, LimitSpan, LimitView, PressureView, RouteView},
};

/// The most budgets of one answer.
const MOST_ROWS: usize = 1_000;
/// How long a look at budgets answers everybody who asks: each takes a call of a script for each row.
const FRESH_FOR: Duration = Duration::from_millis(500);

/// Where limits are looked at. Of pressure and routes their tasks know how they stand; the ledger of budgets is asked.
pub struct LimitsDesk {
    policy: Arc<Refreshed<Policy>>,
    budgets: Budgets,
    ledger: Arc<dyn LooksAtLedger>,
    pressure: PressureStatus,
    routes: RoutesStatus,
    /// What was found lately. Who looks holds it: there is one look at a time, and equal questions have one answer.
    found: Mutex<BudgetsFound>,
}

#[derive(Default)]
struct BudgetsFound {
    /// Of all budgets (under no name), and of single ones.
    lists: HashMap<Option<Arc<str>>, BudgetsSeen>,
    /// What the ledger answered last, for when it does not.
    answers: HashMap<BudgetId, TakeAnswer>,
}

/// What a look found.
struct BudgetsSeen {
    policy: Arc<Policy>,
    at: Instant,
    list: BudgetList,
}

/// What is known of pressure.
#[derive(Debug, Clone, PartialEq)]
pub enum PressureFound {
    /// The policy in force has no `[pressure]`.
    NoRule,
    /// The policy has it, and the users of its window have not been read yet.
    NotReadYet,
    /// How it stands.
    Seen(Box<PressureView>),
}

impl LimitsDesk {
    /// Of the policy in force, the leases of this process, the ledger, and what the tasks of pressure and routes have found.
    #[must_use]
    pub fn new(
        policy: Arc<Refreshed<Policy>>,
        budgets: Budgets,
        ledger: Arc<dyn LooksAtLedger>,
        pressure: PressureStatus,
        routes: RoutesStatus,
    ) -> Self {
        Self { policy, budgets, ledger, pressure, routes, found: Mutex::default() }
    }

    /// How pressure stands.
    #[must_use]
    pub fn pressure(&self) -> PressureFound {
        if self.policy.current().pressure.is_none() {
            return PressureFound::NoRule;
        }
        match &*self.pressure.seen() {
            Some(seen) => PressureFound::Seen(Box::new(PressureView::new(seen, SystemClock.passed()))),
            None => PressureFound::NotReadYet,
        }
    }

    /// The routes that have been looked at, in the order of the policy.
    #[must_use]
    pub fn routes(&self) -> Vec<RouteView> {
        let (seen, policy) = (self.routes.seen(), self.policy.current());
        let of = |name: &Arc<str>| seen.iter().find(|(known, _)| known == name);
        let found = policy.routes.iter().filter_map(|route| of(&route.name));
        found.map(|(name, seen)| RouteView::new(name, seen)).collect()
    }

    /// All budgets in the policy's order; of those per campaign, the campaigns that this process knows.
    pub async fn budgets(&self) -> BudgetList {
        self.seen(&self.policy.current(), None).await
    }

    /// Those of this name; `None` where the policy has none.
    pub async fn budget(&self, name: &str) -> Option<BudgetList> {
        let policy = self.policy.current();
        let budget = policy.budgets.iter().find(|budget| &*budget.name == name)?;
        Some(self.seen(&policy, Some(&budget.name)).await)
    }

    /// What was found lately of all budgets, or of the one of this name; else looks.
    async fn seen(&self, policy: &Arc<Policy>, name: Option<&Arc<str>>) -> BudgetList {
        let mut found = self.found.lock().await;
        let BudgetsFound { lists, answers } = &mut *found;
        lists.retain(|_, seen| Arc::ptr_eq(&seen.policy, policy) && seen.at.elapsed() < FRESH_FOR);
        if let Some(BudgetsSeen { list, .. }) = lists.get(&name.cloned()) {
            return list.clone();
        }
        let list = self.look(policy, |budget| name.is_none_or(|name| budget.name == *name), answers).await;
        let seen = BudgetsSeen { policy: Arc::clone(policy), at: Instant::now(), list: list.clone() };
        lists.insert(name.cloned(), seen);
        list
    }

    /// Looks at the budgets that are wanted. Those that were left out are counted.
    async fn look(
        &self,
        policy: &Policy,
        wanted: impl Fn(&Budget) -> bool,
        known: &mut HashMap<BudgetId, TakeAnswer>,
    ) -> BudgetList {
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
        if known.len() > 2 * MOST_ROWS {
            known.clear();
        }
        let view = |((budget, BudgetUse { id, .. }), answer): ((&Budget, BudgetUse), Option<TakeAnswer>)| {
            let state = states.get(&id).copied();
            let view = match answer {
                Some(answer) => {
                    known.insert(id.clone(), answer);
                    LimitView::of_budget(budget, &id, &answer, now)
                }
                None => LimitView::of_silent(budget, &id, known.get(&id).copied(), state.and_then(|one| one.used)),
            };
            LimitView { held: Some(state.map_or(0, |state| state.held)), ..view }
        };
        BudgetList { budgets: budgets.into_iter().zip(uses).zip(answers).map(view).collect(), omitted }
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

/// How budgets stand that an intent would take from, as `weir explain` reports them.
#[must_use]
pub fn budgets_of(policy: &Policy, uses: &[BudgetUse], looked: &Looked, now: Time) -> Vec<LimitView> {
    let view = |(used, answer): (&BudgetUse, &Option<TakeAnswer>)| {
        let budget = policy.budgets.iter().find(|budget| budget.name == used.id.name)?;
        Some(match answer {
            Some(answer) => LimitView::of_budget(budget, &used.id, answer, now),
            None => LimitView::of_silent(budget, &used.id, None, None),
        })
    };
    uses.iter().zip(&looked.answers).filter_map(view).collect()
}

/// The other limits that an intent of this class takes from. Only running instances know how they stand.
#[must_use]
pub fn not_looked_at(policy: &Policy, class: &ClassNames<'_>) -> Vec<LimitView> {
    let pressure = policy.pressure.as_ref().filter(|rule| rule.filter.matches(class.channel, class.category));
    let route = policy.route_of(class).map(|place| LimitView::of_route(&policy.routes[place]));
    pressure.map(LimitView::of_rule).into_iter().chain(route).collect()
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

    fn desk(policy: Arc<Refreshed<Policy>>, budgets: Budgets, ledger: Arc<Counting>) -> LimitsDesk {
        LimitsDesk::new(policy, budgets, ledger, PressureStatus::default(), RoutesStatus::default())
    }

    #[tokio::test]
    async fn however_many_ask_the_ledger_is_looked_at_now_and_then() {
        let embedded = EmbeddedLedger::new("test", || SystemClock.now());
        let (keeper, budgets) = BudgetKeeper::new(move || embedded.clone(), SystemClock, Arc::new(Metrics::default()));
        tokio::spawn(keeper.run());
        let (ledger, in_force) = (Arc::new(Counting::default()), Refreshed::new(policy(&["a", "b"])));
        let desk = Arc::new(desk(in_force, budgets, Arc::<Counting>::clone(&ledger)));
        let begun = Instant::now();
        let mut asking = JoinSet::new();
        for _ in 0..100 {
            let desk = Arc::clone(&desk);
            asking.spawn(async move { desk.budgets().await });
        }
        for list in asking.join_all().await {
            assert_eq!((list.budgets.len(), list.omitted), (2, 0));
        }
        for _ in 0..100 {
            assert!(desk.budget("a").await.is_some() && desk.budget("none").await.is_none());
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
        let desk = desk(Refreshed::new(policy(&["a"])), budgets, Arc::new(Counting::default()));
        assert_eq!(desk.budgets().await.budgets.len(), 1);
        assert_eq!(desk.seen(&policy(&["a", "b", "c"]), None).await.budgets.len(), 3);
    }
}
