//! Reports of active users: `POST /v1/activity`.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Request, State},
};
use serde::Serialize;
use weir_core::{
    limit::pressure::{
        Pressure,
        activity::Minute,
        activity_report::{ActivityReport, ReportOutcome},
    },
    policy::Policy,
    ports::Clock as _,
};
use weir_worker::{
    clock::{ComparedClock, SystemClock},
    refresh::Refreshed,
};

use super::{
    Api,
    body::{content_type, read_body, uncompressed},
    extract::NoQuery,
    problem::{Always, Guarded, Problem, ProblemDocument},
};
use crate::metrics::Metrics;

/// Users who were active.
#[derive(utoipa::ToSchema)]
#[schema(as = ActivityReport, example = json!({"user_ids": [42, "anna"], "at": "2026-11-20T09:00:00Z"}))]
#[expect(dead_code, reason = "for the OpenAPI document")]
pub(super) struct Report {
    /// At most 10,000 user ids: strings of 1 to 256 bytes, or integers from 0 to 2^64-1.
    #[schema(max_items = 10_000)]
    user_ids: Vec<UserId>,
    /// When they were active: at most a minute ahead; without it, now. Reports older than the window have no effect.
    #[schema(format = DateTime)]
    at: Option<String>,
}

/// A user id.
#[derive(utoipa::ToSchema)]
#[schema(as = UserId)]
#[expect(dead_code, reason = "for the OpenAPI document")]
#[serde(untagged)]
pub(super) enum UserId {
    Number(u64),
    Text(String),
}

/// Reports active users
///
/// For `[pressure]` of the policy: they are active for its window, and count towards its maximum. The report is taken in memory; other
/// instances know of it within two seconds, unless this one is killed or frozen before. Safe to repeat.
#[utoipa::path(post, path = "/v1/activity", tag = "pressure", operation_id = "activity",
    request_body(content = Report, content_type = "application/json", description = "At most 10,000 users"),
    security(("token" = []), ()),
    responses(
        (status = 200, description = "How many were taken", body = ReportTaken),
        (status = 408, description = "The body did not come within `http.read_timeout`", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "The body is larger than `http.body_bytes`", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 415, description = "The body is of another media type, or compressed", body = ProblemDocument, content_type = "application/problem+json"),
        Guarded,
        Always,
    ),
)]
pub(super) async fn report(
    State(api): State<Arc<Api>>,
    _: NoQuery,
    request: Request,
) -> Result<Json<ReportTaken>, Problem> {
    let (head, body) = request.into_parts();
    content_type(&head.headers, &["application/json"])?;
    uncompressed(&head.headers)?;
    let body = read_body(&head.headers, body, api.options.body_bytes, api.options.read_timeout).await?;
    Ok(Json(api.sources.activity.take(&body)?))
}

/// Takes reports. They touch this process alone; the task of pressure shares them.
pub struct ActivityReports {
    pub policy: Arc<Refreshed<Policy>>,
    /// Where users are noted.
    pub pressure: Arc<Pressure>,
    pub clock: ComparedClock<SystemClock>,
    pub metrics: Arc<Metrics>,
}

/// What became of a report.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Taken)]
pub(super) struct ReportTaken {
    /// How many users of the list are active by it: all, or none where `at` is older than the window.
    #[schema(example = 2)]
    taken: usize,
}

impl ActivityReports {
    /// Takes the report of a request's body: all of it, or nothing.
    fn take(&self, body: &[u8]) -> Result<ReportTaken, Problem> {
        if self.policy.current().pressure.is_none() {
            let detail = "the policy in force has no [pressure]: it is not counted who is active";
            return Err(Problem::not_found("no_pressure", detail));
        }
        let now = self.clock.time_to_decide(&[])?;
        let report = ActivityReport::parse(body, now);
        let ActivityReport { users, at } =
            report.map_err(|letter| Problem::bad_request(letter.reason.as_str(), letter.message))?;
        let count = users.len();
        let outcome = self.pressure.note(users, Minute::from(at), Minute::from(now));
        self.metrics.activity_reported("http", outcome.as_str(), u64::try_from(count).unwrap_or(u64::MAX));
        match outcome {
            ReportOutcome::Noted => Ok(ReportTaken { taken: count }),
            ReportOutcome::Late => Ok(ReportTaken { taken: 0 }),
            ReportOutcome::NoPressure => {
                Err(Problem::not_now("not_read_yet", "who is active is being read; report it again", 1))
            }
        }
    }
}
