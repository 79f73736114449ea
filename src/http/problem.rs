//! Problem documents (RFC 9457): what every error is answered with.

use axum::{
    extract::rejection::{PathRejection, QueryRejection},
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use weir_core::{basis::clocks::WrongClock, ports::StoreError};

const MEDIA_TYPE: &str = "application/problem+json";
/// Seconds to wait where Redis is unavailable.
const AWAY_RETRY_S: u64 = 1;
/// Seconds to wait where a person has to act first.
const LOST_RETRY_S: u64 = 30;
/// Seconds to wait where this machine's clock is wrong.
const CLOCK_RETRY_S: u64 = 5;

#[derive(Debug, Clone)]
pub struct Problem {
    status: StatusCode,
    reason: &'static str,
    detail: String,
    header: Option<(HeaderName, HeaderValue)>,
}

/// A problem document (RFC 9457).
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Problem, example = json!({
    "type": "about:blank", "title": "Bad Request", "status": 400, "reason": "missing_field",
    "detail": "user_id is required and absent: looked for at /user_id"
}))]
pub(super) struct ProblemDocument<'a> {
    /// Always `about:blank`: the title is that of the status.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The status in words.
    title: &'a str,
    /// The status.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// What went wrong, in a word for programs.
    reason: &'static str,
    /// What went wrong, where, and what to do, for people.
    detail: &'a str,
}

impl Problem {
    /// A problem; `reason` is one word for programs, `detail` says what, where and what to do.
    pub fn new(status: StatusCode, reason: &'static str, detail: impl Into<String>) -> Self {
        Self { status, reason, detail: detail.into(), header: None }
    }

    pub(super) fn bad_request(reason: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, reason, detail)
    }

    /// The same, with a header that belongs to it.
    pub(super) fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.header = Some((name, value));
        self
    }

    /// The same, to be asked again after so many seconds.
    pub(super) fn retry_after(self, seconds: u64) -> Self {
        self.with(header::RETRY_AFTER, seconds.into())
    }

    pub(super) fn not_found(reason: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, reason, detail)
    }

    /// Not now; to be asked again after so many seconds.
    pub(super) fn not_now(reason: &'static str, detail: impl Into<String>, after_s: u64) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, reason, detail).retry_after(after_s)
    }

    /// An answer took longer than `http.timeout`.
    pub(super) fn too_slow() -> Self {
        let detail =
            "no answer within http.timeout; a decision may have been recorded: send it again, with the same id";
        Self::new(StatusCode::GATEWAY_TIMEOUT, "timeout", detail)
    }

    pub(super) fn bug() -> Self {
        let detail = "a bug in weir: its log has the panic; please report it";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "bug", detail)
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Temporary(message) | StoreError::NotRecorded(message) | StoreError::TooSlow(message) => {
                Self::not_now("store_away", format!("Redis does not answer: {message}. Ask again"), AWAY_RETRY_S)
            }
            StoreError::LostHistory { message, .. } => Self::not_now("history_lost", message, LOST_RETRY_S),
            StoreError::Fatal(message) => Self::not_now("store_refuses", message, LOST_RETRY_S),
        }
    }
}

impl From<WrongClock> for Problem {
    fn from(wrong: WrongClock) -> Self {
        Self::not_now("clock_wrong", wrong.to_string(), CLOCK_RETRY_S)
    }
}

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Self {
        Self::bad_request("path", format!("the path: {}", rejection.body_text()))
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Self {
        Self::bad_request("query", format!("the query: {}", rejection.body_text()))
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let title = self.status.canonical_reason().unwrap_or("Error");
        let (status, reason, detail) = (self.status.as_u16(), self.reason, self.detail.as_str());
        let document = ProblemDocument { kind: "about:blank", title, status, reason, detail };
        let body = serde_json::to_vec(&document).unwrap_or_default();
        let mut response = (self.status, [(header::CONTENT_TYPE, MEDIA_TYPE)], body).into_response();
        if let Some((name, value)) = self.header {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

/// What any request may be answered with, whatever it asks for.
#[derive(utoipa::IntoResponses)]
#[expect(dead_code, reason = "for the OpenAPI document")]
pub(super) enum Always<'a> {
    /// The request is not one that is understood; the detail says what of it.
    #[response(status = 400, content_type = "application/problem+json")]
    BadRequest(ProblemDocument<'a>),
    /// There is nothing of that name.
    #[response(status = 404, content_type = "application/problem+json")]
    NotFound(ProblemDocument<'a>),
    /// The path has no such method.
    #[response(status = 405, content_type = "application/problem+json",
        headers(("Allow" = String, description = "The methods that it has")))]
    MethodNotAllowed(ProblemDocument<'a>),
    /// The path and query are longer than 8 KiB.
    #[response(status = 414, content_type = "application/problem+json")]
    UriTooLong(ProblemDocument<'a>),
    /// More requests from this address than `http.rate` and `http.burst` allow.
    #[response(status = 429, content_type = "application/problem+json",
        headers(("Retry-After" = u64, description = "When to ask again, in seconds")))]
    TooManyRequests(ProblemDocument<'a>),
    /// The headers are more than 100, or longer than 16 KiB.
    #[response(status = 431, content_type = "application/problem+json")]
    HeadTooLarge(ProblemDocument<'a>),
    /// A bug in weir.
    #[response(status = 500, content_type = "application/problem+json")]
    Bug(ProblemDocument<'a>),
    /// Busy (`http.concurrency`), or Redis is unavailable, or the user's shard has lost its history, or this machine's clock is
    /// wrong.
    #[response(status = 503, content_type = "application/problem+json",
        headers(("Retry-After" = u64, description = "When to ask again, in seconds")))]
    Unavailable(ProblemDocument<'a>),
    /// No answer within `http.timeout`.
    #[response(status = 504, content_type = "application/problem+json")]
    Timeout(ProblemDocument<'a>),
}

/// What a request for a user's data may be answered with besides.
#[derive(utoipa::IntoResponses)]
#[expect(dead_code, reason = "for the OpenAPI document")]
pub(super) enum Guarded<'a> {
    /// `http.token` is set, and the request has not got it.
    #[response(status = 401, content_type = "application/problem+json",
        headers(("WWW-Authenticate" = String, description = "`Bearer`")))]
    Unauthorized(ProblemDocument<'a>),
    /// No `http.token` is set, and weir does not listen on a loopback address.
    #[response(status = 403, content_type = "application/problem+json")]
    Forbidden(ProblemDocument<'a>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_cannot_answer_is_told_with_when_to_ask_again() {
        let lost = StoreError::LostHistory { shards: vec![3], message: "its epoch is gone".to_owned() };
        for (error, reason, after) in [
            (StoreError::Temporary("no route".to_owned()), "store_away", "1"),
            (lost, "history_lost", "30"),
            (StoreError::Fatal("NOPERM".to_owned()), "store_refuses", "30"),
        ] {
            let problem = Problem::from(error);
            assert_eq!((problem.status.as_u16(), problem.reason), (503, reason));
            let response = problem.into_response();
            assert_eq!(response.headers()[header::RETRY_AFTER], after);
            assert_eq!(response.headers()[header::CONTENT_TYPE], MEDIA_TYPE);
        }
    }
}
