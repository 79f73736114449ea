//! Services that ask: admissions per second, as their instances have registered.

use std::sync::Arc;

use arc_swap::ArcSwap;
use serde::Serialize;
use utoipa::ToSchema;
use weir_core::{limit::share::Silence, ports::Clock as _};
use weir_oracle::{admissions::AdmissionsView, desk::ServiceDesk};
use weir_worker::clock::SystemClock;

use super::{Degraded, FindingRows, LimitView, ShownLimits, row};
use crate::http::Degradation;

/// What is shown of services: their task knows how they stand.
pub struct ServicesShown {
    desk: ServiceDesk,
    /// How they stood lately.
    seen: ArcSwap<Vec<AdmissionsView>>,
}

/// The share that an instance of weir has of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ServiceShare {
    /// `limit`: what is registered, per second. `held`: the share of this instance.
    #[serde(flatten)]
    pub shared: LimitView,
    /// The concurrency that is registered.
    pub concurrency: u64,
    /// The share of this instance of the concurrency.
    pub share_concurrency: u64,
    /// Admissions that it gave and that have not ended.
    pub outstanding: u64,
}

impl ServicesShown {
    #[must_use]
    pub fn new(desk: ServiceDesk) -> Self {
        Self { desk, seen: ArcSwap::default() }
    }

    /// Finds out how services stand.
    pub(super) async fn refresh_states(&self) {
        self.seen.store(Arc::new(self.desk.states().await));
    }

    /// The services that this instance was asked for lately, with its share of each.
    pub async fn shares(&self) -> Vec<ServiceShare> {
        self.desk.states().await.into_iter().map(ServiceShare::from).collect()
    }
}

impl ShownLimits for ServicesShown {
    fn rows(&self) -> FindingRows<'_> {
        Box::pin(async move { (self.shares().await.iter().map(row).collect::<Vec<_>>(), 0) })
    }

    fn degraded(&self) -> Vec<Degradation> {
        self.seen.load().iter().filter_map(degraded).collect()
    }
}

/// Turns without an answer are no trouble while the lease lasts: admissions are given.
fn degraded(view: &AdmissionsView) -> Option<Degradation> {
    let Silence { since, why } = view.silence.as_ref().filter(|_| view.members.is_none())?;
    let message = format!(
        "Redis does not answer for the service {} ({why}): this instance gives it no new admissions until Redis does",
        view.service
    );
    Some(Degradation::lasting(Degraded::Service, SystemClock.passed().saturating_sub(*since), message))
}

impl From<AdmissionsView> for ServiceShare {
    fn from(view: AdmissionsView) -> Self {
        let AdmissionsView { service, total, members, per_s, concurrency, outstanding, silence } = view;
        let shared = LimitView {
            held: Some(per_s),
            members,
            available: silence.is_none(),
            why: silence.map(|silence| silence.why),
            ..LimitView::of_service(&service.to_string(), total.per_s)
        };
        Self { shared, concurrency: total.concurrency, share_concurrency: concurrency, outstanding }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use weir_oracle::service::{ServiceName, Total};

    use super::*;

    fn view(members: Option<u64>, silence: Option<Silence>) -> AdmissionsView {
        let total = Total { instances: 2, per_s: 500, concurrency: 200, timeout_ms: 10_000 };
        let service = ServiceName::new("email").unwrap();
        AdmissionsView { service, total, members, per_s: 250, concurrency: 100, outstanding: 7, silence }
    }

    fn silence() -> Option<Silence> {
        Some(Silence { since: Duration::ZERO, why: "no answer".to_owned() })
    }

    #[test]
    fn a_share_of_a_service_is_shown_in_the_words_of_all_limits() {
        let expected = json!({
            "kind": "service", "name": "email", "per": "second", "limit": 500, "used": null, "left": null, "held": 250,
            "leased": null, "members": 2, "free_at": null, "why": "no answer", "available": false,
            "concurrency": 200, "share_concurrency": 100, "outstanding": 7
        });
        assert_eq!(serde_json::to_value(ServiceShare::from(view(Some(2), silence()))).unwrap(), expected);
    }

    #[test]
    fn a_service_is_degraded_once_its_lease_has_ended_and_redis_does_not_answer() {
        let cases = [(Some(2), None, false), (Some(2), silence(), false), (None, None, false), (None, silence(), true)];
        for (members, silence, expected) in cases {
            let found = degraded(&view(members, silence));
            let found = found.map(|found| (found.what, found.message.contains("email (no answer)")));
            assert_eq!(found, expected.then_some((Degraded::Service, true)), "{members:?}");
        }
    }
}
