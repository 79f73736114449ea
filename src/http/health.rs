//! Health and metrics: `/livez`, `/readyz`, `/metrics`.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};

use super::{
    Api,
    problem::{Always, Problem, ProblemDocument},
    status::Degradation,
};

/// What the endpoints ask of the worker.
pub trait Health: Send + Sync + 'static {
    /// Why the process cannot make progress, if so.
    fn stuck(&self) -> Result<(), String>;
    /// What it still waits for before it is ready, if anything.
    fn waiting(&self) -> Result<(), Vec<String>>;
    fn degraded(&self) -> Vec<Degradation>;
    fn metrics(&self) -> String;
}

impl Api {
    /// What the worker, which may have been asked to stop, still waits for before it is ready.
    pub(super) fn waiting(&self) -> Vec<String> {
        if self.draining.is_cancelled() {
            return vec!["this instance was asked to stop: ask another one".to_owned()];
        }
        self.sources.health.waiting().err().unwrap_or_default()
    }
}

/// The media type of what `/metrics` gives.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Whether the process can make progress
///
/// For a liveness probe: where it is not 200, start the process again.
#[utoipa::path(get, path = "/livez", tag = "health", operation_id = "livez", responses(
    (status = 200, description = "It can", body = String, content_type = "text/plain", example = "ok\n"),
    (status = 503, description = "It cannot; the detail has the reason", body = ProblemDocument, content_type = "application/problem+json"),
    Always,
))]
pub(super) async fn livez(State(api): State<Arc<Api>>) -> Response {
    match api.sources.health.stuck() {
        Ok(()) => "ok\n".into_response(),
        Err(why) => Problem::new(StatusCode::SERVICE_UNAVAILABLE, "stuck", why).into_response(),
    }
}

/// Whether this instance has started
///
/// For a readiness probe: every lane has been given its partitions (or none is left for it), segments and policy are loaded
/// and Redis has answered. The detail of a 503 says what is waited for. It is 503, too, once weir has been asked to stop: other
/// requests are answered for `http.drain` still. What all instances share, such as an unavailable shard, does not make them
/// unready: `/v1/status` lists it.
#[utoipa::path(get, path = "/readyz", tag = "health", operation_id = "readyz", responses(
    (status = 200, description = "Ready", body = String, content_type = "text/plain", example = "ready\n"),
    (status = 503, description = "Not ready; the detail lists what is missing", body = ProblemDocument, content_type = "application/problem+json"),
    Always,
))]
pub(super) async fn readyz(State(api): State<Arc<Api>>) -> Response {
    let waiting = api.waiting();
    if waiting.is_empty() {
        return "ready\n".into_response();
    }
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", waiting.join("; ")).into_response()
}

/// Every metric, for Prometheus
#[utoipa::path(get, path = "/metrics", tag = "health", operation_id = "metrics", responses(
    (status = 200, description = "The text format of OpenMetrics", body = String, content_type = "application/openmetrics-text"),
    Always,
))]
pub(super) async fn metrics(State(api): State<Arc<Api>>) -> Response {
    ([(header::CONTENT_TYPE, OPENMETRICS)], api.sources.health.metrics()).into_response()
}
