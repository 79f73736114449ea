//! What is degraded: `GET /v1/status`.

use std::{sync::Arc, time::Duration};

use axum::{Json, extract::State};
use serde::Serialize;
use utoipa::ToSchema;
use weir_core::{basis::time::Time, ports::Clock as _};
use weir_worker::clock::SystemClock;

use super::{
    Api,
    extract::NoQuery,
    problem::{Always, Problem},
};
pub use crate::limits::Degraded;

/// How this instance is, and what it finds degraded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Status {
    /// Whether `/readyz` is 200.
    pub ready: bool,
    /// What `/readyz` waits for.
    pub waiting: Vec<String>,
    /// What does not work as it should; most of it is shared by all instances, and does not make them unready.
    pub degraded: Vec<Degradation>,
}

/// One thing that does not work as it should.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(example = json!({
    "what": "shards_lost", "since": "2026-11-20T09:00:00.000Z", "shards": [41, 42],
    "message": "shards [41, 42] have lost their history: their intents wait; run weir rebuild"
}))]
pub struct Degradation {
    /// What.
    pub what: Degraded,
    /// Since when, as this instance knows.
    #[schema(value_type = String, format = DateTime)]
    pub since: Time,
    /// What happens, why, and what to do.
    pub message: String,
    /// The shards, for `shards_unavailable` and `shards_lost`; absent for others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Option<Vec<u16>>)]
    pub shards: Vec<u16>,
    /// The lane, for `lane`; absent for others, and for lanes of waiting intents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane: Option<usize>,
    /// The route whose waiting intents the lane reads, for `lane`; absent for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
}

impl Degradation {
    /// Something that has lasted for so long.
    #[must_use]
    pub fn lasting(what: Degraded, lasts: Duration, message: String) -> Self {
        let lasts = i64::try_from(lasts.as_millis()).unwrap_or(i64::MAX);
        let since = SystemClock.now().plus(lasts.saturating_neg());
        Self { what, since, message, shards: Vec::new(), lane: None, route: None }
    }
}

/// What is degraded
///
/// Always 200, with an empty `degraded` where everything works. Readiness (`/readyz`) is about this instance alone; an
/// unavailable shard, say, is degraded for all of them.
#[utoipa::path(get, path = "/v1/status", tag = "health", operation_id = "status", responses(
    (status = 200, description = "What is degraded, if anything", body = Status),
    Always,
))]
pub(super) async fn status(State(api): State<Arc<Api>>, _: NoQuery) -> Result<Json<Status>, Problem> {
    let waiting = api.waiting();
    Ok(Json(Status { ready: waiting.is_empty(), waiting, degraded: api.sources.health.degraded() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::LimitKind;

    #[test]
    fn the_metric_has_the_words_of_the_document() {
        for what in Degraded::ALL {
            assert_eq!(serde_json::to_value(what).unwrap(), what.as_str());
        }
        for kind in LimitKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
    }
}
