//! Deciding an intent by request: `POST /v1/decisions`.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Query, Request, State},
    http::StatusCode,
};
use serde::Deserialize;
use tokio::time::timeout;
use utoipa::IntoParams;
use weir_core::{intent::dead_letter::DeadLetterReason, ports::StoreError};

use super::{
    Api,
    body::{content_type, read_body, uncompressed},
    extract::Checked,
    openapi::{CloudEvent, Intent},
    problem::{Always, Guarded, Problem, ProblemDocument},
    queries::DecisionMode,
};
use crate::query::{Decision, QueryError, SingleRecord};

/// What an intent may come as.
const MEDIA_TYPES: [&str; 2] = ["application/json", "application/cloudevents+json"];

/// Options of a decision.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct How {
    /// `true`: report the decision without recording it.
    #[serde(default)]
    #[param(required = false, default = false)]
    dry_run: bool,
}

/// Decides an intent
///
/// By the same script, caps and history as the worker. An approved intent is recorded and counts; it is not published.
/// Sent again with the same id, it gets the answer that it had.
///
/// Fields are looked for where `[intent.fields]` says. `application/cloudevents+json` is an event in structured mode.
#[utoipa::path(post, path = "/v1/decisions", tag = "decisions", operation_id = "decide",
    params(How),
    request_body(description = "An intent, 1 MiB at most", content((Intent = "application/json"), (CloudEvent = "application/cloudevents+json"))),
    security(("token" = []), ()),
    responses(
        (status = 200, description = "What became of it", body = Decision),
        (status = 408, description = "The body did not come within `http.read_timeout`", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "The body is larger than `http.body_bytes` or 1 MiB", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 415, description = "The body is of another media type, or compressed", body = ProblemDocument, content_type = "application/problem+json"),
        Guarded,
        Always,
    ),
)]
pub(super) async fn decide(
    State(api): State<Arc<Api>>,
    Checked(Query(How { dry_run })): Checked<Query<How>>,
    request: Request,
) -> Result<Json<Decision>, Problem> {
    let (head, body) = request.into_parts();
    let content_type = content_type(&head.headers, &MEDIA_TYPES)?;
    uncompressed(&head.headers)?;
    let value = read_body(&head.headers, body, api.options.body_bytes, api.options.read_timeout).await?;
    let posted = SingleRecord { value: &value, content_type: Some(content_type) };
    let mode = if dry_run { DecisionMode::DryRun } else { DecisionMode::Record };
    // The time that the body took is the client's, and not counted.
    let deciding = timeout(api.options.timeout, api.sources.queries.decide(posted, mode));
    let decided = deciding.await.map_err(|_| Problem::too_slow())?;
    // Who looks the user up after this answer must not get what a lookup found before it.
    match (&decided, mode) {
        (_, DecisionMode::DryRun) => {}
        (Ok(decision), DecisionMode::Record) => api.lookups.forget(&decision.user_id),
        (Err(_), DecisionMode::Record) => api.lookups.forget_all(),
    }
    Ok(Json(decided?))
}

impl From<QueryError> for Problem {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::NotAnIntent(letter) => {
                let is_too_large = letter.reason == DeadLetterReason::TooLarge;
                let status = if is_too_large { StatusCode::PAYLOAD_TOO_LARGE } else { StatusCode::BAD_REQUEST };
                Self::new(status, letter.reason.as_str(), letter.message)
            }
            QueryError::Store(error) => error.into(),
            QueryError::Clock(wrong) => wrong.into(),
            QueryError::Closed(closed) => StoreError::Temporary(closed.to_string()).into(),
        }
    }
}
