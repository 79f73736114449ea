//! How limits that instances share stand, and which intents are deferred: `GET /v1/budgets`, `/v1/pressure`, `/v1/routes` and
//! `/v1/deferred`.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
};

use super::{
    Api,
    extract::{Checked, InPath, NoQuery},
    problem::{Always, Problem},
};
use crate::{
    deferred::DeferredIntents,
    limits::{BudgetList, PressureFound, PressureView, RouteView},
};

/// The policy's budgets, with what is used and left of each
///
/// Over all instances, read from the ledger in Redis, which takes nothing, at most twice a second. Where a shard does not answer within a second, its
/// budgets are not `available` and have the figures that are known last.
#[utoipa::path(get, path = "/v1/budgets", tag = "budgets", operation_id = "budgets", responses(
    (status = 200, description = "All of them; none where the policy has none", body = BudgetList),
    Always,
))]
pub(super) async fn budgets(State(api): State<Arc<Api>>, _: NoQuery) -> Result<Json<BudgetList>, Problem> {
    Ok(Json(api.sources.vitals.limits.budgets.all().await))
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
    Checked(Path(name)): InPath<String>,
    _: NoQuery,
) -> Result<Json<BudgetList>, Problem> {
    api.sources.vitals.limits.budgets.named(&name).await.map(Json).ok_or_else(|| {
        let detail = "the policy in force has no budget of this name; GET /v1/budgets lists them";
        Problem::not_found("no_such_budget", detail)
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
pub(super) async fn pressure(State(api): State<Arc<Api>>, _: NoQuery) -> Result<Json<PressureView>, Problem> {
    match api.sources.vitals.limits.pressure.found() {
        PressureFound::Seen(view) => Ok(Json(*view)),
        PressureFound::NoRule => {
            let detail = "the policy in force has no [pressure]: any number of users may be active";
            Err(Problem::not_found("no_pressure", detail))
        }
        PressureFound::NotReadYet => {
            let detail = "the active users are being read from Redis; ask again. If this stays, the log says why";
            Err(Problem::not_now("not_read_yet", detail, 1))
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
pub(super) async fn routes(State(api): State<Arc<Api>>, _: NoQuery) -> Result<Json<Vec<RouteView>>, Problem> {
    Ok(Json(api.sources.vitals.limits.routes.views()))
}

/// Deferred intents by the hour that they are due in
///
/// Of all instances, counted every 10 seconds. 404 where `kafka.deferred` is not set, and 503 before the first count.
#[utoipa::path(get, path = "/v1/deferred", tag = "health", operation_id = "deferred", responses(
    (status = 200, description = "How many intents are due in each coming hour", body = DeferredIntents),
    Always,
))]
pub(super) async fn deferred(State(api): State<Arc<Api>>, _: NoQuery) -> Result<Json<DeferredIntents>, Problem> {
    let Some(counted) = &api.sources.vitals.deferred else {
        let detail =
            "kafka.deferred is not set: no intent is deferred. Set it to the prefix of the topics of deferred intents";
        return Err(Problem::not_found("not_deferring", detail));
    };
    counted.load().as_deref().cloned().map(Json).ok_or_else(|| {
        let detail = "the deferred intents are not counted yet; ask again. If this stays, the log says why";
        Problem::not_now("not_counted_yet", detail, 5)
    })
}
