//! How budgets stand: `GET /v1/budgets`.

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
use crate::budgets::{BudgetList, OneBudget};

/// The policy's budgets, with what is used and left of each
///
/// Over all instances, read from the ledger in Redis, which takes nothing, at most twice a second. Where a shard does not answer within a second, its
/// budgets are not `available` and have the figures that are known last.
#[utoipa::path(get, path = "/v1/budgets", tag = "budgets", operation_id = "budgets", responses(
    (status = 200, description = "All of them; none where the policy has none", body = BudgetList),
    Always,
))]
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    query: Result<Query<NoParameters>, QueryRejection>,
) -> Result<Json<BudgetList>, Problem> {
    let Query(NoParameters {}) = query?;
    Ok(Json(api.budgets.all().await))
}

/// One budget of the policy
///
/// With `each = "campaign"`, that of each campaign which this instance has decided for lately.
#[utoipa::path(get, path = "/v1/budgets/{budget}", tag = "budgets", operation_id = "budget",
    params(("budget" = String, Path, description = "Its name in the policy", example = "spring")),
    responses((status = 200, description = "How it stands", body = OneBudget), Always),
)]
pub(super) async fn one(
    State(api): State<Arc<Api>>,
    path: Result<Path<String>, PathRejection>,
    query: Result<Query<NoParameters>, QueryRejection>,
) -> Result<Json<OneBudget>, Problem> {
    let (Path(name), Query(NoParameters {})) = (path?, query?);
    api.budgets.one(&name).await.map(Json).ok_or_else(|| {
        let detail = "the policy in force has no budget of this name; GET /v1/budgets lists them";
        Problem::new(StatusCode::NOT_FOUND, "no_such_budget", detail)
    })
}
