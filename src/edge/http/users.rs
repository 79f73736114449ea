//! What a user was sent and may be sent: `/v1/users/{id}`.

use std::sync::Arc;

use super::{
    Api,
    problem::{Always, Guarded, Problem},
};
use crate::{domain::intent::MAX_ID_BYTES, worker::inquiry::UserView};
use axum::{
    Json,
    extract::{Path, State, rejection::PathRejection},
};

/// What a user was sent, and what each cap stands at
#[utoipa::path(get, path = "/v1/users/{id}", tag = "users", operation_id = "user",
    params(("id" = String, Path, description = "The user id", min_length = 1, max_length = 256, example = "42")),
    security(("token" = []), ()),
    responses((status = 200, description = "Also for a user who was never sent anything", body = UserView), Guarded, Always),
)]
pub(super) async fn user(
    State(api): State<Arc<Api>>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Json<UserView>, Problem> {
    let Path(user_id) = path?;
    check_user_id(&user_id)?;
    let look_up = async { api.inquiries.user(&user_id).await.map_err(|error| Problem::of_store(&error)) };
    api.lookups.get(user_id.clone(), look_up).await.map(Json)
}

/// Whether an id is one that an intent could have.
pub(super) fn check_user_id(user_id: &str) -> Result<(), Problem> {
    if (1..=MAX_ID_BYTES).contains(&user_id.len()) {
        return Ok(());
    }
    Err(Problem::bad_request("user_id", format!("a user id has 1 to {MAX_ID_BYTES} bytes, this has {}", user_id.len())))
}
