//! Which path leads where, and what a request passes on its way.

use std::{sync::Arc, time::Instant};

use axum::{
    Router,
    error_handling::HandleErrorLayer,
    extract::{MatchedPath, Request, State},
    http::{HeaderValue, StatusCode, Uri, header},
    middleware::{Next, from_fn, from_fn_with_state},
    response::Response,
};
use tower::{ServiceBuilder, limit::GlobalConcurrencyLimitLayer, load_shed::LoadShedLayer};
use tower_http::{catch_panic::CatchPanicLayer, set_header::SetResponseHeaderLayer};
use utoipa::OpenApi as _;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    Api, activity, auth, decisions, health,
    limits::{self, Rate},
    openapi::{self, Base},
    page,
    problem::Problem,
    segments, services, standing, status, users,
};
use crate::{config::HttpSettings, metrics::Metrics};

/// All routes. A request passes, from the outside: measuring, panics, the size of its head, and, but for the probes (which have to be answered
/// under any load), rate, concurrency and time; then, for users' data, the token.
pub(super) fn router(api: Arc<Api>, options: &HttpSettings, metrics: Arc<Metrics>) -> Router {
    let probes = OpenApiRouter::new().routes(routes!(health::livez)).routes(routes!(health::readyz));
    let open = OpenApiRouter::new()
        .routes(routes!(health::metrics))
        .routes(routes!(openapi::openapi))
        .routes(routes!(status::status))
        .routes(routes!(standing::deferred))
        .routes(routes!(standing::budgets))
        .routes(routes!(standing::budget))
        .routes(routes!(standing::pressure))
        .routes(routes!(standing::routes))
        .routes(routes!(services::list))
        .routes(routes!(services::one))
        .routes(routes!(segments::list));
    let open = page::routes().into_iter().fold(open, |open, (path, route)| open.route(path, route));
    let guarded = OpenApiRouter::new()
        .routes(routes!(users::user, users::forget))
        .routes(routes!(segments::member))
        .routes(routes!(segments::members))
        .route_layer(from_fn_with_state(Arc::clone(&api), auth::guard));
    // With a body, whose time has a bound of its own.
    let posting = OpenApiRouter::new()
        .routes(routes!(decisions::decide))
        .routes(routes!(activity::report))
        .routes(routes!(services::register, services::deregister))
        .routes(routes!(services::admit))
        .routes(routes!(services::end))
        .route_layer(from_fn_with_state(Arc::clone(&api), auth::guard));
    let shed = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(limits::busy))
        .layer(LoadShedLayer::new())
        .layer(GlobalConcurrencyLimitLayer::new(options.concurrency));
    // The last layer is the outermost.
    let limited = open
        .merge(guarded)
        .layer(from_fn_with_state(options.timeout, limits::time))
        .merge(posting)
        .fallback(nothing)
        .layer(shed)
        .layer(from_fn_with_state(Rate::new(options), limits::rate));
    let header = |name, value| SetResponseHeaderLayer::if_not_present(name, HeaderValue::from_static(value));
    let all = OpenApiRouter::with_openapi(Base::openapi())
        .merge(limited)
        .merge(probes)
        .layer(header(header::CACHE_CONTROL, "no-store"))
        .layer(header(header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .layer(from_fn(limits::head))
        .layer(CatchPanicLayer::custom(limits::panicked))
        .layer(from_fn_with_state(metrics, measure));
    let (router, document) = all.split_for_parts();
    let _ = api.document.set(openapi::document(&document));
    router.method_not_allowed_fallback(not_so).with_state(api)
}

async fn nothing(uri: Uri) -> Problem {
    let detail = format!("there is nothing at {}; GET /openapi.json says what there is", uri.path());
    Problem::not_found("no_such_path", detail)
}

async fn not_so() -> Problem {
    let detail = "the path has no such method; the header Allow says which it has";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "no_such_method", detail)
}

/// Counts and times requests, by the route's template: a path would make as many series as there are users.
async fn measure(State(metrics): State<Arc<Metrics>>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let response = next.run(request).await;
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    metrics.http_request(route, response.status().as_u16(), began.elapsed());
    response
}
