//! A user's history and caps: `/v1/users/{id}`.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
};
use weir_core::intent::MAX_ID_BYTES;

use super::{
    Api,
    extract::{Checked, InPath, NoQuery},
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
    Checked(Path(user_id)): InPath<String>,
    _: NoQuery,
) -> Result<Json<UserView>, Problem> {
    check_user_id(&user_id)?;
    let look_up = async { api.sources.queries.user(&user_id).await.map_err(Problem::from) };
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
    Checked(Path(user_id)): InPath<String>,
    _: NoQuery,
) -> Result<Json<Forgotten>, Problem> {
    check_user_id(&user_id)?;
    let forgotten = api.sources.queries.forget(&user_id).await;
    // Who looks the user up after this answer must not get what a lookup found before it.
    api.lookups.forget(&user_id);
    Ok(Json(forgotten?))
}

/// Whether an id is one that an intent could have.
pub(super) fn check_user_id(user_id: &str) -> Result<(), Problem> {
    if (1..=MAX_ID_BYTES).contains(&user_id.len()) {
        return Ok(());
    }
    Err(Problem::bad_request("user_id", format!("a user id has 1 to {MAX_ID_BYTES} bytes, this has {}", user_id.len())))
}
