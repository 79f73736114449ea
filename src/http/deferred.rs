//! Deferred intents by the hour that they are due in: `GET /v1/deferred`.

use std::sync::Arc;

use axum::{Json, extract::State};

use super::{
    Api,
    extract::NoQuery,
    problem::{Always, Problem},
};
use crate::deferred::DeferredIntents;

/// Deferred intents by the hour that they are due in
///
/// Of all instances, counted every 10 seconds. 404 where `kafka.deferred` is not set, and 503 before the first count.
#[utoipa::path(get, path = "/v1/deferred", tag = "health", operation_id = "deferred", responses(
    (status = 200, description = "How many intents are due in each coming hour", body = DeferredIntents),
    Always,
))]
pub(super) async fn deferred(State(api): State<Arc<Api>>, _: NoQuery) -> Result<Json<DeferredIntents>, Problem> {
    let Some(counted) = &api.deferred else {
        let detail =
            "kafka.deferred is not set: no intent is deferred. Set it to the prefix of the topics of deferred intents";
        return Err(Problem::not_found("not_deferring", detail));
    };
    counted.load().as_deref().cloned().map(Json).ok_or_else(|| {
        let detail = "the deferred intents are not counted yet; ask again. If this stays, the log says why";
        Problem::not_now("not_counted_yet", detail, 5)
    })
}
