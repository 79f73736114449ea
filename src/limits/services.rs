//! Services that ask: admissions per second, as their instances have registered.

use serde::Serialize;
use utoipa::ToSchema;
use weir_oracle::{admissions::AdmissionsView, desk::ServiceDesk};

use super::{FindingRows, LimitView, ShownLimits, row};

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

/// The services that this instance was asked for lately, with its share of each.
pub(super) async fn shares(services: &ServiceDesk) -> Vec<ServiceShare> {
    services.states().await.into_iter().map(ServiceShare::from).collect()
}

impl ShownLimits for ServiceDesk {
    fn rows(&self) -> FindingRows<'_> {
        Box::pin(async move { (shares(self).await.iter().map(row).collect::<Vec<_>>(), 0) })
    }
}

impl From<AdmissionsView> for ServiceShare {
    fn from(view: AdmissionsView) -> Self {
        let AdmissionsView { service, total, members, per_s, concurrency, outstanding, trouble } = view;
        let shared = LimitView {
            held: Some(per_s),
            members,
            available: trouble.is_none(),
            why: trouble,
            ..LimitView::of_service(&service.to_string(), total.per_s)
        };
        Self { shared, concurrency: total.concurrency, share_concurrency: concurrency, outstanding }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use weir_oracle::service::{ServiceName, Total};

    use super::*;

    #[test]
    fn a_share_of_a_service_is_shown_in_the_words_of_all_limits() {
        let total = Total { instances: 2, per_s: 500, concurrency: 200, timeout_ms: 10_000 };
        let (service, trouble) = (ServiceName::new("email").unwrap(), Some("no answer".to_owned()));
        let members = Some(2);
        let view = AdmissionsView { service, total, members, per_s: 250, concurrency: 100, outstanding: 7, trouble };
        let expected = json!({
            "kind": "service", "name": "email", "per": "second", "limit": 500, "used": null, "left": null, "held": 250,
            "leased": null, "members": 2, "free_at": null, "why": "no answer", "available": false,
            "concurrency": 200, "share_concurrency": 100, "outstanding": 7
        });
        assert_eq!(serde_json::to_value(ServiceShare::from(view)).unwrap(), expected);
    }
}
