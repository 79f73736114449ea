//! How routes stand: `GET /v1/routes`.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};

use super::{
    Api,
    problem::{Always, Problem},
    users::NoParameters,
};
use crate::routes::RouteView;

/// The policy's routes: permits, drain rate, lag, waiting intents, expected wait, and why a route is throttled
///
/// As this instance knows, which looks at Kafka once a second. A route is absent until it has been looked at.
#[utoipa::path(get, path = "/v1/routes", tag = "routes", operation_id = "routes", responses(
    (status = 200, description = "All of them; none where the policy has none", body = Vec<RouteView>),
    Always,
))]
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    query: Result<Query<NoParameters>, QueryRejection>,
) -> Result<Json<Vec<RouteView>>, Problem> {
    let Query(NoParameters {}) = query?;
    Ok(Json(api.routes.look()))
}
