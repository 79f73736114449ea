//! Counts and times requests, by the route's template (a path would make as many series as there are users).

use std::{sync::Arc, time::Instant};

use axum::{
    extract::{MatchedPath, Request, State},
    middleware::Next,
    response::Response,
};

use crate::metrics::Metrics;

/// The route of requests that match none.
const NO_ROUTE: &str = "none";

pub(super) async fn measure(State(metrics): State<Arc<Metrics>>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let response = next.run(request).await;
    let route = route.as_ref().map_or(NO_ROUTE, MatchedPath::as_str);
    metrics.http_request(route, response.status().as_u16(), began.elapsed());
    response
}
