//! How limits that instances share stand, for people: `GET /v1/budgets`, `/v1/pressure`, `/v1/routes`, `/v1/services`, `/v1/status`, metrics, the
//! page and `weir explain`; and what a policy says of them. Nothing here takes anything.

mod budgets;
mod kinds;
mod ledger;
mod pressure;
mod routes;
mod services;
mod view;

use std::{future::ready, pin::Pin, sync::Arc, time::Duration};

use serde::Serialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use weir_core::{intent::class::ClassNames, policy::Policy};

pub use self::{
    budgets::{BudgetList, BudgetsShown, budget_in_words, budgets_of},
    kinds::{Degraded, LimitKind},
    ledger::{LedgerPool, Looked, LooksAtLedger},
    pressure::{PressureFound, PressureShown, PressureView},
    routes::{RouteView, RoutesShown},
    services::{ServiceShare, ServicesShown},
    view::{LimitSpan, LimitView},
};
use crate::{http::Degradation, metrics::Metrics};

/// How often the tasks of budgets and services are asked how they stand.
const STATES_EVERY: Duration = Duration::from_secs(1);

/// The limits of a kind, as an instance shows them.
trait ShownLimits: Send + Sync {
    /// Those that are known.
    fn rows(&self) -> FindingRows<'_>;

    /// What does not work as it should.
    fn degraded(&self) -> Vec<Degradation>;

    /// Brings metrics up to date that are not counted as it happens.
    fn note(&self, _metrics: &Metrics) {}
}

/// Each in the shape of its endpoint; and how many more there are.
type FindingRows<'a> = Pin<Box<dyn Future<Output = (Vec<Value>, usize)> + Send + 'a>>;

fn found(views: impl IntoIterator<Item = impl Serialize>) -> FindingRows<'static> {
    let rows: Vec<Value> = views.into_iter().map(row).collect();
    Box::pin(ready((rows, 0)))
}

fn row(view: impl Serialize) -> Value {
    // Numbers, names and texts always are JSON.
    serde_json::to_value(view).unwrap_or_default()
}

/// Where limits are looked at: those of the policy, and services, which are limited by what their instances register.
pub struct LimitsDesk {
    /// Budgets, for their endpoints.
    pub budgets: BudgetsShown,
    /// Pressure, for its endpoint.
    pub pressure: PressureShown,
    /// Routes, for their endpoint.
    pub routes: RoutesShown,
    /// Services, for their endpoint.
    pub services: ServicesShown,
}

impl LimitsDesk {
    /// Finds out again and again what does not answer this process, until `stop`.
    pub fn keep_states_fresh(self: &Arc<Self>, stop: CancellationToken) {
        let desk = Arc::clone(self);
        tokio::spawn(stop.run_until_cancelled_owned(async move {
            loop {
                tokio::join!(desk.budgets.refresh_states(), desk.services.refresh_states());
                tokio::time::sleep(STATES_EVERY).await;
            }
        }));
    }

    /// All limits, in the order of the page.
    fn shown(&self) -> [&dyn ShownLimits; 4] {
        [&self.budgets, &self.pressure, &self.routes, &self.services]
    }

    /// Those that are known, each in the shape of its endpoint; and how many more budgets there are.
    pub async fn rows(&self) -> (Vec<Value>, usize) {
        let (mut rows, mut omitted) = (Vec::new(), 0);
        for limits in self.shown() {
            let (found, more) = limits.rows().await;
            rows.extend(found);
            omitted += more;
        }
        (rows, omitted)
    }

    /// What does not work as it should.
    #[must_use]
    pub fn degraded(&self) -> Vec<Degradation> {
        self.shown().into_iter().flat_map(|limits| limits.degraded()).collect()
    }

    /// Brings metrics up to date that are not counted as it happens.
    pub fn note(&self, metrics: &Metrics) {
        self.shown().into_iter().for_each(|limits| limits.note(metrics));
    }
}

/// What limits go by of an intent.
#[derive(Debug, Clone, Copy)]
pub struct LimitedIntent<'i> {
    pub class: ClassNames<'i>,
    /// The segment that its user is in.
    pub segment: Option<&'i str>,
}

/// What a policy says of the limits of a kind.
struct PolicyLimits {
    /// Each of them in a sentence or two.
    in_words: fn(&Policy) -> Vec<String>,
    /// Those that an intent takes from, where only running instances know how they stand.
    not_looked_at: fn(&Policy, &LimitedIntent<'_>) -> Vec<LimitView>,
}

/// A line for each kind of limit that a policy has, in the order in which people read of them.
const OF_POLICY: [PolicyLimits; 3] = [pressure::OF_POLICY, budgets::OF_POLICY, routes::OF_POLICY];

/// Each limit of a policy, in a sentence or two.
pub fn limits_in_words(policy: &Policy) -> impl Iterator<Item = String> {
    OF_POLICY.into_iter().flat_map(move |limits| (limits.in_words)(policy))
}

/// The limits that an intent takes from, but for budgets. Only running instances know how they stand.
#[must_use]
pub fn not_looked_at(policy: &Policy, intent: &LimitedIntent<'_>) -> Vec<LimitView> {
    OF_POLICY.into_iter().flat_map(|limits| (limits.not_looked_at)(policy, intent)).collect()
}
