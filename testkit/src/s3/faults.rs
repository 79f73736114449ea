//! A layer between clients and the S3: counts, faults, a log of writes, and conditional GETs.

use std::{future::Future, io, pin::Pin, sync::Arc};

use futures_util::stream::{self, StreamExt as _};
use http_body_util::{BodyExt, StreamBody};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Frame, Incoming},
    header::{ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH},
    service::Service,
};
use s3s::{Body, HttpError, StdError, service::S3Service};
use tokio::sync::watch;

use super::S3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Forbidden,
    NotFound,
    /// 503 SlowDown: what S3 says when it is asked too often.
    SlowDown,
    /// The headers and half of the body, then the connection is cut.
    CutBody,
    /// The headers and half of the body, then nothing, while the connection stays open.
    Stall,
}

impl Fault {
    /// Status and S3's name of it; `None` for what goes wrong later.
    fn refusal(self) -> Option<(StatusCode, &'static str)> {
        match self {
            Self::Forbidden => Some((StatusCode::FORBIDDEN, "AccessDenied")),
            Self::NotFound => Some((StatusCode::NOT_FOUND, "NoSuchKey")),
            Self::SlowDown => Some((StatusCode::SERVICE_UNAVAILABLE, "SlowDown")),
            Self::CutBody | Self::Stall => None,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// GETs of objects, conditional and failed ones included.
    pub gets: u64,
    /// GETs answered with 304, without a download.
    pub not_modified: u64,
    pub puts: u64,
}

/// How many writes are remembered.
const MAX_WRITES: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Faults(watch::Sender<State>);

#[derive(Debug, Default)]
struct State {
    left: u32,
    fault: Option<Fault>,
    good_writes: u32,
    write_fault: Option<Fault>,
    charges: bool,
    counts: Counts,
    writes: Vec<String>,
}

impl S3 {
    /// Lets the next `requests` GET and HEAD requests for objects fail this way; replaces what was left of the last
    /// fault.
    pub fn fail_next(&self, requests: u32, fault: Fault) {
        self.faults.0.send_modify(|state| (state.left, state.fault) = (requests, Some(fault)));
    }

    /// Lets PUT and POST requests for objects fail this way after so many good ones; `None` heals.
    pub fn fail_writes_after(&self, good: u32, fault: Option<Fault>) {
        self.faults.0.send_modify(|state| (state.good_writes, state.write_fault) = (good, fault));
    }

    /// Denies access to objects, from now on, to those that do not say that they pay for it.
    pub fn charge_requesters(&self) {
        self.faults.0.send_modify(|state| state.charges = true);
    }

    /// What was written or deleted so far, in order: `PUT key`.
    pub fn writes(&self) -> Vec<String> {
        self.faults.0.borrow().writes.clone()
    }

    pub fn counts(&self) -> Counts {
        self.faults.0.borrow().counts
    }
}

impl Faults {
    /// Whether the requester has to pay, and does not say so.
    fn is_unpaid(&self, headers: &HeaderMap) -> bool {
        self.0.borrow().charges && headers.get("x-amz-request-payer").is_none_or(|payer| payer != "requester")
    }

    /// Counts a request, and returns its fault.
    fn take(&self, method: &Method, key: &str) -> Option<Fault> {
        let mut taken = None;
        self.0.send_modify(|state| {
            state.counts.gets += u64::from(method == Method::GET);
            state.counts.puts += u64::from(method == Method::PUT);
            if ![Method::GET, Method::HEAD].contains(method) && state.writes.len() < MAX_WRITES {
                state.writes.push(format!("{method} {key}"));
            }
            if [Method::PUT, Method::POST].contains(method) && state.write_fault.is_some() {
                if state.good_writes == 0 {
                    taken = state.write_fault;
                }
                state.good_writes = state.good_writes.saturating_sub(1);
            }
            if state.left > 0 && [Method::GET, Method::HEAD].contains(method) {
                state.left -= 1;
                taken = state.fault;
            }
        });
        taken
    }

    fn count_not_modified(&self) {
        self.0.send_modify(|state| state.counts.not_modified += 1);
    }
}

/// The S3 behind its faults.
#[derive(Clone)]
pub(super) struct FaultyService {
    inner: S3Service,
    faults: Arc<Faults>,
}

impl FaultyService {
    pub(super) fn new(inner: S3Service, faults: Arc<Faults>) -> Self {
        Self { inner, faults }
    }
}

type Answer = Result<Response<Body>, HttpError>;

impl Service<Request<Incoming>> for FaultyService {
    type Response = Response<Body>;
    type Error = HttpError;
    type Future = Pin<Box<dyn Future<Output = Answer> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let Self { inner, faults } = self.clone();
        let request = request.map(Body::from);
        Box::pin(async move {
            // "/bucket" and "/bucket/" are about the bucket, "/bucket/key" about an object.
            let key = request.uri().path().trim_start_matches('/').split_once('/').map_or("", |(_, key)| key);
            if key.is_empty() {
                return inner.call(request).await;
            }
            if faults.is_unpaid(request.headers()) {
                return Ok(refusal(StatusCode::FORBIDDEN, "AccessDenied"));
            }
            let fault = faults.take(request.method(), key);
            if let Some((status, code)) = fault.and_then(Fault::refusal) {
                return Ok(refusal(status, code));
            }
            let is_get = request.method() == Method::GET;
            let known = request.headers().get(IF_NONE_MATCH).cloned();
            let response = inner.call(request).await?;
            // s3s-fs does not look at If-None-Match.
            if known.is_some_and(|known| is_unchanged(&known, response.headers())) {
                faults.count_not_modified();
                return Ok(not_modified(response.headers()));
            }
            match fault {
                Some(fault) if is_get => halved(response, fault).await,
                _ => Ok(response),
            }
        })
    }
}

fn refusal(status: StatusCode, code: &str) -> Response<Body> {
    let xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{code}</Code><Message>a fault</Message></Error>"
    );
    let mut response = Response::new(Body::from(xml));
    *response.status_mut() = status;
    response
}

fn is_unchanged(known: &HeaderValue, headers: &HeaderMap) -> bool {
    let (Ok(known), Some(Ok(tag))) = (known.to_str(), headers.get(ETAG).map(HeaderValue::to_str)) else {
        return false;
    };
    known == "*" || known.split(',').any(|one| one.trim() == tag)
}

fn not_modified(headers: &HeaderMap) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    if let Some(tag) = headers.get(ETAG) {
        response.headers_mut().insert(ETAG, tag.clone());
    }
    response
}

/// The same response, of whose body half of the announced length comes: then an error cuts the connection, or nothing comes, and the
/// client has to give up.
async fn halved(response: Response<Body>, fault: Fault) -> Answer {
    let (head, body) = response.into_parts();
    let whole = BodyExt::collect(body).await.map_err(HttpError::new)?.to_bytes();
    let mut parts = vec![Ok(Frame::data(whole.slice(..whole.len() / 2)))];
    if fault == Fault::CutBody {
        parts.push(Err(StdError::from(io::Error::new(io::ErrorKind::ConnectionReset, "cut by the fault layer"))));
    }
    let body = StreamBody::new(stream::iter(parts).chain(stream::pending()));
    Ok(Response::from_parts(head, Body::http_body_unsync(body)))
}
