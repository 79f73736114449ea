//! How pressure stands: `GET /v1/pressure`.

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
use crate::pressure::{PressureFound, PressureView};

/// When to ask again where the window is not read yet, in seconds.
const UNREAD_RETRY_S: u64 = 1;

/// The active users, the maximum, and whether it is being enforced
///
/// As this instance knows, which syncs with the others once a second. 404 where the policy has no `[pressure]`, and 503 while
/// the users of the window are being read.
#[utoipa::path(get, path = "/v1/pressure", tag = "pressure", operation_id = "pressure", responses(
    (status = 200, description = "How pressure stands", body = PressureView),
    Always,
))]
pub(super) async fn pressure(
    State(api): State<Arc<Api>>,
    query: Result<Query<NoParameters>, QueryRejection>,
) -> Result<Json<PressureView>, Problem> {
    let Query(NoParameters {}) = query?;
    match api.pressure.look() {
        PressureFound::Seen(view) => Ok(Json(view)),
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
