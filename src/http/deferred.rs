//! Deferred intents by the hour that they are due in: `GET /v1/deferred`.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
    http::StatusCode,
};

use super::{
    Api,
    problem::{Always, Problem},
    users::NoParameters,
};
use crate::deferred::DeferredIntents;

/// When to ask again where they are not counted yet, in seconds.
const UNKNOWN_RETRY_S: u64 = 5;

/// Deferred intents by the hour that they are due in
///
/// Of all instances, counted every 10 seconds. 404 where `kafka.deferred` is not set, and 503 before the first count.
#[utoipa::path(get, path = "/v1/deferred", tag = "health", operation_id = "deferred", responses(
    (status = 200, description = "How many intents are due in each coming hour", body = DeferredIntents),
    Always,
))]
pub(super) async fn deferred(
    State(api): State<Arc<Api>>,
    query: Result<Query<NoParameters>, QueryRejection>,
) -> Result<Json<DeferredIntents>, Problem> {
    let Query(NoParameters {}) = query?;
    let Some(counted) = &api.deferred else {
        let detail =
            "kafka.deferred is not set: no intent is deferred. Set it to the prefix of the topics of deferred intents";
        return Err(Problem::new(StatusCode::NOT_FOUND, "not_deferring", detail));
    };
    match counted.load().as_deref() {
        Some(counted) => Ok(Json(counted.clone())),
        None => {
            let detail = "the deferred intents are not counted yet; ask again. If this stays, the log says why";
            let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not_counted_yet", detail);
            Err(problem.retry_after(UNKNOWN_RETRY_S))
        }
    }
}
