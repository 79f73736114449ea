//! How limits that instances share stand, for people: `GET /v1/budgets`, `/v1/pressure`, `/v1/routes`, `/v1/status`, metrics, the page and
//! `weir explain`. Nothing here takes anything.

mod budgets;
mod ledger;
mod pressure;
mod routes;
mod view;

use std::{pin::Pin, sync::Arc, time::Duration};

use serde::Serialize;
use serde_json::Value;
use weir_core::{intent::class::ClassNames, limit::route::routes::Routes, policy::Policy};
use weir_worker::{pressure::PressureStatus, refresh::Refreshed};

pub use self::{
    budgets::{BudgetList, BudgetsShown, budgets_of},
    ledger::{LedgerPool, Looked, LooksAtLedger},
    pressure::{PressureFound, PressureShown, PressureView},
    routes::{RouteView, RoutesShown},
    view::{LimitKind, LimitSpan, LimitView},
};
use crate::{
    http::{Degradation, Degraded},
    metrics::Metrics,
};

/// What people and programs are shown of a kind of limit.
pub trait ShownLimit: Send + Sync {
    /// What is limited.
    fn kind(&self) -> LimitKind;

    /// Adds those of the policy in force that are known.
    fn add_to<'a>(&'a self, rows: &'a mut LimitRows) -> Adding<'a>;

    /// What does not work as it should: for how long, and what happens, why, and what to do.
    fn degraded(&self) -> Vec<(Duration, String)>;

    /// Brings metrics up to date that are not counted as it happens.
    fn note(&self, _: &Metrics) {}
}

/// See [`ShownLimit::add_to`].
pub type Adding<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// The limits of the policy in force, of all kinds: each in the shape of its endpoint.
#[derive(Debug, Default, Serialize)]
pub struct LimitRows {
    limits: Vec<Value>,
    /// How many more budgets there are.
    omitted: usize,
}

impl LimitRows {
    fn add(&mut self, view: &impl Serialize) {
        // Numbers, names and texts always are JSON.
        self.limits.push(serde_json::to_value(view).unwrap_or_default());
    }
}

/// Where limits are looked at.
pub struct LimitsDesk {
    /// Budgets, for their endpoints.
    pub budgets: Arc<BudgetsShown>,
    /// Pressure, for its endpoint.
    pub pressure: Arc<PressureShown>,
    /// Routes, for their endpoint.
    pub routes: Arc<RoutesShown>,
    /// Every kind that a policy has. Services are limited by what their instances register.
    pub kinds: Vec<Arc<dyn ShownLimit>>,
}

impl LimitsDesk {
    /// Of the policy in force, its budgets, and what the tasks of pressure and routes have found.
    #[must_use]
    pub fn new(
        policy: &Arc<Refreshed<Policy>>,
        budgets: BudgetsShown,
        pressure: PressureStatus,
        routes: Arc<Routes>,
    ) -> Self {
        let policy = || Arc::clone(policy);
        let budgets = Arc::new(budgets);
        let pressure = Arc::new(PressureShown { policy: policy(), status: pressure });
        let routes = Arc::new(RoutesShown { policy: policy(), routes });
        let kinds: Vec<Arc<dyn ShownLimit>> = vec![budgets.clone(), pressure.clone(), routes.clone()];
        Self { budgets, pressure, routes, kinds }
    }

    /// All of them, for the page.
    pub async fn rows(&self) -> LimitRows {
        let mut rows = LimitRows::default();
        for kind in &self.kinds {
            kind.add_to(&mut rows).await;
        }
        rows
    }

    /// What does not work as it should.
    #[must_use]
    pub fn degraded(&self) -> Vec<Degradation> {
        let of = |kind: &Arc<dyn ShownLimit>| {
            let what = Degraded::Limit(kind.kind());
            kind.degraded().into_iter().map(move |(lasts, message)| Degradation::lasting(what, lasts, message))
        };
        self.kinds.iter().flat_map(of).collect()
    }
}

/// The other limits that an intent of this class takes from. Only running instances know how they stand.
#[must_use]
pub fn not_looked_at(policy: &Policy, class: &ClassNames<'_>) -> Vec<LimitView> {
    let pressure = policy.pressure.as_ref().filter(|rule| rule.filter.matches(class.channel, class.category));
    let route = policy.route_of(class).map(|place| LimitView::of_route(&policy.routes[place]));
    pressure.map(LimitView::of_rule).into_iter().chain(route).collect()
}
