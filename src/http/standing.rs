//! How limits that instances share stand: `GET /v1/budgets`, `/v1/pressure` and `/v1/routes`.

use std::sync::Arc;

use axum::{
    Json,
    extract::{
        Path, Query, State,
        rejection::{PathRejection, QueryRejection},
    },
    http::StatusCode,
};

use super::{
    Api,
    problem::{Always, Problem},
    users::NoParameters,
};
use crate::limits::{BudgetList, PressureFound, PressureView, RouteView};

/// When to ask again where the window of pressure is not read yet, in seconds.
const UNREAD_RETRY_S: u64 = 1;

type Parameters = Result<Query<NoParameters>, QueryRejection>;

/// The policy's budgets, with what is used and left of each
///
/// Over all instances, read from the ledger in Redis, which takes nothing, at most twice a second. Where a shard does not answer within a second, its
/// budgets are not `available` and have the figures that are known last.
#[utoipa::path(get, path = "/v1/budgets", tag = "budgets", operation_id = "budgets", responses(
    (status = 200, description = "All of them; none where the policy has none", body = BudgetList),
    Always,
))]
pub(super) async fn budgets(State(api): State<Arc<Api>>, query: Parameters) -> Result<Json<BudgetList>, Problem> {
    let Query(NoParameters {}) = query?;
    Ok(Json(api.limits.budgets.all().await))
}

/// One budget of the policy, as the list of all has it
///
/// With `each = "campaign"`, that of each campaign which this instance has decided for lately.
#[utoipa::path(get, path = "/v1/budgets/{budget}", tag = "budgets", operation_id = "budget",
    params(("budget" = String, Path, description = "Its name in the policy", example = "spring")),
    responses((status = 200, description = "How it stands", body = BudgetList), Always),
)]
pub(super) async fn budget(
    State(api): State<Arc<Api>>,
    path: Result<Path<String>, PathRejection>,
    query: Parameters,
) -> Result<Json<BudgetList>, Problem> {
    let (Path(name), Query(NoParameters {})) = (path?, query?);
    api.limits.budgets.named(&name).await.map(Json).ok_or_else(|| {
        let detail = "the policy in force has no budget of this name; GET /v1/budgets lists them";
        Problem::new(StatusCode::NOT_FOUND, "no_such_budget", detail)
    })
}

/// The active users, the maximum, and whether it is being enforced
///
/// As this instance knows, which syncs with the others once a second. 404 where the policy has no `[pressure]`, and 503 while
/// the users of the window are being read.
#[utoipa::path(get, path = "/v1/pressure", tag = "pressure", operation_id = "pressure", responses(
    (status = 200, description = "How pressure stands", body = PressureView),
    Always,
))]
pub(super) async fn pressure(State(api): State<Arc<Api>>, query: Parameters) -> Result<Json<PressureView>, Problem> {
    let Query(NoParameters {}) = query?;
    match api.limits.pressure.found() {
        PressureFound::Seen(view) => Ok(Json(*view)),
        PressureFound::NoRule => {
            let detail = "the policy in force has no [pressure]: any number of users may be active";
            Err(Problem::new(StatusCode::NOT_FOUND, "no_pressure", detail))
        }
        PressureFound::NotReadYet => {
            let detail = "the active users are being read from Redis; ask again. If this stays, the log says why";
            let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not_read_yet", detail);
            Err(problem.retry_after(UNREAD_RETRY_S))
        }
    }
}

/// The policy's routes: permits, drain rate, lag, waiting intents, expected wait, and why a route is throttled
///
/// As this instance knows, which looks at Kafka once a second. A route is absent until it has been looked at.
#[utoipa::path(get, path = "/v1/routes", tag = "routes", operation_id = "routes", responses(
    (status = 200, description = "All of them; none where the policy has none", body = Vec<RouteView>),
    Always,
))]
pub(super) async fn routes(State(api): State<Arc<Api>>, query: Parameters) -> Result<Json<Vec<RouteView>>, Problem> {
    let Query(NoParameters {}) = query?;
    Ok(Json(api.limits.routes.views()))
}
