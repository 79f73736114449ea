//! A user's history and caps: `/v1/users/{id}`.

use std::sync::Arc;

use axum::{
    Json,
    extract::{
        Path, Query, State,
        rejection::{PathRejection, QueryRejection},
    },
};
use serde::Deserialize;
use weir_core::intent::MAX_ID_BYTES;

use super::{
    Api,
    problem::{Always, Guarded, Problem},
};
use crate::query::{Forgotten, UserView};

/// What a user was sent, and what each cap stands at
#[utoipa::path(get, path = "/v1/users/{id}", tag = "users", operation_id = "user",
    params(("id" = String, Path, description = "The user id", min_length = 1, max_length = 256, example = "42")),
    security(("token" = []), ()),
    responses((status = 200, description = "Also for a user who was never sent anything", body = UserView), Guarded, Always),
)]
pub(super) async fn user(
    State(api): State<Arc<Api>>,
    path: Result<Path<String>, PathRejection>,
    query: Result<Query<NoParameters>, QueryRejection>,
) -> Result<Json<UserView>, Problem> {
    let (Path(user_id), Query(NoParameters {})) = (path?, query?);
    check_user_id(&user_id)?;
    let look_up = async { api.queries.user(&user_id).await.map_err(|error| Problem::of_store(&error)) };
    api.lookups.get(user_id.clone(), look_up).await.map(Json)
}

/// Delete a user's history
///
/// With `[pressure]`, a hash of the user id stays in Redis for its window, and at most for twice that and 6 minutes. Kafka keeps
/// the user's records until retention deletes them; until then weir rebuild brings the sends back.
#[utoipa::path(delete, path = "/v1/users/{id}", tag = "users", operation_id = "forget",
    params(("id" = String, Path, description = "The user id", min_length = 1, max_length = 256, example = "42")),
    security(("token" = []), ()),
    responses((status = 200, description = "Also for a user who was never sent anything", body = Forgotten), Guarded, Always),
)]
pub(super) async fn forget(
    State(api): State<Arc<Api>>,
    path: Result<Path<String>, PathRejection>,
    query: Result<Query<NoParameters>, QueryRejection>,
) -> Result<Json<Forgotten>, Problem> {
    let (Path(user_id), Query(NoParameters {})) = (path?, query?);
    check_user_id(&user_id)?;
    let forgotten = api.queries.forget(&user_id).await;
    // Who looks the user up after this answer must not get what a lookup found before it.
    api.lookups.forget(&user_id);
    forgotten.map(Json).map_err(|error| Problem::of_store(&error))
}

/// The parameters of what has none: one that is given was meant for something else, and is told.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoParameters {}

/// Whether an id is one that an intent could have.
pub(super) fn check_user_id(user_id: &str) -> Result<(), Problem> {
    if (1..=MAX_ID_BYTES).contains(&user_id.len()) {
        return Ok(());
    }
    Err(Problem::bad_request("user_id", format!("a user id has 1 to {MAX_ID_BYTES} bytes, this has {}", user_id.len())))
}
