//! How limits that instances share stand, for people: `GET /v1/budgets`, `/v1/pressure`, `/v1/routes`, `/v1/services`, `/v1/status`, metrics, the
//! page and `weir explain`. Nothing here takes anything.

mod budgets;
mod ledger;
mod pressure;
mod routes;
mod services;
mod view;

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use weir_core::{intent::class::ClassNames, limit::route::routes::Routes, policy::Policy};
use weir_oracle::desk::ServiceDesk;
use weir_worker::{pressure::PressureStatus, refresh::Refreshed};

pub use self::{
    budgets::{BudgetList, BudgetsShown, budgets_of},
    ledger::{LedgerPool, Looked, LooksAtLedger},
    pressure::{PressureFound, PressureShown, PressureView},
    routes::{RouteView, RoutesShown},
    services::ServiceShare,
    view::{LimitKind, LimitSpan, LimitView},
};
use crate::{
    http::{Degradation, Degraded},
    metrics::Metrics,
};

/// Where limits are looked at: those of the policy, and services, which are limited by what their instances register.
pub struct LimitsDesk {
    /// Budgets, for their endpoints.
    pub budgets: Arc<BudgetsShown>,
    /// Pressure, for its endpoint.
    pub pressure: PressureShown,
    /// Routes, for their endpoint.
    pub routes: RoutesShown,
    services: ServiceDesk,
}

impl LimitsDesk {
    /// Of the policy in force, its budgets, and what the tasks of pressure, routes and services have found.
    #[must_use]
    pub fn new(
        policy: &Arc<Refreshed<Policy>>,
        budgets: BudgetsShown,
        pressure: PressureStatus,
        routes: Arc<Routes>,
        services: ServiceDesk,
    ) -> Self {
        Self {
            budgets: Arc::new(budgets),
            pressure: PressureShown { policy: Arc::clone(policy), status: pressure },
            routes: RoutesShown { policy: Arc::clone(policy), routes },
            services,
        }
    }

    /// The services that this instance was asked for lately, with its share of each.
    pub async fn shares(&self) -> Vec<ServiceShare> {
        self.services.states().await.into_iter().map(ServiceShare::from).collect()
    }

    /// Those that are known, each in the shape of its endpoint; and how many more budgets there are.
    pub async fn rows(&self) -> (Vec<Value>, usize) {
        let BudgetList { budgets, omitted } = self.budgets.all().await;
        let pressure = match self.pressure.found() {
            PressureFound::Seen(view) => Some(row(&view)),
            PressureFound::NoRule | PressureFound::NotReadYet => None,
        };
        let (routes, services) = (self.routes.views(), self.shares().await);
        let limits = budgets.iter().map(row).chain(pressure).chain(routes.iter().map(row));
        (limits.chain(services.iter().map(row)).collect(), omitted)
    }

    /// What does not work as it should.
    #[must_use]
    pub fn degraded(&self) -> Vec<Degradation> {
        let of = |(what, (lasts, message))| Degradation::lasting(what, lasts, message);
        let budgets = self.budgets.degraded().map(|budgets| (Degraded::Budget, budgets));
        let pressure = self.pressure.degraded().map(|pressure| (Degraded::Pressure, pressure));
        let routes = self.routes.degraded().into_iter().map(|route| (Degraded::Route, route));
        budgets.into_iter().chain(pressure).chain(routes).map(of).collect()
    }

    /// Brings metrics up to date that are not counted as it happens.
    pub fn note(&self, metrics: &Metrics) {
        self.pressure.note(metrics);
        self.routes.note(metrics);
    }
}

fn row(view: &impl Serialize) -> Value {
    // Numbers, names and texts always are JSON.
    serde_json::to_value(view).unwrap_or_default()
}

/// The other limits that an intent of this class takes from. Only running instances know how they stand.
#[must_use]
pub fn not_looked_at(policy: &Policy, class: &ClassNames<'_>) -> Vec<LimitView> {
    let pressure = policy.pressure.as_ref().filter(|rule| rule.filter.matches(class.channel, class.category));
    let route = policy.route_of(class).map(|place| LimitView::of_route(&policy.routes[place]));
    pressure.map(LimitView::of_rule).into_iter().chain(route).collect()
}
