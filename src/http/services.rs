//! Services that ask before they work: `/v1/services`.

mod bodies;

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, Request, State},
    http::StatusCode,
};
use weir_oracle::{
    admissions::{Admission, AdmissionId, Denial, Ended, MAX_OUTSTANDING, MAX_SERVICES},
    service::{MAX_INSTANCES, Total},
};

use self::bodies::{
    AdmissionEnd, AdmissionGiven, AdmissionRequest, EndedAdmission, InstanceRegistered, InstanceRemoved,
    ServiceInstance, ServiceList, ServiceView, parse, service_name,
};
use super::{
    Api,
    body::{content_type, read_body, uncompressed},
    extract::{Checked, InPath, NoQuery},
    problem::{Always, Guarded, Problem, ProblemDocument},
};

/// The services that this instance gives admissions to
///
/// Those that asked it within the last minute, with its share of each.
#[utoipa::path(get, path = "/v1/services", tag = "services", operation_id = "services", responses(
    (status = 200, description = "By name", body = ServiceList),
    Always,
))]
pub(super) async fn list(State(api): State<Arc<Api>>, _: NoQuery) -> Result<Json<ServiceList>, Problem> {
    Ok(Json(ServiceList { services: api.sources.vitals.limits.services.shares().await }))
}

/// What the instances of a service have registered, and what is given of it
///
/// Over all instances of weir, read from Redis.
#[utoipa::path(get, path = "/v1/services/{service}", tag = "services", operation_id = "service",
    params(("service" = String, Path, description = "Its name", pattern = "^[A-Za-z0-9._-]{1,64}$", example = "hedwig-email")),
    responses((status = 200, description = "How it stands", body = ServiceView), Always),
)]
pub(super) async fn one(
    State(api): State<Arc<Api>>,
    Checked(Path(service)): InPath<String>,
    _: NoQuery,
) -> Result<Json<ServiceView>, Problem> {
    let service = service_name(&service)?;
    let seen = api.sources.services.look(&service).await?;
    seen.map(|seen| Json(ServiceView::new(&service, seen))).ok_or_else(no_such_service)
}

/// Register or renew an instance of a service
///
/// To be repeated every `interval_ms`: an instance that has not renewed for three intervals is removed. A service gives its first
/// admissions 4 seconds after it has become known.
#[utoipa::path(put, path = "/v1/services/{service}/instances/{instance}", tag = "services", operation_id = "register",
    params(
        ("service" = String, Path, description = "The service", pattern = "^[A-Za-z0-9._-]{1,64}$", example = "hedwig-email"),
        ("instance" = String, Path, description = "The instance", pattern = "^[A-Za-z0-9._-]{1,64}$", example = "hedwig-0"),
    ),
    request_body(content = ServiceInstance, content_type = "application/json", description = "What the instance can do"),
    security(("token" = []), ()),
    responses(
        (status = 200, description = "What all instances of the service have registered now", body = InstanceRegistered),
        (status = 408, description = "The body did not come within `http.read_timeout`", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 409, description = "The service has 1,000 other instances", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "The body is larger than `http.body_bytes`", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 415, description = "The body is of another media type, or compressed", body = ProblemDocument, content_type = "application/problem+json"),
        Guarded,
        Always,
    ),
)]
pub(super) async fn register(
    State(api): State<Arc<Api>>,
    Checked(Path((service, instance))): InPath<(String, String)>,
    _: NoQuery,
    request: Request,
) -> Result<Json<InstanceRegistered>, Problem> {
    let (service, instance) = (service_name(&service)?, service_name(&instance)?);
    let body = json_body(&api, request).await?;
    let registration = ServiceInstance::parse(&body)?;
    let registered = api.sources.services.register(&service, instance, Some(registration)).await?;
    if !registered.taken {
        let detail = format!("the service has {MAX_INSTANCES} other instances, which is the most");
        return Err(Problem::new(StatusCode::CONFLICT, "too_many_instances", detail));
    }
    let Total { instances, per_s, concurrency, .. } = registered.total;
    Ok(Json(InstanceRegistered { instances, capacity_per_s: per_s, concurrency }))
}

/// Remove an instance of a service
///
/// For an instance that ends: otherwise it counts until it has not renewed for three intervals.
#[utoipa::path(delete, path = "/v1/services/{service}/instances/{instance}", tag = "services", operation_id = "deregister",
    params(
        ("service" = String, Path, description = "The service", pattern = "^[A-Za-z0-9._-]{1,64}$", example = "hedwig-email"),
        ("instance" = String, Path, description = "The instance", pattern = "^[A-Za-z0-9._-]{1,64}$", example = "hedwig-1"),
    ),
    security(("token" = []), ()),
    responses((status = 200, description = "Whether it was registered", body = InstanceRemoved), Guarded, Always),
)]
pub(super) async fn deregister(
    State(api): State<Arc<Api>>,
    Checked(Path((service, instance))): InPath<(String, String)>,
    _: NoQuery,
) -> Result<Json<InstanceRemoved>, Problem> {
    let (service, instance) = (service_name(&service)?, service_name(&instance)?);
    Ok(Json(InstanceRemoved { removed: api.sources.services.register(&service, instance, None).await?.taken }))
}

/// Ask for an admission: whether one more may be worked on now
///
/// 503 where the service has no capacity left: ask again after Retry-After. An admission counts until it is ended, or for `timeout_ms`.
#[utoipa::path(post, path = "/v1/services/{service}/admissions", tag = "services", operation_id = "admit",
    params(("service" = String, Path, description = "The service", pattern = "^[A-Za-z0-9._-]{1,64}$", example = "hedwig-email")),
    request_body(content = AdmissionRequest, content_type = "application/json", description = "An empty object"),
    security(("token" = []), ()),
    responses(
        (status = 200, description = "It may", body = AdmissionGiven),
        (status = 408, description = "The body did not come within `http.read_timeout`", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "The body is larger than `http.body_bytes`", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 415, description = "The body is of another media type, or compressed", body = ProblemDocument, content_type = "application/problem+json"),
        Guarded,
        Always,
    ),
)]
pub(super) async fn admit(
    State(api): State<Arc<Api>>,
    Checked(Path(service)): InPath<String>,
    _: NoQuery,
    request: Request,
) -> Result<Json<AdmissionGiven>, Problem> {
    let service = service_name(&service)?;
    // Also without a body: a page in a browser can send that anywhere.
    content_type(request.headers(), &["application/json"])?;
    let body = json_body(&api, request).await?;
    let AdmissionRequest {} = parse(&body)?;
    match api.sources.services.ask(&service).await {
        Admission::Given { id, timeout_ms } => Ok(Json(AdmissionGiven { id: id.to_string(), timeout_ms })),
        Admission::Denied(denial, after_s) => Err(denied(denial, after_s)),
        Admission::NoInstances(after_s) => Err(no_instances(after_s)),
    }
}

/// End an admission
///
/// At any instance of weir, with or without a body. Safe to repeat.
#[utoipa::path(delete, path = "/v1/services/{service}/admissions/{admission}", tag = "services", operation_id = "end",
    params(
        ("service" = String, Path, description = "The service", pattern = "^[A-Za-z0-9._-]{1,64}$", example = "hedwig-email"),
        ("admission" = String, Path, description = "The id of the admission", pattern = "^[a-z0-9]{1,64}[.][0-9]{1,19}$", example = "5f0c.7"),
    ),
    request_body(content = Option<AdmissionEnd>, content_type = "application/json", description = "How long it took, and how it went"),
    security(("token" = []), ()),
    responses(
        (status = 200, description = "What became of it", body = EndedAdmission),
        (status = 408, description = "The body did not come within `http.read_timeout`", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 413, description = "The body is larger than `http.body_bytes`", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 415, description = "The body is of another media type, or compressed", body = ProblemDocument, content_type = "application/problem+json"),
        Guarded,
        Always,
    ),
)]
pub(super) async fn end(
    State(api): State<Arc<Api>>,
    Checked(Path((service, admission))): InPath<(String, String)>,
    _: NoQuery,
    request: Request,
) -> Result<Json<EndedAdmission>, Problem> {
    let service = service_name(&service)?;
    let id = AdmissionId::parse(&admission).ok_or_else(|| {
        Problem::bad_request("admission", "an admission's id is the one of the answer to the request for it")
    })?;
    let body = json_body(&api, request).await?;
    let took_ms = AdmissionEnd::parse(&body)?;
    let ended = match api.sources.services.end(&service, id, took_ms).await {
        Ended::Now => "now",
        Ended::HandedOn => "handed_on",
        Ended::Before => "before",
        Ended::Full => {
            let detail = "too many ends wait to be handed on to other instances; the admission ends by its timeout";
            return Err(Problem::not_now("ends_full", detail, 1));
        }
    };
    Ok(Json(EndedAdmission { ended }))
}

/// The body; one that is not empty has to be JSON.
async fn json_body(api: &Api, request: Request) -> Result<axum::body::Bytes, Problem> {
    let (head, body) = request.into_parts();
    let body = read_body(&head.headers, body, api.options.body_bytes, api.options.read_timeout).await?;
    if !body.is_empty() {
        content_type(&head.headers, &["application/json"])?;
        uncompressed(&head.headers)?;
    }
    Ok(body)
}

fn no_such_service() -> Problem {
    let detail =
        "no instance of the service is registered; PUT /v1/services/{service}/instances/{instance} registers one";
    Problem::not_found("no_such_service", detail)
}

/// Not 404, which clients take as permanent: the instances may be restarting, or not have started yet.
fn no_instances(after_s: u64) -> Problem {
    let detail = "no live instance of the service is registered; ask again after Retry-After";
    Problem::not_now("no_instances", detail, after_s)
}

fn denied(denial: Denial, after_s: u64) -> Problem {
    let detail = match denial {
        Denial::Rate => "the service's capacity per second is used; ask again after Retry-After".to_owned(),
        Denial::Concurrency => "the service's concurrency is used; ask again after Retry-After".to_owned(),
        Denial::Starting => "the service has become known within the last 4 s: it gives no admissions yet".to_owned(),
        Denial::NoLease => "Redis does not answer, and this instance has no share of the service; ask again".to_owned(),
        Denial::Full => {
            format!(
                "this instance has {MAX_OUTSTANDING} admissions that have not ended, or shares {MAX_SERVICES} services"
            )
        }
    };
    Problem::not_now(denial.as_str(), detail, after_s)
}
